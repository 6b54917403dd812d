//! From a text's token rows to one row.

use super::Cpu;
use super::norm::add_in_place;

pub(crate) fn mean(cpu: &Cpu, out: &mut [f32], x: &[f32], lengths: &[usize], width: usize) {
    let mut rows = x.chunks_exact(width);
    for (out, length) in out.chunks_exact_mut(width).zip(lengths) {
        out.fill(0.0);
        for row in rows.by_ref().take(*length) {
            add_in_place(cpu.instruction_set, out, row);
        }
        let count = *length as f32;
        out.iter_mut().for_each(|value| *value /= count);
    }
}

/// Copies the row that `pick` chooses from each text's first row and length.
pub(crate) fn one_row(
    out: &mut [f32],
    x: &[f32],
    lengths: &[usize],
    width: usize,
    pick: impl Fn(usize, usize) -> usize,
) {
    let mut first = 0;
    for (out, length) in out.chunks_exact_mut(width).zip(lengths) {
        let row = pick(first, *length);
        out.copy_from_slice(&x[row * width..][..width]);
        first += length;
    }
}

/// Sums of squares in double precision: one pass over few rows, so speed does not matter and accuracy is free.
pub(crate) fn l2_normalize(x: &mut [f32], width: usize) {
    for row in x.chunks_exact_mut(width) {
        let norm = row.iter().map(|value| f64::from(*value) * f64::from(*value)).sum::<f64>().sqrt();
        let norm = norm.max(1e-12) as f32;
        row.iter_mut().for_each(|value| *value /= norm);
    }
}
