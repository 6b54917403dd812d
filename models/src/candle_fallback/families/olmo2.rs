//! OLMo 2: norms behind both halves of a layer, and over all heads of queries and keys.
//!
//! Source: OLMo Team 2025, "2 OLMo 2 Furious", §2.1.

use candle_core::Tensor;
use candle_transformers::models::olmo2::{Config, Model};

use super::super::config::Described;
use super::super::weights::Source;
use super::super::{Built, Network};

pub(in super::super) fn load(described: &mut Described, source: &Source) -> Built {
    described.default("tie_word_embeddings", false);
    described.default("attention_bias", false);
    Ok(Box::new(Model::new(&described.parse::<Config>()?, source.builder())?))
}

impl Network for Model {
    fn forward(&mut self, tokens: &Tensor, position: usize) -> candle_core::Result<Tensor> {
        Model::forward(self, tokens, position)
    }

    fn clear(&mut self) {
        self.clear_kv_cache();
    }
}
