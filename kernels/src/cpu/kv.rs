//! Writing keys and values into their blocks.

use super::Cpu;
use crate::kv::{BLOCK_TOKENS, KvCache, Segment};

pub(crate) fn write(
    _cpu: &Cpu,
    cache: &mut KvCache,
    layer: usize,
    k: &[f32],
    v: &[f32],
    segments: &[Segment],
    tables: &[u32],
) {
    let geometry = *cache.geometry();
    let (heads, dim, padded) = (geometry.kv_heads, geometry.head_dim, geometry.padded_dim());
    for segment in segments {
        let table = &tables[segment.table.clone()];
        for token in 0..segment.query_len {
            let position = segment.context_len + token;
            let (block, slot) = (table[position / BLOCK_TOKENS] as usize, position % BLOCK_TOKENS);
            for head in 0..heads {
                let source = ((segment.query_start + token) * heads + head) * dim;
                let at = cache.offset(layer, block, head);
                let (keys, values) = cache.values_mut()[at..][..geometry.head_block()].split_at_mut(dim * BLOCK_TOKENS);
                for (d, key) in k[source..][..dim].iter().enumerate() {
                    keys[d * BLOCK_TOKENS + slot] = *key;
                }
                values[slot * padded..][..dim].copy_from_slice(&v[source..][..dim]);
            }
        }
    }
}

pub(crate) fn copy_block(cache: &mut KvCache, from: usize, to: usize) {
    let geometry = *cache.geometry();
    let length = geometry.kv_heads * geometry.head_block();
    for layer in 0..geometry.layers {
        let (from, to) = (cache.offset(layer, from, 0), cache.offset(layer, to, 0));
        cache.values_mut().copy_within(from..from + length, to);
    }
}
