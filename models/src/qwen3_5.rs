//! Qwen3.5, its language model, dense and as a mixture of experts: three layers of linear attention by the gated delta
//! rule to one of softmax attention whose output is gated, with a quarter of each head rotated.
//!
//! Source: Qwen Team 2026, Qwen3.5, and 2025, Qwen3-Next; the delta rule: Yang et al. 2025, "Gated Delta Networks", §3;
//! the gate: Qiu et al. 2025, "Gated Attention for Large Language Models", §2.2. Safetensors hold norm weights as
//! differences from 1, but for the norm behind the delta rule; GGUF files hold all as they are used, value heads in another
//! order and how fast they forget with a minus. The part that predicts several tokens is left out.

use lifelong_kernels::Device;
use lifelong_kernels::ops::delta::{DeltaShape, HeadOrder};
use lifelong_kernels::ops::rope::RopeStyle;

use crate::architecture::Decoder;
use crate::checkpoint::{Checkpoint, Metadata};
use crate::config::gguf::GgufKeys;
use crate::config::{self, DecoderConfig, Family, Gate, HuggingFace, MAX_WIDTH, Mixture, Recurrence};
use crate::error::Result;
use crate::pre_norm::PreNorm;
use crate::weights;

/// Defaults of `Qwen3_5TextConfig` in transformers.
const DEFAULTS: Family = Family {
    name: "qwen35",
    defaults: &[("max_position_embeddings", 32_768), ("num_key_value_heads", 2), ("head_dim", 256)],
    tied: false,
    norm_epsilon: 1e-6,
    rope_base: 10_000.0,
    gguf_rope: RopeStyle::Halves,
    gate: Gate::Silu,
};
/// The dense ones.
pub static FAMILY: Family = DEFAULTS;
/// Mixtures of experts, whose GGUF keys begin with another name.
pub static MIXTURE_FAMILY: Family = Family { name: "qwen35moe", ..DEFAULTS };
/// The last of so many layers attends by softmax.
const INTERVAL: usize = 4;
/// Heads have so many times the elements that are rotated.
const ROTATED_PART: usize = 4;

/// Builds a Qwen3.5. Vision and the prediction of several tokens are left out, and noted.
///
/// # Errors
/// As [`config()`] and [`PreNorm::load`].
pub fn load(checkpoint: &Checkpoint, device: &Device) -> Result<Box<dyn Decoder>> {
    let mut config = config(checkpoint)?;
    // In GGUF files the blocks behind the layers.
    let layers = config.layers;
    let block = |name: &str| name.strip_prefix("blk.")?.split('.').next()?.parse::<usize>().ok();
    let is_prediction = |name: &str| name.starts_with("mtp.") || block(name).is_some_and(|block| block >= layers);
    note_unused(&mut config.notes, checkpoint, "vision", is_vision);
    note_unused(&mut config.notes, checkpoint, "multi-token prediction", is_prediction);
    let harmless = |name: &str| weights::is_angles(name) || is_vision(name) || is_prediction(name);
    let family = family(checkpoint)?;
    Ok(Box::new(PreNorm::load_part(family, &config, checkpoint, device, harmless)?))
}

/// Says how many tensors of a part are left alone.
fn note_unused(notes: &mut Vec<String>, checkpoint: &Checkpoint, part: &str, is_part: impl Fn(&str) -> bool) {
    let tensors = checkpoint.names().filter(|name| is_part(name)).count();
    if tensors > 0 {
        notes.push(format!("text, token by token: {part} is not used (tensors: {tensors})"));
    }
}

/// Which of the two a checkpoint is.
fn family(checkpoint: &Checkpoint) -> Result<&'static Family> {
    let has_experts = match checkpoint.metadata()? {
        Metadata::Gguf(header) => header.require::<&str>("general.architecture")? == MIXTURE_FAMILY.name,
        Metadata::HuggingFace { path, config } => HuggingFace { path, config }.raw("num_experts").is_some(),
    };
    Ok(if has_experts { &MIXTURE_FAMILY } else { &FAMILY })
}

/// # Errors
/// As [`DecoderConfig::of_mixture`].
pub fn config(checkpoint: &Checkpoint) -> Result<DecoderConfig> {
    let family = family(checkpoint)?;
    let mut config = DecoderConfig::of_mixture(checkpoint, family)?;
    config.head_norms = true;
    config.gated_attention = true;
    match checkpoint.metadata()? {
        Metadata::Gguf(header) => from_gguf(config, GgufKeys { header, architecture: family.name }),
        Metadata::HuggingFace { path, config: json } => from_huggingface(config, HuggingFace { path, config: json }),
    }
}

