//! SmolLM3: a Llama in which every fourth layer does without positions.
//!
//! Source: Bakouch et al. 2025, "SmolLM3: smol, multilingual, long-context reasoner"; layers without rotation: Yang et al.
//! 2025, "Rope to Nope and Back Again", §4.

use lifelong_kernels::Device;
use lifelong_kernels::ops::rope::RopeStyle;

use crate::architecture::Decoder;
use crate::checkpoint::{Checkpoint, Metadata};
use crate::config::{self, DecoderConfig, Family, Gate, HuggingFace, window};
use crate::error::Result;
use crate::pre_norm::PreNorm;

/// Defaults of `SmolLM3Config` in transformers.
pub static FAMILY: Family = Family {
    name: "smollm3",
    defaults: &[("max_position_embeddings", 32_768), ("num_key_value_heads", 4)],
    tied: true,
    norm_epsilon: 1e-6,
    rope_base: 2_000_000.0,
    gguf_rope: RopeStyle::Interleaved,
    gate: Gate::Silu,
};
/// The last of so many layers is not rotated; GGUF has no key for it.
const INTERVAL: usize = 4;

/// Builds a SmolLM3.
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
    config.rotated = by_interval(config.layers, INTERVAL);
    if let Metadata::HuggingFace { path, config: json } = checkpoint.metadata()? {
        read_layers(HuggingFace { path, config: json }, &mut config)?;
    }
    Ok(config)
}

fn by_interval(layers: usize, interval: usize) -> Vec<bool> {
    (1..=layers).map(|layer| !layer.is_multiple_of(interval)).collect()
}

/// `no_rope_layers` (1 for a rotated layer) or its interval, and the windows of layers that are not rotated.
fn read_layers(json: HuggingFace, config: &mut DecoderConfig) -> Result<()> {
    const KEY: &str = "no_rope_layers";
    config.rotated = match json.get::<Vec<u8>>(KEY)? {
        Some(rotated) if rotated.len() == config.layers => rotated.iter().map(|rotated| *rotated != 0).collect(),
        Some(rotated) => {
            let text = format!("found {} entries, expected {}, one a layer", rotated.len(), config.layers);
            return Err(config::problem(json.path, KEY, text));
        }
        None => {
            let interval = json.or_default("no_rope_layer_interval", INTERVAL, &mut config.notes)?;
            by_interval(
                config.layers,
                config::within(json.path, "no_rope_layer_interval", interval, config::MAX_LAYERS)?,
            )
        }
    };
    let is_used = json.get::<bool>("use_sliding_window")?.unwrap_or(false);
    let window = json.get::<usize>("sliding_window")?.filter(|_| is_used);
    config.windows = match window::by_layer_types(&json, config.layers, window)? {
        Some(windows) => windows,
        None => config.rotated.iter().map(|rotated| window.filter(|_| !rotated)).collect(),
    };
    Ok(())
}
