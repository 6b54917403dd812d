//! The Llama family: Llama 1 to 3, SmolLM2, DeepSeek-R1-Distill-Llama and others that publish under its name.
//!
//! Source: Touvron et al. 2023, "LLaMA", §2.2; grouped heads: Touvron et al. 2023, "Llama 2", §2.2; long contexts: the
//! Llama 3.1 release. GGUF files of this architecture have the rows of q and k permuted so that rotated pairs lie side by
//! side; the scores are the same sums in another order. Mistral's files carry this name too, and what sets it apart is
//! its window, which is read where a file states one.

use lifelong_kernels::Device;
use lifelong_kernels::ops::rope::RopeStyle;

use crate::architecture::Decoder;
use crate::checkpoint::{Checkpoint, Metadata};
use crate::config::gguf::GgufKeys;
use crate::config::{DecoderConfig, Family, Gate, MAX_CONTEXT};
use crate::error::Result;
use crate::pre_norm::PreNorm;

/// Defaults of `LlamaConfig` in transformers.
pub static FAMILY: Family = Family {
    name: "llama",
    defaults: &[("max_position_embeddings", 2048)],
    tied: false,
    norm_epsilon: 1e-6,
    rope_base: 10_000.0,
    gguf_rope: RopeStyle::Interleaved,
    gate: Gate::Silu,
};

/// Builds a Llama.
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
    if let Metadata::Gguf(header) = checkpoint.metadata()? {
        const KEY: &str = "attention.sliding_window";
        let keys = GgufKeys { header, architecture: FAMILY.name };
        if let Some(window) = keys.get::<usize>(KEY)?.filter(|window| *window > 0) {
            config.windows.fill(Some(keys.within(KEY, window, MAX_CONTEXT)?));
        }
    }
    Ok(config)
}
