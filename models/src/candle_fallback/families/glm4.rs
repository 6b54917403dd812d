//! GLM-4 as published in 2025 (`Glm4ForCausalLM`): norms around both halves of a layer, partly rotated heads in pairs.
//!
//! Source: Team GLM 2024, "ChatGLM: A Family of Large Language Models", §2; `modeling_glm4.py` of transformers.

use candle_core::Tensor;
use candle_transformers::models::glm4_new::{Config, ModelForCausalLM};

use super::super::config::Described;
use super::super::weights::Source;
use super::super::{Built, Network};

pub(in super::super) fn load(described: &mut Described, source: &Source) -> Built {
    described.default("tie_word_embeddings", false);
    // Half of a head where nothing is said, in one program; all of it in another.
    described.require("partial_rotary_factor")?;
    Ok(Box::new(ModelForCausalLM::new(&described.parse::<Config>()?, source.builder())?))
}

impl Network for ModelForCausalLM {
    fn forward(&mut self, tokens: &Tensor, position: usize) -> candle_core::Result<Tensor> {
        ModelForCausalLM::forward(self, tokens, position)
    }

    fn clear(&mut self) {
        self.clear_kv_cache();
    }
}
