//! Weights that are plain numbers: one chain of fused multiply-adds over k for each output.

use std::ops::Range;

use super::super::vector::{LANES, Vector, kernel};
use super::Output;
use super::quantize::panels;
use crate::matrix::{BrainBits, HalfBits, Panels};

/// Tiles whose chains run beside each other, to hide the latency of a multiply-add.
pub(super) const TILES: usize = 2;

/// A way to store plain weights.
trait Weight: bytemuck::Zeroable + Copy {
    fn load<V: Vector>(v: V, weights: &[Self; LANES]) -> V::Floats;
}

impl Weight for f32 {
    #[inline(always)]
    fn load<V: Vector>(v: V, weights: &[f32; LANES]) -> V::Floats {
        v.load(weights)
    }
}

impl Weight for HalfBits {
    #[inline(always)]
    fn load<V: Vector>(v: V, weights: &[HalfBits; LANES]) -> V::Floats {
        v.load_f16(bytemuck::cast_ref(weights))
    }
}

impl Weight for BrainBits {
    #[inline(always)]
    fn load<V: Vector>(v: V, weights: &[BrainBits; LANES]) -> V::Floats {
        v.load_bf16(bytemuck::cast_ref(weights))
    }
}

kernel! {
    pub(super) fn multiply_f32<V>(v, out: &Output<'_>, x: &[f32], w: &Panels<f32>, tiles: Range<usize>) {
        multiply(v, out, x, w, tiles);
    }
}

kernel! {
    pub(super) fn multiply_f16<V>(v, out: &Output<'_>, x: &[f32], w: &Panels<HalfBits>, tiles: Range<usize>) {
        multiply(v, out, x, w, tiles);
    }
}

kernel! {
    pub(super) fn multiply_bf16<V>(v, out: &Output<'_>, x: &[f32], w: &Panels<BrainBits>, tiles: Range<usize>) {
        multiply(v, out, x, w, tiles);
    }
}

#[inline(always)]
fn multiply<V: Vector, W: Weight>(v: V, out: &Output<'_>, x: &[f32], w: &Panels<W>, tiles: Range<usize>) {
    let mut tile = tiles.start;
    while tile < tiles.end {
        let count = if tile + TILES <= tiles.end { TILES } else { 1 };
        for rows in panels(x.len() / w.columns) {
            match (rows.len(), count) {
                (8, TILES) => multiply_panel::<V, W, 8, TILES>(v, out, x, rows, w, tile),
                (4, TILES) => multiply_panel::<V, W, 4, TILES>(v, out, x, rows, w, tile),
                (2, TILES) => multiply_panel::<V, W, 2, TILES>(v, out, x, rows, w, tile),
                (_, TILES) => multiply_panel::<V, W, 1, TILES>(v, out, x, rows, w, tile),
                (8, _) => multiply_panel::<V, W, 8, 1>(v, out, x, rows, w, tile),
                (4, _) => multiply_panel::<V, W, 4, 1>(v, out, x, rows, w, tile),
                (2, _) => multiply_panel::<V, W, 2, 1>(v, out, x, rows, w, tile),
                (_, _) => multiply_panel::<V, W, 1, 1>(v, out, x, rows, w, tile),
            }
        }
        tile += count;
    }
}

#[inline(always)]
#[allow(clippy::needless_range_loop)] // rows index several arrays that must stay in registers
fn multiply_panel<V: Vector, W: Weight, const R: usize, const C: usize>(
    v: V,
    out: &Output<'_>,
    x: &[f32],
    rows: Range<usize>,
    w: &Panels<W>,
    tile: usize,
) {
    let k = w.columns;
    let x: [&[f32]; R] = std::array::from_fn(|row| &x[(rows.start + row) * k..][..k]);
    let w: [&[[W; LANES]]; C] =
        std::array::from_fn(|column| &w.values[(tile + column) * k * LANES..].as_chunks::<LANES>().0[..k]);
    let mut sums = [[v.splat(0.0); C]; R];
    for step in 0..k {
        let mut weights = [v.splat(0.0); C];
        for column in 0..C {
            weights[column] = W::load(v, &w[column][step]);
        }
        for row in 0..R {
            let value = v.splat(x[row][step]);
            for column in 0..C {
                sums[row][column] = v.multiply_add(value, weights[column], sums[row][column]);
            }
        }
    }
    for row in 0..R {
        for column in 0..C {
            // SAFETY: the tiles are this task's.
            unsafe { out.write(v, rows.start + row, tile + column, sums[row][column]) };
        }
    }
}
