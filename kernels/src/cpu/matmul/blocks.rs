//! Quantised weights: exact 8-bit products inside a group of 32, groups added in order in `f32`.

use std::ops::Range;

use super::super::prefetch::prefetch;
use super::super::vector::{LANES, Vector, kernel};
use super::Output;
use super::quantize::{Activations, PANEL_ROWS, Panel, panels};
use crate::device::InstructionSet;
use crate::matrix::{BlockScales, Blocks, LEVELS};
use crate::ops::matmul::Precision;

/// Multiplies rows, which start on a panel, by the given tiles, by the kernel compiled for the form of the weights.
pub(super) fn multiply(
    instruction_set: InstructionSet,
    out: &Output<'_>,
    rows: Range<usize>,
    x: &Activations,
    w: &Blocks,
    tiles: Range<usize>,
) {
    let multiply = match (w.bits, w.halves, w.minima.is_some(), &w.scales) {
        (4, 1, false, BlockScales::Powers(_)) => multiply_form::<4, 1, 0, 1>,
        (4, 1, false, BlockScales::F16(_)) => multiply_form::<4, 1, 0, 2>,
        (4, 1, true, BlockScales::F16(_)) => multiply_form::<4, 1, 1, 2>,
        (8, 1, false, BlockScales::F16(_)) => multiply_form::<8, 1, 0, 2>,
        (8, 1, true, BlockScales::F16(_)) => multiply_form::<8, 1, 1, 2>,
        (8, 1, false, BlockScales::F32(_)) => multiply_form::<8, 1, 0, 4>,
        (4, 1, true, BlockScales::F32(_)) => multiply_form::<4, 1, 1, 4>,
        (8, 1, true, BlockScales::F32(_)) => multiply_form::<8, 1, 1, 4>,
        (8, 2, false, BlockScales::F32(_)) => multiply_form::<8, 2, 0, 4>,
        (8, 2, true, BlockScales::F32(_)) => multiply_form::<8, 2, 1, 4>,
        (bits, halves, minima, _) => unreachable!("no weights are packed as {bits} bits × {halves}, {minima}: our bug"),
    };
    multiply(instruction_set, out, rows, x, w, tiles);
}

/// `BITS` 4 or 8 · `HALVES` 1 or 2 · `MINIMA` 0 (a zero level instead) or 1 · `WIDTH` of factors in bytes, 1 for powers of two
/// beside codes of levels.
fn multiply_form<const BITS: usize, const HALVES: usize, const MINIMA: usize, const WIDTH: usize>(
    instruction_set: InstructionSet,
    out: &Output<'_>,
    rows: Range<usize>,
    x: &Activations,
    w: &Blocks,
    tiles: Range<usize>,
) {
    #[cfg(target_arch = "x86_64")]
    if instruction_set == InstructionSet::Avx512Amx && rows.len() >= PANEL_ROWS && x.precision() == Precision::Bits8 {
        let pairs = tiles.start..tiles.start + tiles.len() / 2 * 2;
        // SAFETY: a device is constructed only with an instruction set that `is_available`; the tiles are this task's.
        unsafe { super::tiled::multiply::<BITS, HALVES, MINIMA, WIDTH>(out, rows.clone(), x, w, pairs.clone()) };
        let rest = rows.start + rows.len() / PANEL_ROWS * PANEL_ROWS..rows.end;
        multiply_tiles::<BITS, HALVES, MINIMA, WIDTH>(instruction_set, out, rest, x, w, pairs.clone());
        multiply_tiles::<BITS, HALVES, MINIMA, WIDTH>(instruction_set, out, rows, x, w, pairs.end..tiles.end);
        return;
    }
    multiply_tiles::<BITS, HALVES, MINIMA, WIDTH>(instruction_set, out, rows, x, w, tiles);
}

kernel! {
    /// Multiplies `rows`, which start on a panel.
    fn multiply_tiles<V, const BITS: usize, const HALVES: usize, const MINIMA: usize, const WIDTH: usize>(
        v, out: &Output<'_>, rows: Range<usize>, x: &Activations, w: &Blocks, tiles: Range<usize>,
    ) {
        for tile in tiles {
            let weights = Tile::<BITS, HALVES, MINIMA, WIDTH>::new(w, tile);
            if x.precision() == Precision::Bits16 {
                multiply_rows::<V, 1, BITS, HALVES, MINIMA, WIDTH>(v, out, rows.clone(), tile, &weights, x);
            } else {
                multiply_rows::<V, 0, BITS, HALVES, MINIMA, WIDTH>(v, out, rows.clone(), tile, &weights, x);
            }
        }
    }
}

