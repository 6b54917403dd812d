//! Element-wise functions.

use super::Cuda;
use super::operation::{Operation, blocks};
use super::runner::arguments;
use crate::error::Result;

const THREADS: u32 = 256;

pub(crate) fn swiglu(cuda: &Cuda, out: &mut [f32], gate: &[f32], up: &[f32]) -> Result<()> {
    gated(cuda, "swiglu", out, gate, up)
}

pub(crate) fn geglu(cuda: &Cuda, out: &mut [f32], gate: &[f32], up: &[f32]) -> Result<()> {
    gated(cuda, "geglu", out, gate, up)
}

fn gated(cuda: &Cuda, kernel: &'static str, out: &mut [f32], gate: &[f32], up: &[f32]) -> Result<()> {
    let count = gate.len();
    let mut operation = Operation::begin(cuda, kernel)?;
    let (out, gate, up) = (operation.output(out)?, operation.input(gate)?, operation.input(up)?);
    operation.launch(kernel, blocks(count, THREADS), THREADS, 0, arguments![out, gate, up, count as u64])?;
    operation.finish()
}

pub(crate) fn swiglu_clamped(
    cuda: &Cuda,
    out: &mut [f32],
    gate: &[f32],
    up: &[f32],
    alpha: f32,
    limit: f32,
) -> Result<()> {
    let (kernel, count) = ("swiglu_clamped", gate.len());
    let mut operation = Operation::begin(cuda, kernel)?;
    let (out, gate, up) = (operation.output(out)?, operation.input(gate)?, operation.input(up)?);
    let arguments = arguments![out, gate, up, count as u64, alpha, limit];
    operation.launch(kernel, blocks(count, THREADS), THREADS, 0, arguments)?;
    operation.finish()
}

pub(crate) fn sigmoid_gate(cuda: &Cuda, x: &mut [f32], gate: &[f32]) -> Result<()> {
    let (kernel, count) = ("sigmoid_gate", gate.len());
    let mut operation = Operation::begin(cuda, kernel)?;
    let (x, gate) = (operation.in_out(x)?, operation.input(gate)?);
    operation.launch(kernel, blocks(count, THREADS), THREADS, 0, arguments![x, gate, count as u64])?;
    operation.finish()
}

pub(crate) fn gelu(cuda: &Cuda, x: &mut [f32]) -> Result<()> {
    in_place(cuda, "gelu", x)
}

pub(crate) fn gelu_tanh(cuda: &Cuda, x: &mut [f32]) -> Result<()> {
    in_place(cuda, "gelu_tanh", x)
}

fn in_place(cuda: &Cuda, kernel: &'static str, x: &mut [f32]) -> Result<()> {
    let count = x.len();
    let mut operation = Operation::begin(cuda, kernel)?;
    let x = operation.in_out(x)?;
    operation.launch(kernel, blocks(count, THREADS), THREADS, 0, arguments![x, count as u64])?;
    operation.finish()
}