fn from_huggingface(mut config: DecoderConfig, keys: HuggingFace) -> Result<DecoderConfig> {
    config.norm.offset = 1.0;
    if config.biases.qkv {
        return Err(config::problem(keys.path, "attention_bias", "found true, expected false"));
    }
    if !states_rotated_part(&keys) {
        config.rope.rotary_dim = config.head_dim / ROTATED_PART;
        let text = "`partial_rotary_factor` is absent: 0.25, the default of its family";
        config.notes.push(text.to_string());
    }
    config.recurrence = Some(recurrence(&keys, config.layers)?);
    if keys.raw("num_experts").is_some() {
        let mut mixture = Mixture::from_huggingface(&keys, "moe_intermediate_size", config.layers)?;
        const SHARED: &str = "shared_expert_intermediate_size";
        mixture.shared = Some(config::within(keys.path, SHARED, keys.require(SHARED)?, MAX_WIDTH)?);
        config.mixture = Some(mixture);
    }
    Ok(config)
}

fn from_gguf(mut config: DecoderConfig, keys: GgufKeys) -> Result<DecoderConfig> {
    let extent = |key: &str| keys.within(key, keys.require(key)?, MAX_WIDTH);
    let (key_heads, value_heads) = (extent("ssm.group_count")?, extent("ssm.time_step_rank")?);
    const WIDTH: &str = "ssm.inner_size";
    let width = extent(WIDTH)?;
    if !value_heads.is_multiple_of(key_heads) || !width.is_multiple_of(value_heads) {
        let text = format!("found {width} for {value_heads} value heads over {key_heads} key heads");
        return Err(keys.problem(WIDTH, text));
    }
    let shape = DeltaShape {
        key_heads,
        value_heads,
        key_dim: extent("ssm.state_size")?,
        value_dim: width / value_heads,
        kernel: extent("ssm.conv_kernel")?,
        order: HeadOrder::Tiled,
    };
    const KEY: &str = "full_attention_interval";
    let interval = keys.within(KEY, keys.get(KEY)?.unwrap_or(INTERVAL), config::MAX_LAYERS)?;
    config.recurrence = Some(Recurrence { shape, layers: by_interval(config.layers, interval) });
    if keys.architecture == MIXTURE_FAMILY.name {
        let mut mixture = Mixture::from_gguf(keys, config.layers)?;
        mixture.shared = Some(extent("expert_shared_feed_forward_length")?);
        config.mixture = Some(mixture);
    }
    Ok(config)
}

fn states_rotated_part(keys: &HuggingFace) -> bool {
    const PART: &str = "partial_rotary_factor";
    let inner = keys.raw("rope_parameters").or_else(|| keys.raw("rope_scaling")).and_then(|rope| rope.get(PART));
    inner.or_else(|| keys.raw(PART)).is_some_and(|value| !value.is_null())
}

fn recurrence(keys: &HuggingFace, layers: usize) -> Result<Recurrence> {
    let extent = |key: &str| config::within(keys.path, key, keys.require(key)?, MAX_WIDTH);
    let shape = DeltaShape {
        key_heads: extent("linear_num_key_heads")?,
        value_heads: extent("linear_num_value_heads")?,
        key_dim: extent("linear_key_head_dim")?,
        value_dim: extent("linear_value_head_dim")?,
        kernel: extent("linear_conv_kernel_dim")?,
        order: HeadOrder::Grouped,
    };
    if !shape.value_heads.is_multiple_of(shape.key_heads) {
        let text = format!("found {}, expected a multiple of the {} key heads", shape.value_heads, shape.key_heads);
        return Err(config::problem(keys.path, "linear_num_value_heads", text));
    }
    Ok(Recurrence { shape, layers: linear_layers(keys, layers)? })
}

/// Which layers have linear attention: by `layer_types`, else all but the last of every interval.
fn linear_layers(keys: &HuggingFace, layers: usize) -> Result<Vec<bool>> {
    const KINDS: &str = "layer_types";
    let Some(kinds) = keys.get::<Vec<String>>(KINDS)? else {
        const KEY: &str = "full_attention_interval";
        let interval = config::within(keys.path, KEY, keys.get(KEY)?.unwrap_or(INTERVAL), config::MAX_LAYERS)?;
        return Ok(by_interval(layers, interval));
    };
    if kinds.len() != layers {
        let text = format!("found {} entries, expected {layers}, one a layer", kinds.len());
        return Err(config::problem(keys.path, KINDS, text));
    }
    let is_linear = |kind: &String| match kind.as_str() {
        "linear_attention" => Ok(true),
        "full_attention" => Ok(false),
        other => {
            let text = format!("found `{other}`, supported are linear_attention and full_attention");
            Err(config::problem(keys.path, KINDS, text))
        }
    };
    kinds.iter().map(is_linear).collect()
}

fn by_interval(layers: usize, interval: usize) -> Vec<bool> {
    (1..=layers).map(|layer| !layer.is_multiple_of(interval)).collect()
}

fn is_vision(name: &str) -> bool {
    name.strip_prefix("model.").unwrap_or(name).starts_with("visual.")
}
