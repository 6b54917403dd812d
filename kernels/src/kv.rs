//! Keys and values of past tokens, in blocks of 16 tokens that requests share by number.

use std::ops::Range;

use crate::cuda::{DeviceCache, on_gpu};
use crate::device::{Backend, Device};
use crate::error::{Error, Result};
use crate::memory::Aligned;

/// Tokens in one block: one vector of scores.
pub const BLOCK_TOKENS: usize = 16;
/// Numbers of 16 bits that the scales of a block's keys, or of its values, take.
pub(crate) const SCALES: usize = 2 * BLOCK_TOKENS;

/// How a cache stores keys and values. What is stored is rounded once, to nearest; attention over floats runs in `f32`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KvType {
    #[default]
    F32,
    /// Half the memory at 11 significant bits; magnitudes above 65 504 become 65 504.
    F16,
    /// Half the memory at 8 significant bits and the range of `f32`.
    BF16,
    /// Half the memory as integers times a scale of each key and each value (of one token and head): keys of D dimensions up to
    /// √(2³¹/D), values up to 4 095. Attention multiplies integers exactly, at twice the rate of `f32` with AVX-512 VNNI. On the
    /// processor only.
    I16,
}

impl KvType {
    pub(crate) fn bytes(self) -> usize {
        match self {
            KvType::F32 => 4,
            KvType::F16 | KvType::BF16 | KvType::I16 => 2,
        }
    }
}

/// The largest integer of a key and of a query of so many dimensions: the sum of their products stays within 32 bits.
pub(crate) fn most_level(dim: usize) -> u16 {
    (i32::MAX as usize / dim).isqrt().min(i16::MAX as usize) as u16
}

/// The extents of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvGeometry {
    pub layers: usize,
    /// Blocks in the pool, shared by all requests; a block number stands for its place in every layer.
    pub blocks: usize,
    /// Always [`BLOCK_TOKENS`].
    pub block_tokens: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub kv_type: KvType,
    /// Layers that keep a state instead of keys and values; 0 in most models.
    pub state_layers: usize,
    /// Values of a layer's state; every block holds one, of all tokens up to its last.
    pub state_values: usize,
}

impl KvGeometry {
    /// Memory of one block over all layers: keys, values and states.
    pub fn bytes_per_block(&self) -> usize {
        let keys_values = self.layers * self.kv_heads * self.head_block() * self.kv_type.bytes();
        keys_values + self.state_layers * self.state_values * size_of::<f32>()
    }

    /// Values of one (layer, block, head): keys `[D, 16]`, then values `[16, D padded to 16]`; of integers as [`KvCache`] says.
    pub(crate) fn head_block(&self) -> usize {
        match self.kv_type {
            KvType::I16 => BLOCK_TOKENS * 2 * self.padded_dim() + 2 * SCALES,
            KvType::F32 | KvType::F16 | KvType::BF16 => BLOCK_TOKENS * (self.head_dim + self.padded_dim()),
        }
    }

    pub(crate) fn padded_dim(&self) -> usize {
        self.head_dim.next_multiple_of(BLOCK_TOKENS)
    }
}

/// The pool of blocks on one device.
///
/// One (layer, block, head) is contiguous:
///
/// ```text
/// keys    [D][16]   dimension-major: the 16 scores of a query are one chain of vector multiply-adds over D
/// values  [16][D']  token-major, D' = D rounded up to 16: the output of a query is a chain over tokens
/// ```
///
/// Of [`KvType::I16`], two neighbours in the sum that attention takes over them stand side by side:
///
/// ```text
/// keys    [D'/2][16][2]   scores of a query: a sum over pairs of dimensions
/// values  [8][D'][2]      the output of a query: a sum over pairs of tokens
/// scales  [2][16]         f32: of the keys, then of the values
/// ```
///
/// A layer's heads follow each other, each with all of its blocks: attention reads one head of a request at a time, and
/// memory is read fastest in order.
///
/// A block's contents belong to whoever holds its number: the cache itself counts no references.
pub struct KvCache {
    geometry: KvGeometry,
    storage: KvStorage,
    /// `[state layers][blocks][values]`, always `f32`: a state is read and written by every token.
    states: Aligned<f32>,
}

/// The stored numbers of a cache.
pub(crate) enum KvStorage {
    F32(Aligned<f32>),
    /// The bits of `f16`, `bf16` or `i16`, as the cache's [`KvType`] says.
    Half(Aligned<u16>),
    /// On a GPU, in the same layout, states included.
    Device(DeviceCache),
    /// Of a group: one a member, each with its run of the heads.
    Parts(Vec<KvCache>),
}

impl std::fmt::Debug for KvCache {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("KvCache").field("geometry", &self.geometry).finish_non_exhaustive()
    }
}

