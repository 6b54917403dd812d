//! Mistral: a Llama whose layers see a window of the last keys, in the releases that state one.
//!
//! Source: Jiang et al. 2023, "Mistral 7B", §2. GGUF files of it are published as `llama`.

use lifelong_kernels::Device;
use lifelong_kernels::ops::rope::RopeStyle;

use crate::architecture::Decoder;
use crate::checkpoint::{Checkpoint, Metadata};
use crate::config::{self, DecoderConfig, Family, Gate, HuggingFace, window};
use crate::error::Result;
use crate::pre_norm::PreNorm;

/// Defaults of `MistralConfig` in transformers.
pub static FAMILY: Family = Family {
    name: "mistral",
    defaults: &[("max_position_embeddings", 131_072), ("num_key_value_heads", 8)],
    tied: false,
    norm_epsilon: 1e-6,
    rope_base: 10_000.0,
    gguf_rope: RopeStyle::Interleaved,
    gate: Gate::Silu,
};
/// Keys a query sees when the configuration leaves `sliding_window` out; later releases state `null`: all.
const WINDOW: usize = 4096;

/// Builds a Mistral.
///
/// # Errors
/// As [`config()`] and [`PreNorm::load`].
pub fn load(checkpoint: &Checkpoint, device: &Device) -> Result<Box<dyn Decoder>> {
    Ok(Box::new(PreNorm::load(&FAMILY, &config(checkpoint)?, checkpoint, device)?))
}

/// # Errors
/// As [`DecoderConfig::from_checkpoint`]; layers of several kinds, which are another architecture.
pub fn config(checkpoint: &Checkpoint) -> Result<DecoderConfig> {
    let mut config = DecoderConfig::from_checkpoint(checkpoint, &FAMILY)?;
    if let Metadata::HuggingFace { path, config: json } = checkpoint.metadata()? {
        let json = HuggingFace { path, config: json };
        if json.raw("layer_types").is_some() {
            let text = "found layers of several kinds, which is not this architecture (but, for one, ministral)";
            return Err(config::problem(path, "layer_types", text));
        }
        config.windows.fill(window::stated(&json, WINDOW, &mut config.notes)?);
    }
    Ok(config)
}
