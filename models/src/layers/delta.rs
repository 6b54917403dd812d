//! Linear attention by the gated delta rule, with its projections, gate and norm.

use lifelong_kernels::ops::activation;
use lifelong_kernels::ops::delta::{self, DeltaInputs, DeltaShape, DeltaWeights};
use lifelong_kernels::ops::matmul::Precision;
use lifelong_kernels::{Device, KvCache, Values};

use super::linear::{self, Bias, Linear};
use super::norm::RmsNorm;
use crate::architecture::{Batch, Scratch};
use crate::config::{DecoderConfig, Norm};
use crate::error::Result;
use crate::names::Names;
use crate::weights::Weights;

/// `output(norm(delta(q, k, v)) · silu(gate))` (Yang et al. 2025, "Gated Delta Networks", §3.4 and figure 1).
pub(crate) struct DeltaNet {
    mixed: Linear,
    gate: Linear,
    decay: Linear,
    strength: Linear,
    output: Linear,
    /// `[kernel, C]`
    convolution: Values,
    decay_rate: Values,
    decay_bias: Values,
    norm: RmsNorm,
    shape: DeltaShape,
}

/// What the containers call the parts; those of the convolution, the rate and the bias are whole names of tensors.
struct Parts {
    mixed: &'static str,
    gate: &'static str,
    decay: &'static str,
    strength: &'static str,
    output: &'static str,
    norm: &'static str,
    convolution: &'static str,
    decay_rate: &'static str,
    decay_bias: &'static str,
}

const HUGGING_FACE: Parts = Parts {
    mixed: "linear_attn.in_proj_qkv",
    gate: "linear_attn.in_proj_z",
    decay: "linear_attn.in_proj_a",
    strength: "linear_attn.in_proj_b",
    output: "linear_attn.out_proj",
    norm: "linear_attn.norm",
    convolution: "linear_attn.conv1d.weight",
    decay_rate: "linear_attn.A_log",
    decay_bias: "linear_attn.dt_bias",
};
const GGUF: Parts = Parts {
    mixed: "attn_qkv",
    gate: "attn_gate",
    decay: "ssm_alpha",
    strength: "ssm_beta",
    output: "ssm_out",
    norm: "ssm_norm",
    convolution: "ssm_conv1d.weight",
    decay_rate: "ssm_a",
    decay_bias: "ssm_dt.bias",
};

impl DeltaNet {
    pub fn load(
        weights: &mut Weights,
        names: &Names,
        layer: usize,
        config: &DecoderConfig,
        shape: DeltaShape,
    ) -> Result<Self> {
        let DeltaShape { value_heads, value_dim, kernel, .. } = shape;
        let (hidden, channels, width) = (config.hidden, shape.channels(), value_heads * value_dim);
        let is_gguf = weights.checkpoint.gguf().is_some();
        let parts = if is_gguf { GGUF } else { HUGGING_FACE };
        let name = |part: &str| names.layer(layer, part);
        let stored = match is_gguf {
            true => weights.table(&name(parts.convolution), channels, kernel)?,
            false => weights.numbers(&name(parts.convolution), &[channels, 1, kernel])?,
        };
        let turned: Vec<f32> =
            (0..kernel).flat_map(|place| stored.iter().skip(place).step_by(kernel)).copied().collect();
        let mut decay_rate = weights.vector(&name(parts.decay_rate), value_heads)?;
        // A logarithm in one container, what it stands for with a minus in the other.
        decay_rate.iter_mut().for_each(|rate| *rate = if is_gguf { -*rate } else { f64::from(*rate).exp() as f32 });
        let (convolution, decay_rate) = (weights.placed(&turned)?, weights.placed(&decay_rate)?);
        // Unlike other norms of these models, this one holds its weights as they are used.
        let norm = Norm { offset: 0.0, ..config.norm };
        let mut linear = |part: &str, n, k| Linear::load(weights, &name(part), n, k, Bias::Absent);
        Ok(DeltaNet {
            mixed: linear(parts.mixed, channels, hidden)?,
            gate: linear(parts.gate, width, hidden)?,
            decay: linear(parts.decay, value_heads, hidden)?,
            strength: linear(parts.strength, value_heads, hidden)?,
            output: linear(parts.output, hidden, width)?,
            convolution,
            decay_rate,
            decay_bias: weights.values(&name(parts.decay_bias), value_heads)?,
            norm: RmsNorm::load(weights, &name(parts.norm), value_dim, norm)?,
            shape,
        })
    }

    /// Reads `scratch.normed` `[T, H]`, leaves the output in `scratch.projected`; `place` counts layers with states.
    pub fn forward(
        &self,
        device: &Device,
        batch: &Batch,
        cache: &mut KvCache,
        place: usize,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let DeltaShape { value_heads, value_dim, .. } = self.shape;
        let rows = batch.tokens.len();
        let Scratch { normed, projected, query, key, value, gate, up, attended, .. } = scratch;
        let x = normed.take(device, rows * self.output.outputs())?;
        let mixed = query.take(device, rows * self.shape.channels())?;
        let (decay, strength) = (key.take(device, rows * value_heads)?, value.take(device, rows * value_heads)?);
        let gate = gate.take(device, rows * value_heads * value_dim)?;
        // What goes into a state stays there: its products read activations in 16 bits, like queries, keys and values.
        let projections = [(&mut *mixed, &self.mixed), (&mut *decay, &self.decay), (&mut *strength, &self.strength)];
        linear::forward_each(device, projections, x, Precision::Bits16)?;
        self.gate.forward(device, gate, x)?;
        let out = attended.take(device, gate.len())?;
        let inputs = DeltaInputs { mixed, decay, strength };
        let weights =
            DeltaWeights { convolution: &self.convolution, decay_rate: &self.decay_rate, decay_bias: &self.decay_bias };
        let convolved = up.take(device, mixed.len())?;
        let (segments, tables) = (batch.segments, batch.tables);
        delta::gated_delta(device, out, convolved, inputs, weights, cache, place, segments, tables, self.shape)?;
        self.norm.forward_in_place(device, out)?;
        let gated = query.take(device, gate.len())?;
        activation::swiglu(device, gated, gate, out)?;
        self.output.forward(device, projected.take(device, x.len())?, gated)
    }
}
