//! Rotary position embedding: base, scaling of long contexts, and the angles they give.

use lifelong_kernels::ops::rope::RopeStyle;
use serde_json::Value;

use super::gguf::GgufKeys;
use super::{Family, HuggingFace, problem};
use crate::checkpoint::Checkpoint;
use crate::error::Result;

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
    /// Pairs that turn fewer than `beta_slow` times over the original context divided by the factor, those that turn
    /// more than `beta_fast` times kept, a ramp over the pairs between (Peng et al. 2023, "YaRN", §3.2; the borders are
    /// whole pairs when `whole_borders`, as in its released code).
    Yarn {
        factor: f64,
        original_context: f64,
        beta_fast: f64,
        beta_slow: f64,
        whole_borders: bool,
        /// Factor of every cosine and sine (§3.3).
        magnitude: f64,
    },
    /// One divisor a pair (Ding et al. 2024, "LongRoPE", §3). Of the two sets that checkpoints hold, the one for texts up
    /// to the original length: the other set changes the angles of tokens that came before, so a prefix would have two
    /// values by what follows it. The context ends there.
    LongRope {
        divisors: Vec<f64>,
        original_context: usize,
        /// Factor of every cosine and sine.
        magnitude: f64,
    },
}

const SUPPORTED: &str = "default, linear, llama3, yarn, longrope";
const KNOWN: [&str; 1] = ["dynamic"];
/// The borders that YaRN's authors recommend, §3.2.
const BETA_FAST: f64 = 32.0;
const BETA_SLOW: f64 = 1.0;

impl Rope {
    /// Radians a position for each rotated pair (`rotary_dim / 2`).
    pub fn frequencies(&self) -> Vec<f64> {
        let plain = lifelong_kernels::ops::rope::rope_frequencies(self.rotary_dim, self.base);
        match &self.scaling {
            RopeScaling::None => plain,
            RopeScaling::Linear { factor } => plain.iter().map(|frequency| frequency / factor).collect(),
            RopeScaling::LongRope { divisors, .. } => plain.iter().zip(divisors).map(|(f, d)| f / d).collect(),
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
            RopeScaling::Yarn { factor, .. } => {
                let (low, high) = self.yarn_borders();
                let scaled = |(pair, frequency): (usize, &f64)| {
                    let divided = ((pair as f64 - low) / (high - low)).clamp(0.0, 1.0);
                    divided * frequency / factor + (1.0 - divided) * frequency
                };
                plain.iter().enumerate().map(scaled).collect()
            }
        }
    }

    /// Factor of every cosine and sine.
    pub fn magnitude(&self) -> f64 {
        match self.scaling {
            RopeScaling::Yarn { magnitude, .. } | RopeScaling::LongRope { magnitude, .. } => magnitude,
            _ => 1.0,
        }
    }

    /// The last pair that is kept and the first that is divided, as fractions of pairs.
    fn yarn_borders(&self) -> (f64, f64) {
        let RopeScaling::Yarn { original_context, beta_fast, beta_slow, whole_borders, .. } = self.scaling else {
            return (0.0, 1.0);
        };
        let dim = self.rotary_dim as f64;
        // The pair that turns `turns` times over the original context.
        let pair =
            |turns: f64| dim * (original_context / (turns * std::f64::consts::TAU)).ln() / (2.0 * self.base.ln());
        let (mut low, mut high) = (pair(beta_fast), pair(beta_slow));
        if whole_borders {
            (low, high) = (low.floor(), high.ceil());
        }
        let (low, high) = (low.max(0.0), high.min(dim - 1.0));
        (low, if low == high { high + 0.001 } else { high })
    }

    /// Positions that can be used of those that a configuration states: more with YaRN, whose configurations state the
    /// length of before, and no more than the original ones with LongRoPE.
    pub(super) fn usable(&self, stated: usize, notes: &mut Vec<String>) -> usize {
        match self.scaling {
            RopeScaling::Yarn { factor, original_context, .. } => stated.max((factor * original_context) as usize),
            RopeScaling::LongRope { original_context, .. } if original_context < stated => {
                notes.push(format!(
                    "longrope: contexts end at {original_context} of {stated} tokens, as longer ones change the angles \
                     of tokens already read"
                ));
                original_context
            }
            _ => stated,
        }
    }

