//! The gated delta rule: a convolution over channels, then a recurrence over heads, each a task of its own.

use std::cell::RefCell;
use std::ops::Range;

use super::Cpu;
use super::math::{load_part, sigmoid, store_part};
use super::vector::{LANES, kernel};
use crate::device::InstructionSet;
use crate::kv::{BLOCK_TOKENS, KvCache, Segment};
use crate::ops::delta::{DeltaInputs, DeltaShape, DeltaWeights, HeadOrder};
use crate::threads::Parts;

/// Channels that one task convolves.
const CHANNELS_A_TASK: usize = 512;
/// Added to the sum of squares of a query or key.
const LENGTH_EPSILON: f32 = 1e-6;

thread_local! {
    /// The state that a task works on, and the head's sums.
    static WORK: RefCell<(Vec<f32>, Vec<f32>)> = RefCell::default();
}

/// The states of one layer.
struct States<'a> {
    values: Parts<'a, f32>,
    /// Where the layer's first block stands.
    first: usize,
    /// Values of a block.
    size: usize,
}

impl States<'_> {
    /// A range of a block's state.
    fn range(&self, block: u32, part: &Range<usize>) -> Range<usize> {
        let start = self.first + block as usize * self.size;
        start + part.start..start + part.end
    }

    /// Fills `out` with a part of the state before a segment's first token.
    fn read(&self, out: &mut [f32], segment: &Segment, table: &[u32], part: Range<usize>) {
        match segment.context_len.checked_sub(1) {
            // SAFETY: `ops` has checked that no other segment writes this block; this part of it is the caller's task's.
            Some(last) => {
                out.copy_from_slice(unsafe { self.values.read(self.range(table[last / BLOCK_TOKENS], &part)) })
            }
            None => out.fill(0.0),
        }
    }

    /// Leaves a part of the state in the block of `position`, when it is the last that the block will know of for now.
    fn write(&self, state: &[f32], segment: &Segment, table: &[u32], position: usize, part: Range<usize>) {
        let is_whole = (position + 1).is_multiple_of(BLOCK_TOKENS);
        if is_whole || position + 1 == segment.total_len() {
            // SAFETY: `ops` has checked that this segment alone writes the block and that no other starts from it; this
            // part of it is the caller's task's.
            let out = unsafe { self.values.take(self.range(table[position / BLOCK_TOKENS], &part)) };
            out.copy_from_slice(state);
        }
    }
}

#[allow(clippy::too_many_arguments)]
pub(crate) fn gated_delta(
    cpu: &Cpu,
    out: &mut [f32],
    convolved: &mut [f32],
    inputs: DeltaInputs<'_>,
    weights: DeltaWeights<'_>,
    cache: &mut KvCache,
    layer: usize,
    segments: &[Segment],
    tables: &[u32],
    shape: &DeltaShape,
) {
    let geometry = *cache.geometry();
    let size = geometry.state_values;
    let states = States { values: Parts::new(cache.states_mut()), first: layer * geometry.blocks * size, size };
    let step = Step { cpu, inputs, weights, states, segments, tables, shape };
    step.convolve(convolved);
    step.normalise(convolved);
    step.recur(out, convolved);
}

struct Step<'a> {
    cpu: &'a Cpu,
    inputs: DeltaInputs<'a>,
    weights: DeltaWeights<'a>,
    states: States<'a>,
    segments: &'a [Segment],
    tables: &'a [u32],
    shape: &'a DeltaShape,
}

