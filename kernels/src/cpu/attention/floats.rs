//! Keys and values stored as floats: chains of fused multiply-adds.

use std::ops::Range;

use super::super::prefetch::prefetch;
use super::super::vector::{LANES, Vector};
use super::stored::{HeadBlocks, Numbers, Stored, columns_at_once};
use crate::kv::BLOCK_TOKENS;

/// Keys by dimension, and values by token.
#[derive(Clone, Copy)]
pub(super) struct Floats<'a, const FORM: usize> {
    keys: Vectors<'a, FORM>,
    values: Vectors<'a, FORM>,
}

/// Vectors of stored numbers, in the one form that a kernel was compiled for: [`F32`], [`F16`] or [`BF16`].
#[derive(Clone, Copy)]
struct Vectors<'a, const FORM: usize> {
    single: &'a [[f32; LANES]],
    half: &'a [[u16; LANES]],
}

pub(super) const F32: usize = 0;
pub(super) const F16: usize = 1;
pub(super) const BF16: usize = 2;

impl<'a, const FORM: usize> Vectors<'a, FORM> {
    #[inline(always)]
    fn of(numbers: Numbers<'a>, start: usize, count: usize) -> Self {
        match numbers {
            Numbers::F32(values) => Self { single: &values[start..].as_chunks().0[..count], half: &[] },
            Numbers::F16(bits) | Numbers::BF16(bits) => {
                Self { single: &[], half: &bits[start..].as_chunks().0[..count] }
            }
            Numbers::I16(_) => unreachable!("the kernel of floats was chosen for them"),
        }
    }

    #[inline(always)]
    fn count(&self) -> usize {
        match FORM {
            F32 => self.single.len(),
            _ => self.half.len(),
        }
    }

    /// Asks for the vector to be brought near, if there is one: it is read soon.
    #[inline(always)]
    fn prefetch(&self, index: usize) {
        match FORM {
            F32 => self.single.get(index).into_iter().for_each(|vector| prefetch(vector)),
            _ => self.half.get(index).into_iter().for_each(|vector| prefetch(vector)),
        }
    }

    #[inline(always)]
    fn load<V: Vector>(&self, v: V, index: usize) -> V::Floats {
        match FORM {
            F32 => v.load(&self.single[index]),
            F16 => v.load_f16(&self.half[index]),
            _ => v.load_bf16(&self.half[index]),
        }
    }
}

impl<'a, const FORM: usize> Stored<'a> for Floats<'a, FORM> {
    #[inline(always)]
    fn of(blocks: &HeadBlocks<'a>, number: u32) -> Self {
        let start = blocks.first + number as usize * blocks.stride;
        let width = blocks.dim.div_ceil(LANES);
        let keys = Vectors::of(blocks.numbers, start, blocks.dim);
        let values = Vectors::of(blocks.numbers, start + blocks.dim * BLOCK_TOKENS, BLOCK_TOKENS * width);
        Self { keys, values }
    }

    #[inline(always)]
    fn scores<V: Vector, const R: usize, const AHEAD: bool>(
        self,
        v: V,
        q: &[f32],
        row: usize,
        count: usize,
        next: Self,
    ) -> [V::Floats; R] {
        scores::<V, R, FORM, AHEAD>(v, &q[row..], count, self.keys, next.keys)
    }

    #[inline(always)]
    fn add_values<V: Vector, const R: usize, const AHEAD: bool>(
        self,
        v: V,
        outputs: &mut [[f32; LANES]],
        weights: &[[f32; LANES]; R],
        kept: &[f32; R],
        slots: Range<usize>,
        next: Self,
    ) {
        let width = outputs.len() / R;
        let mut column = 0;
        while column < width {
            let (weights, slots, values) = ((weights, kept), slots.clone(), (self.values, next.values));
            let count = columns_at_once(width - column);
            match count {
                1 => accumulate::<V, R, 1, FORM, AHEAD>(v, outputs, weights, values, slots, column),
                2 => accumulate::<V, R, 2, FORM, AHEAD>(v, outputs, weights, values, slots, column),
                _ => accumulate::<V, R, 4, FORM, AHEAD>(v, outputs, weights, values, slots, column),
            }
            column += count;
        }
    }
}

/// `q · k` for 16 keys: four chains over the dimensions modulo 4, added as a tree. `q` begins at the first row, `count` apart
/// from dimension to dimension.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
fn scores<V: Vector, const R: usize, const FORM: usize, const AHEAD: bool>(
    v: V,
    q: &[f32],
    count: usize,
    keys: Vectors<'_, FORM>,
    next: Vectors<'_, FORM>,
) -> [V::Floats; R] {
    let mut chains = [[v.splat(0.0); 4]; R];
    let dim = keys.count();
    let whole = dim / 4 * 4;
    for d in (0..whole).step_by(4) {
        for chain in 0..4 {
            let key = keys.load(v, d + chain);
            if AHEAD {
                next.prefetch(d + chain);
            }
            let q: &[f32; R] = &q[(d + chain) * count..].as_chunks().0[0];
            for row in 0..R {
                chains[row][chain] = v.multiply_add(v.splat(q[row]), key, chains[row][chain]);
            }
        }
    }
    for d in whole..dim {
        let key = keys.load(v, d);
        let q: &[f32; R] = &q[d * count..].as_chunks().0[0];
        for row in 0..R {
            chains[row][d - whole] = v.multiply_add(v.splat(q[row]), key, chains[row][d - whole]);
        }
    }
    let mut sums = [v.splat(0.0); R];
    for row in 0..R {
        let [a, b, c, d] = chains[row];
        sums[row] = v.add(v.add(a, b), v.add(c, d));
    }
    sums
}

/// `output = output · kept + Σ weight[slot] · value[slot]` for `C` vectors of `R` outputs, slots in order.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
fn accumulate<V: Vector, const R: usize, const C: usize, const FORM: usize, const AHEAD: bool>(
    v: V,
    outputs: &mut [[f32; LANES]],
    (weights, kept): (&[[f32; LANES]; R], &[f32; R]),
    (values, next): (Vectors<'_, FORM>, Vectors<'_, FORM>),
    slots: Range<usize>,
    column: usize,
) {
    let width = outputs.len() / R;
    let mut sums = [[v.splat(0.0); C]; R];
    for row in 0..R {
        for c in 0..C {
            sums[row][c] = v.multiply(v.load(&outputs[row * width + column + c]), v.splat(kept[row]));
        }
    }
    for slot in slots {
        let mut value = [v.splat(0.0); C];
        for c in 0..C {
            value[c] = values.load(v, slot * width + column + c);
            if AHEAD {
                next.prefetch(slot * width + column + c);
            }
        }
        for row in 0..R {
            let weight = v.splat(weights[row][slot]);
            for c in 0..C {
                sums[row][c] = v.multiply_add(weight, value[c], sums[row][c]);
            }
        }
    }
    for row in 0..R {
        for c in 0..C {
            v.store(&mut outputs[row * width + column + c], sums[row][c]);
        }
    }
}
