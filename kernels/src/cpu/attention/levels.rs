//! Keys and values stored as integers ([`crate::KvType::I16`]): exact sums of products of 16 bits, scaled once.
//!
//! A query is made of integers as a key is. The weights of a block are made of integers by the largest of them, so that a
//! block of small weights is as fine as one of large ones; the sum that they are divided by in the end is of the weights
//! themselves.

use std::ops::Range;

use super::super::prefetch::prefetch;
use super::super::rounding::{SMALLEST, WEIGHT_LEVEL};
use super::super::vector::{LANES, Vector};
use super::stored::{HeadBlocks, Numbers, Stored, columns_at_once};

/// Keys by pairs of dimensions, values by pairs of tokens, and what a unit of each token's is worth.
#[derive(Clone, Copy)]
pub(super) struct Levels<'a> {
    keys: &'a [[u8; 64]],
    values: &'a [[u8; 64]],
    key_scales: &'a [f32; LANES],
    value_scales: &'a [f32; LANES],
}

impl Levels<'_> {
    /// Asks for the first lines of both streams; the processor follows them by itself. Asking for all of them was slower where
    /// they come from memory.
    #[inline(always)]
    fn bring_near(self) {
        const LINES: usize = 8;
        for line in self.keys.iter().take(LINES).chain(self.values.iter().take(LINES)) {
            prefetch(line);
        }
        prefetch(self.key_scales);
        prefetch(self.value_scales);
    }
}

impl<'a> Stored<'a> for Levels<'a> {
    #[inline(always)]
    fn of(blocks: &HeadBlocks<'a>, number: u32) -> Self {
        let Numbers::I16(bits) = blocks.numbers else { unreachable!("the kernel of integers was chosen for them") };
        let bits = &bits[blocks.first + number as usize * blocks.stride..][..blocks.stride];
        let lines: &[[u8; 64]] = bytemuck::cast_slice(bits);
        let half = blocks.dim.next_multiple_of(LANES) / 2;
        let (keys, lines) = lines.split_at(half);
        let (values, lines) = lines.split_at(half);
        let scales: &[[f32; LANES]] = bytemuck::cast_slice(lines);
        Self { keys, values, key_scales: &scales[0], value_scales: &scales[1] }
    }

    /// `q`: pairs of integers `[D'/2][count]` by their bits, then what a unit of each row is worth.
    #[inline(always)]
    #[allow(clippy::needless_range_loop)] // rows index several arrays
    fn scores<V: Vector, const R: usize, const AHEAD: bool>(
        self,
        v: V,
        q: &[f32],
        row: usize,
        count: usize,
        next: Self,
    ) -> [V::Floats; R] {
        let (pairs, units) = q.split_at(self.keys.len() * count);
        let pairs: &[u32] = bytemuck::cast_slice(pairs);
        let mut dots = [[v.splat_integers(0); 2]; R];
        for (keys, pairs) in self.keys.as_chunks::<2>().0.iter().zip(pairs.chunks_exact(2 * count)) {
            for chain in 0..2 {
                let key = v.load_bytes(&keys[chain]);
                let q: &[u32; R] = &pairs[chain * count + row..].as_chunks().0[0];
                for row in 0..R {
                    dots[row][chain] = v.dot_words(dots[row][chain], key, &q[row]);
                }
            }
        }
        if AHEAD {
            next.bring_near();
        }
        let units: &[f32; R] = &units[row..].as_chunks().0[0];
        let scales = v.load(self.key_scales);
        let mut scores = [v.splat(0.0); R];
        for row in 0..R {
            let dot = v.to_floats(v.add_integers(dots[row][0], dots[row][1]));
            scores[row] = v.multiply(dot, v.multiply(scales, v.splat(units[row])));
        }
        scores
    }

    #[inline(always)]
    #[allow(clippy::needless_range_loop)]
    fn add_values<V: Vector, const R: usize, const AHEAD: bool>(
        self,
        v: V,
        outputs: &mut [[f32; LANES]],
        weights: &[[f32; LANES]; R],
        kept: &[f32; R],
        _: Range<usize>,
        _: Self,
    ) {
        let scales = v.load(self.value_scales);
        let mut words = [[0; LANES / 2]; R];
        let mut units = [0.0; R];
        for row in 0..R {
            let weight = v.load(&weights[row]);
            // Where the weight is 0, what the slot holds may be no number.
            let share = v.select_less(v.splat(0.0), weight, v.multiply(weight, scales), v.splat(0.0));
            // NaN and infinity are larger than numbers, and stay what they are in the unit.
            let largest = v.largest_magnitude(v.splat(0.0), share);
            let factor = if largest > SMALLEST { f32::from(WEIGHT_LEVEL) / largest } else { 0.0 };
            units[row] = largest / f32::from(WEIGHT_LEVEL);
            v.store_words(bytemuck::cast_mut(&mut words[row]), v.multiply(share, v.splat(factor)));
        }
        let width = outputs.len() / R;
        let mut column = 0;
        while column < width {
            let (words, rows, values) = (&words, (&units, kept), self.values);
            let count = columns_at_once(width - column);
            match count {
                1 => accumulate::<V, R, 1>(v, outputs, words, rows, values, column),
                2 => accumulate::<V, R, 2>(v, outputs, words, rows, values, column),
                _ => accumulate::<V, R, 4>(v, outputs, words, rows, values, column),
            }
            column += count;
        }
    }
}

/// `output = output · kept + unit · Σ word[slot] · value[slot]` for `C` vectors of `R` outputs.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
fn accumulate<V: Vector, const R: usize, const C: usize>(
    v: V,
    outputs: &mut [[f32; LANES]],
    words: &[[u32; LANES / 2]; R],
    (units, kept): (&[f32; R], &[f32; R]),
    values: &[[u8; 64]],
    column: usize,
) {
    let width = outputs.len() / R;
    let mut sums = [[v.splat_integers(0); C]; R];
    // Bounds are checked once a pair of tokens.
    for (pair, values) in values.chunks_exact(width).enumerate() {
        let values: &[_; C] = &values[column..].as_chunks().0[0];
        let mut value = [v.load_bytes(&values[0]); C];
        for c in 0..C {
            value[c] = v.load_bytes(&values[c]);
        }
        for row in 0..R {
            for c in 0..C {
                sums[row][c] = v.dot_words(sums[row][c], value[c], &words[row][pair]);
            }
        }
    }
    for row in 0..R {
        for c in 0..C {
            let output = &mut outputs[row * width + column + c];
            let before = v.multiply(v.load(output), v.splat(kept[row]));
            v.store(output, v.multiply_add(v.to_floats(sums[row][c]), v.splat(units[row]), before));
        }
    }
}
