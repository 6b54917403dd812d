//! Writing keys and values into their blocks.

use super::Cpu;
use crate::kv::{BLOCK_TOKENS, KvCache, Segment};
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
    let (heads, dim, padded) = (geometry.kv_heads, geometry.head_dim, geometry.padded_dim());
    let first = cache.offset(layer, 0, 0);
    let storage = Parts::new(&mut cache.values_mut()[first..]);
    let heads_a_task = if k.len() < VALUES_A_TASK { heads } else { 1 };
    // A task owns its heads in every block, whatever the tables say.
    cpu.run(heads.div_ceil(heads_a_task), |task| {
        for segment in segments {
            let table = &tables[segment.table.clone()];
            for token in 0..segment.query_len {
                let position = segment.context_len + token;
                let (block, slot) = (table[position / BLOCK_TOKENS] as usize, position % BLOCK_TOKENS);
                for head in task * heads_a_task..heads.min((task + 1) * heads_a_task) {
                    let source = ((segment.query_start + token) * heads + head) * dim;
                    let at = (block * heads + head) * geometry.head_block();
                    // SAFETY: each head of each block is one task's, and this is its only part at a time.
                    let block = unsafe { storage.take(at..at + geometry.head_block()) };
                    let (keys, values) = block.split_at_mut(dim * BLOCK_TOKENS);
                    for (keys, key) in keys.as_chunks_mut::<BLOCK_TOKENS>().0.iter_mut().zip(&k[source..][..dim]) {
                        keys[slot] = *key;
                    }
                    values[slot * padded..][..dim].copy_from_slice(&v[source..][..dim]);
                }
            }
        }
    });
}

pub(crate) fn copy_block(cache: &mut KvCache, from: usize, to: usize) {
    let geometry = *cache.geometry();
    let length = geometry.kv_heads * geometry.head_block();
    for layer in 0..geometry.layers {
        let (from, to) = (cache.offset(layer, from, 0), cache.offset(layer, to, 0));
        cache.values_mut().copy_within(from..from + length, to);
    }
}
