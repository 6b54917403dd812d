//! OLMo 1: norms without weights.
//!
//! Source: Groeneveld et al. 2024, "OLMo: Accelerating the Science of Language Models", §2.1.

use candle_core::Tensor;
use candle_transformers::models::olmo::{Config, Model};

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
