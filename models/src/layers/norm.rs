//! Normalisation with its weights.

use lifelong_kernels::ops::norm;
use lifelong_kernels::{Device, Values};

use crate::config::Norm;
use crate::error::Result;
use crate::weights::Weights;

/// Root mean square norm.
pub(crate) struct RmsNorm {
    weight: Values,
    epsilon: f32,
}

impl RmsNorm {
    /// Takes `{name}.weight` `[width]`.
    pub fn load(weights: &mut Weights, name: &str, width: usize, norm: Norm) -> Result<Self> {
        let mut weight = weights.vector(&format!("{name}.weight"), width)?;
        weight.iter_mut().for_each(|weight| *weight += norm.offset);
        Ok(RmsNorm { weight: weights.placed(&weight)?, epsilon: norm.epsilon })
    }

    pub fn width(&self) -> usize {
        self.weight.len()
    }

    /// `x = norm(x)` for rows of the weights' width.
    pub fn forward_in_place(&self, device: &Device, x: &mut [f32]) -> Result<()> {
        Ok(norm::rms_norm_in_place(device, x, &self.weight, self.epsilon)?)
    }

    /// `out = norm(x)`
    pub fn forward(&self, device: &Device, out: &mut [f32], x: &[f32]) -> Result<()> {
        Ok(norm::rms_norm(device, out, x, &self.weight, self.epsilon)?)
    }

    /// `residual += x; out = norm(residual)`
    pub fn forward_residual(&self, device: &Device, residual: &mut [f32], out: &mut [f32], x: &[f32]) -> Result<()> {
        Ok(norm::rms_norm_residual(device, residual, out, x, &self.weight, self.epsilon)?)
    }
}

/// Mean and variance norm.
pub(crate) struct LayerNorm {
    weight: Values,
    bias: Values,
    epsilon: f32,
}

impl LayerNorm {
    pub fn load(weights: &mut Weights, name: &str, hidden: usize, epsilon: f32) -> Result<Self> {
        let weight = weights.values(&format!("{name}.weight"), hidden)?;
        Ok(LayerNorm { weight, bias: weights.values(&format!("{name}.bias"), hidden)?, epsilon })
    }

    /// `out = norm(x)`
    pub fn forward(&self, device: &Device, out: &mut [f32], x: &[f32]) -> Result<()> {
        Ok(norm::layer_norm(device, out, x, &self.weight, &self.bias, self.epsilon)?)
    }

    /// `residual = norm(residual + x)`
    pub fn forward_residual(&self, device: &Device, residual: &mut [f32], x: &[f32]) -> Result<()> {
        Ok(norm::layer_norm_residual(device, residual, x, &self.weight, &self.bias, self.epsilon)?)
    }
}