impl KvCache {
    /// A zeroed cache. Memory is taken from the system as blocks are first written. On a group of devices every member holds
    /// all blocks of its run of the heads; operations take these parts ([`KvCache::parts_mut`]).
    ///
    /// # Errors
    /// [`Error::Shape`] for an extent of zero or `block_tokens` other than 16; [`Error::Cuda`] when a GPU, which takes all
    /// of it at once, has not as much memory left; [`Error::Group`] for heads that a group cannot share evenly.
    pub fn new(device: &Device, geometry: KvGeometry) -> Result<Self> {
        let op = "kv cache";
        let KvGeometry { layers, blocks, block_tokens, kv_heads, head_dim, kv_type, .. } = geometry;
        if block_tokens != BLOCK_TOKENS {
            let problem = format!("blocks of {block_tokens} tokens asked for, kernels work on {BLOCK_TOKENS}");
            return Err(Error::Shape { op, problem });
        }
        if layers == 0 || blocks == 0 || kv_heads == 0 || head_dim == 0 {
            return Err(Error::Shape { op, problem: format!("an extent of {geometry:?} is zero") });
        }
        if !device.members().is_empty() {
            return Self::in_parts(device.members(), geometry);
        }
        if let Backend::Cuda(cuda) = device.backend() {
            if kv_type == KvType::I16 {
                let problem =
                    "keys and values as 16-bit integers are for the processor; expected F32, F16 or BF16 on a GPU";
                return Err(Error::Shape { op, problem: problem.to_string() });
            }
            let storage = KvStorage::Device(on_gpu!(cuda, kv::cache(&geometry))?);
            return Ok(Self { geometry, storage, states: Aligned::zeroed(0) });
        }
        let length = layers * blocks * kv_heads * geometry.head_block();
        let storage = match kv_type {
            KvType::F32 => KvStorage::F32(Aligned::zeroed(length)),
            KvType::F16 | KvType::BF16 | KvType::I16 => KvStorage::Half(Aligned::zeroed(length)),
        };
        let states = Aligned::zeroed(geometry.state_layers * blocks * geometry.state_values);
        Ok(Self { geometry, storage, states })
    }

    fn in_parts(members: &[Device], geometry: KvGeometry) -> Result<Self> {
        let KvGeometry { kv_heads, state_layers, .. } = geometry;
        if !kv_heads.is_multiple_of(members.len()) || state_layers > 0 {
            let found = format!("{kv_heads} kv heads and {state_layers} layers with states");
            return Err(Error::Group(format!("a cache of {found} cannot be shared by {} devices", members.len())));
        }
        let part = KvGeometry { kv_heads: kv_heads / members.len(), ..geometry };
        let parts = members.iter().map(|member| Self::new(member, part)).collect::<Result<_>>()?;
        Ok(Self { geometry, storage: KvStorage::Parts(parts), states: Aligned::zeroed(0) })
    }

    /// Those of the members of a group, in order of rank; of a cache on one device none.
    pub fn parts_mut(&mut self) -> &mut [KvCache] {
        match &mut self.storage {
            KvStorage::Parts(parts) => parts,
            KvStorage::F32(_) | KvStorage::Half(_) | KvStorage::Device(_) => &mut [],
        }
    }

    pub fn geometry(&self) -> &KvGeometry {
        &self.geometry
    }

    /// As [`KvGeometry::bytes_per_block`].
    pub fn bytes_per_block(geometry: &KvGeometry) -> usize {
        geometry.bytes_per_block()
    }

    /// Fails unless it lies where operations of this device find keys and values.
    pub(crate) fn check_place(&self, op: &'static str, device: &Device) -> Result<()> {
        if let KvStorage::Parts(parts) = &self.storage {
            let problem = format!("{op} works on one part of a cache, found the whole of {}", parts.len());
            return Err(Error::Group(problem));
        }
        let lies_on_gpu = matches!(self.storage, KvStorage::Device(_));
        if lies_on_gpu == device.is_gpu() {
            return Ok(());
        }
        let found = if lies_on_gpu { "a GPU" } else { "the processor" };
        let problem = format!("the cache lies in the memory of {found}, the operation runs on {}", device.name());
        Err(Error::Shape { op, problem })
    }

    pub(crate) fn offset(&self, layer: usize, block: usize, head: usize) -> usize {
        let KvGeometry { blocks, kv_heads, .. } = self.geometry;
        ((layer * kv_heads + head) * blocks + block) * self.geometry.head_block()
    }

    /// The caller has checked that it lies there.
    #[cfg(any(feature = "cuda", feature = "emulate"))]
    pub(crate) fn on_device(&self) -> &DeviceCache {
        match &self.storage {
            KvStorage::Device(cache) => cache,
            _ => unreachable!("operations check where a cache lies: our bug"),
        }
    }

    pub(crate) fn storage(&self) -> &KvStorage {
        &self.storage
    }

    pub(crate) fn states_mut(&mut self) -> &mut [f32] {
        &mut self.states
    }

    pub(crate) fn storage_mut(&mut self) -> &mut KvStorage {
        &mut self.storage
    }
}

/// One request's tokens in a packed step.
///
/// ```text
/// packed rows   … [query_start ────── query_len) …          this step's tokens
/// positions        context_len, context_len + 1, …          where they stand in the request
/// block table      tables[table] = ids of blocks 0, 1, …    token at position p lives in block p / 16, slot p mod 16
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub query_start: usize,
    pub query_len: usize,
    /// Tokens of the request that are in the cache already.
    pub context_len: usize,
    /// The request's slice of the step's `tables`; must cover the blocks of `context_len + query_len` tokens.
    pub table: Range<usize>,
}

impl Segment {
    /// Tokens in the cache after this step.
    pub fn total_len(&self) -> usize {
        self.context_len + self.query_len
    }
}
