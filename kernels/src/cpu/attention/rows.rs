//! The softmax of a few rows over a few blocks of 16 keys.
//!
//! Blocks are visited in order of position; every visited block updates largest score, sum and output in the same way
//! (Milakov & Gimelshein 2018, "Online normalizer calculation for softmax", alg. 3), and keys outside of the visible
//! range take no part in any sum. Rows that see the same slots of the same block are computed up to four at once, which
//! shares loads and changes no row's arithmetic.

use std::ops::Range;

use super::super::math::{exp, store_part};
use super::super::prefetch::prefetch;
use super::super::vector::{LANES, Vector, kernel};
use crate::device::InstructionSet;
use crate::kv::BLOCK_TOKENS;

/// One token that asks.
#[derive(Clone, Debug)]
pub(super) struct Query {
    /// Its packed row.
    pub(super) row: usize,
    /// Its request's part of the tables.
    pub(super) table: Range<usize>,
    /// The positions it sees.
    pub(super) visible: Range<usize>,
}

impl Query {
    /// The block's number and the slots of it that are seen; `None` when no slot is.
    #[inline(always)]
    fn sees(&self, block: usize, tables: &[u32]) -> Option<(u32, Range<usize>)> {
        let first = block * BLOCK_TOKENS;
        let slots = self.visible.start.max(first)..self.visible.end.min(first + BLOCK_TOKENS);
        (slots.start < slots.end).then(|| (tables[self.table.start + block], slots.start - first..slots.end - first))
    }
}

/// The blocks of one head: block `b` holds its keys `[D][16]` and values `[16][D']` at `first + b · stride`.
pub(super) struct HeadBlocks<'a> {
    pub(super) numbers: Numbers<'a>,
    pub(super) first: usize,
    pub(super) stride: usize,
    pub(super) dim: usize,
}

