//! Qwen2 and Qwen2.5, and models built on them such as DeepSeek-R1-Distill-Qwen: a Llama with biases on q, k and v.
//!
//! Source: Yang et al. 2024, "Qwen2 Technical Report", §2.2.

use lifelong_kernels::Device;
use lifelong_kernels::ops::rope::RopeStyle;

use crate::architecture::Decoder;
use crate::checkpoint::{Checkpoint, Metadata};
use crate::config::gguf::GgufKeys;
use crate::config::{Biases, DecoderConfig, Family, Gate, HuggingFace, window};
use crate::error::Result;
use crate::pre_norm::PreNorm;

/// Defaults of `Qwen2Config` in transformers.
pub static FAMILY: Family = Family {
    name: "qwen2",
    defaults: &[("max_position_embeddings", 32_768), ("num_key_value_heads", 32)],
    tied: false,
    norm_epsilon: 1e-6,
    rope_base: 10_000.0,
    gguf_rope: RopeStyle::Halves,
    gate: Gate::Silu,
};
const WINDOW: usize = 4096;
const MAX_WINDOW_LAYERS: usize = 28;

/// Builds a Qwen2.
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
    config.biases = Biases { qkv: true, output: false, mlp: false };
    config.windows = windows(checkpoint, FAMILY.name, config.layers, &mut config.notes)?;
    Ok(config)
}

/// The windows of Qwen2 and Qwen3: off unless `use_sliding_window` is set, and then in the layers from
/// `max_window_layers` on, or in those that `layer_types` names.
pub(crate) fn windows(
    checkpoint: &Checkpoint,
    architecture: &str,
    layers: usize,
    notes: &mut Vec<String>,
) -> Result<Vec<Option<usize>>> {
    const GGUF_KEY: &str = "attention.sliding_window";
    let (path, config) = match checkpoint.metadata()? {
        Metadata::HuggingFace { path, config } => (path, config),
        Metadata::Gguf(header) => {
            let keys = GgufKeys { header, architecture };
            return match keys.get::<usize>(GGUF_KEY)?.filter(|window| *window > 0) {
                Some(found) => {
                    let text = format!("found {found}, but no key says which layers have a window");
                    Err(keys.problem(GGUF_KEY, text))
                }
                None => Ok(vec![None; layers]),
            };
        }
    };
    let config = HuggingFace { path, config };
    let window = match config.get::<bool>("use_sliding_window")?.unwrap_or(false) {
        true => window::stated(&config, WINDOW, notes)?,
        false => None,
    };
    if let Some(windows) = window::by_layer_types(&config, layers, window)? {
        return Ok(windows);
    }
    if window.is_none() {
        return Ok(vec![None; layers]);
    }
    let first: usize = config.or_default("max_window_layers", MAX_WINDOW_LAYERS, notes)?;
    Ok((0..layers).map(|layer| window.filter(|_| layer >= first)).collect())
}
