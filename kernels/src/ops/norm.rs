//! Normalisation of rows.

use crate::cpu;
use crate::cuda::on_gpu;
use crate::device::{Backend, Device};
use crate::error::{Result, check_length, check_rows};

/// `out = x / √(mean(x²) + eps) · weight` (Zhang & Sennrich 2019, "Root Mean Square Layer Normalization", eq. 4).
///
/// # Shapes
/// `out`, `x` `[T, H]` · `weight` `[H]`; for a norm over heads, `H` is the head and `T` counts (token, head) pairs.
///
/// # Errors
/// A wrong length.
pub fn rms_norm(device: &Device, out: &mut [f32], x: &[f32], weight: &[f32], eps: f32) -> Result<()> {
    let op = "rms_norm";
    check(op, x.len(), weight)?;
    check_length(op, "out", out.len(), &[("x", x.len())])?;
    match device.backend() {
        Backend::Cpu(cpu) => cpu::norm::rms_norm(cpu, out, x, weight, eps),
        Backend::Cuda(cuda) => on_gpu!(cuda, norm::rms_norm(out, x, weight, eps))?,
    }
    Ok(())
}

/// [`rms_norm`] over `x` itself.
///
/// # Errors
/// A wrong length.
pub fn rms_norm_in_place(device: &Device, x: &mut [f32], weight: &[f32], eps: f32) -> Result<()> {
    let op = "rms_norm_in_place";
    check(op, x.len(), weight)?;
    match device.backend() {
        Backend::Cpu(cpu) => cpu::norm::rms_norm_in_place(cpu, x, weight, eps),
        Backend::Cuda(cuda) => on_gpu!(cuda, norm::rms_norm_in_place(x, weight, eps))?,
    }
    Ok(())
}

/// `residual += x; out = rms_norm(residual)`: the step between two halves of a layer.
///
/// # Shapes
/// `residual`, `out`, `x` `[T, H]` · `weight` `[H]`
///
/// # Errors
/// A wrong length.
pub fn rms_norm_residual(
    device: &Device,
    residual: &mut [f32],
    out: &mut [f32],
    x: &[f32],
    weight: &[f32],
    eps: f32,
) -> Result<()> {
    let op = "rms_norm_residual";
    check(op, x.len(), weight)?;
    check_length(op, "residual", residual.len(), &[("x", x.len())])?;
    check_length(op, "out", out.len(), &[("x", x.len())])?;
    match device.backend() {
        Backend::Cpu(cpu) => cpu::norm::rms_norm_residual(cpu, residual, out, x, weight, eps),
        Backend::Cuda(cuda) => on_gpu!(cuda, norm::rms_norm_residual(residual, out, x, weight, eps))?,
    }
    Ok(())
}

/// `out = (x − mean) / √(variance + eps) · weight + bias` (Ba et al. 2016, "Layer Normalization", §3); the variance is
/// that of the population.
///
/// # Shapes
/// `out`, `x` `[T, H]` · `weight`, `bias` `[H]`
///
/// # Errors
/// A wrong length.
pub fn layer_norm(device: &Device, out: &mut [f32], x: &[f32], weight: &[f32], bias: &[f32], eps: f32) -> Result<()> {
    let op = "layer_norm";
    check(op, x.len(), weight)?;
    check_length(op, "out", out.len(), &[("x", x.len())])?;
    check_length(op, "bias", bias.len(), &[("weight", weight.len())])?;
    match device.backend() {
        Backend::Cpu(cpu) => cpu::norm::layer_norm(cpu, out, x, weight, bias, eps),
        Backend::Cuda(cuda) => on_gpu!(cuda, norm::layer_norm(out, x, weight, bias, eps))?,
    }
    Ok(())
}

/// `residual = layer_norm(residual + x)`: the post-norm step of BERT.
///
/// # Shapes
/// `residual`, `x` `[T, H]` · `weight`, `bias` `[H]`
///
/// # Errors
/// A wrong length.
pub fn layer_norm_residual(
    device: &Device,
    residual: &mut [f32],
    x: &[f32],
    weight: &[f32],
    bias: &[f32],
    eps: f32,
) -> Result<()> {
    let op = "layer_norm_residual";
    check(op, x.len(), weight)?;
    check_length(op, "residual", residual.len(), &[("x", x.len())])?;
    check_length(op, "bias", bias.len(), &[("weight", weight.len())])?;
    match device.backend() {
        Backend::Cpu(cpu) => cpu::norm::layer_norm_residual(cpu, residual, x, weight, bias, eps),
        Backend::Cuda(cuda) => on_gpu!(cuda, norm::layer_norm_residual(residual, x, weight, bias, eps))?,
    }
    Ok(())
}

fn check(op: &'static str, length: usize, weight: &[f32]) -> Result<()> {
    check_rows(op, "x", length, weight.len()).map(|_| ())
}
