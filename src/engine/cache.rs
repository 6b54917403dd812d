//! Block tables over the pool and the prefix tree: what a row may read, and where it writes next.

use super::block::{BLOCK_TOKENS, BlockId, BlockPool};
use super::prefix::{Edge, PrefixTree};

/// The blocks of one row, in order of position. Dropping a table leaks its blocks: give it to [`Cache::release`].
///
/// ```text
///   ├── in the tree ──┤├──── the row's own ────┤
///   │ found │ shared  ││ computed │ to be written │
///   (whole, never written again)  (last may be partial)
/// ```
#[derive(Debug, Default)]
pub(crate) struct BlockTable {
    blocks: Vec<BlockId>,
    in_tree: usize,
}

impl BlockTable {
    pub(crate) fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }
}

/// Blocks of one KV cache with what they are known to hold.
#[derive(Debug)]
pub(crate) struct Cache {
    pool: BlockPool,
    /// `None` when prefixes are not reused.
    tree: Option<PrefixTree>,
    evictions: u64,
}

impl Cache {
    pub(crate) fn new(blocks: usize, reuses_prefixes: bool) -> Self {
        let tree = reuses_prefixes.then(|| PrefixTree::new(blocks));
        Cache { pool: BlockPool::new(blocks), tree, evictions: 0 }
    }

    /// Blocks that [`Cache::grow`] could still hand out, by eviction where needed.
    pub(crate) fn available(&self) -> usize {
        self.pool.free_blocks() + self.tree.as_ref().map_or(0, PrefixTree::not_held)
    }

    /// How many blocks were forgotten to make room.
    pub(crate) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Moves the clock by which the longest unused block is evicted first.
    pub(crate) fn tick(&mut self) {
        if let Some(tree) = &mut self.tree {
            tree.tick();
        }
    }

    /// The known blocks of a prompt, covering at most all tokens but the last.
    pub(crate) fn find(&self, tokens: &[u32]) -> Vec<BlockId> {
        self.tree.as_ref().map_or_else(Vec::new, |tree| tree.find(tokens))
    }

    /// How many of these blocks nobody holds: holding them makes that many fewer available.
    pub(crate) fn not_held_among(&self, path: &[BlockId]) -> usize {
        path.iter().filter(|&&block| !self.pool.is_held(block)).count()
    }

    /// A table that begins with the blocks found by [`Cache::find`], held from now on.
    pub(crate) fn acquire(&mut self, path: Vec<BlockId>) -> BlockTable {
        if let Some(tree) = &mut self.tree {
            for &block in &path {
                if !self.pool.is_held(block) {
                    tree.hold(block);
                }
                self.pool.retain(block);
            }
        }
        BlockTable { in_tree: path.len(), blocks: path }
    }

    /// Gives the table `blocks` blocks, evicting where needed; false when none are left. Blocks already given stay.
    pub(crate) fn grow(&mut self, table: &mut BlockTable, blocks: usize) -> bool {
        while table.blocks.len() < blocks {
            if let Some(block) = self.pool.allocate() {
                table.blocks.push(block);
            } else if let Some(block) = self.tree.as_mut().and_then(PrefixTree::evict) {
                self.evictions += 1;
                self.pool.free(block);
            } else {
                return false;
            }
        }
        true
    }

    /// Lets others find the table's whole blocks, `computed` being the tokens whose keys and values are written.
    ///
    /// When another row was first with the same prefix, its block takes the place of this row's: both hold the same
    /// bits, and one copy is enough.
    pub(crate) fn share(&mut self, table: &mut BlockTable, computed: &[u32]) {
        let Some(tree) = &mut self.tree else { return };
        let whole_blocks = computed.as_chunks::<BLOCK_TOKENS>().0;
        for (index, tokens) in whole_blocks.iter().enumerate().skip(table.in_tree) {
            let parent = index.checked_sub(1).map(|before| table.blocks[before]);
            let own = table.blocks[index];
            if let Some(existing) = tree.insert(Edge { parent, tokens: *tokens }, own) {
                if !self.pool.is_held(existing) {
                    tree.hold(existing);
                }
                self.pool.retain(existing);
                let was_last = self.pool.release(own);
                debug_assert!(was_last, "a block outside the tree has one holder");
                self.pool.free(own);
                table.blocks[index] = existing;
            }
        }
        table.in_tree = table.in_tree.max(whole_blocks.len());
    }

