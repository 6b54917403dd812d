//! Linear attention by the gated delta rule, with its projections, gate and norm.

use lifelong_kernels::ops::activation;
use lifelong_kernels::ops::delta::{self, DeltaInputs, DeltaShape, DeltaWeights};
use lifelong_kernels::ops::matmul::Precision;
use lifelong_kernels::{Device, KvCache};

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
    convolution: Vec<f32>,
    decay_log: Vec<f32>,
    decay_bias: Vec<f32>,
    norm: RmsNorm,
    shape: DeltaShape,
}

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
        let name = |part: &str| names.layer(layer, &format!("linear_attn.{part}"));
        let stored = weights.numbers(&name("conv1d.weight"), &[channels, 1, kernel])?;
        let turned = (0..kernel).flat_map(|place| stored.iter().skip(place).step_by(kernel)).copied();
        // Unlike other norms of these models, this one holds its weights as they are used.
        let norm = Norm { offset: 0.0, ..config.norm };
        let mut linear = |part: &str, n, k| Linear::load(weights, &name(part), n, k, Bias::Absent);
        Ok(DeltaNet {
            mixed: linear("in_proj_qkv", channels, hidden)?,
            gate: linear("in_proj_z", width, hidden)?,
            decay: linear("in_proj_a", value_heads, hidden)?,
            strength: linear("in_proj_b", value_heads, hidden)?,
            output: linear("out_proj", hidden, width)?,
            convolution: turned.collect(),
            decay_log: weights.vector(&name("A_log"), value_heads)?,
            decay_bias: weights.vector(&name("dt_bias"), value_heads)?,
            norm: RmsNorm::load(weights, &name("norm"), value_dim, norm)?,
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
        let x = normed.take(rows * self.output.outputs());
        let mixed = query.take(rows * self.shape.channels());
        let (decay, strength) = (key.take(rows * value_heads), value.take(rows * value_heads));
        let gate = gate.take(rows * value_heads * value_dim);
        // What goes into a state stays there: its products read activations in 16 bits, like queries, keys and values.
        let projections = [(&mut *mixed, &self.mixed), (&mut *decay, &self.decay), (&mut *strength, &self.strength)];
        linear::forward_each(device, projections, x, Precision::Bits16)?;
        self.gate.forward(device, gate, x)?;
        let out = attended.take(gate.len());
        let inputs = DeltaInputs { mixed, decay, strength };
        let weights =
            DeltaWeights { convolution: &self.convolution, decay_log: &self.decay_log, decay_bias: &self.decay_bias };
        let convolved = up.take(mixed.len());
        let (segments, tables) = (batch.segments, batch.tables);
        delta::gated_delta(device, out, convolved, inputs, weights, cache, place, segments, tables, self.shape)?;
        self.norm.forward_in_place(device, out)?;
        let gated = query.take(gate.len());
        activation::swiglu(device, gated, gate, out)?;
        self.output.forward(device, projected.take(x.len()), gated)
    }
}
