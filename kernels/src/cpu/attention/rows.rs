//! The softmax of a few rows over a few blocks of 16 keys.
//!
//! Blocks are visited in order of position; every visited block updates largest score, sum and output in the same way
//! (Milakov & Gimelshein 2018, "Online normalizer calculation for softmax", alg. 3), and keys outside of the visible
//! range take no part in any sum. Rows that see the same slots of the same block are computed up to four at once, which
//! shares loads and changes no row's arithmetic.

use std::ops::Range;

use super::super::math::{exp, store_part};
use super::super::vector::{LANES, Vector, kernel};
use super::floats::{BF16, F16, F32, Floats};
use super::levels::Levels;
use super::stored::{HeadBlocks, Numbers, Stored};
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
/// `q` `[D][queries · group]`, scaled; for integers as their [`Stored::scores`] says.
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
        Numbers::F32(_) => attend_floats::<F32>,
        Numbers::F16(_) => attend_floats::<F16>,
        Numbers::BF16(_) => attend_floats::<BF16>,
        Numbers::I16(_) => attend_levels,
    };
    attend(instruction_set, rows, q, queries, tables, group, blocks, range);
}

kernel! {
    fn attend_floats<V, const FORM: usize>(
        v,
        rows: &mut Rows<'_>,
        q: &[f32],
        queries: &[Query],
        tables: &[u32],
        group: usize,
        blocks: &HeadBlocks<'_>,
        range: Range<usize>,
    ) {
        visit::<V, Floats<'_, FORM>>(v, rows, q, queries, tables, group, blocks, range);
    }
}

kernel! {
    fn attend_levels<V>(
        v,
        rows: &mut Rows<'_>,
        q: &[f32],
        queries: &[Query],
        tables: &[u32],
        group: usize,
        blocks: &HeadBlocks<'_>,
        range: Range<usize>,
    ) {
        visit::<V, Levels<'_>>(v, rows, q, queries, tables, group, blocks, range);
    }
}

#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn visit<'a, V: Vector, B: Stored<'a>>(
    v: V,
    rows: &mut Rows<'_>,
    q: &[f32],
    queries: &[Query],
    tables: &[u32],
    group: usize,
    blocks: &HeadBlocks<'a>,
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
                let block = B::of(blocks, number);
                let mut next = next_block.map(|number| B::of(blocks, number));
                let alike = first * group..(first + same) * group;
                for row in alike.clone().step_by(4) {
                    // Once is enough.
                    match next.take() {
                        Some(next) => fours::<V, B, true>(v, rows, row, alike.end, q, block, next, slots.clone()),
                        None => fours::<V, B, false>(v, rows, row, alike.end, q, block, block, slots.clone()),
                    }
                }
            }
            first += same;
        }
    }
}

/// Up to four rows of those before `end`.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn fours<'a, V: Vector, B: Stored<'a>, const AHEAD: bool>(
    v: V,
    rows: &mut Rows<'_>,
    row: usize,
    end: usize,
    q: &[f32],
    block: B,
    next: B,
    slots: Range<usize>,
) {
    match end - row {
        1 => attend::<V, B, 1, AHEAD>(v, rows, row, q, block, next, slots),
        2 => attend::<V, B, 2, AHEAD>(v, rows, row, q, block, next, slots),
        3 => attend::<V, B, 3, AHEAD>(v, rows, row, q, block, next, slots),
        _ => attend::<V, B, 4, AHEAD>(v, rows, row, q, block, next, slots),
    }
}

/// One block for `R` rows.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // rows index several arrays
fn attend<'a, V: Vector, B: Stored<'a>, const R: usize, const AHEAD: bool>(
    v: V,
    rows: &mut Rows<'_>,
    row: usize,
    q: &[f32],
    block: B,
    next: B,
    slots: Range<usize>,
) {
    let mut scores = block.scores::<V, R, AHEAD>(v, q, row, rows.count(), next);
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
    let outputs = &mut rows.outputs[row * rows.width..][..R * rows.width];
    block.add_values::<V, R, AHEAD>(v, outputs, &weights, &kept, slots, next);
}

/// Minus infinity outside of `slots`, whatever the score there.
#[inline(always)]
fn mask<V: Vector>(v: V, scores: V::Floats, slots: &Range<usize>) -> V::Floats {
    const SLOTS: [f32; LANES] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0];
    let (slot, nothing) = (v.load(&SLOTS), v.splat(f32::NEG_INFINITY));
    let scores = v.select_less(slot, v.splat(slots.start as f32), nothing, scores);
    v.select_less(slot, v.splat(slots.end as f32), scores, nothing)
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
