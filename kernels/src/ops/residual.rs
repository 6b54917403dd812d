//! Sums, factors and copies of whole activations.

use crate::cpu;
use crate::cuda::on_gpu;
use crate::device::{Backend, Device};
use crate::error::{Result, check_length};

/// `x += y`.
///
/// # Errors
/// Different lengths.
pub fn add(device: &Device, x: &mut [f32], y: &[f32]) -> Result<()> {
    let op = "add";
    check_length(op, "y", y.len(), &[("x", x.len())])?;
    match device.backend() {
        Backend::Cpu(cpu) => cpu::activation::add(cpu, x, y),
        Backend::Cuda(cuda) => on_gpu!(cuda, residual::add(x, y))?,
    }
    Ok(())
}

/// `out = x`, for a result that leaves the activations of a step.
///
/// # Errors
/// Different lengths.
pub fn copy(device: &Device, out: &mut [f32], x: &[f32]) -> Result<()> {
    let op = "copy";
    check_length(op, "x", x.len(), &[("out", out.len())])?;
    match device.backend() {
        Backend::Cpu(_) => out.copy_from_slice(x),
        Backend::Cuda(cuda) => on_gpu!(cuda, residual::copy(out, x))?,
    }
    Ok(())
}

/// `x *= factor`, for models that scale their embeddings.
///
/// # Errors
/// None on the processor; [`crate::Error::Cuda`] on a GPU that fails.
pub fn scale(device: &Device, x: &mut [f32], factor: f32) -> Result<()> {
    match device.backend() {
        Backend::Cpu(cpu) => cpu::activation::scale(cpu, x, factor),
        Backend::Cuda(cuda) => on_gpu!(cuda, residual::scale(x, factor))?,
    }
    Ok(())
}
