//! gpt-oss: attention with a sink for each head, every second layer with a window, mixtures of experts with a clamped
//! gate, biases everywhere, experts stored as 4-bit floats.
//!
//! Source: OpenAI 2025, "gpt-oss-120b & gpt-oss-20b Model Card", §2. The borders of its YaRN ramp are not whole pairs;
//! GGUF files do not say so (and llama.cpp, which has one rule for all models, rounds them), so it is stated here and both
//! containers give the same model.

use lifelong_kernels::Device;
use lifelong_kernels::ops::rope::RopeStyle;

use crate::architecture::Decoder;
use crate::checkpoint::{Checkpoint, Metadata};
use crate::config::gguf::GgufKeys;
use crate::config::{self, Biases, DecoderConfig, ExpertGate, Family, Gate, HuggingFace, Mixture, RopeScaling, window};
use crate::error::Result;
use crate::pre_norm::PreNorm;

/// Defaults of `GptOssConfig` in transformers.
pub static FAMILY: Family = Family {
    name: "gpt-oss",
    defaults: &[("max_position_embeddings", 131_072), ("num_key_value_heads", 8), ("head_dim", 64)],
    tied: false,
    norm_epsilon: 1e-5,
    rope_base: 150_000.0,
    gguf_rope: RopeStyle::Halves,
    gate: Gate::Silu,
};
const WINDOW: usize = 128;
/// Constants of the released code, which GGUF files leave out.
const ALPHA: f32 = 1.702;
const LIMIT: f32 = 7.0;

/// Builds a gpt-oss.
///
/// # Errors
/// As [`config()`] and [`PreNorm::load`].
pub fn load(checkpoint: &Checkpoint, device: &Device) -> Result<Box<dyn Decoder>> {
    Ok(Box::new(PreNorm::load(&FAMILY, &config(checkpoint)?, checkpoint, device)?))
}

/// # Errors
/// As [`DecoderConfig::of_mixture`]; a configuration that says nothing about scaled angles.
pub fn config(checkpoint: &Checkpoint) -> Result<DecoderConfig> {
    let config = DecoderConfig::of_mixture(checkpoint, &FAMILY)?;
    match checkpoint.metadata()? {
        Metadata::Gguf(header) => from_gguf(config, GgufKeys { header, architecture: FAMILY.name }),
        Metadata::HuggingFace { path, config: json } => from_huggingface(config, HuggingFace { path, config: json }),
    }
}

fn from_huggingface(mut config: DecoderConfig, keys: HuggingFace) -> Result<DecoderConfig> {
    config.sinks = true;
    let biased = keys.or_default("attention_bias", true, &mut config.notes)?;
    config.biases = Biases { qkv: biased, output: biased, mlp: false };
    if keys.raw("rope_parameters").or_else(|| keys.raw("rope_scaling")).is_none() {
        let text = "the key is missing; this family's angles are scaled, and by how much must be stated";
        return Err(config::problem(keys.path, "rope_scaling", text));
    }
    let window = window::stated(&keys, WINDOW, &mut config.notes)?;
    config.windows = match window::by_layer_types(&keys, config.layers, window)? {
        Some(windows) => windows,
        None => alternating(config.layers, window),
    };
    let mut mixture = Mixture::from_huggingface(&keys, "intermediate_size", config.layers)?;
    mixture.gate = ExpertGate::Clamped {
        alpha: keys.get("swiglu_alpha")?.unwrap_or(ALPHA),
        limit: keys.get("swiglu_limit")?.unwrap_or(LIMIT),
    };
    mixture.biases = true;
    config.mixture = Some(mixture);
    Ok(config)
}

fn from_gguf(mut config: DecoderConfig, keys: GgufKeys) -> Result<DecoderConfig> {
    config.sinks = true;
    const WINDOW_KEY: &str = "attention.sliding_window";
    let window = keys.within(WINDOW_KEY, keys.require(WINDOW_KEY)?, config::MAX_CONTEXT)?;
    config.windows = alternating(config.layers, Some(window));
    if let RopeScaling::Yarn { whole_borders, .. } = &mut config.rope.scaling {
        *whole_borders = false;
    }
    let mut mixture = Mixture::from_gguf(keys, config.layers)?;
    mixture.gate = ExpertGate::Clamped { alpha: ALPHA, limit: LIMIT };
    mixture.biases = true;
    config.mixture = Some(mixture);
    Ok(config)
}

/// Every second layer sees everything, the first has the window.
fn alternating(layers: usize, window: Option<usize>) -> Vec<Option<usize>> {
    (0..layers).map(|layer| window.filter(|_| layer % 2 == 0)).collect()
}
