//! StarCoder2: layer norms and biases, a feed-forward without a gate, token vectors that are the output projection too.
//!
//! Source: Lozhkov et al. 2024, "StarCoder 2 and The Stack v2", §6.

use candle_core::Tensor;
use candle_transformers::models::starcoder2::{Config, Model};

use super::super::config::Described;
use super::super::weights::Source;
use super::super::{Built, Network};

pub(in super::super) fn load(described: &mut Described, source: &Source) -> Built {
    // candle ties the two whatever is said.
    described.only("tie_word_embeddings", true)?;
    described.only("mlp_type", "default")?;
    described.only("norm_type", "layer_norm")?;
    described.end_at_window()?;
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
