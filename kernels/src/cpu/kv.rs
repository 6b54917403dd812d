//! Writing keys and values into their blocks.

use std::ops::Range;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::Cpu;
use crate::kv::{BLOCK_TOKENS, KvCache, KvGeometry, KvStorage, KvType, Segment};
use crate::threads::Parts;

/// Values worth another thread's time.
const VALUES_A_TASK: usize = 4_096;

pub(crate) fn write(
    cpu: &Cpu,
    cache: &mut KvCache,
    layer: usize,
    k: &[f32],
    v: &[f32],
    segments: &[Segment],
    tables: &[u32],
) {
    let geometry = *cache.geometry();
    let first = cache.offset(layer, 0, 0);
    let step = Step { geometry, k, v, segments, tables };
    match (cache.storage_mut(), geometry.kv_type) {
        (KvStorage::F32(values), _) => step.write(cpu, &mut values[first..], |out, values| out.copy_from_slice(values)),
        (KvStorage::Half(bits), KvType::BF16) => step.write(cpu, &mut bits[first..], round_bf16),
        (KvStorage::Half(bits), _) => step.write(cpu, &mut bits[first..], round_f16),
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

/// The new keys and values of one layer.
struct Step<'a> {
    geometry: KvGeometry,
    k: &'a [f32],
    v: &'a [f32],
    segments: &'a [Segment],
    tables: &'a [u32],
}

impl Step<'_> {
    /// `storage` begins at the layer; `round` converts up to 16 values.
    fn write<T: Copy + Default + Send + Sync>(
        &self,
        cpu: &Cpu,
        storage: &mut [T],
        round: impl Fn(&mut [T], &[f32]) + Sync,
    ) {
        let heads = self.geometry.kv_heads;
        let storage = Parts::new(storage);
        let heads_a_task = if self.k.len() < VALUES_A_TASK { heads } else { 1 };
        // A task owns its heads in every block, whatever the tables say.
        cpu.run(heads.div_ceil(heads_a_task), |task| {
            self.write_heads(&storage, task * heads_a_task..heads.min((task + 1) * heads_a_task), &round);
        });
    }

    fn write_heads<T: Copy + Default>(
        &self,
        storage: &Parts<'_, T>,
        own: Range<usize>,
        round: &impl Fn(&mut [T], &[f32]),
    ) {
        let KvGeometry { kv_heads, blocks, head_dim: dim, .. } = self.geometry;
        let padded = self.geometry.padded_dim();
        for segment in self.segments {
            let table = &self.tables[segment.table.clone()];
            for token in 0..segment.query_len {
                let position = segment.context_len + token;
                let (block, slot) = (table[position / BLOCK_TOKENS] as usize, position % BLOCK_TOKENS);
                for head in own.clone() {
                    let source = ((segment.query_start + token) * kv_heads + head) * dim;
                    let at = (head * blocks + block) * self.geometry.head_block();
                    // SAFETY: each head of each block is one task's, and this is its only part at a time.
                    let block = unsafe { storage.take(at..at + self.geometry.head_block()) };
                    let (keys, values) = block.split_at_mut(dim * BLOCK_TOKENS);
                    let columns = keys.chunks_mut(BLOCK_TOKENS * BLOCK_TOKENS);
                    for (columns, key) in columns.zip(self.k[source..][..dim].chunks(BLOCK_TOKENS)) {
                        let mut rounded = [T::default(); BLOCK_TOKENS];
                        round(&mut rounded[..key.len()], key);
                        let columns = columns.as_chunks_mut::<BLOCK_TOKENS>().0;
                        columns.iter_mut().zip(rounded).for_each(|(column, key)| column[slot] = key);
                    }
                    let values = values[slot * padded..][..dim].chunks_mut(BLOCK_TOKENS);
                    for (out, value) in values.zip(self.v[source..][..dim].chunks(BLOCK_TOKENS)) {
                        round(out, value);
                    }
                }
            }
        }
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
