//! Element-wise functions of feed-forward layers.

use crate::cpu;
use crate::cuda::on_gpu;
use crate::device::{Backend, Device};
use crate::error::{Result, check_length};

/// `out = silu(gate) · up`, with `silu(x) = x / (1 + e⁻ˣ)` (Shazeer 2020, "GLU Variants Improve Transformer", §2).
///
/// # Shapes
/// `out`, `gate`, `up` `[T, F]`
///
/// # Errors
/// Different lengths.
pub fn swiglu(device: &Device, out: &mut [f32], gate: &[f32], up: &[f32]) -> Result<()> {
    let op = "swiglu";
    check_gate(op, out, gate, up)?;
    match device.backend() {
        Backend::Cpu(cpu) => cpu::activation::swiglu(cpu, out, gate, up),
        Backend::Cuda(cuda) => on_gpu!(cuda, activation::swiglu(out, gate, up))?,
    }
    Ok(())
}

/// `out = (up + 1) · gate · sigmoid(α · gate)`, with the gate kept below `limit` and `up` within ± `limit`: the gate of
/// gpt-oss (OpenAI 2025, "gpt-oss-120b & gpt-oss-20b Model Card", §2.2; its constants are in the released code).
///
/// # Shapes
/// `out`, `gate`, `up` `[T, F]`
///
/// # Errors
/// Different lengths.
pub fn swiglu_clamped(
    device: &Device,
    out: &mut [f32],
    gate: &[f32],
    up: &[f32],
    alpha: f32,
    limit: f32,
) -> Result<()> {
    let op = "swiglu_clamped";
    check_gate(op, out, gate, up)?;
    match device.backend() {
        Backend::Cpu(cpu) => cpu::activation::swiglu_clamped(cpu, out, gate, up, alpha, limit),
        Backend::Cuda(cuda) => on_gpu!(cuda, activation::swiglu_clamped(out, gate, up, alpha, limit))?,
    }
    Ok(())
}

/// `x *= sigmoid(gate)`, in place.
///
/// # Errors
/// Different lengths.
pub fn sigmoid_gate(device: &Device, x: &mut [f32], gate: &[f32]) -> Result<()> {
    let op = "sigmoid_gate";
    check_length(op, "gate", gate.len(), &[("x", x.len())])?;
    match device.backend() {
        Backend::Cpu(cpu) => cpu::activation::sigmoid_gate(cpu, x, gate),
        Backend::Cuda(cuda) => on_gpu!(cuda, activation::sigmoid_gate(x, gate))?,
    }
    Ok(())
}

/// `out = gelu_tanh(gate) · up`, the gate of Gemma.
///
/// # Shapes
/// `out`, `gate`, `up` `[T, F]`
///
/// # Errors
/// Different lengths.
pub fn geglu_tanh(device: &Device, out: &mut [f32], gate: &[f32], up: &[f32]) -> Result<()> {
    let op = "geglu_tanh";
    check_gate(op, out, gate, up)?;
    match device.backend() {
        Backend::Cpu(cpu) => cpu::activation::geglu(cpu, out, gate, up),
        Backend::Cuda(cuda) => on_gpu!(cuda, activation::geglu(out, gate, up))?,
    }
    Ok(())
}

/// `x = x/2 · (1 + erf(x / √2))` in place (Hendrycks & Gimpel 2016, "Gaussian Error Linear Units", §2).
///
/// # Errors
/// None on the processor; [`crate::Error::Cuda`] on a GPU that fails.
pub fn gelu(device: &Device, x: &mut [f32]) -> Result<()> {
    match device.backend() {
        Backend::Cpu(cpu) => cpu::activation::gelu(cpu, x),
        Backend::Cuda(cuda) => on_gpu!(cuda, activation::gelu(x))?,
    }
    Ok(())
}

/// `x = x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))` in place (same source, §2: the approximation).
///
/// # Errors
/// None on the processor; [`crate::Error::Cuda`] on a GPU that fails.
pub fn gelu_tanh(device: &Device, x: &mut [f32]) -> Result<()> {
    match device.backend() {
        Backend::Cpu(cpu) => cpu::activation::gelu_tanh(cpu, x),
        Backend::Cuda(cuda) => on_gpu!(cuda, activation::gelu_tanh(x))?,
    }
    Ok(())
}

fn check_gate(op: &'static str, out: &[f32], gate: &[f32], up: &[f32]) -> Result<()> {
    check_length(op, "out", out.len(), &[("gate", gate.len())])?;
    check_length(op, "up", up.len(), &[("gate", gate.len())])
}