    /// Reads `rope_theta` with `rope_scaling`, or `rope_parameters`, which holds both since transformers 5.
    pub(super) fn from_huggingface(
        config: &HuggingFace,
        head_dim: usize,
        context: usize,
        default_base: f64,
        notes: &mut Vec<String>,
    ) -> Result<Self> {
        let (key, parameters) = match config.raw("rope_parameters") {
            // One set for each kind of layer: this is the one of layers that see everything.
            Some(parameters) => match parameters.get("full_attention") {
                Some(full) => ("rope_parameters.full_attention", Some(full)),
                None => ("rope_parameters", Some(parameters)),
            },
            None => ("rope_scaling", config.raw("rope_scaling")),
        };
        let inner = parameters.and_then(|parameters| parameters.get("rope_theta")).filter(|value| !value.is_null());
        let base = match inner {
            Some(theta) => config.typed(&format!("{key}.rope_theta"), theta)?,
            None => config.or_default("rope_theta", default_base, notes)?,
        };
        let inner = parameters.and_then(|parameters| parameters.get("partial_rotary_factor"));
        let partial = inner.or_else(|| config.raw("partial_rotary_factor")).filter(|value| !value.is_null());
        let partial: f64 = partial.map_or(Ok(1.0), |value| config.typed("partial_rotary_factor", value))?;
        let rotary_dim = (head_dim as f64 * partial) as usize;
        let scaling =
            parameters.map_or(Ok(RopeScaling::None), |found| scaling(config, key, found, context, rotary_dim))?;
        let rope = Rope { base, rotary_dim, scaling, style: RopeStyle::Halves };
        rope.check(head_dim, |name, text| problem(config.path, name, text))?;
        Ok(rope)
    }

    /// Reads `{arch}.rope.*`, and the tensors of divisors when the file has them.
    pub(super) fn from_gguf(checkpoint: &Checkpoint, keys: GgufKeys, head_dim: usize, family: &Family) -> Result<Self> {
        let base = keys.get::<f32>("rope.freq_base")?.map_or(family.rope_base, f64::from);
        let rotary_dim = keys.get("rope.dimension_count")?.unwrap_or(head_dim);
        let kind = keys.get::<&str>("rope.scaling.type")?.unwrap_or("none");
        if checkpoint.contains(SHORT_DIVISORS) {
            let scaling = gguf_longrope(checkpoint, keys, rotary_dim)?;
            let rope = Rope { base, rotary_dim, scaling, style: family.gguf_rope };
            rope.check(head_dim, |name, text| keys.header.problem(name, text))?;
            return Ok(rope);
        }
        refuse_unless(keys, "rope.scaling.attn_factor", 1.0)?;
        let mut scaling = match kind {
            "none" => RopeScaling::None,
            "linear" => RopeScaling::Linear { factor: f64::from(keys.require::<f32>("rope.scaling.factor")?) },
            "yarn" => gguf_yarn(keys)?,
            other => {
                let text = format!(
                    "found `{other}`, supported are none, linear and yarn (and `rope_freqs.weight` for llama3)"
                );
                return Err(keys.problem("rope.scaling.type", text));
            }
        };
        if let Some(factor) = keys.get::<f32>("rope.scale_linear")?.filter(|factor| *factor != 1.0) {
            scaling = RopeScaling::Linear { factor: f64::from(factor) };
        }
        const DIVISORS: &str = "rope_freqs.weight";
        if checkpoint.contains(DIVISORS) {
            if scaling != RopeScaling::None {
                return Err(keys.problem("rope.scaling.type", format!("found `{kind}` beside {DIVISORS}")));
            }
            scaling = RopeScaling::Divisors(crate::weights::vector(checkpoint, DIVISORS, rotary_dim / 2)?);
        }
        let rope = Rope { base, rotary_dim, scaling, style: family.gguf_rope };
        rope.check(head_dim, |name, text| keys.header.problem(name, text))?;
        Ok(rope)
    }

    /// Passes angles that a head can take and that are numbers; `problem` makes the error of a key.
    pub(crate) fn check(&self, head_dim: usize, problem: impl Fn(&str, String) -> crate::Error) -> Result<()> {
        let Rope { base, rotary_dim, .. } = *self;
        if !(base.is_finite() && base > 1.0) {
            return Err(problem("rope_theta", format!("found {base}, expected a finite number above 1")));
        }
        if rotary_dim == 0 || rotary_dim % 2 != 0 || rotary_dim > head_dim {
            let text =
                format!("{rotary_dim} rotated elements of heads of {head_dim}, expected an even number up to that");
            return Err(problem("head_dim", text));
        }
        let magnitude = self.magnitude();
        let is_number = |value: &f64| value.is_finite() && *value > 0.0;
        if !is_number(&magnitude) || !self.frequencies().iter().all(is_number) {
            return Err(problem("rope_scaling", format!("{:?} gives angles that are not finite", self.scaling)));
        }
        Ok(())
    }
}

/// YaRN as GGUF files state it. Keys of variants that change the ramp or the magnitude otherwise are refused.
fn gguf_yarn(keys: GgufKeys) -> Result<RopeScaling> {
    let number = |key: &str| -> Result<Option<f64>> { Ok(keys.get::<f32>(key)?.map(f64::from)) };
    for (key, neutral) in [("yarn_ext_factor", 1.0), ("yarn_attn_factor", 1.0), ("yarn_log_multiplier", 0.0)] {
        refuse_unless(keys, &format!("rope.scaling.{key}"), neutral)?;
    }
    let factor = f64::from(keys.require::<f32>("rope.scaling.factor")?);
    Ok(RopeScaling::Yarn {
        factor,
        original_context: keys.require::<usize>("rope.scaling.original_context_length")? as f64,
        beta_fast: number("rope.scaling.yarn_beta_fast")?.unwrap_or(BETA_FAST),
        beta_slow: number("rope.scaling.yarn_beta_slow")?.unwrap_or(BETA_SLOW),
        whole_borders: true,
        magnitude: yarn_magnitude(factor, 1.0),
    })
}

