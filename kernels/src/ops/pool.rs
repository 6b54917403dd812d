//! One vector for each text of a packed batch.

use crate::cpu;
use crate::cuda::on_gpu;
use crate::device::{Backend, Device};
use crate::error::{Error, Result, check_length, check_rows};

/// The mean of each text's rows, added in order of position.
///
/// # Shapes
/// `out` `[R, H]` · `x` `[Σ lengths, H]` · `lengths` `[R]`, none zero
///
/// # Errors
/// A wrong length, or an empty text.
pub fn mean(device: &Device, out: &mut [f32], x: &[f32], lengths: &[usize]) -> Result<()> {
    let width = check("mean", out, x, lengths)?;
    match device.backend() {
        Backend::Cpu(cpu) => cpu::pool::mean(cpu, out, x, lengths, width),
        Backend::Cuda(cuda) => on_gpu!(cuda, pool::mean(out, x, lengths, width))?,
    }
    Ok(())
}

/// Each text's first row. Shapes and errors as in [`mean`].
///
/// # Errors
/// A wrong length, or an empty text.
pub fn cls(device: &Device, out: &mut [f32], x: &[f32], lengths: &[usize]) -> Result<()> {
    let width = check("cls", out, x, lengths)?;
    match device.backend() {
        Backend::Cpu(_) => cpu::pool::one_row(out, x, lengths, width, |first, _| first),
        Backend::Cuda(cuda) => on_gpu!(cuda, pool::one_row(out, x, lengths, width, |first, _| first))?,
    }
    Ok(())
}

/// Each text's last row. Shapes and errors as in [`mean`].
///
/// # Errors
/// A wrong length, or an empty text.
pub fn last(device: &Device, out: &mut [f32], x: &[f32], lengths: &[usize]) -> Result<()> {
    let width = check("last", out, x, lengths)?;
    match device.backend() {
        Backend::Cpu(_) => cpu::pool::one_row(out, x, lengths, width, |first, length| first + length - 1),
        Backend::Cuda(cuda) => {
            on_gpu!(cuda, pool::one_row(out, x, lengths, width, |first, length| first + length - 1))?
        }
    }
    Ok(())
}

/// `x / max(‖x‖₂, 1e-12)` for each row of `width` values, in place.
///
/// # Errors
/// A length that is not a whole number of rows.
pub fn l2_normalize(device: &Device, x: &mut [f32], width: usize) -> Result<()> {
    check_rows("l2_normalize", "x", x.len(), width)?;
    match device.backend() {
        Backend::Cpu(_) => cpu::pool::l2_normalize(x, width),
        Backend::Cuda(cuda) => on_gpu!(cuda, pool::l2_normalize(x, width))?,
    }
    Ok(())
}

fn check(op: &'static str, out: &[f32], x: &[f32], lengths: &[usize]) -> Result<usize> {
    if let Some(text) = lengths.iter().position(|length| *length == 0) {
        return Err(Error::Shape { op, problem: format!("text {text} has no tokens, so there is nothing to pool") });
    }
    if lengths.is_empty() {
        check_length(op, "x", x.len(), &[("texts", 0)])?;
        check_length(op, "out", out.len(), &[("texts", 0)])?;
        return Ok(1);
    }
    let width = check_rows(op, "out", out.len(), lengths.len()).map(|_| out.len() / lengths.len())?;
    check_length(op, "x", x.len(), &[("tokens", lengths.iter().sum()), ("hidden", width)])?;
    Ok(width)
}