/// Groups that a single panel asks for ahead.
const AHEAD: usize = 24;

/// What a panel asks for of the weights that come next, so many lines with each group that it multiplies.
#[derive(Clone, Copy)]
struct Ahead {
    from: *const [u8; 64],
    lines: usize,
}

/// The groups of one tile, `WIDTH` 1 reading exponents, 2 `f16` factors, 4 `f32`.
pub(super) struct Tile<'a, const BITS: usize, const HALVES: usize, const MINIMA: usize, const WIDTH: usize> {
    pub(super) levels: &'a [[u8; 64]],
    pub(super) scales: Factors<'a>,
    pub(super) minima: Factors<'a>,
}

#[derive(Clone, Copy)]
pub(super) struct Factors<'a> {
    power: &'a [[u8; LANES]],
    half: &'a [[u16; LANES]],
    single: &'a [[f32; LANES]],
}

impl<'a> Factors<'a> {
    fn new(factors: Option<&'a BlockScales>, from: usize, count: usize) -> Self {
        let mut found = Self { power: &[], half: &[], single: &[] };
        match factors {
            Some(BlockScales::Powers(values)) => found.power = &values.as_chunks().0[from..][..count],
            Some(BlockScales::F16(values)) => found.half = &values.as_chunks().0[from..][..count],
            Some(BlockScales::F32(values)) => found.single = &values.as_chunks().0[from..][..count],
            None => {}
        }
        found
    }

    #[inline(always)]
    pub(super) fn load<V: Vector, const WIDTH: usize>(&self, v: V, index: usize) -> V::Floats {
        match WIDTH {
            1 => v.load_powers(&self.power[index]),
            2 => v.load_f16(&self.half[index]),
            _ => v.load(&self.single[index]),
        }
    }
}

impl<'a, const BITS: usize, const HALVES: usize, const MINIMA: usize, const WIDTH: usize>
    Tile<'a, BITS, HALVES, MINIMA, WIDTH>
{
    #[inline(always)]
    pub(super) fn new(w: &'a Blocks, tile: usize) -> Self {
        let (from, count) = (tile * w.groups, w.groups);
        Self {
            levels: &w.levels.as_chunks().0[from * BITS..][..count * BITS],
            scales: Factors::new(Some(&w.scales), from * HALVES, count * HALVES),
            minima: Factors::new(w.minima.as_ref(), from * HALVES, count * HALVES),
        }
    }

    /// The part of panel `index` of `count`: one panel alone asks for groups of its own and then of the next tile; several
    /// share the next tile, so that memory is at work as long as they are.
    #[inline(always)]
    fn ahead(&self, index: usize, count: usize) -> Ahead {
        let (groups, end) = (self.levels.len() / BITS, self.levels.len());
        if count == 1 {
            return Ahead { from: self.levels.as_ptr().wrapping_add(groups.min(AHEAD) * BITS), lines: BITS };
        }
        let each = BITS.div_ceil(count);
        let lines = each.min(BITS.saturating_sub(index * each));
        Ahead { from: self.levels.as_ptr().wrapping_add(end + index * each * groups), lines }
    }

    /// Eight vectors, each four columns of 16 rows.
    #[inline(always)]
    #[allow(clippy::needless_range_loop)] // closures would not be compiled for the instruction set
    fn quads<V: Vector>(&self, v: V, group: usize) -> [V::Bytes; 8] {
        let levels = &self.levels[group * BITS..][..BITS];
        let mut quads = [v.load_bytes(&levels[0]); 8];
        if BITS == 8 {
            for quad in 0..8 {
                quads[quad] = v.load_bytes(&levels[quad]);
            }
        } else {
            for quad in 0..4 {
                (quads[quad], quads[quad + 4]) = v.load_nibbles(&levels[quad]);
            }
        }
        if WIDTH == 1 {
            for quad in 0..8 {
                quads[quad] = v.look_up(&LEVELS, quads[quad]);
            }
        }
        quads
    }
}

/// A tile by all rows. `FINE` 0: 8-bit activations, 1: 16-bit.
#[inline(always)]
fn multiply_rows<
    V: Vector,
    const FINE: usize,
    const BITS: usize,
    const HALVES: usize,
    const MINIMA: usize,
    const WIDTH: usize,