impl Step<'_> {
    /// `convolved[t] = silu(Σ_j weight[j] · mixed[t − kernel + 1 + j])`
    fn convolve(&self, convolved: &mut [f32]) {
        let (channels, kernel) = (self.shape.channels(), self.shape.kernel);
        let parts = channels.div_ceil(CHANNELS_A_TASK);
        let out = Parts::new(convolved);
        self.cpu.run(self.segments.len() * parts, |task| {
            let segment = &self.segments[task / parts];
            let table = &self.tables[segment.table.clone()];
            let first = task % parts * CHANNELS_A_TASK;
            let own = first..channels.min(first + CHANNELS_A_TASK);
            WORK.with_borrow_mut(|(inputs, _)| {
                // The inputs before the step, then those of the step.
                inputs.resize((kernel - 1 + segment.query_len) * own.len(), 0.0);
                for place in 0..kernel - 1 {
                    let row = &mut inputs[place * own.len()..][..own.len()];
                    self.states.read(row, segment, table, place * channels + own.start..place * channels + own.end);
                }
                for token in 0..segment.query_len {
                    let from = (segment.query_start + token) * channels;
                    let row = &mut inputs[(kernel - 1 + token) * own.len()..][..own.len()];
                    row.copy_from_slice(&self.inputs.mixed[from + own.start..from + own.end]);
                }
                for token in 0..segment.query_len {
                    let at = (segment.query_start + token) * channels;
                    // SAFETY: these channels of this segment's rows are this task's.
                    let out = unsafe { out.take(at + own.start..at + own.end) };
                    let seen = &inputs[token * own.len()..][..kernel * own.len()];
                    convolve_row(self.cpu.instruction_set, out, seen, self.weights.convolution, channels, own.start);
                    let position = segment.context_len + token;
                    for place in 0..kernel - 1 {
                        let row = &seen[(place + 1) * own.len()..][..own.len()];
                        let part = place * channels + own.start..place * channels + own.end;
                        self.states.write(row, segment, table, position, part);
                    }
                }
            });
        });
    }

    /// Queries and keys of length 1, queries divided by the root of their size.
    fn normalise(&self, convolved: &mut [f32]) {
        let DeltaShape { key_heads, key_dim, .. } = *self.shape;
        let channels = self.shape.channels();
        let rows = convolved.len() / channels;
        let values = Parts::new(convolved);
        self.cpu.run_rows(rows, 2 * key_heads * key_dim, |rows| {
            for (row, head) in rows.flat_map(|row| (0..2 * key_heads).map(move |head| (row, head))) {
                let start = row * channels + head * key_dim;
                let length = if head < key_heads { 1.0 / (key_dim as f32).sqrt() } else { 1.0 };
                // SAFETY: each row is one task's.
                let values = unsafe { values.take(start..start + key_dim) };
                let squares = sum_of_squares(self.cpu.instruction_set, values);
                let factor = length / (squares + LENGTH_EPSILON).sqrt();
                values.iter_mut().for_each(|value| *value *= factor);
            }
        });
    }

    fn recur(&self, out: &mut [f32], convolved: &[f32]) {
        let DeltaShape { key_heads, value_heads, key_dim, value_dim, kernel, order } = *self.shape;
        let (channels, head_state) = (self.shape.channels(), self.shape.head_state());
        let keys = key_heads * key_dim;
        let out = Parts::new(out);
        self.cpu.run(self.segments.len() * value_heads, |task| {
            let (segment, head) = (&self.segments[task / value_heads], task % value_heads);
            let table = &self.tables[segment.table.clone()];
            let start = (kernel - 1) * channels + head * head_state;
            let own = start..start + head_state;
            let key_head = key_dim
                * match order {
                    HeadOrder::Grouped => head * key_heads / value_heads,
                    HeadOrder::Tiled => head % key_heads,
                };
            WORK.with_borrow_mut(|(state, sums)| {
                state.resize(head_state, 0.0);
                sums.resize(value_dim.next_multiple_of(LANES), 0.0);
                self.states.read(state, segment, table, own.clone());
                for token in 0..segment.query_len {
                    let row = segment.query_start + token;
                    let mixed = &convolved[row * channels..][..channels];
                    let (query, key) = (&mixed[key_head..][..key_dim], &mixed[keys + key_head..][..key_dim]);
                    let value = &mixed[2 * keys + head * value_dim..][..value_dim];
                    let (kept, strength) = self.gates(row, head);
                    let at = (row * value_heads + head) * value_dim;
                    // SAFETY: this head of this segment's rows is this task's.
                    let out = unsafe { out.take(at..at + value_dim) };
                    let set = self.cpu.instruction_set;
                    token_step(set, out, state, sums, (query, key, value), kept, strength);
                    self.states.write(state, segment, table, segment.context_len + token, own.clone());
                }
            });
        });
    }

    /// What is kept of a head's state, and how strongly it is written, in double precision.
    fn gates(&self, row: usize, head: usize) -> (f32, f32) {
        let at = row * self.shape.value_heads + head;
        let decay = f64::from(self.inputs.decay[at]) + f64::from(self.weights.decay_bias[head]);
        let softplus = decay.max(0.0) + (-decay.abs()).exp().ln_1p();
        let kept = (-f64::from(self.weights.decay_rate[head]) * softplus).exp();
        let strength = 1.0 / (1.0 + (-f64::from(self.inputs.strength[at])).exp());
        (kept as f32, strength as f32)
    }
}

