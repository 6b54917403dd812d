//! Gemma 1 and CodeGemma: norms that add 1, scaled token vectors, heads of their own size.
//!
//! Source: Gemma Team 2024, "Gemma: Open Models Based on Gemini Research and Technology", §2.

use candle_core::Tensor;
use candle_transformers::models::gemma::{Config, Model};
use serde_json::Value;

use super::super::config::Described;
use super::super::weights::Source;
use super::super::{Built, Network};

pub(in super::super) fn load(described: &mut Described, source: &Source) -> Built {
    described.default("attention_bias", false);
    described.only("tie_word_embeddings", true)?;
    // Early files name the exact function, which these models were not trained with: transformers takes the other one.
    described.set("hidden_act", Value::Null);
    described.default("hidden_activation", "gelu_pytorch_tanh");
    Ok(Box::new(Model::new(false, &described.parse::<Config>()?, source.builder())?))
}

impl Network for Model {
    fn forward(&mut self, tokens: &Tensor, position: usize) -> candle_core::Result<Tensor> {
        Model::forward(self, tokens, position)
    }

    fn clear(&mut self) {
        self.clear_kv_cache();
    }
}