>(
    v: V,
    out: &Output<'_>,
    rows: Range<usize>,
    tile: usize,
    w: &Tile<'_, BITS, HALVES, MINIMA, WIDTH>,
    x: &Activations,
) {
    let count = panels(rows.len()).count();
    for (index, panel) in panels(rows.len()).enumerate() {
        let rows = rows.start + panel.start..rows.start + panel.end;
        let panel = x.panel(rows.clone());
        let ahead = w.ahead(index, count);
        match rows.len() {
            8 => multiply_panel::<V, 8, FINE, BITS, HALVES, MINIMA, WIDTH>(v, out, rows.start, tile, w, panel, ahead),
            4 => multiply_panel::<V, 4, FINE, BITS, HALVES, MINIMA, WIDTH>(v, out, rows.start, tile, w, panel, ahead),
            2 => multiply_panel::<V, 2, FINE, BITS, HALVES, MINIMA, WIDTH>(v, out, rows.start, tile, w, panel, ahead),
            _ => multiply_panel::<V, 1, FINE, BITS, HALVES, MINIMA, WIDTH>(v, out, rows.start, tile, w, panel, ahead),
        }
    }
}

#[inline(always)]
fn dot<V: Vector, const BITS: usize>(v: V, sum: V::Integers, weights: V::Bytes, x: [i8; 4]) -> V::Integers {
    if BITS == 4 { v.dot_small(sum, weights, x) } else { v.dot(sum, weights, x) }
}

#[inline(always)]
#[allow(clippy::needless_range_loop, clippy::too_many_arguments)] // rows index several arrays that must stay in registers
fn multiply_panel<
    V: Vector,
    const R: usize,
    const FINE: usize,
    const BITS: usize,
    const HALVES: usize,
    const MINIMA: usize,
    const WIDTH: usize,
>(
    v: V,
    out: &Output<'_>,
    first: usize,
    tile: usize,
    w: &Tile<'_, BITS, HALVES, MINIMA, WIDTH>,
    x: Panel<'_>,
    ahead: Ahead,
) {
    let levels = x.levels.chunks_exact(R * 32);
    let (starts, factors) = (x.starts.chunks_exact(HALVES * R), x.factors.chunks_exact(HALVES * R));
    let x_groups = levels.zip(x.scales.chunks_exact(R)).zip(starts).zip(factors);
    for row in 0..R {
        out.prefetch(first + row, tile);
    }
    let mut sums = [v.splat(0.0); R];
    for (group, (((levels, x_scales), starts), factors)) in x_groups.enumerate() {
        let levels = levels.as_chunks::<4>().0;
        let lows = if FINE == 1 { x.lows[group * R * 32..][..R * 32].as_chunks::<4>().0 } else { levels };
        for line in 0..ahead.lines {
            prefetch(ahead.from.wrapping_add(group * ahead.lines + line));
        }
        let quads = w.quads(v, group);
        let (mut scale, mut minimum) = ([v.splat(0.0); HALVES], [v.splat(0.0); HALVES]);
        for half in 0..HALVES {
            scale[half] = w.scales.load::<V, WIDTH>(v, group * HALVES + half);
            if MINIMA == 1 {
                minimum[half] = w.minima.load::<V, WIDTH>(v, group * HALVES + half);
            }
        }
        for half in 0..HALVES {
            // A column of all rows before the next column, so that no product waits for the one before it.
            let columns = half * 8 / HALVES..(half + 1) * 8 / HALVES;
            let mut dots = [v.splat_integers(0); R];
            if MINIMA == 0 && FINE == 0 {
                for row in 0..R {
                    dots[row] = v.splat_integers(starts[half * R + row]);
                }
            }
            for quad in columns.clone() {
                for row in 0..R {
                    dots[row] = dot::<V, BITS>(v, dots[row], quads[quad], levels[row * 8 + quad]);
                }
            }
            if FINE == 1 {
                for row in 0..R {
                    let start = if MINIMA == 1 { 0 } else { starts[half * R + row] };
                    dots[row] = v.shift_add(dots[row], v.splat_integers(start));
                }
                for quad in columns {
                    for row in 0..R {
                        dots[row] = dot::<V, BITS>(v, dots[row], quads[quad], lows[row * 8 + quad]);
                    }
                }
            }
            for row in 0..R {
                let scale = v.multiply(scale[half], v.splat(x_scales[row]));
                sums[row] = v.multiply_add(scale, v.to_floats(dots[row]), sums[row]);
                if MINIMA == 1 {
                    sums[row] = v.multiply_add(minimum[half], v.splat(factors[half * R + row]), sums[row]);
                }
            }
        }
    }
    for row in 0..R {
        // SAFETY: the tile is this task's.
        unsafe { out.write(v, first + row, tile, sums[row]) };
    }
}
