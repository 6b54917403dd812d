//! Sums and factors over whole activations.

use crate::cpu;
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
        Backend::Cuda(cuda) => return cuda.refuse(op),
    }
    Ok(())
}

/// `x *= factor`, for models that scale their embeddings.
///
/// # Errors
/// None on the processor.
pub fn scale(device: &Device, x: &mut [f32], factor: f32) -> Result<()> {
    match device.backend() {
        Backend::Cpu(cpu) => cpu::activation::scale(cpu, x, factor),
        Backend::Cuda(cuda) => return cuda.refuse("scale"),
    }
    Ok(())
}
