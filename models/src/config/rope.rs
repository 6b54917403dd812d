//! Rotary position embedding: base, scaling of long contexts, and the angles they give.

use lifelong_kernels::ops::rope::RopeStyle;
use serde_json::Value;

use super::{HuggingFace, problem};
use crate::checkpoint::Checkpoint;
use crate::error::Result;
use crate::gguf::Header;

/// How positions become angles.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    pub base: f64,
    /// Elements of a head that are rotated, the first ones.
    pub rotary_dim: usize,
    pub scaling: RopeScaling,
    pub style: RopeStyle,
}

/// Change of the angles for contexts longer than the model was first trained on.
#[derive(Debug, Clone, PartialEq)]
pub enum RopeScaling {
    None,
    /// Every angle divided by one factor (Chen et al. 2023, "Extending Context Window via Position Interpolation", eq. 4).
    Linear {
        factor: f64,
    },
    /// Slow pairs divided by the factor, fast ones kept, those between blended: the rule of Llama 3.1 (its reference
    /// code, `apply_scaling` in meta-llama/llama-models `models/llama3/model.py`).
    Llama3 {
        factor: f64,
        low_frequency_factor: f64,
        high_frequency_factor: f64,
        original_context: f64,
    },
    /// One divisor a pair, as GGUF files store the outcome of the rule above (`rope_freqs.weight`).
    Divisors(Vec<f32>),
}

const SUPPORTED: &str = "default, linear, llama3";
const KNOWN: [&str; 3] = ["dynamic", "yarn", "longrope"];

impl Rope {
    /// Radians a position for each rotated pair (`rotary_dim / 2`).
    pub fn frequencies(&self) -> Vec<f64> {
        let plain = lifelong_kernels::ops::rope::rope_frequencies(self.rotary_dim, self.base);
        match &self.scaling {
            RopeScaling::None => plain,
            RopeScaling::Linear { factor } => plain.iter().map(|frequency| frequency / factor).collect(),
            RopeScaling::Divisors(divisors) => plain.iter().zip(divisors).map(|(f, d)| f / f64::from(*d)).collect(),
            RopeScaling::Llama3 {
                factor,
                low_frequency_factor: low,
                high_frequency_factor: high,
                original_context,
            } => {
                let scaled = |frequency: &f64| {
                    let turns = original_context * frequency / std::f64::consts::TAU;
                    if turns < *low {
                        return frequency / factor;
                    }
                    if turns > *high {
                        return *frequency;
                    }
                    let kept = (turns - low) / (high - low);
                    (1.0 - kept) * frequency / factor + kept * frequency
                };
                plain.iter().map(scaled).collect()
            }
        }
    }

    /// Reads `rope_theta` with `rope_scaling`, or `rope_parameters`, which holds both since transformers 5.
    pub(super) fn from_huggingface(
        config: &HuggingFace,
        head_dim: usize,
        context: usize,
        notes: &mut Vec<String>,
    ) -> Result<Self> {
        let (key, parameters) = match config.raw("rope_parameters") {
            Some(parameters) => ("rope_parameters", Some(parameters)),
            None => ("rope_scaling", config.raw("rope_scaling")),
        };
        let inner = parameters.and_then(|parameters| parameters.get("rope_theta")).filter(|value| !value.is_null());
        let base = match inner {
            Some(theta) => config.typed("rope_parameters.rope_theta", theta)?,
            None => config.or_default("rope_theta", 10_000.0, notes)?,
        };
        let inner = parameters.and_then(|parameters| parameters.get("partial_rotary_factor"));
        let partial = inner.or_else(|| config.raw("partial_rotary_factor")).filter(|value| !value.is_null());
        let partial: f64 = partial.map_or(Ok(1.0), |value| config.typed("partial_rotary_factor", value))?;
        let scaling = parameters.map_or(Ok(RopeScaling::None), |found| scaling(config, key, found, context))?;
        let rope = Rope { base, rotary_dim: (head_dim as f64 * partial) as usize, scaling, style: RopeStyle::Halves };
        check(&rope, head_dim, |name, text| problem(config.path, name, text))?;
        Ok(rope)
    }

