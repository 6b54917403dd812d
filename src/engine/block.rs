//! Which blocks of the KV cache are in use, and by how many rows.

use lifelong_kernels::{Device, KvType};
use lifelong_models::architecture::Geometry;

/// Tokens a block: keys and values of this many consecutive positions of one request, in every layer.
pub const BLOCK_TOKENS: usize = 16;

/// How the keys and values of a model are kept unless asked otherwise: half the memory of `f32` to hold and to read. On the
/// processor as integers, which it multiplies at twice the rate, but for keys with a bias: their largest dimension would leave
/// the others too few levels.
pub(crate) fn default_kv_type(device: &Device, geometry: &Geometry) -> KvType {
    if device.is_gpu() || geometry.key_bias { KvType::F16 } else { KvType::I16 }
}

/// Names one block of the KV cache.
pub(crate) type BlockId = u32;

/// How many blocks `tokens` positions take.
pub(crate) fn blocks_for(tokens: usize) -> usize {
    tokens.div_ceil(BLOCK_TOKENS)
}

/// Reference counts over the blocks of one KV cache.
///
/// A block is *free* (on the free list), *held* (by at least one row), or *kept* (by no row, but not free either: its
/// content is still in the prefix tree). [`BlockPool::release`] to zero holders leaves a block kept; whoever does not
/// keep it calls [`BlockPool::free`]. Nothing here knows what a block contains.
#[derive(Debug)]
pub(crate) struct BlockPool {
    holders: Vec<u32>,
    /// Last in, first out, so that a small load touches little memory.
    free: Vec<BlockId>,
}

impl BlockPool {
    pub(crate) fn new(blocks: usize) -> Self {
        let blocks = u32::try_from(blocks).expect("block ids are 32 bits");
        BlockPool { holders: vec![0; blocks as usize], free: (0..blocks).rev().collect() }
    }

    pub(crate) fn free_blocks(&self) -> usize {
        self.free.len()
    }

    pub(crate) fn is_held(&self, block: BlockId) -> bool {
        self.holders[block as usize] > 0
    }

    /// A free block, now held once.
    pub(crate) fn allocate(&mut self) -> Option<BlockId> {
        let block = self.free.pop()?;
        debug_assert_eq!(self.holders[block as usize], 0, "a free block has no holder");
        self.holders[block as usize] = 1;
        Some(block)
    }

    /// One more holder of a held or kept block. Call only with a block that is not free.
    pub(crate) fn retain(&mut self, block: BlockId) {
        self.holders[block as usize] += 1;
    }

    /// One holder less; true when it was the last.
    ///
    /// # Panics
    /// When nobody holds the block: our bug.
    pub(crate) fn release(&mut self, block: BlockId) -> bool {
        let holders = &mut self.holders[block as usize];
        *holders = holders.checked_sub(1).expect("only a held block is released");
        *holders == 0
    }

    /// Puts a block without holders on the free list. Call only once after its last release.
    pub(crate) fn free(&mut self, block: BlockId) {
        debug_assert_eq!(self.holders[block as usize], 0, "a held block is not free");
        self.free.push(block);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_with_a_bias_are_kept_as_floats() {
        let geometry = |key_bias| Geometry {
            architecture: "qwen2".to_string(),
            layers: 1,
            hidden: 8,
            heads: 1,
            kv_heads: 1,
            head_dim: 8,
            key_bias,
            feed_forward: 8,
            vocab: 8,
            context: 8,
            state_layers: 0,
            state_values: 0,
            parameters: 0,
            weight_bytes: 0,
        };
        let kept = [false, true].map(|key_bias| default_kv_type(&Device::cpu(1), &geometry(key_bias)));
        assert_eq!(kept, [KvType::I16, KvType::F16]);
    }

    #[test]
    fn blocks_round_up() {
        assert_eq!([0, 1, 16, 17].map(blocks_for), [0, 1, 1, 2]);
    }

    proptest! {
        #[test]
        fn pool_agrees_with_a_map_of_counts(operations in prop::collection::vec((0u8..3, 0usize..6), 0..200)) {
            let mut pool = BlockPool::new(6);
            let mut counts: BTreeMap<BlockId, u32> = BTreeMap::new();
            for (operation, choice) in operations {
                let chosen = counts.keys().nth(choice % counts.len().max(1)).copied();
                match (operation, chosen) {
                    (0, _) => match pool.allocate() {
                        Some(block) => prop_assert_eq!(counts.insert(block, 1), None, "allocated twice"),
                        None => prop_assert_eq!(counts.len(), 6),
                    },
                    (1, Some(block)) => {
                        pool.retain(block);
                        *counts.get_mut(&block).unwrap() += 1;
                    }
                    (2, Some(block)) => {
                        let count = counts.get_mut(&block).unwrap();
                        *count -= 1;
                        prop_assert_eq!(pool.release(block), *count == 0);
                        if *count == 0 {
                            counts.remove(&block);
                            pool.free(block);
                        }
                    }
                    _ => {}
                }
                prop_assert_eq!(pool.free_blocks(), 6 - counts.len());
                for block in 0..6 {
                    prop_assert_eq!(pool.is_held(block), counts.contains_key(&block));
                }
            }
        }
    }
}
