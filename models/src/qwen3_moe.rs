//! Qwen3 mixtures of experts: a Qwen3 whose feed-forward layers are many narrow ones, of which a token sees a few.
//!
//! Source: Yang et al. 2025, "Qwen3 Technical Report", §2.

use lifelong_kernels::Device;
use lifelong_kernels::ops::experts::Shares;
use lifelong_kernels::ops::rope::RopeStyle;

use crate::architecture::Decoder;
use crate::checkpoint::{Checkpoint, Metadata};
use crate::config::gguf::GgufKeys;
use crate::config::{self, DecoderConfig, Family, Gate, HuggingFace, Mixture, window};
use crate::error::Result;
use crate::pre_norm::PreNorm;
use crate::qwen2;

/// Defaults of `Qwen3MoeConfig` in transformers.
pub static FAMILY: Family = Family {
    name: "qwen3moe",
    defaults: &[("max_position_embeddings", 32_768), ("num_key_value_heads", 4)],
    tied: false,
    norm_epsilon: 1e-6,
    rope_base: 10_000.0,
    gguf_rope: RopeStyle::Halves,
    gate: Gate::Silu,
};
const WINDOW: usize = 4096;

/// Builds a Qwen3 mixture of experts.
///
/// # Errors
/// As [`config()`] and [`PreNorm::load`].
pub fn load(checkpoint: &Checkpoint, device: &Device) -> Result<Box<dyn Decoder>> {
    Ok(Box::new(PreNorm::load(&FAMILY, &config(checkpoint)?, checkpoint, device)?))
}

/// # Errors
/// As [`DecoderConfig::of_mixture`].
pub fn config(checkpoint: &Checkpoint) -> Result<DecoderConfig> {
    let mut config = DecoderConfig::of_mixture(checkpoint, &FAMILY)?;
    config.head_norms = true;
    match checkpoint.metadata()? {
        Metadata::Gguf(header) => {
            let keys = GgufKeys { header, architecture: FAMILY.name };
            let mut mixture = Mixture::from_gguf(keys, config.layers)?;
            // Files of this family leave the key out and mean true.
            mixture.shares = shares(keys.get("expert_weights_norm")?.unwrap_or(true));
            for (layer, is_mixture) in mixture.layers.iter_mut().enumerate() {
                *is_mixture = !checkpoint.contains(&format!("blk.{layer}.ffn_gate.weight"));
            }
            config.mixture = Some(mixture);
            config.windows = qwen2::windows(checkpoint, FAMILY.name, config.layers, &mut config.notes)?;
        }
        Metadata::HuggingFace { path, config: json } => {
            let keys = HuggingFace { path, config: json };
            let mut mixture = Mixture::from_huggingface(&keys, "moe_intermediate_size", config.layers)?;
            mixture.shares = shares(keys.or_default("norm_topk_prob", false, &mut config.notes)?);
            mixture.layers = mixtures(&keys, config.layers)?;
            config.mixture = Some(mixture);
            if keys.get("use_sliding_window")?.unwrap_or(false) {
                config.windows.fill(window::stated(&keys, WINDOW, &mut config.notes)?);
            }
        }
    }
    Ok(config)
}

fn shares(normalised: bool) -> Shares {
    if normalised { Shares::OfChosen } else { Shares::OfAll }
}

/// The last of every `decoder_sparse_step` layers is a mixture, but for those that `mlp_only_layers` names.
fn mixtures(keys: &HuggingFace, layers: usize) -> Result<Vec<bool>> {
    const STEP: &str = "decoder_sparse_step";
    let step = config::within(keys.path, STEP, keys.get(STEP)?.unwrap_or(1), config::MAX_LAYERS)?;
    let dense: Vec<usize> = keys.get("mlp_only_layers")?.unwrap_or_default();
    Ok((0..layers).map(|layer| (layer + 1).is_multiple_of(step) && !dense.contains(&layer)).collect())
}
