//! Softmax attention.

use std::time::Instant;

use super::kv::check_segments;
use crate::cpu;
use crate::cuda::on_gpu;
use crate::device::{Backend, Device};
use crate::error::{Error, Result, check_length, check_rows};
use crate::kv::{KvCache, Segment};

/// The extents of an attention layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionShape {
    /// Query heads HQ, a multiple of `kv_heads`: query head `h` reads kv head `h · kv_heads / heads`
    /// (Ainslie et al. 2023, "GQA", §2.2).
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// Factor of every score; `1/√D` in most models.
    pub scale: f32,
    /// Keys a query sees, itself counted; `None` for all. In bidirectional attention, on each side.
    pub window: Option<usize>,
}

/// Causal attention over the paged cache: `out[t] = softmax(scale · q[t] Kᵀ) V` over the positions up to the token's
/// own. The step's own keys and values must have been written before ([`super::kv::write`]).
///
/// Keys are visited in blocks of 16 in order of position with an online softmax (Milakov & Gimelshein 2018, "Online
/// normalizer calculation for softmax", alg. 3); a query's arithmetic does not depend on which queries share the pass.
///
/// # Shapes
/// `out`, `q` `[T, HQ, D]` · `segments` as in [`Segment`], ordered by rows · `tables` block numbers
///
/// # Errors
/// A shape that contradicts the cache, segments or tables out of range. Rows of no segment are left as they are.
#[allow(clippy::too_many_arguments)]
pub fn paged(
    device: &Device,
    out: &mut [f32],
    q: &[f32],
    cache: &KvCache,
    layer: usize,
    segments: &[Segment],
    tables: &[u32],
    shape: AttentionShape,
) -> Result<()> {
    paged_over(device, out, q, cache, layer, segments, tables, shape, None)
}

/// [`paged`] with a sink for each query head: a logit that takes part in the softmax and brings no value, so that the
/// weights of the keys sum to less than 1 (Xiao et al. 2024, "Efficient Streaming Language Models with Attention Sinks",
/// §3.3, where it is a key; as a learned logit in gpt-oss). It joins last: all else is computed as without it.
///
/// # Shapes
/// As [`paged`] · `sinks` `[HQ]`, not scaled
///
/// # Errors
/// As [`paged`]; another number of sinks than heads.
#[allow(clippy::too_many_arguments)]
pub fn paged_with_sinks(
    device: &Device,
    out: &mut [f32],
    q: &[f32],
    sinks: &[f32],
    cache: &KvCache,
    layer: usize,
    segments: &[Segment],
    tables: &[u32],
    shape: AttentionShape,
) -> Result<()> {
    check_length("paged attention", "sinks", sinks.len(), &[("heads", shape.heads)])?;
    paged_over(device, out, q, cache, layer, segments, tables, shape, Some(sinks))
}

#[allow(clippy::too_many_arguments)]
fn paged_over(
    device: &Device,
    out: &mut [f32],
    q: &[f32],
    cache: &KvCache,
    layer: usize,
    segments: &[Segment],
    tables: &[u32],
    shape: AttentionShape,
    sinks: Option<&[f32]>,
) -> Result<()> {
    let op = "paged attention";
    check_shape(op, &shape)?;
    let geometry = cache.geometry();
    if (shape.kv_heads, shape.head_dim) != (geometry.kv_heads, geometry.head_dim) {
        let problem = format!(
            "{} kv heads of {} asked for, the cache has {} of {}",
            shape.kv_heads, shape.head_dim, geometry.kv_heads, geometry.head_dim
        );
        return Err(Error::Shape { op, problem });
    }
    let tokens = check_rows(op, "q", q.len(), shape.heads * shape.head_dim)?;
    check_length(op, "out", out.len(), &[("q", q.len())])?;
    check_segments(op, geometry, layer, tokens, segments, tables)?;
    cache.check_place(op, device)?;
    let begun = Instant::now();
    match device.backend() {
        Backend::Cpu(cpu) => cpu::attention::paged(cpu, out, q, cache, layer, segments, tables, &shape, sinks),
        Backend::Cuda(cuda) => on_gpu!(cuda, attention::paged(out, q, cache, layer, segments, tables, &shape, sinks))?,
    }
    let reach = shape.window.unwrap_or(usize::MAX);
    let seen = |segment: &Segment| -> usize {
        (1..=segment.query_len).map(|token| (segment.context_len + token).min(reach)).sum()
    };
    count(device, segments.iter().map(seen).sum(), &shape, begun);
    Ok(())
}

