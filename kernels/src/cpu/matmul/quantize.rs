//! Activations as integers of 8 or 16 bits, for products with quantised weights.
//!
//! Each row is cut into groups of 32; a group is scaled by its largest magnitude over 127 and rounded to nearest, ties
//! to even. A group's integers depend on its own 32 values only, so a row's product does not depend on other rows. The
//! scheme is ggml's Q8_1 with the scale kept in `f32`. For 16 bits, what rounding left over is rounded again in steps of
//! 1/256: an activation is the integer 256 · level + low in units of scale / 256.

use std::ops::Range;

use super::super::Cpu;
use super::super::vector::{LANES, kernel};
use crate::matrix::Blocks;
use crate::memory::Aligned;
use crate::ops::matmul::Precision;
use crate::threads::Parts;

/// The most rows a panel holds: as many as keep their sums and products in registers beside eight weight vectors.
pub(super) const PANEL_ROWS: usize = 8;

/// Quantised rows, in panels of 8, 4, 2 and 1 rows so that one group of a panel is contiguous.
///
/// ```text
/// levels   panel [group][row][32]
/// lows     panel [group][row][32]     of 16-bit rows only
/// scales   panel [group][row]         what one unit of the integers is worth
/// sums     panel [group][half][row]   what the integers of a half add up to: as −zero · Σ (an exact start of the integer
///                                     product) for weights with a zero level, or as scale · Σ (the factor of the
///                                     minimum) for weights with minima
/// ```
#[derive(Default)]
pub(super) struct Activations {
    levels: Aligned<i8>,
    lows: Aligned<i8>,
    precision: Precision,
    scales: Vec<f32>,
    starts: Vec<i32>,
    factors: Vec<f32>,
    groups: usize,
    halves: usize,
}

/// One panel of [`Activations`].
pub(super) struct Panel<'a> {
    pub(super) levels: &'a [i8],
    pub(super) lows: &'a [i8],
    pub(super) scales: &'a [f32],
    pub(super) starts: &'a [i32],
    pub(super) factors: &'a [f32],
}

/// The row ranges of panels that cover `rows`.
pub(super) fn panels(rows: usize) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let size = [8, 4, 2, 1].into_iter().find(|size| start + size <= rows)?;
        start += size;
        Some(start - size..start)
    })
}

impl Activations {
    /// Quantises `x`, rows of `w.groups` groups, for products with `w`.
    pub(super) fn quantize(&mut self, cpu: &Cpu, x: &[f32], w: &Blocks, precision: Precision) {
        let k = w.groups * 32;
        let rows = x.len() / k;
        (self.groups, self.halves, self.precision) = (w.groups, w.halves, precision);
        let fine = usize::from(precision == Precision::Bits16);
        self.levels.grow(x.len());
        self.lows.grow(x.len() * fine);
        self.scales.resize(rows * w.groups, 0.0);
        self.starts.resize(rows * w.groups * w.halves, 0);
        self.factors.resize(rows * w.groups * w.halves, 0.0);
        let (levels, lows) = (Parts::new(&mut self.levels), Parts::new(&mut self.lows));
        let scales = Parts::new(&mut self.scales);
        let (starts, factors) = (Parts::new(&mut self.starts), Parts::new(&mut self.factors));
        cpu.run_rows(rows.div_ceil(PANEL_ROWS), k * PANEL_ROWS, |blocks| {
            for range in panels(rows).filter(|range| blocks.contains(&(range.start / PANEL_ROWS))) {
                let sums = range.start * w.groups * w.halves..range.end * w.groups * w.halves;
                // SAFETY: a panel's rows are one task's.
                let (levels, lows, scales, starts, factors) = unsafe {
                    (
                        levels.take(range.start * k..range.end * k),
                        lows.take(range.start * k * fine..range.end * k * fine),
                        scales.take(range.start * w.groups..range.end * w.groups),
                        starts.take(sums.clone()),
                        factors.take(sums),
                    )
                };
                let x = &x[range.start * k..range.end * k];
                let sums = (starts, factors);
                quantize_panel(cpu.instruction_set, range.len(), levels, lows, scales, sums, x, w.zero, w.halves);
            }
        });
    }

    pub(super) fn precision(&self) -> Precision {
        self.precision
    }

    pub(super) fn panel(&self, rows: Range<usize>) -> Panel<'_> {
        let sums = rows.start * self.groups * self.halves..rows.end * self.groups * self.halves;
        let levels = rows.start * self.groups * 32..rows.end * self.groups * 32;
        Panel {
            levels: &self.levels[levels.clone()],
            lows: if self.precision == Precision::Bits16 { &self.lows[levels] } else { &[] },
            scales: &self.scales[rows.start * self.groups..rows.end * self.groups],
            starts: &self.starts[sums.clone()],
            factors: &self.factors[sums],
        }
    }
}

kernel! {
    /// `x` `[rows][k]`; the outputs as in one panel of [`Activations`], `lows` empty for 8 bits.
    fn quantize_panel<V>(
        v,
        rows: usize,
        levels: &mut [i8],
        lows: &mut [i8],
        scales: &mut [f32],
        sums: (&mut [i32], &mut [f32]),
        x: &[f32],
        zero: i32,
        halves: usize,
    ) {
        let (starts, factors) = sums;
        let groups = scales.len() / rows;
        let (levels, lows) = (levels.as_chunks_mut::<LANES>().0, lows.as_chunks_mut::<LANES>().0);
        let x = x.as_chunks::<LANES>().0;
        for row in 0..rows {
            for group in 0..groups {
                let from = (row * groups + group) * 2;
                let (low, high) = (v.load(&x[from]), v.load(&x[from + 1]));
                let largest = v.largest_magnitude(low, high);
                let inverse = v.splat(if largest > 0.0 { 127.0 / largest } else { 0.0 });
                let at = group * rows + row;
                let mut scale = largest / 127.0;
                let scaled = [v.multiply(low, inverse), v.multiply(high, inverse)];
                let mut sums = [0; 2];
                for part in 0..2 {
                    sums[part] = v.store_levels(&mut levels[at * 2 + part], scaled[part]);
                }
                if !lows.is_empty() {
                    scale /= 256.0;
                    for part in 0..2 {
                        let rest = v.multiply(v.subtract(scaled[part], v.round(scaled[part])), v.splat(256.0));
                        // Half a step is 128 of these, which an 8-bit integer does not hold.
                        let rest = v.select_less(rest, v.splat(127.0), rest, v.splat(127.0));
                        sums[part] = (sums[part] << 8) + v.store_levels(&mut lows[at * 2 + part], rest);
                    }
                }
                scales[at] = scale;
                for half in 0..halves {
                    let sum = if halves == 1 { sums[0] + sums[1] } else { sums[half] };
                    let at = (group * halves + half) * rows + row;
                    starts[at] = -zero * sum;
                    factors[at] = scale * sum as f32;
                }
            }
        }
    }
}
