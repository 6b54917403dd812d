//! Sums, factors and copies of whole activations.

use super::Cuda;
use super::operation::{Operation, blocks};
use super::runner::arguments;
use crate::error::Result;

const THREADS: u32 = 256;

pub(crate) fn add(cuda: &Cuda, x: &mut [f32], y: &[f32]) -> Result<()> {
    let count = x.len();
    let mut operation = Operation::begin(cuda, "add")?;
    let (x, y) = (operation.in_out(x)?, operation.input(y)?);
    operation.launch("residual_add", blocks(count, THREADS), THREADS, 0, arguments![x, y, count as u64])?;
    operation.finish()
}

pub(crate) fn scale(cuda: &Cuda, x: &mut [f32], factor: f32) -> Result<()> {
    let count = x.len();
    let mut operation = Operation::begin(cuda, "scale")?;
    let x = operation.in_out(x)?;
    operation.launch("residual_scale", blocks(count, THREADS), THREADS, 0, arguments![x, factor, count as u64])?;
    operation.finish()
}

pub(crate) fn copy(cuda: &Cuda, out: &mut [f32], x: &[f32]) -> Result<()> {
    let count = x.len();
    let mut operation = Operation::begin(cuda, "copy")?;
    let (out, x) = (operation.output(out)?, operation.input(x)?);
    operation.launch("residual_copy", blocks(count, THREADS), THREADS, 0, arguments![out, x, count as u64])?;
    operation.finish()
}
