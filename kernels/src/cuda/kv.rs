//! The cache on the device, in the layout that it has on the processor, and writing to it.

use super::Cuda;
use super::memory::Buffer;
use super::operation::{Operation, blocks};
use super::runner::arguments;
use crate::error::Result;
use crate::kv::{BLOCK_TOKENS, KvCache, KvGeometry, KvType, Segment};

/// What a row of no segment gets for a slot.
const NOWHERE: u32 = u32::MAX;

/// The memory of a cache.
pub(crate) struct DeviceCache {
    /// Zeros where nothing was written yet.
    pub(crate) keys_values: Buffer,
    /// `[state layers][blocks][values]`, `f32`.
    pub(crate) states: Buffer,
}

impl DeviceCache {
    /// Where a layer's first block begins.
    pub(crate) fn layer(&self, cache: &KvCache, layer: usize) -> u64 {
        let bytes = cache.offset(layer, 0, 0) * cache.geometry().kv_type.bytes();
        self.keys_values.address() + bytes as u64
    }
}

/// Takes the memory of a whole cache.
pub(crate) fn cache(cuda: &Cuda, geometry: &KvGeometry) -> Result<DeviceCache> {
    let KvGeometry { layers, blocks, kv_heads, kv_type, state_layers, state_values, .. } = *geometry;
    let keys_values = layers * blocks * kv_heads * geometry.head_block() * kv_type.bytes();
    let states = state_layers * blocks * state_values * size_of::<f32>();
    Ok(DeviceCache {
        keys_values: Buffer::zeroed(&cuda.memory, keys_values)?,
        states: Buffer::zeroed(&cuda.memory, states)?,
    })
}

/// The caller has checked that the cache lies on the device.
pub(crate) fn write(
    cuda: &Cuda,
    cache: &mut KvCache,
    layer: usize,
    k: &[f32],
    v: &[f32],
    segments: &[Segment],
    tables: &[u32],
) -> Result<()> {
    let KvGeometry { kv_heads, head_dim: dim, blocks, kv_type, .. } = *cache.geometry();
    let padded = cache.geometry().padded_dim();
    let rows = k.len() / (kv_heads * dim);
    let (kernel, threads) = match kv_type {
        KvType::F32 => ("kv_write_f32", dim),
        KvType::F16 => ("kv_write_f16", dim),
        KvType::BF16 => ("kv_write_bf16", dim),
        KvType::I16 => unreachable!("a cache of integers is refused on a GPU: our bug"),
    };
    let threads = threads.next_multiple_of(32).min(256) as u32;
    let mut operation = Operation::begin(cuda, "kv write")?;
    let slots = operation.step_input("slots", &slots(rows, segments, tables))?;
    let (k, v) = (operation.input(k)?, operation.input(v)?);
    let layer = cache.on_device().layer(cache, layer);
    let arguments = arguments![layer, k, v, slots, blocks as u32, kv_heads as u32, dim as u32, padded as u32];
    operation.launch(kernel, [rows as u32, kv_heads as u32, 1], threads, 0, arguments)?;
    operation.finish()
}

/// Block · 16 + slot of every row.
fn slots(rows: usize, segments: &[Segment], tables: &[u32]) -> Vec<u32> {
    let mut slots = vec![NOWHERE; rows];
    for segment in segments {
        let table = &tables[segment.table.clone()];
        let own = &mut slots[segment.query_start..][..segment.query_len];
        for (position, slot) in (segment.context_len..).zip(own) {
            let block = table[position / BLOCK_TOKENS] as usize;
            *slot = (block * BLOCK_TOKENS + position % BLOCK_TOKENS) as u32;
        }
    }
    slots
}

/// The caller has checked that the cache lies on the device.
pub(crate) fn copy_block(cuda: &Cuda, cache: &mut KvCache, from: u32, to: u32) -> Result<()> {
    let geometry = *cache.geometry();
    let words = geometry.head_block() * geometry.kv_type.bytes() / size_of::<u32>();
    let runs = geometry.layers * geometry.kv_heads;
    let device = cache.on_device();
    let mut operation = Operation::begin(cuda, "kv copy block")?;
    let mut copy = |storage: &Buffer, words: usize, runs: usize| {
        let grid = [blocks(words, 256)[0], runs as u32, 1];
        let arguments = arguments![storage.address(), words as u64, geometry.blocks as u64, from, to];
        operation.launch("kv_copy_block", grid, 256, 0, arguments)
    };
    copy(&device.keys_values, words, runs)?;
    copy(&device.states, geometry.state_values, geometry.state_layers)?;
    operation.finish()
}

#[cfg(all(test, feature = "emulate"))]
mod tests {
    use super::*;
    use crate::Device;
    use crate::kv::KvStorage;
    use crate::ops;

    /// The bytes of a cache on either side.
    fn bytes(cache: &KvCache) -> Vec<u8> {
        match cache.storage() {
            KvStorage::F32(values) => bytemuck::cast_slice(values).to_vec(),
            KvStorage::Half(bits) => bytemuck::cast_slice(bits).to_vec(),
            KvStorage::Device(DeviceCache { keys_values, .. }) => {
                // SAFETY: an emulated device's memory is the host's.
                unsafe { std::slice::from_raw_parts(keys_values.address() as *const u8, keys_values.bytes()) }.to_vec()
            }
            KvStorage::Parts(_) => unreachable!("a cache of one device"),
        }
    }

    /// Two layers, segments that leave rows out, blocks out of order, heads that fill no vector, then a block copied.
    #[test]
    fn the_cache_holds_the_bytes_of_the_processor() {
        for (kv_type, head_dim) in [(KvType::F32, 20), (KvType::F16, 64), (KvType::BF16, 8)] {
            let geometry = KvGeometry {
                layers: 2,
                blocks: 6,
                block_tokens: BLOCK_TOKENS,
                kv_heads: 3,
                head_dim,
                kv_type,
                state_layers: 0,
                state_values: 0,
            };
            let rows = 24;
            let segments = [
                Segment { query_start: 1, query_len: 18, context_len: 14, table: 0..2 },
                Segment { query_start: 20, query_len: 3, context_len: 0, table: 2..3 },
            ];
            let tables = [5, 1, 3];
            let value = |index: usize| (index as f32 * 0.7).sin() * if index % 50 == 7 { 1e5 } else { 1.0 };
            let k: Vec<f32> = (0..rows * 3 * head_dim).map(value).collect();
            let v: Vec<f32> = (0..rows * 3 * head_dim).map(|index| value(index + 13)).collect();
            let run = |device: &Device| {
                let mut cache = KvCache::new(device, geometry).unwrap();
                for layer in 0..2 {
                    ops::kv::write(device, &mut cache, layer, &k, &v, &segments, &tables).unwrap();
                }
                ops::kv::copy_block(device, &mut cache, 5, 0).unwrap();
                bytes(&cache)
            };
            let expected = run(&Device::cpu(1));
            for order in [0, 3] {
                assert!(run(&Device::emulated(order).unwrap()) == expected, "{kv_type:?}");
            }
        }
    }

    #[test]
    fn integers_are_refused() {
        let geometry = KvGeometry {
            layers: 1,
            blocks: 1,
            block_tokens: BLOCK_TOKENS,
            kv_heads: 1,
            head_dim: 16,
            kv_type: KvType::I16,
            state_layers: 0,
            state_values: 0,
        };
        let refused = KvCache::new(&Device::emulated(0).unwrap(), geometry).map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains("expected F32, F16 or BF16 on a GPU"), "{refused}");
    }
}
