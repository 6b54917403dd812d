//! Attention with an online softmax over blocks of 16 keys, in order of position.
//!
//! A query's arithmetic depends on its own position only: blocks are visited from the first visible to its own, every
//! visited block updates maximum, sum and output in the same way, and masked keys take no part in any sum. So the bits
//! do not depend on how many queries share the pass, nor on where a block lies.

use std::ops::Range;

use super::Cpu;
use super::math::exp;
use super::vector::{LANES, kernel};
use crate::kv::{BLOCK_TOKENS, KvCache, Segment};
use crate::ops::attention::AttentionShape;
use crate::threads::Parts;

pub(crate) fn paged(
    cpu: &Cpu,
    out: &mut [f32],
    q: &[f32],
    cache: &KvCache,
    layer: usize,
    segments: &[Segment],
    tables: &[u32],
    shape: &AttentionShape,
) {
    let geometry = cache.geometry();
    let (dim, head_block) = (shape.head_dim, geometry.head_block());
    let out = Parts::new(out);
    let queries: usize = segments.iter().map(|segment| segment.query_len).sum();
    let segment_of = |mut query: usize| {
        for segment in segments {
            if query < segment.query_len {
                return (segment, query);
            }
            query -= segment.query_len;
        }
        unreachable!("query is below the sum of lengths")
    };
    cpu.run(queries, |query| {
        let (segment, token) = segment_of(query);
        let table = &tables[segment.table.clone()];
        let visible = visible(segment.context_len + token, shape.window);
        for head in 0..shape.heads {
            let at = ((segment.query_start + token) * shape.heads + head) * dim;
            // SAFETY: each query's heads are one task's; segments do not overlap (checked by the operation).
            let out = unsafe { out.take(at..at + dim) };
            let kv_head = head * shape.kv_heads / shape.heads;
            let mut state = State::new(dim);
            for block in visible.start / BLOCK_TOKENS..visible.end.div_ceil(BLOCK_TOKENS) {
                let values = &cache.values()[cache.offset(layer, table[block] as usize, kv_head)..][..head_block];
                let (keys, values) = values.split_at(dim * BLOCK_TOKENS);
                let first = block * BLOCK_TOKENS;
                let slots = visible.start.max(first) - first..visible.end.min(first + BLOCK_TOKENS) - first;
                attend(cpu.instruction_set, &mut state, &q[at..][..dim], keys, values, slots, shape.scale);
            }
            state.finish(out);
        }
    });
}

/// Positions a query sees: itself and what stands before it, at most `window` in all.
fn visible(position: usize, window: Option<usize>) -> Range<usize> {
    let end = position + 1;
    end.saturating_sub(window.unwrap_or(end))..end
}

/// Keys and values of one text are put into the cache's block layout first, so that both kinds of attention are one
/// kernel.
pub(crate) fn bidirectional(
    cpu: &Cpu,
    out: &mut [f32],
    q: &[f32],
    k: &[f32],
    v: &[f32],
    lengths: &[usize],
    shape: &AttentionShape,
) {
    let (dim, padded) = (shape.head_dim, shape.head_dim.next_multiple_of(BLOCK_TOKENS));
    let head_block = BLOCK_TOKENS * (dim + padded);
    let starts: Vec<usize> = lengths
        .iter()
        .scan(0, |start, length| {
            *start += length;
            Some(*start - length)
        })
        .collect();
    let out = Parts::new(out);
    cpu.run(lengths.len() * shape.heads, |task| {
        let (text, head) = (task / shape.heads, task % shape.heads);
        let (start, length) = (starts[text], lengths[text]);
        let kv_head = head * shape.kv_heads / shape.heads;
        let blocks = length.div_ceil(BLOCK_TOKENS);
        let mut packed = vec![0.0; blocks * head_block];
        for token in 0..length {
            let source = ((start + token) * shape.kv_heads + kv_head) * dim;
            let block = &mut packed[token / BLOCK_TOKENS * head_block..][..head_block];
            let (keys, values) = block.split_at_mut(dim * BLOCK_TOKENS);
            let slot = token % BLOCK_TOKENS;
            for d in 0..dim {
                keys[d * BLOCK_TOKENS + slot] = k[source + d];
            }
            values[slot * padded..][..dim].copy_from_slice(&v[source..][..dim]);
        }
        for token in 0..length {
            let at = ((start + token) * shape.heads + head) * dim;
            let reach = shape.window.unwrap_or(length);
            let visible = (token + 1).saturating_sub(reach)..length.min(token + reach);
            let mut state = State::new(dim);
            for block in visible.start / BLOCK_TOKENS..visible.end.div_ceil(BLOCK_TOKENS) {
                let (keys, values) = packed[block * head_block..][..head_block].split_at(dim * BLOCK_TOKENS);
                let first = block * BLOCK_TOKENS;
                let slots = visible.start.max(first) - first..visible.end.min(first + BLOCK_TOKENS) - first;
                attend(cpu.instruction_set, &mut state, &q[at..][..dim], keys, values, slots, shape.scale);
            }
            // SAFETY: each (text, head) is one task's.
            state.finish(unsafe { out.take(at..at + dim) });
        }
    });
}

/// A query's online softmax: largest score, sum of weights, weighted sum of values.
struct State {
    largest: f32,
    sum: f32,
    output: Vec<f32>,
}

impl State {
    fn new(dim: usize) -> Self {
        Self { largest: f32::NEG_INFINITY, sum: 0.0, output: vec![0.0; dim.next_multiple_of(LANES)] }
    }

    fn finish(&self, out: &mut [f32]) {
        let dim = out.len();
        out.iter_mut().zip(&self.output[..dim]).for_each(|(out, value)| *out = value / self.sum);
    }
}

kernel! {
    fn attend<V>(v, state: &mut State, q: &[f32], keys: &[f32], values: &[f32], slots: Range<usize>, scale: f32) {
        let mut scores = v.splat(0.0);
        for (q, keys) in q.iter().zip(keys.as_chunks::<LANES>().0) {
            scores = v.multiply_add(v.splat(*q), v.load(keys), scores);
        }
        let mut lanes = [0.0; LANES];
        v.store(&mut lanes, v.multiply(scores, v.splat(scale)));
        for (slot, lane) in lanes.iter_mut().enumerate() {
            if !slots.contains(&slot) {
                *lane = f32::NEG_INFINITY;
            }
        }
        let scores = v.load(&lanes);
        let largest = v.largest(scores).max(state.largest);
        let weights = exp(v, v.subtract(scores, v.splat(largest)));
        v.store(&mut lanes, exp(v, v.splat(state.largest - largest)));
        let kept = lanes[0];
        state.largest = largest;
        state.sum = state.sum.mul_add(kept, v.sum(weights));
        v.store(&mut lanes, weights);
        let width = state.output.len();
        for (index, output) in state.output.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
            let mut value = v.multiply(v.load(output), v.splat(kept));
            for slot in slots.clone() {
                let chunk = &values[slot * width + index * LANES..].as_chunks::<LANES>().0[0];
                value = v.multiply_add(v.splat(lanes[slot]), v.load(chunk), value);
            }
            v.store(output, value);
        }
    }
}
