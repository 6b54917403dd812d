//! Writing keys and values into their blocks.

use std::ops::Range;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::Cpu;
use super::rounding::{VALUE_LEVEL, to_integers};
use crate::device::InstructionSet;
use crate::kv::{BLOCK_TOKENS, KvCache, KvGeometry, KvStorage, KvType, most_level};
use crate::ops::kv::NewRows;
use crate::threads::Parts;

/// Values worth another thread's time.
const VALUES_A_TASK: usize = 4_096;

pub(crate) fn write(cpu: &Cpu, cache: &mut KvCache, layer: usize, rows: NewRows<'_>, tables: &[u32]) {
    let heads = cache.geometry().kv_heads;
    let heads_a_task = if rows.k.len() < VALUES_A_TASK { heads } else { 1 };
    // A task owns its heads in every block, whatever the tables say.
    let part = |task: usize| Part { rows, heads: task * heads_a_task..heads.min((task + 1) * heads_a_task) };
    write_parts(cpu, cache, layer, heads.div_ceil(heads_a_task), &part, tables);
}

pub(crate) fn write_pieces(cpu: &Cpu, cache: &mut KvCache, layer: usize, pieces: &[NewRows<'_>], tables: &[u32]) {
    if !are_apart(pieces, tables) {
        return pieces.iter().for_each(|rows| write(cpu, cache, layer, *rows, tables));
    }
    let heads = cache.geometry().kv_heads;
    // A task owns the blocks that its piece writes to.
    write_parts(cpu, cache, layer, pieces.len(), &|task| Part { rows: pieces[task], heads: 0..heads }, tables);
}

/// Whether no block is written to by two pieces.
fn are_apart(pieces: &[NewRows<'_>], tables: &[u32]) -> bool {
    let segments = pieces.iter().map(|rows| rows.segments.len()).sum();
    let mut written: Vec<(u32, u32)> = Vec::with_capacity(segments);
    for (index, rows) in pieces.iter().enumerate() {
        for segment in rows.segments {
            let blocks = segment.context_len / BLOCK_TOKENS..segment.total_len().div_ceil(BLOCK_TOKENS);
            written.extend(tables[segment.table.clone()][blocks].iter().map(|block| (*block, index as u32)));
        }
    }
    written.sort_unstable();
    written.windows(2).all(|pair| pair[0].0 != pair[1].0 || pair[0].1 == pair[1].1)
}

/// What a task writes.
struct Part<'a> {
    rows: NewRows<'a>,
    heads: Range<usize>,
}

/// No head of a block is in two parts.
fn write_parts<'a>(
    cpu: &Cpu,
    cache: &mut KvCache,
    layer: usize,
    count: usize,
    part: &(impl Fn(usize) -> Part<'a> + Sync),
    tables: &[u32],
) {
    let geometry = *cache.geometry();
    let first = cache.offset(layer, 0, 0);
    let step = Step { cpu, geometry, tables };
    match (cache.storage_mut(), geometry.kv_type) {
        (KvStorage::F32(values), _) => {
            let copy = |out: &mut [f32], x: &[f32]| out.copy_from_slice(x);
            step.write(&mut values[first..], count, part, |block, token| token.put(block, copy));
        }
        (KvStorage::Half(bits), KvType::I16) => {
            step.write(&mut bits[first..], count, part, |block, token| token.put_levels(cpu.instruction_set, block));
        }
        (KvStorage::Half(bits), KvType::BF16) => {
            step.write(&mut bits[first..], count, part, |block, token| token.put(block, round_bf16));
        }
        (KvStorage::Half(bits), _) => {
            step.write(&mut bits[first..], count, part, |block, token| token.put(block, round_f16));
        }
        (KvStorage::Device(_) | KvStorage::Parts(_), _) => unreachable!("operations check where a cache lies: our bug"),
    }
}

fn round_f16(out: &mut [u16], values: &[f32]) {
    let mut rounded = [f16::ZERO; BLOCK_TOKENS];
    let rounded = &mut rounded[..values.len()];
    let mut clamped = [0.0; BLOCK_TOKENS];
    let clamped = &mut clamped[..values.len()];
    let largest = f32::from(f16::MAX);
    clamped.iter_mut().zip(values).for_each(|(clamped, value)| *clamped = value.clamp(-largest, largest));
    rounded.convert_from_f32_slice(clamped);
    out.iter_mut().zip(rounded).for_each(|(out, rounded)| *out = rounded.to_bits());
}

fn round_bf16(out: &mut [u16], values: &[f32]) {
    out.iter_mut().zip(values).for_each(|(out, value)| *out = bf16::from_f32(*value).to_bits());
}

/// Where the keys and values of a step go.
struct Step<'a> {
    cpu: &'a Cpu,
    geometry: KvGeometry,
    tables: &'a [u32],
}