kernel! {
    /// One token of some channels: `seen` `[kernel][own]`, `weight` `[kernel][channels]` from `first` on.
    fn convolve_row<V>(v, out: &mut [f32], seen: &[f32], weight: &[f32], channels: usize, first: usize) {
        let own = out.len();
        for (chunk, out) in out.chunks_mut(LANES).enumerate() {
            let at = chunk * LANES;
            let mut sum = v.splat(0.0);
            for (seen, weight) in seen.chunks_exact(own).zip(weight.chunks_exact(channels)) {
                let seen = load_part(v, &seen[at..at + out.len()]);
                sum = v.multiply_add(seen, load_part(v, &weight[first + at..][..out.len()]), sum);
            }
            store_part(v, out, v.multiply(sum, sigmoid(v, sum)));
        }
    }
}

kernel! {
    fn sum_of_squares<V>(v, x: &[f32]) -> f32 {
        let mut sum = v.splat(0.0);
        for x in x.chunks(LANES) {
            let x = load_part(v, x);
            sum = v.multiply_add(x, x, sum);
        }
        v.sum(sum)
    }
}

/// One token of one head; `state` `[KD][VD filled up]`, `sums` as wide as a row of it.
fn token_step(
    instruction_set: InstructionSet,
    out: &mut [f32],
    state: &mut [f32],
    sums: &mut [f32],
    (query, key, value): (&[f32], &[f32], &[f32]),
    kept: f32,
    strength: f32,
) {
    forget(instruction_set, state, sums, key, kept);
    // What the state does not say about the value yet.
    for (sum, value) in sums.iter_mut().zip(value) {
        *sum = (value - *sum) * strength;
    }
    sums[value.len()..].fill(0.0);
    learn(instruction_set, state, sums, key);
    recall(instruction_set, state, sums, query);
    out.copy_from_slice(&sums[..out.len()]);
}

kernel! {
    /// `S = kept · S; sums = Sᵀ key`, keys in order.
    fn forget<V>(v, state: &mut [f32], sums: &mut [f32], key: &[f32], kept: f32) {
        sums.fill(0.0);
        let sums = sums.as_chunks_mut::<LANES>().0;
        for (row, key) in state.chunks_exact_mut(sums.len() * LANES).zip(key) {
            for (state, sum) in row.as_chunks_mut::<LANES>().0.iter_mut().zip(&mut *sums) {
                let value = v.multiply(v.load(state), v.splat(kept));
                v.store(state, value);
                let total = v.multiply_add(value, v.splat(*key), v.load(sum));
                v.store(sum, total);
            }
        }
    }
}

kernel! {
    /// `S = S + key ⊗ change`
    fn learn<V>(v, state: &mut [f32], change: &[f32], key: &[f32]) {
        let change = change.as_chunks::<LANES>().0;
        for (row, key) in state.chunks_exact_mut(change.len() * LANES).zip(key) {
            for (state, change) in row.as_chunks_mut::<LANES>().0.iter_mut().zip(change) {
                let value = v.multiply_add(v.splat(*key), v.load(change), v.load(state));
                v.store(state, value);
            }
        }
    }
}

kernel! {
    /// `sums = Sᵀ query`, in order.
    fn recall<V>(v, state: &[f32], sums: &mut [f32], query: &[f32]) {
        sums.fill(0.0);
        let sums = sums.as_chunks_mut::<LANES>().0;
        for (row, query) in state.chunks_exact(sums.len() * LANES).zip(query) {
            for (state, sum) in row.as_chunks::<LANES>().0.iter().zip(&mut *sums) {
                let total = v.multiply_add(v.load(state), v.splat(*query), v.load(sum));
                v.store(sum, total);
            }
        }
    }
}
