//! Token embeddings.

use crate::cpu;
use crate::cuda::on_gpu;
use crate::device::{Backend, Device};
use crate::error::{Error, Result, check_length};
use crate::matrix::Matrix;

/// `out[t] = table[tokens[t]]`, dequantised.
///
/// # Shapes
/// `out` `[T, H]` · `table` `[V, H]` · `tokens` `[T]`
///
/// # Errors
/// A token outside of the table, or a wrong length.
pub fn embedding(device: &Device, out: &mut [f32], table: &Matrix, tokens: &[u32]) -> Result<()> {
    let op = "embedding";
    check_length(op, "out", out.len(), &[("tokens", tokens.len()), ("hidden", table.columns())])?;
    if let Some(token) = tokens.iter().find(|token| **token as usize >= table.rows()) {
        return Err(Error::Index { op, operand: "token", index: *token as usize, limit: table.rows() });
    }
    table.check_place(op, device)?;
    match device.backend() {
        Backend::Cpu(cpu) => cpu::embed::embedding(cpu, out, table, tokens),
        Backend::Cuda(cuda) => on_gpu!(cuda, embed::embedding(out, table, tokens))?,
    }
    Ok(())
}
