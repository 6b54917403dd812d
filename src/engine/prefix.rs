//! Which blocks hold the keys and values of which token prefixes.
//!
//! A node is one whole block: its own tokens, after its parent's. A child is found by hashing (parent, tokens) and
//! confirmed by comparing them, so two prefixes can never be taken for each other. Whole blocks only: a partial match
//! would need a copy of a block to go on from. Keys and values depend on the weights and on the token prefix alone, and
//! one tree serves one loaded model, so the tokens are the whole key.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};

use super::block::{BLOCK_TOKENS, BlockId};

/// The tokens of one whole block.
pub(crate) type BlockTokens = [u32; BLOCK_TOKENS];

/// A block's place in the tree: after which block (`None` at the start of a prompt), with which tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Edge {
    pub(crate) parent: Option<BlockId>,
    pub(crate) tokens: BlockTokens,
}

/// A tree over blocks, each named by its [`BlockId`].
///
/// Rows hold paths from the root, so a held node's parent is held. Leaves that nobody holds are *idle*; eviction takes
/// the one whose last use is longest ago by a logical clock, and its parent may become idle in turn.
#[derive(Debug)]
pub(crate) struct PrefixTree<S = RandomState> {
    children: HashMap<Edge, BlockId, S>,
    /// By block id; `None` for blocks outside the tree.
    nodes: Vec<Option<Node>>,
    /// (last use, block) of every leaf that is not held: the next to evict comes first.
    idle_leaves: BTreeSet<(u64, BlockId)>,
    not_held: usize,
    clock: u64,
}

#[derive(Debug)]
struct Node {
    edge: Edge,
    children: usize,
    is_held: bool,
    last_use: u64,
}

impl PrefixTree {
    /// An empty tree over the block ids `0..blocks`.
    pub(crate) fn new(blocks: usize) -> Self {
        Self::with_hasher(blocks, RandomState::new())
    }
}

impl<S: BuildHasher> PrefixTree<S> {
    fn with_hasher(blocks: usize, hasher: S) -> Self {
        PrefixTree {
            children: HashMap::with_hasher(hasher),
            nodes: (0..blocks).map(|_| None).collect(),
            idle_leaves: BTreeSet::new(),
            not_held: 0,
            clock: 0,
        }
    }

    /// How many nodes nobody holds: what eviction could give back.
    pub(crate) fn not_held(&self) -> usize {
        self.not_held
    }

    /// Whether the block is a node.
    pub(crate) fn contains(&self, block: BlockId) -> bool {
        self.nodes[block as usize].is_some()
    }

    /// The blocks of the longest known prefix of `tokens`, at most `tokens.len() - 1` tokens: the last token has to be
    /// computed, since its logits are what a request wants.
    pub(crate) fn find(&self, tokens: &[u32]) -> Vec<BlockId> {
        let usable = &tokens[..tokens.len().saturating_sub(1)];
        let mut path = Vec::new();
        for block_tokens in usable.as_chunks::<BLOCK_TOKENS>().0 {
            let edge = Edge { parent: path.last().copied(), tokens: *block_tokens };
            match self.children.get(&edge) {
                Some(&block) => path.push(block),
                None => break,
            }
        }
        path
    }

    /// Makes `block`, which its caller holds, the node at `edge`. When another block is there already, nothing changes
    /// and that block is given: it holds the same bits.
    pub(crate) fn insert(&mut self, edge: Edge, block: BlockId) -> Option<BlockId> {
        debug_assert!(!self.contains(block), "a block has one place in the tree");
        if let Some(&existing) = self.children.get(&edge) {
            return Some(existing);
        }
        if let Some(parent) = edge.parent {
            let parent_node = self.node_mut(parent);
            debug_assert!(parent_node.is_held, "rows hold whole paths");
            parent_node.children += 1;
        }
        self.children.insert(edge, block);
        self.nodes[block as usize] = Some(Node { edge, children: 0, is_held: true, last_use: self.clock });
        None
    }

    /// The block has a holder now. Call only with a node nobody held.
    pub(crate) fn hold(&mut self, block: BlockId) {
        let node = self.nodes[block as usize].as_mut().expect("only nodes are held through the tree");
        debug_assert!(!node.is_held);
        node.is_held = true;
        self.not_held -= 1;
        self.idle_leaves.remove(&(node.last_use, block));
    }

    /// The block's last holder is gone: this is its last use.
    pub(crate) fn release(&mut self, block: BlockId) {
        let clock = self.clock;
        let node = self.node_mut(block);
        debug_assert!(node.is_held);
        node.is_held = false;
        node.last_use = clock;
        let is_leaf = node.children == 0;
        self.not_held += 1;
        if is_leaf {
            self.idle_leaves.insert((clock, block));
        }
    }

