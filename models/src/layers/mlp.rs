//! Feed-forward layers.

use lifelong_kernels::Device;
use lifelong_kernels::ops::matmul::Precision;
use lifelong_kernels::ops::{activation, exchange};

use super::linear::{self, Bias, Linear};
use crate::architecture::Scratch;
use crate::config::{DecoderConfig, Gate, Gelu};
use crate::error::Result;
use crate::names::Names;
use crate::weights::Weights;

/// `down(f(gate(x)) · up(x))` (Shazeer 2020, "GLU Variants Improve Transformer", §2, SwiGLU and GEGLU).
pub(crate) struct GatedMlp {
    gate: Linear,
    up: Linear,
    down: Linear,
    function: Gate,
}

impl GatedMlp {
    /// That of one layer of a decoder; of one that is split, with the columns between the projections that are here.
    pub fn load(weights: &mut Weights, names: &Names, layer: usize, config: &DecoderConfig) -> Result<Self> {
        let DecoderConfig { hidden, feed_forward, gate: function, .. } = *config;
        let bias = Bias::from(config.biases.mlp);
        let name = |part: &str| names.layer(layer, part);
        let columns = weights.columns(&format!("{}.weight", name(names.down)), feed_forward)?;
        let [gate, up] = match config.fused {
            true => Linear::load_split(weights, &name(names.gate_up), [columns.clone(), columns.clone()], hidden)?,
            false => [
                Linear::load_outputs(weights, &name(names.gate), &columns, hidden, bias)?,
                Linear::load_outputs(weights, &name(names.up), &columns, hidden, bias)?,
            ],
        };
        let down = Linear::load_inputs(weights, &name(names.down), hidden, &columns, bias)?;
        Ok(GatedMlp { gate, up, down, function })
    }

    /// One of SiLU without biases, from the tensors of these names for gate, up and down.
    pub fn load_named(weights: &mut Weights, names: [String; 3], hidden: usize, width: usize) -> Result<Self> {
        let [gate, up, down] = names;
        let mut linear = |name: String, n, k| Linear::load(weights, &name, n, k, Bias::Absent);
        Ok(GatedMlp {
            gate: linear(gate, width, hidden)?,
            up: linear(up, width, hidden)?,
            down: linear(down, hidden, width)?,
            function: Gate::Silu,
        })
    }

    /// Reads `scratch.normed` `[rows, H]`, leaves the output in `scratch.projected`.
    pub fn forward(&self, device: &Device, rows: usize, scratch: &mut Scratch) -> Result<()> {
        let x = scratch.normed.take(device, rows * self.down.outputs())?;
        let gate = scratch.gate.take(device, rows * self.gate.outputs())?;
        let up = scratch.up.take(device, rows * self.up.outputs())?;
        let activated = scratch.attended.take(device, rows * self.up.outputs())?;
        linear::forward_each(device, [(&mut *gate, &self.gate), (&mut *up, &self.up)], x, Precision::Bits8)?;
        match self.function {
            Gate::Silu => activation::swiglu(device, activated, gate, up)?,
            Gate::GeluTanh => activation::geglu_tanh(device, activated, gate, up)?,
        }
        let projected = scratch.projected.take(device, x.len())?;
        self.down.forward(device, projected, activated)?;
        Ok(exchange::sum(device, projected)?)
    }
}

/// `down(gelu(up(x)))`
pub(crate) struct Mlp {
    pub up: Linear,
    pub down: Linear,
    pub activation: Gelu,
}

impl Mlp {
    /// Reads `x` `[T, H]`, leaves the output in `scratch.projected`.
    pub fn forward(&self, device: &Device, x: &[f32], scratch: &mut Scratch) -> Result<()> {
        let rows = x.len() / self.down.outputs();
        let up = scratch.up.take(device, rows * self.up.outputs())?;
        self.up.forward(device, up, x)?;
        match self.activation {
            Gelu::Erf => activation::gelu(device, up)?,
            Gelu::Tanh => activation::gelu_tanh(device, up)?,
        }
        self.down.forward(device, scratch.projected.take(device, x.len())?, up)
    }
}
