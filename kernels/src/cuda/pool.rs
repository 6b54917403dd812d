//! From a text's token rows to one row.

use super::operation::Operation;
use super::runner::arguments;
use super::{Cuda, experts};
use crate::error::Result;

const THREADS: u32 = 256;

pub(crate) fn mean(cuda: &Cuda, out: &mut [f32], x: &[f32], lengths: &[usize], width: usize) -> Result<()> {
    let mut starts = vec![0u32];
    starts.extend(lengths.iter().scan(0, |end, length| {
        *end += *length as u32;
        Some(*end)
    }));
    let grid = [lengths.len() as u32, width.div_ceil(THREADS as usize) as u32, 1];
    let mut operation = Operation::begin(cuda, "mean")?;
    let (out, x) = (operation.output(out)?, operation.input(x)?);
    let starts = operation.step_input("pooled texts", &starts)?;
    operation.launch("pool_mean", grid, THREADS, 0, arguments![out, x, starts, width as u32])?;
    operation.finish()
}

/// Copies the row that `pick` chooses from each text's first row and length.
pub(crate) fn one_row(
    cuda: &Cuda,
    out: &mut [f32],
    x: &[f32],
    lengths: &[usize],
    width: usize,
    pick: impl Fn(usize, usize) -> usize,
) -> Result<()> {
    let mut first = 0;
    let row = |length: &usize| {
        let row = pick(first, *length);
        first += length;
        row as u32
    };
    let rows: Vec<u32> = lengths.iter().map(row).collect();
    experts::gather(cuda, out, x, &rows, width)
}

pub(crate) fn l2_normalize(cuda: &Cuda, x: &mut [f32], width: usize) -> Result<()> {
    let grid = [(x.len() / width) as u32, 1, 1];
    let mut operation = Operation::begin(cuda, "l2_normalize")?;
    let x = operation.in_out(x)?;
    operation.launch("l2_normalize", grid, THREADS, 0, arguments![x, width as u32])?;
    operation.finish()
}
