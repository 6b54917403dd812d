//! What the engine knows of a model: its dimensions, and one call a step.

use lifelong_kernels::{Device, KvCache, KvGeometry, KvType, Routes, Segment, Values};

use crate::error::{Error, Result};
use crate::pieces::Piece;

/// The dimensions of a loaded model.
#[derive(Debug, Clone, PartialEq)]
pub struct Geometry {
    /// Name in the registry.
    pub architecture: String,
    pub layers: usize,
    pub hidden: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// Keys have a bias, so a few of their dimensions may be far larger than all others.
    pub key_bias: bool,
    pub feed_forward: usize,
    pub vocab: usize,
    /// Positions the model was trained for.
    pub context: usize,
    /// Of the layers, those that keep a state instead of keys and values, and the values of one.
    pub state_layers: usize,
    pub state_values: usize,
    /// Weights, a shared embedding counted once.
    pub parameters: u64,
    /// Bytes of these weights in the file.
    pub weight_bytes: u64,
}

impl Geometry {
    /// The cache that this model writes to, with a pool of `blocks`.
    pub fn kv(&self, blocks: usize) -> KvGeometry {
        KvGeometry {
            layers: self.layers - self.state_layers,
            blocks,
            block_tokens: lifelong_kernels::BLOCK_TOKENS,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            kv_type: KvType::default(),
            state_layers: self.state_layers,
            state_values: self.state_values,
        }
    }
}

/// The tokens of one step, those of all requests packed behind one another (T rows).
///
/// ```text
/// tokens     [ request a: 3 prompt tokens | b: 1 decoded token | c: 2 prompt tokens ]
/// positions  [ 0 1 2                      | 41                 | 16 17              ]
/// segments   [ {rows 0..3, context 0}, {rows 3..4, context 41}, {rows 4..6, context 16} ]
/// outputs    [ 2, 3, 5 ]                                     rows whose next-token logits are wanted
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// `[T]`
    pub tokens: &'a [u32],
    /// `[T]`
    pub positions: &'a [u32],
    pub segments: &'a [Segment],
    /// Block numbers, sliced by each segment's `table`.
    pub tables: &'a [u32],
    /// Rows in `0..T`, in any order.
    pub outputs: &'a [usize],
}

/// What of its requests a decoder computes at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Batching {
    /// Rows of any requests in any chunks, behind prefixes that another request computed.
    #[default]
    Packed,
    /// One request: its whole prompt in a step, then a token a step. It keeps keys and values itself, so nothing in the
    /// cache can be gone on from.
    OneAtATime,
}

/// A language model that decodes over a paged cache.
pub trait Decoder: Send + Sync {
    fn geometry(&self) -> &Geometry;

    /// What a step may hold.
    fn batching(&self) -> Batching {
        Batching::Packed
    }

    /// What loading wants people to know: defaults taken, tensors ignored, weights that are not numbers.
    fn notes(&self) -> &[String];

    /// Runs one step: writes the keys and values of all its tokens into `cache` and leaves the next-token logits
    /// `[outputs, V]` in `logits`. Row i of the logits is a function of the token prefix of output i alone, bit for bit. On a
    /// GPU they are for operations only until it has been waited for ([`Device::synchronize`]). A decoder that was loaded for a
    /// group of devices runs on that, with a cache that was made for it; what its bits depend on is how many they are.
    ///
    /// Allocates only while a step is larger than any before it: `scratch` and `logits` keep their memory.
    ///
    /// # Errors
    /// [`Error::Batch`] for lengths that differ, tokens outside the vocabulary, positions beyond the context or output
    /// rows that do not exist; [`Error::Kernel`] for a cache of another geometry. On an error the cache's blocks of this
    /// step may hold a part of it.
    fn forward(
        &self,
        device: &Device,
        batch: &Batch,
        cache: &mut KvCache,
        scratch: &mut Scratch,
        logits: &mut Values,
    ) -> Result<()>;
}

/// A model that turns whole texts into one vector a token.
pub trait Encoder: Send + Sync {
    fn geometry(&self) -> &Geometry;

    /// As [`Decoder::notes`].
    fn notes(&self) -> &[String];

    /// Leaves the last hidden states `[T, H]` in `hidden`: texts packed without padding, `lengths` summing to T. The
    /// rows of a text are a function of that text alone, bit for bit. On a GPU they are for operations only until it has
    /// been waited for ([`Device::synchronize`]).
    ///
    /// # Errors
    /// [`Error::Batch`] for lengths that do not sum to T, a text that is empty or longer than the context, tokens
    /// outside the vocabulary.
    fn forward(
        &self,
        device: &Device,
        tokens: &[u32],
        lengths: &[usize],
        scratch: &mut Scratch,
        hidden: &mut Values,
    ) -> Result<()>;
}

/// Activations between the layers, kept from step to step. Each grows to the largest step and stays, in the memory of the
/// first step's device; what it holds is left over from the operation before.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(crate) residual: Values,
    pub(crate) normed: Values,
    pub(crate) query: Values,
    pub(crate) key: Values,
    pub(crate) value: Values,
    pub(crate) attended: Values,
    pub(crate) projected: Values,
    pub(crate) gate: Values,
    pub(crate) up: Values,
    pub(crate) positions: Vec<u32>,
    /// Rows of a step whose states the head reads.
    pub(crate) outputs: Vec<u32>,
    pub(crate) routes: Routes,
    /// Of a step that is cut, with activations of their own.
    pub(crate) pieces: Vec<Piece>,
    /// Those of the devices that a split decoder is in parts on.
    pub(crate) parts: Vec<Scratch>,
    /// Keys and values of the layer at work, for encoders that are a decoder's body.
    pub(crate) cache: Option<KvCache>,
}

pub(crate) fn check_batch(batch: &Batch, geometry: &Geometry) -> Result<()> {
    let Batch { tokens, positions, outputs, .. } = *batch;
    if positions.len() != tokens.len() {
        return Err(Error::Batch(format!("{} positions for {} tokens", positions.len(), tokens.len())));
    }
    check_tokens(tokens, geometry)?;
    if let Some(position) = positions.iter().find(|position| **position as usize >= geometry.context) {
        let context = geometry.context;
        return Err(Error::Batch(format!("position {position} is beyond the model's context of {context} tokens")));
    }
    if let Some(output) = outputs.iter().find(|output| **output >= tokens.len()) {
        return Err(Error::Batch(format!("output row {output} of a step of {} tokens", tokens.len())));
    }
    Ok(())
}

pub(crate) fn check_texts(tokens: &[u32], lengths: &[usize], geometry: &Geometry) -> Result<()> {
    let total: usize = lengths.iter().sum();
    if total != tokens.len() {
        return Err(Error::Batch(format!("texts of {total} tokens in all, given are {}", tokens.len())));
    }
    check_tokens(tokens, geometry)?;
    if let Some(text) = lengths.iter().position(|length| !(1..=geometry.context).contains(length)) {
        let (length, context) = (lengths[text], geometry.context);
        return Err(Error::Batch(format!("text {text} has {length} tokens, the model takes 1 to {context}")));
    }
    Ok(())
}

fn check_tokens(tokens: &[u32], geometry: &Geometry) -> Result<()> {
    match tokens.iter().find(|token| **token as usize >= geometry.vocab) {
        Some(token) => Err(Error::Batch(format!("token {token} of a vocabulary of {}", geometry.vocab))),
        None => Ok(()),
    }
}
