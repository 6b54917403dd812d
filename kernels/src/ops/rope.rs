//! Rotary position embedding.

use crate::cpu;
use crate::device::{Backend, Device};
use crate::error::{Error, Result, check_rows};

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
#[derive(Clone, Debug)]
pub struct RopeTable {
    /// Radians a position, one a pair.
    frequencies: Vec<f64>,
    /// Factor of every cosine and sine.
    magnitude: f64,
    /// `[positions][pairs cosines, pairs sines]`
    values: Vec<f32>,
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
        let mut table = Self { frequencies: frequencies.to_vec(), magnitude, values: Vec::new() };
        table.extend(positions);
        table
    }

    /// Adds the rows up to `positions` that are not there yet.
    pub fn extend(&mut self, positions: usize) {
        let Self { frequencies, magnitude, values } = self;
        let begin = values.len().checked_div(2 * frequencies.len()).unwrap_or(0);
        values.reserve(positions.saturating_sub(begin) * frequencies.len() * 2);
        for position in begin..positions {
            let angle = |frequency: &f64| position as f64 * frequency;
            values.extend(frequencies.iter().map(|frequency| (angle(frequency).cos() * *magnitude) as f32));
            values.extend(frequencies.iter().map(|frequency| (angle(frequency).sin() * *magnitude) as f32));
        }
    }

    /// Pairs rotated in each head; elements from `2 · pairs` on are left as they are.
    pub fn pairs(&self) -> usize {
        self.frequencies.len()
    }

    /// Positions in the table.
    pub fn positions(&self) -> usize {
        self.values.len().checked_div(2 * self.pairs()).unwrap_or(0)
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
        Backend::Cuda(cuda) => return cuda.refuse(op),
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
            grown.extend(positions);
        }
        assert_eq!((grown.positions(), grown.values), (40, whole.values));
    }
}
