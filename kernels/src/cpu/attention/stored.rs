//! The stored keys and values of a head, in whatever form: what the softmax over them asks of a block.

use std::ops::Range;

use super::super::vector::{LANES, Vector};
use crate::kv::BLOCK_TOKENS;

/// One block, in the form that a kernel was compiled for. With `AHEAD` the `next` one is brought near meanwhile.
pub(super) trait Stored<'a>: Copy {
    fn of(blocks: &HeadBlocks<'a>, number: u32) -> Self;

    /// `q · k` for 16 keys by `R` rows from `row` on, of the `count` that stand side by side in `q`.
    fn scores<V: Vector, const R: usize, const AHEAD: bool>(
        self,
        v: V,
        q: &[f32],
        row: usize,
        count: usize,
        next: Self,
    ) -> [V::Floats; R];

    /// `output = output · kept + Σ weight[slot] · value[slot]` for `R` rows; weights outside of `slots` are 0.
    #[allow(clippy::too_many_arguments)]
    fn add_values<V: Vector, const R: usize, const AHEAD: bool>(
        self,
        v: V,
        outputs: &mut [[f32; LANES]],
        weights: &[[f32; LANES]; R],
        kept: &[f32; R],
        slots: Range<usize>,
        next: Self,
    );
}

/// Vectors of an output that are summed beside each other, of those that are left.
#[inline(always)]
pub(super) fn columns_at_once(left: usize) -> usize {
    match left {
        1 => 1,
        2 | 3 => 2,
        _ => 4,
    }
}

/// The blocks of one head: block `b` holds keys and values at `first + b · stride`, as [`crate::kv::KvCache`] says.
pub(super) struct HeadBlocks<'a> {
    pub(super) numbers: Numbers<'a>,
    pub(super) first: usize,
    pub(super) stride: usize,
    pub(super) dim: usize,
}

/// Stored numbers: `f32`, or the bits of shorter ones.
#[derive(Clone, Copy)]
pub(super) enum Numbers<'a> {
    F32(&'a [f32]),
    F16(&'a [u16]),
    BF16(&'a [u16]),
    I16(&'a [u16]),
}

impl<'a> HeadBlocks<'a> {
    /// Lays out the keys and values that `token` gives, blocks in order.
    pub(super) fn pack(
        values: &'a mut Vec<f32>,
        tokens: usize,
        dim: usize,
        token: impl Fn(usize) -> (&'a [f32], &'a [f32]),
    ) -> Self {
        let padded = dim.next_multiple_of(LANES);
        let stride = BLOCK_TOKENS * (dim + padded);
        values.clear();
        values.resize(tokens.div_ceil(BLOCK_TOKENS) * stride, 0.0);
        for index in 0..tokens {
            let (key, value) = token(index);
            let block = &mut values[index / BLOCK_TOKENS * stride..][..stride];
            let (keys, values) = block.split_at_mut(dim * BLOCK_TOKENS);
            let slot = index % BLOCK_TOKENS;
            for (keys, key) in keys.as_chunks_mut::<BLOCK_TOKENS>().0.iter_mut().zip(key) {
                keys[slot] = *key;
            }
            values[slot * padded..][..dim].copy_from_slice(value);
        }
        Self { numbers: Numbers::F32(values), first: 0, stride, dim }
    }
}
