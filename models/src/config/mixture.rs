//! Mixtures of experts: how many experts a layer has, how many a token goes to, and what they compute.

use lifelong_kernels::ops::experts::Shares;

use super::gguf::GgufKeys;
use super::{HuggingFace, MAX_WIDTH, within};
use crate::error::Result;

/// Far above any published model.
const MAX_EXPERTS: usize = 1 << 16;

/// The mixtures of a decoder.
#[derive(Debug, Clone, PartialEq)]
pub struct Mixture {
    /// Experts of a layer.
    pub experts: usize,
    /// Experts that a token goes to.
    pub chosen: usize,
    /// Width of an expert.
    pub feed_forward: usize,
    /// What the shares of the chosen experts are parts of.
    pub shares: Shares,
    pub gate: ExpertGate,
    /// Whether router and experts add vectors.
    pub biases: bool,
    /// Width of an expert that every token goes to beside them, with a gate of its own.
    pub shared: Option<usize>,
    /// Which layers are mixtures; the others have one feed-forward. One entry a layer.
    pub layers: Vec<bool>,
}

/// The function on gate and up of an expert.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ExpertGate {
    /// `silu(gate) · up`; safetensors that hold gate and up as one have the rows of up behind those of gate.
    Silu,
    /// `(up + 1) · gate · sigmoid(α · gate)`, both clamped; safetensors hold gate and up in turns.
    Clamped { alpha: f32, limit: f32 },
}

impl Mixture {
    /// Reads the counts of `config.json`; `width` is the key of an expert's width. All layers are mixtures of SiLU
    /// experts without biases, shares are parts of the chosen.
    ///
    /// # Errors
    /// [`crate::Error::Config`] for a count that is missing or out of range.
    pub(crate) fn from_huggingface(config: &HuggingFace, width: &str, layers: usize) -> Result<Self> {
        // The second name of each: what transformers 5 writes, and what gpt-oss had first.
        let either = |[key, second]: [&'static str; 2], limit| {
            let named = if config.raw(key).is_none() && config.raw(second).is_some() { second } else { key };
            within(config.path, named, config.require(named)?, limit)
        };
        let experts = either(["num_experts", "num_local_experts"], MAX_EXPERTS)?;
        let chosen = either(["num_experts_per_tok", "experts_per_token"], experts)?;
        let feed_forward = within(config.path, width, config.require(width)?, MAX_WIDTH)?;
        Ok(Self::plain(experts, chosen, feed_forward, layers))
    }

    /// As [`Mixture::from_huggingface`], from GGUF keys.
    pub(crate) fn from_gguf(keys: GgufKeys, layers: usize) -> Result<Self> {
        let count = |key: &str, limit| keys.within(key, keys.require(key)?, limit);
        let experts = count("expert_count", MAX_EXPERTS)?;
        let chosen = count("expert_used_count", experts)?;
        for key in ["expert_shared_count", "expert_group_count", "leading_dense_block_count"] {
            if let Some(found) = keys.get::<u32>(key)?.filter(|found| *found > 0) {
                return Err(keys.problem(key, format!("found {found}, expected 0: this computation is not supported")));
            }
        }
        if let Some(found) = keys.get::<f32>("expert_weights_scale")?.filter(|scale| ![0.0, 1.0].contains(scale)) {
            return Err(keys.problem("expert_weights_scale", format!("found {found}, expected 1")));
        }
        Ok(Self::plain(experts, chosen, count("expert_feed_forward_length", MAX_WIDTH)?, layers))
    }

    fn plain(experts: usize, chosen: usize, feed_forward: usize, layers: usize) -> Self {
        Mixture {
            experts,
            chosen,
            feed_forward,
            shares: Shares::OfChosen,
            gate: ExpertGate::Silu,
            biases: false,
            shared: None,
            layers: vec![true; layers],
        }
    }
}