/// Stored numbers: `f32`, or the bits of a shorter float.
#[derive(Clone, Copy)]
pub(super) enum Numbers<'a> {
    F32(&'a [f32]),
    F16(&'a [u16]),
    BF16(&'a [u16]),
}

/// Vectors of stored numbers, in the one form that a kernel was compiled for: [`F32`], [`F16`] or [`BF16`].
#[derive(Clone, Copy)]
struct Vectors<'a, const FORM: usize> {
    single: &'a [[f32; LANES]],
    half: &'a [[u16; LANES]],
}

const F32: usize = 0;
const F16: usize = 1;
const BF16: usize = 2;

impl<'a, const FORM: usize> Vectors<'a, FORM> {
    #[inline(always)]
    fn of(numbers: Numbers<'a>, start: usize, count: usize) -> Self {
        match numbers {
            Numbers::F32(values) => Self { single: &values[start..].as_chunks().0[..count], half: &[] },
            Numbers::F16(bits) | Numbers::BF16(bits) => {
                Self { single: &[], half: &bits[start..].as_chunks().0[..count] }
            }
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

    /// Keys by dimension, and values.
    #[inline(always)]
    fn block<const FORM: usize>(&self, number: u32) -> (Vectors<'a, FORM>, Vectors<'a, FORM>) {
        let start = self.first + number as usize * self.stride;
        let width = self.dim.div_ceil(LANES);
        let keys = Vectors::of(self.numbers, start, self.dim);
        (keys, Vectors::of(self.numbers, start + self.dim * BLOCK_TOKENS, BLOCK_TOKENS * width))
    }
}

/// Softmax states: for each row its largest score, the sum of weights by slot, and the weighted sum of values `[D']`.
pub(super) struct Rows<'a> {
    largest: &'a mut [f32],
    sums: &'a mut [[f32; LANES]],
    outputs: &'a mut [[f32; LANES]],
    /// Vectors in an output.
    width: usize,
}

impl<'a> Rows<'a> {
    /// Values that `rows` states take.
    pub(super) fn size(rows: usize, dim: usize) -> usize {
        rows * (1 + LANES + dim.next_multiple_of(LANES))
    }

    pub(super) fn resized(memory: &'a mut Vec<f32>, rows: usize, dim: usize) -> Self {
        memory.resize(memory.len().max(Self::size(rows, dim)), 0.0);
        Self::of(memory, rows, dim)
    }

    /// Takes the first values of `memory`, whatever they hold.
    pub(super) fn of(memory: &'a mut [f32], rows: usize, dim: usize) -> Self {
        let width = dim.div_ceil(LANES);
        let (largest, vectors) = memory[..Self::size(rows, dim)].split_at_mut(rows);
        let (sums, outputs) = vectors.as_chunks_mut().0.split_at_mut(rows);
        Self { largest, sums, outputs, width }
    }

    fn clear(&mut self) {
        self.largest.fill(f32::NEG_INFINITY);
        self.sums.fill([0.0; LANES]);
        self.outputs.fill([0.0; LANES]);
    }

    /// How many rows there are.
    fn count(&self) -> usize {
        self.largest.len()
    }

    fn output(&self, row: usize) -> &[[f32; LANES]] {
        &self.outputs[row * self.width..][..self.width]
    }

    pub(super) fn copy_row(&mut self, from: &Rows<'_>, row: usize) {
        self.largest[row] = from.largest[row];
        self.sums[row] = from.sums[row];
        self.outputs[row * self.width..][..self.width].copy_from_slice(from.output(row));
    }
}

/// Computes the states of a tile over a range of blocks, by the kernel compiled for the form of the stored numbers.
/// `q` `[D][queries · group]`, scaled.
#[allow(clippy::too_many_arguments)]
pub(super) fn attend_split(
    instruction_set: InstructionSet,
    rows: &mut Rows<'_>,
    q: &[f32],
    queries: &[Query],
    tables: &[u32],
    group: usize,
    blocks: &HeadBlocks<'_>,
    range: Range<usize>,
) {
    let attend = match blocks.numbers {
        Numbers::F32(_) => attend_form::<F32>,
        Numbers::F16(_) => attend_form::<F16>,
        Numbers::BF16(_) => attend_form::<BF16>,
    };
    attend(instruction_set, rows, q, queries, tables, group, blocks, range);
}

kernel! {
    fn attend_form<V, const FORM: usize>(
        v,
        rows: &mut Rows<'_>,
        q: &[f32],
        queries: &[Query],
        tables: &[u32],
        group: usize,
        blocks: &HeadBlocks<'_>,
        range: Range<usize>,
    ) {
        rows.clear();
        let end = queries.iter().map(|query| query.visible.end.div_ceil(BLOCK_TOKENS)).max().unwrap_or(0);
        for block in range.start..range.end.min(end) {
            let mut first = 0;
            while first < queries.len() {
                let seen = queries[first].sees(block, tables);
                let next_block = queries[first].sees(block + 1, tables).map(|(number, _)| number);
                let same = queries[first..].iter().take_while(|query| query.sees(block, tables) == seen).count();
                if let Some((number, slots)) = seen {
                    let block = blocks.block::<FORM>(number);
                    let mut next = next_block.map(|number| blocks.block::<FORM>(number));
                    let alike = first * group..(first + same) * group;
                    for row in alike.clone().step_by(4) {
                        // Once is enough.
                        match next.take() {
                            Some(next) => fours::<V, FORM, true>(v, rows, row, alike.end, q, block, next, slots.clone()),
                            None => fours::<V, FORM, false>(v, rows, row, alike.end, q, block, block, slots.clone()),
                        }
                    }
                }
                first += same;
            }
        }
    }
}

/// Keys by dimension, and values, of one block.
type Block<'a, const FORM: usize> = (Vectors<'a, FORM>, Vectors<'a, FORM>);

/// Up to four rows of those before `end`.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn fours<V: Vector, const FORM: usize, const AHEAD: bool>(
    v: V,
    rows: &mut Rows<'_>,
    row: usize,
    end: usize,
    q: &[f32],
    block: Block<'_, FORM>,
    next: Block<'_, FORM>,
    slots: Range<usize>,
) {
    match end - row {
        1 => attend::<V, 1, FORM, AHEAD>(v, rows, row, q, block, next, slots),
        2 => attend::<V, 2, FORM, AHEAD>(v, rows, row, q, block, next, slots),
        3 => attend::<V, 3, FORM, AHEAD>(v, rows, row, q, block, next, slots),
        _ => attend::<V, 4, FORM, AHEAD>(v, rows, row, q, block, next, slots),
    }
}

/// One block for `R` rows; with `AHEAD` the `next` one is brought near meanwhile.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // rows index several arrays
fn attend<V: Vector, const R: usize, const FORM: usize, const AHEAD: bool>(
    v: V,
    rows: &mut Rows<'_>,
    row: usize,
    q: &[f32],
    (keys, values): Block<'_, FORM>,
    next: Block<'_, FORM>,
    slots: Range<usize>,
) {
    let mut scores = scores::<V, R, FORM, AHEAD>(v, &q[row..], rows.count(), keys, next.0);
    let mut grows = false;
    for index in 0..R {
        if slots.len() < LANES {
            scores[index] = mask(v, scores[index], &slots);
        }
        grows |= v.any_less(v.splat(rows.largest[row + index]), scores[index]);
    }
    let mut kept = [1.0; R];
    // Mostly no score is larger than all before; then the factors are one and nothing changes.
    if grows {
        for index in 0..R {
            let before = rows.largest[row + index];
            if v.any_less(v.splat(before), scores[index]) {
                let now = v.largest(scores[index]);
                rows.largest[row + index] = now;
                let mut lanes = [0.0; LANES];
                v.store(&mut lanes, exp(v, v.splat(before - now)));
                kept[index] = lanes[0];
            }
        }
    }
    let mut weights = [[0.0; LANES]; R];
    for index in 0..R {
        let weight = exp(v, v.subtract(scores[index], v.splat(rows.largest[row + index])));
        v.store(&mut weights[index], weight);
        let sum = &mut rows.sums[row + index];
        v.store(sum, v.multiply_add(v.load(sum), v.splat(kept[index]), weight));
    }
    let width = rows.width;
    let outputs = &mut rows.outputs[row * width..][..R * width];
    let mut column = 0;
    while column < width {
        let (weights, slots, values) = ((&weights, &kept), slots.clone(), (values, next.1));
        match width - column {
            1 => accumulate::<V, R, 1, FORM, AHEAD>(v, outputs, weights, values, slots, column),
            2 | 3 => accumulate::<V, R, 2, FORM, AHEAD>(v, outputs, weights, values, slots, column),
            _ => accumulate::<V, R, 4, FORM, AHEAD>(v, outputs, weights, values, slots, column),
        }
        column += match width - column {
            1 => 1,
            2 | 3 => 2,
            _ => 4,
        };
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

/// Minus infinity outside of `slots`, whatever the score there.
#[inline(always)]
fn mask<V: Vector>(v: V, scores: V::Floats, slots: &Range<usize>) -> V::Floats {
    const SLOTS: [f32; LANES] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0];
    let (slot, nothing) = (v.load(&SLOTS), v.splat(f32::NEG_INFINITY));
    let scores = v.select_less(slot, v.splat(slots.start as f32), nothing, scores);
    v.select_less(slot, v.splat(slots.end as f32), scores, nothing)
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

kernel! {
    /// Adds the state of a later split to the state of what came before it.
    pub(super) fn merge_split<V>(v, total: &mut Rows<'_>, part: &Rows<'_>, row: usize) {
        let (before, now) = (total.largest[row], part.largest[row]);
        let largest = if now > before { now } else { before };
        let mut lanes = [0.0; LANES];
        lanes[0] = before - largest;
        lanes[1] = now - largest;
        let factors = exp(v, v.load(&lanes));
        v.store(&mut lanes, factors);
        let [kept, added, ..] = lanes;
        total.largest[row] = largest;
        let width = total.width;
        let outputs = total.outputs[row * width..][..width].iter_mut().zip(part.output(row));
        for (output, part) in outputs.chain([(&mut total.sums[row], &part.sums[row])]) {
            let part = v.multiply(v.load(part), v.splat(added));
            v.store(output, v.multiply_add(v.load(output), v.splat(kept), part));
        }
    }
}

kernel! {
    /// Adds a sink: one more logit whose value is zero.
    pub(super) fn merge_sink<V>(v, total: &mut Rows<'_>, row: usize, sink: f32) {
        let before = total.largest[row];
        let largest = if sink > before { sink } else { before };
        let mut lanes = [0.0; LANES];
        lanes[0] = before - largest;
        lanes[1] = sink - largest;
        let factors = exp(v, v.load(&lanes));
        v.store(&mut lanes, factors);
        let [kept, added, ..] = lanes;
        total.largest[row] = largest;
        let width = total.width;
        for state in total.outputs[row * width..][..width].iter_mut().chain([&mut total.sums[row]]) {
            let scaled = v.multiply(v.load(state), v.splat(kept));
            v.store(state, scaled);
        }
        total.sums[row][0] += added;
    }
}

kernel! {
    /// `out = output / sum`.
    pub(super) fn finish<V>(v, rows: &Rows<'_>, row: usize, out: &mut [f32]) {
        let sum = v.splat(v.sum(v.load(&rows.sums[row])));
        let (whole, rest) = out.as_chunks_mut::<LANES>();
        let (values, last) = rows.output(row).split_at(whole.len());
        for (out, value) in whole.iter_mut().zip(values) {
            v.store(out, v.divide(v.load(value), sum));
        }
        if let Some(value) = last.first() {
            store_part(v, rest, v.divide(v.load(value), sum));
        }
    }
}
