//! Phi-3, Phi-4 and their mini models: a Llama whose q, k and v are one matrix, and gate and up another.
//!
//! Source: Abdin et al. 2024, "Phi-3 Technical Report", §2; Microsoft 2025, "Phi-4-Mini Technical Report", §2 (three
//! quarters of a head rotated, LongRoPE).

use lifelong_kernels::Device;
use lifelong_kernels::ops::rope::RopeStyle;

use crate::architecture::Decoder;
use crate::checkpoint::{Checkpoint, Metadata};
use crate::config::gguf::GgufKeys;
use crate::config::{self, DecoderConfig, Family, Gate, HuggingFace};
use crate::error::Result;
use crate::pre_norm::PreNorm;

/// Defaults of `Phi3Config` in transformers.
pub static FAMILY: Family = Family {
    name: "phi3",
    defaults: &[("max_position_embeddings", 4096)],
    tied: false,
    norm_epsilon: 1e-5,
    rope_base: 10_000.0,
    gguf_rope: RopeStyle::Halves,
    gate: Gate::Silu,
};

/// Builds a Phi-3.
///
/// # Errors
/// As [`config()`] and [`PreNorm::load`].
pub fn load(checkpoint: &Checkpoint, device: &Device) -> Result<Box<dyn Decoder>> {
    Ok(Box::new(PreNorm::load(&FAMILY, &config(checkpoint)?, checkpoint, device)?))
}

/// # Errors
/// As [`DecoderConfig::from_checkpoint`].
pub fn config(checkpoint: &Checkpoint) -> Result<DecoderConfig> {
    let mut config = DecoderConfig::from_checkpoint(checkpoint, &FAMILY)?;
    config.fused = true;
    const WINDOW: &str = "sliding_window";
    const GGUF_WINDOW: &str = "attention.sliding_window";
    let window = match checkpoint.metadata()? {
        Metadata::Gguf(header) => {
            let keys = GgufKeys { header, architecture: FAMILY.name };
            let stated = keys.get::<usize>(GGUF_WINDOW)?.filter(|window| *window > 0);
            stated.map(|window| keys.within(GGUF_WINDOW, window, config::MAX_CONTEXT)).transpose()?
        }
        Metadata::HuggingFace { path, config: json } => {
            let stated = HuggingFace { path, config: json }.get::<usize>(WINDOW)?;
            stated.map(|window| config::within(path, WINDOW, window, config::MAX_CONTEXT)).transpose()?
        }
    };
    config.windows.fill(window);
    Ok(config)
}
