//! Gemma 2: norms around both halves of a layer, scores and logits that are bent below a cap, windows in every second layer.
//!
//! candle divides scores by the root of the head's size, the configuration by another number's: queries are multiplied by
//! what is between them. It keeps one window for all layers, so the context ends where it begins to matter.
//!
//! Source: Gemma Team 2024, "Gemma 2: Improving Open Language Models at a Practical Size", §2.

use candle_core::Tensor;
use candle_transformers::models::gemma2::{Config, Model};

use super::super::config::Described;
use super::super::weights::Source;
use super::super::{Built, Network};

pub(in super::super) fn load(described: &mut Described, source: &Source) -> Built {
    described.default("attention_bias", false);
    described.only("attention_bias", false)?;
    described.only("tie_word_embeddings", true)?;
    described.require("query_pre_attn_scalar")?;
    described.end_at_window()?;
    let config = described.parse::<Config>()?;
    let between = (config.head_dim as f64 / config.query_pre_attn_scalar as f64).sqrt();
    let factor = |name: &str| if name.ends_with("q_proj.weight") { between } else { 1.0 };
    Ok(Box::new(Model::new(false, &config, source.scaled(&factor))?))
}

impl Network for Model {
    fn forward(&mut self, tokens: &Tensor, position: usize) -> candle_core::Result<Tensor> {
        Model::forward(self, tokens, position)
    }

    fn clear(&mut self) {
        self.clear_kv_cache();
    }
}
