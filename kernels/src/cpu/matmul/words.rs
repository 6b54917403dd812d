//! Weights of 16 bits: exact products of integers inside a group of 32, groups added in order in `f32`.

use std::ops::Range;

use super::super::Cpu;
use super::super::rounding::SMALLEST;
use super::super::vector::{LANES, Vector, kernel};
use super::Output;
use super::quantize::{PANEL_ROWS, panels};
use crate::matrix::{GROUP, LEVEL, Words};
use crate::memory::Aligned;
use crate::threads::Parts;

/// Pairs of columns in a group.
const PAIRS: usize = GROUP / 2;

/// Rows as integers of 16 bits, each group of 32 by its largest magnitude, in panels of 8, 4, 2 and 1 rows.
///
/// ```text
/// pairs    panel [group][row][16]   two neighbouring integers each
/// scales   panel [group][row]       what a unit is worth
/// ```
#[derive(Default)]
pub(super) struct WordRows {
    pairs: Aligned<u32>,
    scales: Vec<f32>,
}

impl WordRows {
    /// `x` `[rows][k]`, rows of so many groups.
    pub(super) fn round(&mut self, cpu: &Cpu, x: &[f32], groups: usize) {
        let k = groups * GROUP;
        let rows = x.len() / k;
        self.pairs.grow(x.len() / 2);
        self.scales.resize(rows * groups, 0.0);
        let (pairs, scales) = (Parts::new(&mut self.pairs), Parts::new(&mut self.scales));
        cpu.run_rows(rows.div_ceil(PANEL_ROWS), k * PANEL_ROWS, |blocks| {
            for range in panels(rows).filter(|range| blocks.contains(&(range.start / PANEL_ROWS))) {
                // SAFETY: a panel's rows are one task's.
                let (pairs, scales) = unsafe {
                    (
                        pairs.take(range.start * k / 2..range.end * k / 2),
                        scales.take(range.start * groups..range.end * groups),
                    )
                };
                round_panel(cpu.instruction_set, range.len(), pairs, scales, &x[range.start * k..range.end * k]);
            }
        });
    }
}

kernel! {
    /// `x` `[rows][k]`; the outputs as in one panel of [`WordRows`].
    fn round_panel<V>(v, rows: usize, pairs: &mut [u32], scales: &mut [f32], x: &[f32]) {
        let groups = scales.len() / rows;
        let words: &mut [u16] = bytemuck::cast_slice_mut(pairs);
        let (words, x) = (words.as_chunks_mut::<LANES>().0, x.as_chunks::<LANES>().0);
        for row in 0..rows {
            for group in 0..groups {
                let from = (row * groups + group) * 2;
                let (low, high) = (v.load(&x[from]), v.load(&x[from + 1]));
                // NaN and infinity are larger than numbers, and stay what they are in the scale.
                let largest = v.largest_magnitude(low, high);
                let factor = v.splat(if largest > SMALLEST { f32::from(LEVEL) / largest } else { 0.0 });
                let at = group * rows + row;
                scales[at] = largest / f32::from(LEVEL);
                v.store_words(&mut words[at * 2], v.multiply(low, factor));
                v.store_words(&mut words[at * 2 + 1], v.multiply(high, factor));
            }
        }
    }
}

kernel! {
    /// Multiplies `rows`, which start on a panel.
    pub(super) fn multiply<V>(v, out: &Output<'_>, rows: Range<usize>, x: &WordRows, w: &Words, tiles: Range<usize>) {
        for tile in tiles {
            for panel in panels(rows.len()) {
                let (first, count) = (rows.start + panel.start, panel.len());
                match count {
                    8 => multiply_panel::<V, 8, 1>(v, out, first, x, w, tile),
                    4 => multiply_panel::<V, 4, 1>(v, out, first, x, w, tile),
                    2 => multiply_panel::<V, 2, 2>(v, out, first, x, w, tile),
                    _ => multiply_panel::<V, 1, 4>(v, out, first, x, w, tile),
                }
            }
        }
    }
}

/// `R` rows by a tile, with `C` sums of integers beside each other where rows are too few to hide how long a product takes.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // rows index several arrays that must stay in registers
fn multiply_panel<V: Vector, const R: usize, const C: usize>(
    v: V,
    out: &Output<'_>,
    first: usize,
    x: &WordRows,
    w: &Words,
    tile: usize,
) {
    let groups = w.groups;
    let pairs = x.pairs[first * groups * PAIRS..][..R * groups * PAIRS].chunks_exact(R * PAIRS);
    let x_scales = x.scales[first * groups..][..R * groups].chunks_exact(R);
    let lines: &[[u8; 64]] = bytemuck::cast_slice(&w.levels[tile * groups * GROUP * LANES..][..groups * GROUP * LANES]);
    let scales = w.scales[tile * groups * LANES..][..groups * LANES].as_chunks::<LANES>().0;
    let mut sums = [v.splat(0.0); R];
    for (((pairs, x_scales), lines), scale) in pairs.zip(x_scales).zip(lines.as_chunks::<PAIRS>().0).zip(scales) {
        let mut dots = [[v.splat_integers(0); C]; R];
        for pair in 0..PAIRS {
            let weights = v.load_bytes(&lines[pair]);
            for row in 0..R {
                dots[row][pair % C] = v.dot_words(dots[row][pair % C], weights, &pairs[row * PAIRS + pair]);
            }
        }
        let scale = v.load(scale);
        for row in 0..R {
            let mut dot = dots[row][0];
            for chain in 1..C {
                dot = v.add_integers(dot, dots[row][chain]);
            }
            let unit = v.multiply(scale, v.splat(x_scales[row]));
            sums[row] = v.multiply_add(unit, v.to_floats(dot), sums[row]);
        }
    }
    for row in 0..R {
        // SAFETY: the tile is this task's.
        unsafe { out.write(v, first + row, tile, sums[row]) };
    }
}
