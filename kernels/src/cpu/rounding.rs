//! Keys, values and queries as integers of 16 bits: each head of a token by its largest magnitude.

use super::math::load_part;
use super::vector::{LANES, kernel};
use crate::device::InstructionSet;

/// The largest integer of a value: sixteen, each by a weight of up to [`WEIGHT_LEVEL`], sum within 32 bits.
pub(super) const VALUE_LEVEL: u16 = 4_095;
/// The largest integer of a weight.
pub(super) const WEIGHT_LEVEL: u16 = 32_767;
/// What is no larger counts as zero, so that its inverse is a number.
pub(super) const SMALLEST: f32 = 1e-30;

/// Values that are rounded at a time.
const ROUNDED: usize = 4 * LANES;

/// Gives the integers of `x` in pairs, with the place of the first in `x`, filled up with zeros to a multiple of 16. Returns
/// what one unit of them is worth.
///
/// `x` is scaled by `most` over its largest magnitude and rounded to nearest, ties to even. NaN and infinity make the scale
/// what they are.
pub(super) fn to_integers(
    instruction_set: InstructionSet,
    x: &[f32],
    most: u16,
    mut put: impl FnMut(usize, [u16; 2]),
) -> f32 {
    let largest = largest_magnitude(instruction_set, x);
    let factor = if largest > SMALLEST { f32::from(most) / largest } else { 0.0 };
    for (index, x) in x.chunks(ROUNDED).enumerate() {
        let mut words = [[0; LANES]; ROUNDED / LANES];
        round(instruction_set, &mut words, x, factor);
        let words = words.as_flattened()[..x.len().next_multiple_of(LANES)].as_chunks().0;
        for (pair, words) in words.iter().enumerate() {
            put(index * ROUNDED + pair * 2, *words);
        }
    }
    largest / f32::from(most)
}

kernel! {
    fn largest_magnitude<V>(v, x: &[f32]) -> f32 {
        let (whole, rest) = x.as_chunks::<LANES>();
        let mut largest = v.largest_magnitude(v.splat(0.0), load_part(v, rest)).to_bits();
        let (pairs, last) = whole.as_chunks::<2>();
        for [low, high] in pairs {
            largest = largest.max(v.largest_magnitude(v.load(low), v.load(high)).to_bits());
        }
        for last in last {
            largest = largest.max(v.largest_magnitude(v.splat(0.0), v.load(last)).to_bits());
        }
        f32::from_bits(largest)
    }
}

kernel! {
    /// `out = round(x · factor)`.
    fn round<V>(v, out: &mut [[u16; LANES]; ROUNDED / LANES], x: &[f32], factor: f32) {
        let (whole, rest) = x.as_chunks::<LANES>();
        for (out, x) in out.iter_mut().zip(whole) {
            v.store_words(out, v.multiply(v.load(x), v.splat(factor)));
        }
        if !rest.is_empty() {
            v.store_words(&mut out[whole.len()], v.multiply(load_part(v, rest), v.splat(factor)));
        }
    }
}