/// Attention of every token to every token of its own text, for encoders.
///
/// # Shapes
/// `out`, `q` `[T, HQ, D]` · `k`, `v` `[T, KVH, D]` · `lengths` of the texts packed without padding, `Σ = T`
///
/// # Errors
/// A wrong length.
pub fn bidirectional(
    device: &Device,
    out: &mut [f32],
    q: &[f32],
    k: &[f32],
    v: &[f32],
    lengths: &[usize],
    shape: AttentionShape,
) -> Result<()> {
    let op = "bidirectional attention";
    check_shape(op, &shape)?;
    let tokens = ("tokens", lengths.iter().sum());
    let (heads, kv_heads, dim) = (("heads", shape.heads), ("kv heads", shape.kv_heads), ("head dim", shape.head_dim));
    check_length(op, "q", q.len(), &[tokens, heads, dim])?;
    check_length(op, "out", out.len(), &[tokens, heads, dim])?;
    check_length(op, "k", k.len(), &[tokens, kv_heads, dim])?;
    check_length(op, "v", v.len(), &[tokens, kv_heads, dim])?;
    let begun = Instant::now();
    match device.backend() {
        Backend::Cpu(cpu) => cpu::attention::bidirectional(cpu, out, q, k, v, lengths, &shape),
        Backend::Cuda(cuda) => on_gpu!(cuda, attention::bidirectional(out, q, k, v, lengths, &shape))?,
    }
    let seen = |length: &usize| -> usize {
        let reach = shape.window.unwrap_or(*length);
        (0..*length).map(|token| length.min(&(token + reach)) - (token + 1).saturating_sub(reach)).sum()
    };
    count(device, lengths.iter().map(seen).sum(), &shape, begun);
    Ok(())
}

/// What a head adds to the score of a key by its distance from the query.
pub struct DistanceBias {
    /// `[heads][2 · reach − 1]`: of a head, the bias at key position − query position = 1 − reach … reach − 1.
    values: Vec<f32>,
    reach: usize,
}

impl DistanceBias {
    /// Biases for texts of up to `reach` tokens; `bias(head, key − query)`.
    pub fn new(heads: usize, reach: usize, bias: impl Fn(usize, isize) -> f32) -> Self {
        let distances = move || 1 - reach as isize..reach as isize;
        let values = (0..heads).flat_map(|head| distances().map(move |distance| (head, distance)));
        Self { values: values.map(|(head, distance)| bias(head, distance)).collect(), reach }
    }

    /// `[heads][2 · reach − 1]`, as [`DistanceBias::new`] was asked for them.
    #[cfg(any(feature = "cuda", feature = "emulate"))]
    pub(crate) fn values(&self) -> &[f32] {
        &self.values
    }

    #[cfg(any(feature = "cuda", feature = "emulate"))]
    pub(crate) fn reach(&self) -> usize {
        self.reach
    }

    /// The biases of all keys of a text of `tokens` tokens for the query at position `query`.
    pub(crate) fn row(&self, head: usize, query: usize, tokens: usize) -> &[f32] {
        &self.values[head * (2 * self.reach - 1) + self.reach - 1 - query..][..tokens]
    }
}

/// As [`bidirectional`], with a bias added to every scaled score: `softmax(scale · q[t] Kᵀ + bias) V`. Every head has keys
/// and values of its own, and no window.
///
/// # Errors
/// As [`bidirectional`]; grouped heads, a window, biases of another number of heads, a text beyond their reach.
#[allow(clippy::too_many_arguments)]
pub fn bidirectional_biased(
    device: &Device,
    out: &mut [f32],
    q: &[f32],
    k: &[f32],
    v: &[f32],
    lengths: &[usize],
    shape: AttentionShape,
    bias: &DistanceBias,
) -> Result<()> {
    let op = "biased bidirectional attention";
    check_shape(op, &shape)?;
    let AttentionShape { heads, kv_heads, head_dim, window, .. } = shape;
    if kv_heads != heads || window.is_some() {
        let problem = format!("{heads} query heads over {kv_heads} kv heads, window {window:?}");
        return Err(Error::Shape { op, problem: problem + "; expected as many kv heads and no window" });
    }
    check_length(op, "bias", bias.values.len(), &[("heads", heads), ("distances", 2 * bias.reach - 1)])?;
    if let Some(length) = lengths.iter().find(|length| **length > bias.reach) {
        let problem = format!("a text of {length} tokens, the biases reach {}", bias.reach);
        return Err(Error::Shape { op, problem });
    }
    for (name, rows) in [("q", q.len()), ("k", k.len()), ("v", v.len()), ("out", out.len())] {
        check_length(op, name, rows, &[("tokens", lengths.iter().sum()), ("heads", heads), ("head dim", head_dim)])?;
    }
    let begun = Instant::now();
    match device.backend() {
        Backend::Cpu(cpu) => cpu::attention::bidirectional_biased(cpu, out, q, k, v, lengths, &shape, bias),
        Backend::Cuda(cuda) => on_gpu!(cuda, attention::bidirectional_biased(out, q, k, v, lengths, &shape, bias))?,
    }
    count(device, lengths.iter().map(|length| length * length).sum(), &shape, begun);
    Ok(())
}

/// `seen`: pairs of a query and a position that it sees.
fn count(device: &Device, seen: usize, shape: &AttentionShape, begun: Instant) {
    device.counters().attention.add(4 * seen * shape.heads * shape.head_dim, 0, begun);
}

fn check_shape(op: &'static str, shape: &AttentionShape) -> Result<()> {
    let AttentionShape { heads, kv_heads, head_dim, window, .. } = *shape;
    if heads == 0 || kv_heads == 0 || head_dim == 0 || !heads.is_multiple_of(kv_heads) {
        let problem = format!("{heads} query heads over {kv_heads} kv heads of {head_dim} values");
        return Err(Error::Shape { op, problem });
    }
    if window == Some(0) {
        return Err(Error::Shape { op, problem: "a window of 0 keys leaves nothing to attend to".into() });
    }
    Ok(())
}
