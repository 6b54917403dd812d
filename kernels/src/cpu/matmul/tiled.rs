//! Quantised products on tile registers: whole panels of 8 rows by pairs of weight tiles.
//!
//! The integers come from tile registers, 8 rows by 2 × 16 outputs at a time; scales are applied with the same vector
//! operations in the same order as in [`blocks`](super::blocks), so the bits are the same. 4-bit weights are unpacked
//! once for all rows.

use std::arch::x86_64::{_mm512_add_epi32, _mm512_loadu_si512, _mm512_set1_epi32};
use std::cell::RefCell;
use std::ops::Range;

use super::super::tiles::{Sums, TILE_PANEL_ROWS, Tiles};
use super::super::vector::{Avx512, Vector};
use super::Output;
use super::blocks::Tile;
use super::quantize::{Activations, Panel};
use crate::matrix::{Blocks, LEVELS};
use crate::memory::Aligned;

thread_local! {
    /// Unpacked weights of a pair of tiles.
    static UNPACKED: RefCell<Aligned<u8>> = RefCell::default();
}

/// Multiplies the whole panels of 8 rows in `rows`, which start on a panel, by `tiles`, an even number of tiles.
///
/// # Safety
/// The processor has tile registers and what [`Avx512`] stands for; the tiles are this task's.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn multiply<const BITS: usize, const HALVES: usize, const MINIMA: usize, const WIDTH: usize>(
    out: &Output<'_>,
    rows: Range<usize>,
    x: &Activations,
    w: &Blocks,
    tiles: Range<usize>,
) {
    debug_assert!(tiles.len().is_multiple_of(2));
    // SAFETY: the caller's promise; no other configuration lives on this thread, as tasks do not nest.
    let (v, registers) = unsafe { (Avx512::new(), Tiles::configure(32 / HALVES)) };
    UNPACKED.with_borrow_mut(|unpacked| {
        for tile in tiles.step_by(2) {
            let pair = [tile, tile + 1].map(|tile| Tile::<BITS, HALVES, MINIMA, WIDTH>::new(w, tile));
            let levels: [&[[u8; 64]]; 2] = if BITS == 8 {
                [pair[0].levels, pair[1].levels]
            } else {
                unpacked.grow(2 * w.groups * 512);
                let (first, second) = unpacked.as_chunks_mut::<64>().0[..2 * w.groups * 8].split_at_mut(w.groups * 8);
                unpack::<WIDTH>(v, pair[0].levels, first);
                unpack::<WIDTH>(v, pair[1].levels, second);
                [first, second]
            };
            for first in rows.clone().step_by(TILE_PANEL_ROWS).take(rows.len() / TILE_PANEL_ROWS) {
                let panel = x.panel(first..first + TILE_PANEL_ROWS);
                // SAFETY: as for this function; a panel of 8 rows holds `w.groups` groups, as do both tiles.
                unsafe { multiply_panel(v, &registers, out, first, tile, &pair, levels, panel) };
            }
        }
    });
}

/// Nibbles, or the levels that they are codes of, as bytes, `[group][quad 0..8]`.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn unpack<const WIDTH: usize>(v: Avx512, packed: &[[u8; 64]], out: &mut [[u8; 64]]) {
    for (packed, out) in packed.chunks_exact(4).zip(out.chunks_exact_mut(8)) {
        let (low, high) = out.split_at_mut(4);
        for ((packed, low), high) in packed.iter().zip(low).zip(high) {
            let (mut low_levels, mut high_levels) = v.load_nibbles(packed);
            if WIDTH == 1 {
                (low_levels, high_levels) = (v.look_up(&LEVELS, low_levels), v.look_up(&LEVELS, high_levels));
            }
            v.store_bytes(low, low_levels);
            v.store_bytes(high, high_levels);
        }
    }
}

/// One panel by two tiles. The integers of a group are computed before the previous group's are scaled, so that tile
/// and vector units work at once.
///
/// # Safety
/// As for [`multiply`]; `levels` and `x` hold as many groups as the tiles.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[allow(clippy::too_many_arguments, clippy::needless_range_loop)] // rows index arrays that must stay in registers
unsafe fn multiply_panel<const BITS: usize, const HALVES: usize, const MINIMA: usize, const WIDTH: usize>(
    v: Avx512,
    registers: &Tiles,
    out: &Output<'_>,
    first: usize,
    tile: usize,
    pair: &[Tile<'_, BITS, HALVES, MINIMA, WIDTH>; 2],
    levels: [&[[u8; 64]]; 2],
    x: Panel<'_>,
) {
    const R: usize = TILE_PANEL_ROWS;
    let (activations, levels) = (x.levels.as_ptr(), levels.map(|levels| levels.as_ptr().cast::<u8>()));
    // Halves of groups, in order.
    let steps = x.scales.len() / R * HALVES;
    let (factors, starts) = (x.factors.as_chunks::<R>().0, x.starts.as_chunks::<R>().0);
    let scales = x.scales.as_chunks::<R>().0;
    let mut dots = [Sums([[[0; 16]; R]; 2]); 2];
    let product = |dots: &mut Sums, step: usize| {
        let (group, half) = (step / HALVES, step % HALVES);
        // SAFETY: `step` is below `steps`, and each group takes R rows of 32 activations and 8 rows of 64 weights.
        unsafe {
            let weights = levels.map(|levels| levels.add((group * 8 + half * 4) * 64));
            registers.multiply(dots, activations.add(group * R * 32 + half * 16), weights);
        }
    };
    product(&mut dots[0], 0);
    let mut sums = [[v.splat(0.0); 2]; R];
    for step in 0..steps {
        if step + 1 < steps {
            product(&mut dots[(step + 1) % 2], step + 1);
        }
        let Sums(dots) = &dots[step % 2];
        let scale = [pair[0].scales.load::<_, WIDTH>(v, step), pair[1].scales.load::<_, WIDTH>(v, step)];
        let minimum = if MINIMA == 1 {
            [pair[0].minima.load::<_, WIDTH>(v, step), pair[1].minima.load::<_, WIDTH>(v, step)]
        } else {
            [v.splat(0.0); 2]
        };
        let (x_scales, starts, factors) = (&scales[step / HALVES], &starts[step], &factors[step]);
        for row in 0..R {
            let x_scale = v.splat(x_scales[row]);
            for column in 0..2 {
                // SAFETY: the array holds 64 bytes.
                let mut dot = unsafe { _mm512_loadu_si512(dots[column][row].as_ptr().cast()) };
                if MINIMA == 0 {
                    dot = _mm512_add_epi32(dot, _mm512_set1_epi32(starts[row]));
                }
                let scale = v.multiply(scale[column], x_scale);
                sums[row][column] = v.multiply_add(scale, v.to_floats(dot), sums[row][column]);
                if MINIMA == 1 {
                    let factor = v.splat(factors[row]);
                    sums[row][column] = v.multiply_add(minimum[column], factor, sums[row][column]);
                }
            }
        }
    }
    for row in 0..R {
        for column in 0..2 {
            // SAFETY: the tiles are this task's.
            unsafe { out.write(v, first + row, tile + column, sums[row][column]) };
        }
    }
}