    /// Where in the tree the row's next shared block will be, when its tokens are known.
    pub(crate) fn next_edge(&self, table: &BlockTable, tokens: &[u32]) -> Option<Edge> {
        self.tree.as_ref()?;
        let next = tokens.as_chunks::<BLOCK_TOKENS>().0.get(table.in_tree)?;
        Some(Edge { parent: table.in_tree.checked_sub(1).map(|last| table.blocks[last]), tokens: *next })
    }

    /// Takes the table's blocks back. Those in the tree stay findable until they are evicted.
    pub(crate) fn release(&mut self, table: BlockTable) {
        for (index, &block) in table.blocks.iter().enumerate() {
            if !self.pool.release(block) {
                continue;
            }
            match &mut self.tree {
                Some(tree) if index < table.in_tree => tree.release(block),
                _ => self.pool.free(block),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(count: usize) -> Vec<u32> {
        (0..count as u32).collect()
    }

    /// A table over all of `tokens`, computed and shared.
    fn computed(cache: &mut Cache, tokens: &[u32]) -> BlockTable {
        let mut table = BlockTable::default();
        assert!(cache.grow(&mut table, tokens.len().div_ceil(BLOCK_TOKENS)));
        cache.share(&mut table, tokens);
        table
    }

    #[test]
    fn released_whole_blocks_are_found_again_and_the_partial_one_is_free() {
        let mut cache = Cache::new(4, true);
        let table = computed(&mut cache, &tokens(40));
        let path = table.blocks()[..2].to_vec();
        cache.release(table);
        assert_eq!(cache.available(), 4);
        assert_eq!(cache.find(&tokens(40)), path);
        assert_eq!(cache.not_held_among(&path), 2);
        let again = cache.acquire(path);
        assert_eq!(cache.available(), 2);
        cache.release(again);
    }

    #[test]
    fn same_prefix_computed_twice_is_kept_once() {
        let mut cache = Cache::new(4, true);
        let first = computed(&mut cache, &tokens(32));
        let second = computed(&mut cache, &tokens(32));
        assert_eq!(first.blocks(), second.blocks());
        assert_eq!(cache.available(), 2);
        cache.release(first);
        assert_eq!(cache.available(), 2);
        cache.release(second);
        assert_eq!(cache.available(), 4);
    }

    #[test]
    fn grow_evicts_what_nobody_holds_and_then_gives_up() {
        let mut cache = Cache::new(3, true);
        let held = computed(&mut cache, &tokens(16));
        let idle = computed(&mut cache, &[7; 32]);
        cache.release(idle);
        let mut table = BlockTable::default();
        assert!(cache.grow(&mut table, 2));
        assert_eq!(cache.evictions(), 2);
        assert!(!cache.grow(&mut table, 3));
        assert_eq!(cache.find(&[7; 33]), [0; 0]);
        assert_eq!(cache.find(&tokens(17)), held.blocks());
        cache.release(table);
        cache.release(held);
        assert_eq!(cache.available(), 3);
    }

    #[test]
    fn without_a_tree_nothing_is_found() {
        let mut cache = Cache::new(2, false);
        let table = computed(&mut cache, &tokens(32));
        assert_eq!(cache.next_edge(&table, &tokens(64)), None);
        cache.release(table);
        assert_eq!(cache.find(&tokens(32)), [0; 0]);
        assert_eq!(cache.available(), 2);
    }

    #[test]
    fn next_edge_is_known_when_the_whole_block_is() {
        let mut cache = Cache::new(4, true);
        let table = computed(&mut cache, &tokens(16));
        assert_eq!(cache.next_edge(&table, &tokens(31)), None);
        let edge = cache.next_edge(&table, &tokens(32)).unwrap();
        assert_eq!(edge.parent, Some(table.blocks()[0]));
        assert_eq!(edge.tokens[..], tokens(32)[16..]);
        cache.release(table);
    }
}