fn refuse_unless(keys: GgufKeys, key: &str, neutral: f32) -> Result<()> {
    match keys.get::<f32>(key)?.filter(|found| *found != neutral) {
        Some(found) => Err(keys.problem(key, format!("found {found}, supported is {neutral}"))),
        None => Ok(()),
    }
}

/// The divisors of LongRoPE are tensors, its magnitude is a key.
const SHORT_DIVISORS: &str = "rope_factors_short.weight";

fn gguf_longrope(checkpoint: &Checkpoint, keys: GgufKeys, rotary_dim: usize) -> Result<RopeScaling> {
    let divisors = crate::weights::vector(checkpoint, SHORT_DIVISORS, rotary_dim / 2)?;
    Ok(RopeScaling::LongRope {
        divisors: divisors.into_iter().map(f64::from).collect(),
        original_context: keys.require("rope.scaling.original_context_length")?,
        magnitude: keys.get::<f32>("rope.scaling.attn_factor")?.map_or(1.0, f64::from),
    })
}

/// `0.1 · m · ln(factor) + 1` (§3.3, with m = 1).
fn yarn_magnitude(factor: f64, m: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * m * factor.ln() + 1.0 }
}

fn scaling(
    config: &HuggingFace,
    key: &str,
    parameters: &Value,
    context: usize,
    rotary_dim: usize,
) -> Result<RopeScaling> {
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
        // `su` and, in one release of Phi-3, `yarn` are earlier names.
        "longrope" | "su" => longrope(config, key, parameters, context, rotary_dim),
        "yarn" if parameters.contains_key("short_factor") => longrope(config, key, parameters, context, rotary_dim),
        "yarn" => yarn(context, parameters, number),
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

fn yarn(
    context: usize,
    parameters: &serde_json::Map<String, Value>,
    number: impl Fn(&str) -> Result<f64>,
) -> Result<RopeScaling> {
    let stated = |name: &str| parameters.get(name).is_some_and(|value| !value.is_null());
    // 0 counts as absent, as in the reference.
    let optional = |name: &str| -> Result<Option<f64>> {
        let value = if stated(name) { Some(number(name)?) } else { None };
        Ok(value.filter(|value| *value != 0.0))
    };
    let factor = number("factor")?;
    let of_all = (optional("mscale")?, optional("mscale_all_dim")?);
    Ok(RopeScaling::Yarn {
        factor,
        original_context: optional("original_max_position_embeddings")?.unwrap_or(context as f64),
        beta_fast: optional("beta_fast")?.unwrap_or(BETA_FAST),
        beta_slow: optional("beta_slow")?.unwrap_or(BETA_SLOW),
        whole_borders: parameters.get("truncate") != Some(&Value::Bool(false)),
        magnitude: match (optional("attention_factor")?, of_all) {
            (Some(stated), _) => stated,
            (None, (Some(scores), Some(all))) => yarn_magnitude(factor, scores) / yarn_magnitude(factor, all),
            (None, _) => yarn_magnitude(factor, 1.0),
        },
    })
}

fn longrope(
    config: &HuggingFace,
    key: &str,
    parameters: &serde_json::Map<String, Value>,
    context: usize,
    rotary_dim: usize,
) -> Result<RopeScaling> {
    let name = format!("{key}.short_factor");
    let divisors =
        parameters.get("short_factor").ok_or_else(|| problem(config.path, &name, "missing for `longrope`"))?;
    let divisors: Vec<f64> = config.typed(&name, divisors)?;
    if divisors.len() != rotary_dim / 2 {
        let text = format!("found {} divisors, expected {}, one a rotated pair", divisors.len(), rotary_dim / 2);
        return Err(problem(config.path, &name, text));
    }
    const ORIGINAL: &str = "original_max_position_embeddings";
    let original = parameters.get(ORIGINAL).filter(|value| !value.is_null()).or_else(|| config.raw(ORIGINAL));
    let original: usize = match original {
        Some(original) => config.typed(ORIGINAL, original)?,
        None => return Err(problem(config.path, ORIGINAL, "missing for `longrope`")),
    };
    let optional = |name: &str| -> Result<Option<f64>> {
        let value = parameters.get(name).filter(|value| !value.is_null());
        value.map(|value| config.typed(&format!("{key}.{name}"), value)).transpose()
    };
    let factor = optional("factor")?.unwrap_or(context as f64 / original as f64);
    // √(1 + ln s / ln L), as transformers computes it when the checkpoint does not say.
    let stated = if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / (original as f64).ln()).sqrt() };
    let magnitude = optional("attention_factor")?.unwrap_or(stated);
    Ok(RopeScaling::LongRope { divisors, original_context: original, magnitude })
}
