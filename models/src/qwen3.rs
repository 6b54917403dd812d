//! Qwen3, the dense ones: a Llama whose query and key heads are normalised before they are rotated.
//!
//! Source: Yang et al. 2025, "Qwen3 Technical Report", §2.

use lifelong_kernels::Device;
use lifelong_kernels::ops::rope::RopeStyle;

use crate::architecture::{Decoder, Encoder};
use crate::causal_encoder::CausalEncoder;
use crate::checkpoint::Checkpoint;
use crate::config::{DecoderConfig, Family, Gate};
use crate::error::Result;
use crate::pre_norm::PreNorm;
use crate::qwen2;

/// Defaults of `Qwen3Config` in transformers.
pub static FAMILY: Family = Family {
    name: "qwen3",
    defaults: &[("max_position_embeddings", 32_768), ("num_key_value_heads", 32), ("head_dim", 128)],
    tied: false,
    norm_epsilon: 1e-6,
    rope_base: 10_000.0,
    gguf_rope: RopeStyle::Halves,
    gate: Gate::Silu,
};

/// Builds a Qwen3.
///
/// # Errors
/// As [`config()`] and [`PreNorm::load`].
pub fn load(checkpoint: &Checkpoint, device: &Device) -> Result<Box<dyn Decoder>> {
    Ok(Box::new(PreNorm::load(&FAMILY, &config(checkpoint)?, checkpoint, device)?))
}

/// Builds the body of a Qwen3 as an encoder.
///
/// Source: Zhang et al. 2025, "Qwen3 Embedding", §2.
///
/// # Errors
/// As [`config()`] and [`CausalEncoder::load`].
pub fn load_encoder(checkpoint: &Checkpoint, device: &Device) -> Result<Box<dyn Encoder>> {
    Ok(Box::new(CausalEncoder::load("qwen3-embedding", &FAMILY, &config(checkpoint)?, checkpoint, device)?))
}

/// # Errors
/// As [`DecoderConfig::from_checkpoint`].
pub fn config(checkpoint: &Checkpoint) -> Result<DecoderConfig> {
    let mut config = DecoderConfig::from_checkpoint(checkpoint, &FAMILY)?;
    config.head_norms = true;
    config.windows = qwen2::windows(checkpoint, FAMILY.name, config.layers, &mut config.notes)?;
    Ok(config)
}