    /// Reads `{arch}.rope.*`, and `rope_freqs.weight` when the file has it.
    pub(super) fn from_gguf(checkpoint: &Checkpoint, header: &Header, head_dim: usize) -> Result<Self> {
        let base = f64::from(header.get::<f32>("llama.rope.freq_base")?.unwrap_or(10_000.0));
        let rotary_dim = header.get("llama.rope.dimension_count")?.unwrap_or(head_dim);
        let kind = header.get::<&str>("llama.rope.scaling.type")?.unwrap_or("none");
        let factor_key = "llama.rope.scaling.factor";
        let mut scaling = match kind {
            "none" => RopeScaling::None,
            "linear" => RopeScaling::Linear { factor: f64::from(header.require::<f32>(factor_key)?) },
            other => {
                let text =
                    format!("found `{other}`, supported are none and linear (and `rope_freqs.weight` for llama3)");
                return Err(header.problem("llama.rope.scaling.type", text));
            }
        };
        if let Some(factor) = header.get::<f32>("llama.rope.scale_linear")?.filter(|factor| *factor != 1.0) {
            scaling = RopeScaling::Linear { factor: f64::from(factor) };
        }
        const DIVISORS: &str = "rope_freqs.weight";
        if checkpoint.contains(DIVISORS) {
            if scaling != RopeScaling::None {
                return Err(header.problem("llama.rope.scaling.type", format!("found `{kind}` beside {DIVISORS}")));
            }
            scaling = RopeScaling::Divisors(crate::weights::vector(checkpoint, DIVISORS, rotary_dim / 2)?);
        }
        let rope = Rope { base, rotary_dim, scaling, style: RopeStyle::Interleaved };
        check(&rope, head_dim, |name, text| header.problem(name, text))?;
        Ok(rope)
    }
}

fn check(rope: &Rope, head_dim: usize, problem: impl Fn(&str, String) -> crate::Error) -> Result<()> {
    let Rope { base, rotary_dim, .. } = *rope;
    if !(base.is_finite() && base > 1.0) {
        return Err(problem("rope_theta", format!("found {base}, expected a finite number above 1")));
    }
    if rotary_dim == 0 || rotary_dim % 2 != 0 || rotary_dim > head_dim {
        let text = format!("{rotary_dim} rotated elements of heads of {head_dim}, expected an even number up to that");
        return Err(problem("head_dim", text));
    }
    if rope.frequencies().iter().any(|frequency| !frequency.is_finite()) {
        return Err(problem("rope_scaling", format!("{:?} gives angles that are not finite", rope.scaling)));
    }
    Ok(())
}

fn scaling(config: &HuggingFace, key: &str, parameters: &Value, context: usize) -> Result<RopeScaling> {
    let Some(parameters) = parameters.as_object() else {
        return Err(problem(config.path, key, format!("found {parameters}, expected an object")));
    };
    // `type` before transformers 4.45.
    let named = parameters.get("rope_type").or_else(|| parameters.get("type")).filter(|kind| !kind.is_null());
    let kind: String =
        named.map_or(Ok("default".to_string()), |kind| config.typed(&format!("{key}.rope_type"), kind))?;
    let number = |name: &str| {
        let full = format!("{key}.{name}");
        let value = parameters.get(name).ok_or_else(|| problem(config.path, &full, format!("missing for `{kind}`")))?;
        config.typed::<f64>(&full, value)
    };
    match kind.as_str() {
        "default" => Ok(RopeScaling::None),
        "linear" => Ok(RopeScaling::Linear { factor: number("factor")? }),
        "llama3" => Ok(RopeScaling::Llama3 {
            factor: number("factor")?,
            low_frequency_factor: number("low_freq_factor")?,
            high_frequency_factor: number("high_freq_factor")?,
            original_context: match parameters.get("original_max_position_embeddings") {
                Some(_) => number("original_max_position_embeddings")?,
                None => context as f64,
            },
        }),
        known if KNOWN.contains(&known) => {
            let text = format!("`{known}` is not supported yet; supported are {SUPPORTED}");
            Err(problem(config.path, &format!("{key}.rope_type"), text))
        }
        other => {
            let known = KNOWN.join(", ");
            let text = format!("found `{other}`, allowed are {SUPPORTED} ({known} exist and are not supported yet)");
            Err(problem(config.path, &format!("{key}.rope_type"), text))
        }
    }
}
