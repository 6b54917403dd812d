//! Rotary position embedding.

use std::ops::Range;

use crate::cpu;
use crate::cuda::on_gpu;
use crate::device::{Backend, Device};
use crate::error::{Error, Result, check_rows};
use crate::values::Values;

/// Which elements of a head form the pair that is rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeStyle {
    /// `(x[i], x[i + pairs])`: Hugging Face checkpoints, and GGUF files of NeoX type.
    Halves,
    /// `(x[2i], x[2i + 1])`: the original paper, and GGUF files of the `llama` architecture (their q and k rows are
    /// permuted to suit).
    Interleaved,
}

/// Cosines and sines of positions from 0 on, computed in double precision. A row is a function of its position alone, so
/// a table may grow.
#[derive(Debug)]
pub struct RopeTable {
    /// Radians a position, one a pair.
    frequencies: Vec<f64>,
    /// Factor of every cosine and sine.
    magnitude: f64,
    /// `[positions][pairs cosines, pairs sines]`
    values: Values,
}

impl RopeTable {
    /// The plain table: pair `i` of `rotary_dim / 2` turns by `base^(−2i / rotary_dim)` radians a position
    /// (Su et al. 2021, "RoFormer", eq. 15).
    pub fn new(rotary_dim: usize, positions: usize, base: f64) -> Self {
        Self::from_frequencies(&rope_frequencies(rotary_dim, base), positions, 1.0)
    }

    /// A table from radians a position for each pair; scaled contexts change these. `magnitude` multiplies every
    /// cosine and sine (1 but for YaRN).
    pub fn from_frequencies(frequencies: &[f64], positions: usize, magnitude: f64) -> Self {
        let mut table = Self { frequencies: frequencies.to_vec(), magnitude, values: Values::default() };
        table.values = Values::from(table.rows(0..positions));
        table
    }

    /// Adds the rows up to `positions` that are not there yet. A table without any lies where `device` wants it from then
    /// on.
    ///
    /// # Errors
    /// [`Error::Cuda`] when a GPU has no memory for it.
    pub fn extend(&mut self, device: &Device, positions: usize) -> Result<()> {
        let rows = self.rows(self.positions()..positions);
        self.values.extend(device, &rows)
    }

    fn rows(&self, positions: Range<usize>) -> Vec<f32> {
        let Self { frequencies, magnitude, .. } = self;
        let mut rows = Vec::with_capacity(positions.len() * frequencies.len() * 2);
        for position in positions {
            let angle = |frequency: &f64| position as f64 * frequency;
            rows.extend(frequencies.iter().map(|frequency| (angle(frequency).cos() * magnitude) as f32));
            rows.extend(frequencies.iter().map(|frequency| (angle(frequency).sin() * magnitude) as f32));
        }
        rows
    }

    /// Pairs rotated in each head; elements from `2 · pairs` on are left as they are.
    pub fn pairs(&self) -> usize {
        self.frequencies.len()
    }

    /// Positions in the table.
    pub fn positions(&self) -> usize {
        self.values.len().checked_div(2 * self.pairs()).unwrap_or(0)
    }

    #[cfg(any(feature = "cuda", feature = "emulate"))]
    pub(crate) fn values(&self) -> &[f32] {
        &self.values
    }

    pub(crate) fn at(&self, position: usize) -> (&[f32], &[f32]) {
        let pairs = self.pairs();
        self.values[position * 2 * pairs..][..2 * pairs].split_at(pairs)
    }
}

/// `base^(−2i / rotary_dim)` for each pair `i`.
pub fn rope_frequencies(rotary_dim: usize, base: f64) -> Vec<f64> {
    (0..rotary_dim / 2).map(|pair| base.powf(-2.0 * pair as f64 / rotary_dim as f64)).collect()
}

/// Rotates the first `2 · pairs` elements of every head: `(a, b) → (a cos − b sin, b cos + a sin)`.
///
/// # Shapes
/// `x` `[T, heads, D]` with `D ≥ 2 · pairs` · `positions` `[T]`
///
/// # Errors
/// A position outside of the table, or a wrong length.
pub fn rope(
    device: &Device,
    x: &mut [f32],
    positions: &[u32],
    table: &RopeTable,
    heads: usize,
    style: RopeStyle,
) -> Result<()> {
    let op = "rope";
    if x.is_empty() && positions.is_empty() {
        return Ok(());
    }
    let head_dim = check_rows(op, "x", x.len(), positions.len() * heads)?;
    if head_dim < 2 * table.pairs() {
        let problem = format!("heads of {head_dim} values cannot hold {} rotated pairs", table.pairs());
        return Err(Error::Shape { op, problem });
    }
    if let Some(position) = positions.iter().find(|position| **position as usize >= table.positions()) {
        return Err(Error::Index { op, operand: "position", index: *position as usize, limit: table.positions() });
    }
    match device.backend() {
        Backend::Cpu(cpu) => cpu::rope::rope(cpu, x, positions, table, heads, head_dim, style),
        Backend::Cuda(cuda) => on_gpu!(cuda, rope::rope(x, positions, table, heads, head_dim, style))?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_grew_is_one_made_whole() {
        let whole = RopeTable::new(6, 40, 1e4);
        let mut grown = RopeTable::new(6, 0, 1e4);
        for positions in [0, 7, 3, 40] {
            grown.extend(&Device::cpu(1), positions).unwrap();
        }
        assert_eq!((grown.positions(), &grown.values[..]), (40, &whole.values[..]));
    }
}
