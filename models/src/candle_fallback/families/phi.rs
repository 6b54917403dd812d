//! Phi-1, Phi-1.5 and Phi-2: attention and feed-forward side by side, partly rotated heads.
//!
//! Source: Li et al. 2023, "Textbooks Are All You Need II", §2.1.

use candle_core::Tensor;
use candle_transformers::models::phi::{Config, Model};

use super::super::config::Described;
use super::super::weights::Source;
use super::super::{Built, Network};

pub(in super::super) fn load(described: &mut Described, source: &Source) -> Built {
    described.default("tie_word_embeddings", false);
    described.default("qk_layernorm", false);
    described.require("partial_rotary_factor")?;
    // candle normalises all heads at once.
    described.only("qk_layernorm", false)?;
    Ok(Box::new(Model::new(&described.parse::<Config>()?, source.builder())?))
}

impl Network for Model {
    /// It knows its position by its cache.
    fn forward(&mut self, tokens: &Tensor, _: usize) -> candle_core::Result<Tensor> {
        Model::forward(self, tokens)
    }

    fn clear(&mut self) {
        self.clear_kv_cache();
    }
}