/// One head of one token, and its place in a block.
struct Token<'a> {
    slot: usize,
    key: &'a [f32],
    value: &'a [f32],
}

impl Step<'_> {
    /// `storage` begins at the layer; `put` stores one head of a token in its block.
    fn write<'a, T: Copy + Default + Send + Sync>(
        &self,
        storage: &mut [T],
        count: usize,
        part: &(impl Fn(usize) -> Part<'a> + Sync),
        put: impl Fn(&mut [T], &Token<'_>) + Sync,
    ) {
        let storage = Parts::new(storage);
        self.cpu.run(count, |task| self.write_part(&storage, &part(task), &put));
    }

    fn write_part<T: Copy + Default>(
        &self,
        storage: &Parts<'_, T>,
        part: &Part<'_>,
        put: &impl Fn(&mut [T], &Token<'_>),
    ) {
        let KvGeometry { kv_heads, blocks, head_dim: dim, .. } = self.geometry;
        let Part { rows: NewRows { k, v, segments }, heads } = part;
        for segment in *segments {
            let table = &self.tables[segment.table.clone()];
            for token in 0..segment.query_len {
                let position = segment.context_len + token;
                let (block, slot) = (table[position / BLOCK_TOKENS] as usize, position % BLOCK_TOKENS);
                for head in heads.clone() {
                    let source = ((segment.query_start + token) * kv_heads + head) * dim;
                    let at = (head * blocks + block) * self.geometry.head_block();
                    // SAFETY: each head of each block is one task's, and this is its only part at a time.
                    let block = unsafe { storage.take(at..at + self.geometry.head_block()) };
                    put(block, &Token { slot, key: &k[source..][..dim], value: &v[source..][..dim] });
                }
            }
        }
    }
}

impl Token<'_> {
    /// `round` converts up to 16 values.
    fn put<T: Copy + Default>(&self, block: &mut [T], round: impl Fn(&mut [T], &[f32])) {
        let (slot, dim) = (self.slot, self.key.len());
        let (keys, values) = block.split_at_mut(dim * BLOCK_TOKENS);
        for (columns, key) in keys.chunks_mut(BLOCK_TOKENS * BLOCK_TOKENS).zip(self.key.chunks(BLOCK_TOKENS)) {
            let mut rounded = [T::default(); BLOCK_TOKENS];
            round(&mut rounded[..key.len()], key);
            let columns = columns.as_chunks_mut::<BLOCK_TOKENS>().0;
            columns.iter_mut().zip(rounded).for_each(|(column, key)| column[slot] = key);
        }
        let padded = dim.next_multiple_of(BLOCK_TOKENS);
        let values = values[slot * padded..][..dim].chunks_mut(BLOCK_TOKENS);
        for (out, value) in values.zip(self.value.chunks(BLOCK_TOKENS)) {
            round(out, value);
        }
    }

    /// Of [`KvType::I16`].
    fn put_levels(&self, instruction_set: InstructionSet, block: &mut [u16]) {
        let (slot, dim) = (self.slot, self.key.len());
        let padded = dim.next_multiple_of(BLOCK_TOKENS);
        let (keys, rest) = block.split_at_mut(padded * BLOCK_TOKENS);
        let (values, scales) = rest.split_at_mut(padded * BLOCK_TOKENS);
        let scales: &mut [f32] = bytemuck::cast_slice_mut(scales);
        scales[slot] = to_integers(instruction_set, self.key, most_level(dim), |d, pair| {
            keys[(d / 2 * BLOCK_TOKENS + slot) * 2..][..2].copy_from_slice(&pair);
        });
        scales[BLOCK_TOKENS + slot] = to_integers(instruction_set, self.value, VALUE_LEVEL, |d, pair| {
            for (d, level) in (d..).zip(pair) {
                values[(slot / 2 * padded + d) * 2 + slot % 2] = level;
            }
        });
    }
}

pub(crate) fn copy_block(cache: &mut KvCache, from: usize, to: usize) {
    let geometry = *cache.geometry();
    let length = geometry.head_block();
    for (layer, head) in (0..geometry.layers).flat_map(|layer| (0..geometry.kv_heads).map(move |head| (layer, head))) {
        let (from, to) = (cache.offset(layer, from, head), cache.offset(layer, to, head));
        match cache.storage_mut() {
            KvStorage::F32(values) => values.copy_within(from..from + length, to),
            KvStorage::Half(bits) => bits.copy_within(from..from + length, to),
            KvStorage::Device(_) | KvStorage::Parts(_) => unreachable!("operations check where a cache lies: our bug"),
        }
    }
    let size = geometry.state_values;
    for layer in 0..geometry.state_layers {
        let [from, to] = [from, to].map(|block| (layer * geometry.blocks + block) * size);
        cache.states_mut().copy_within(from..from + size, to);
    }
}