    /// Moves the logical clock: uses after this call are later than uses before.
    pub(crate) fn tick(&mut self) {
        self.clock += 1;
    }

    /// Forgets the leaf that has been idle longest; ties go to the lowest block id.
    pub(crate) fn evict(&mut self) -> Option<BlockId> {
        let (_, block) = self.idle_leaves.pop_first()?;
        let node = self.nodes[block as usize].take().expect("an idle leaf is a node");
        self.children.remove(&node.edge);
        self.not_held -= 1;
        if let Some(parent) = node.edge.parent {
            let parent_node = self.node_mut(parent);
            parent_node.children -= 1;
            if parent_node.children == 0 && !parent_node.is_held {
                let last_use = parent_node.last_use;
                self.idle_leaves.insert((last_use, parent));
            }
        }
        Some(block)
    }

    fn node_mut(&mut self, block: BlockId) -> &mut Node {
        self.nodes[block as usize].as_mut().expect("a parent outlives its children")
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasherDefault, Hasher};

    use super::*;

    /// Puts every key into one bucket.
    #[derive(Default)]
    struct SameHash;

    impl Hasher for SameHash {
        fn finish(&self) -> u64 {
            7
        }
        fn write(&mut self, _: &[u8]) {}
    }

    fn prompt(blocks: &[u32], tail: usize) -> Vec<u32> {
        let mut tokens: Vec<u32> = blocks.iter().flat_map(|&token| [token; BLOCK_TOKENS]).collect();
        tokens.extend(vec![99; tail]);
        tokens
    }

    fn edge(parent: Option<BlockId>, token: u32) -> Edge {
        Edge { parent, tokens: [token; BLOCK_TOKENS] }
    }

    #[test]
    fn match_stops_one_token_before_the_end() {
        let mut tree = PrefixTree::new(4);
        tree.insert(edge(None, 1), 0);
        tree.insert(edge(Some(0), 2), 1);
        assert_eq!(tree.find(&prompt(&[1, 2], 0)), [0]);
        assert_eq!(tree.find(&prompt(&[1, 2], 1)), [0, 1]);
        assert_eq!(tree.find(&prompt(&[1, 2, 3], 5)), [0, 1]);
        assert_eq!(tree.find(&prompt(&[1], 0)), [0; 0]);
        assert_eq!(tree.find(&[]), [0; 0]);
    }

    #[test]
    fn colliding_hashes_are_told_apart_by_tokens_and_parent() {
        let mut tree = PrefixTree::with_hasher(8, BuildHasherDefault::<SameHash>::default());
        tree.insert(edge(None, 1), 0);
        tree.insert(edge(None, 2), 1);
        tree.insert(edge(Some(0), 3), 2);
        tree.insert(edge(Some(1), 3), 3);
        assert_eq!(tree.find(&prompt(&[1, 3], 1)), [0, 2]);
        assert_eq!(tree.find(&prompt(&[2, 3], 1)), [1, 3]);
        assert_eq!(tree.find(&prompt(&[3], 1)), [0; 0]);
    }

    #[test]
    fn second_block_with_the_same_prefix_is_not_inserted() {
        let mut tree = PrefixTree::new(4);
        assert_eq!(tree.insert(edge(None, 1), 0), None);
        assert_eq!(tree.insert(edge(None, 1), 3), Some(0));
        assert!(!tree.contains(3));
    }

    #[test]
    fn eviction_takes_the_longest_idle_leaf_and_never_a_parent_or_a_held_block() {
        let mut tree = PrefixTree::new(4);
        tree.insert(edge(None, 1), 0);
        tree.insert(edge(Some(0), 2), 1);
        tree.insert(edge(Some(0), 3), 2);
        assert_eq!(tree.evict(), None, "all are held");
        for block in [2, 1, 0] {
            tree.tick();
            tree.release(block);
        }
        assert_eq!(tree.not_held(), 3);
        tree.hold(0);
        tree.hold(2);
        assert_eq!(tree.evict(), Some(1));
        assert_eq!(tree.evict(), None);
        tree.tick();
        tree.release(2);
        tree.release(0);
        assert_eq!([tree.evict(), tree.evict(), tree.evict()], [Some(2), Some(0), None]);
        assert_eq!(tree.find(&prompt(&[1], 1)), [0; 0]);
        assert_eq!(tree.not_held(), 0);
    }

    #[test]
    fn later_use_is_evicted_later() {
        let mut tree = PrefixTree::new(2);
        tree.insert(edge(None, 1), 0);
        tree.insert(edge(None, 2), 1);
        tree.release(0);
        tree.release(1);
        tree.tick();
        tree.hold(0);
        tree.release(0);
        assert_eq!(tree.evict(), Some(1));
    }
}
