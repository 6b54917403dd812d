//! Granite 3: a Llama with four factors: on token vectors, on scores, on what each half of a layer adds, on logits.
//!
//! candle knows none of them. All four are factors of a product with weights, so they are multiplied into these.
//!
//! Source: Granite Team 2024, "Granite 3.0 Language Models", §2; `modeling_granite.py` of transformers.

use candle_core::{DType, Device, Tensor};
use candle_transformers::models::granite::{Cache, Granite, GraniteConfig};

use super::super::config::Described;
use super::super::weights::Source;
use super::super::{Built, Network};

pub(in super::super) fn load(described: &mut Described, source: &Source) -> Built {
    described.only("hidden_act", "silu")?;
    described.require("rope_theta")?;
    let stated = |key: &str, default: f64| Ok::<f64, crate::Error>(described.number(key)?.unwrap_or(default));
    let (embedding, residual) = (stated("embedding_multiplier", 1.0)?, stated("residual_multiplier", 1.0)?);
    let logits = stated("logits_scaling", 1.0)?;
    let scores = stated("attention_multiplier", 1.0)? * (described.geometry.head_dim as f64).sqrt();
    let factor = |name: &str| match name {
        "model.embed_tokens.weight" => embedding,
        "lm_head.weight" => logits.recip(),
        name if name.ends_with("q_proj.weight") => scores,
        name if name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight") => residual,
        _ => 1.0,
    };
    let config = described.parse::<GraniteConfig>()?.into_config(false);
    let cache = Cache::new(true, DType::F32, &config, &Device::Cpu)?;
    let model = Granite::load(source.scaled(&factor), &config)?;
    Ok(Box::new(Sequence { model, empty: cache.clone(), cache }))
}

/// The model, and the cache that candle keeps beside it.
struct Sequence {
    model: Granite,
    cache: Cache,
    empty: Cache,
}

impl Network for Sequence {
    fn forward(&mut self, tokens: &Tensor, position: usize) -> candle_core::Result<Tensor> {
        self.model.forward(tokens, position, &mut self.cache)
    }

    fn clear(&mut self) {
        self.cache = self.empty.clone();
    }
}
