//! Linear attention by the gated delta rule: a layer that keeps one matrix for each head instead of keys and values.

use super::kv::check_segments;
use crate::cpu;
use crate::cuda::on_gpu;
use crate::device::{Backend, Device};
use crate::error::{Error, Result, check_length, check_rows};
use crate::kv::{BLOCK_TOKENS, KvCache, Segment};

/// Lanes that the values of a head are filled up to in a state.
const LANES: usize = 16;

/// Which key head a value head reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeadOrder {
    /// `h · KH / VH`: value heads of one key head side by side, as in Hugging Face checkpoints.
    #[default]
    Grouped,
    /// `h mod KH`: as in GGUF files.
    Tiled,
}

/// The extents of a gated delta layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaShape {
    /// Query and key heads KH, a divisor of `value_heads`.
    pub key_heads: usize,
    /// Value heads VH: each has a state `[KD, VD]` of its own.
    pub value_heads: usize,
    /// KD
    pub key_dim: usize,
    /// VD
    pub value_dim: usize,
    /// Inputs that the short convolution sees, the token's own counted.
    pub kernel: usize,
    pub order: HeadOrder,
}

impl DeltaShape {
    /// Channels C of the convolution: queries, keys and values behind one another.
    pub fn channels(&self) -> usize {
        2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim
    }

    /// Values of a layer's state: the convolution's last inputs `[kernel − 1, C]` and a matrix `[KD, VD]` a head, its
    /// rows filled up to whole vectors.
    pub fn state_values(&self) -> usize {
        (self.kernel - 1) * self.channels() + self.value_heads * self.head_state()
    }

    pub(crate) fn head_state(&self) -> usize {
        self.key_dim * self.value_dim.next_multiple_of(LANES)
    }
}

/// The weights of a gated delta layer beside its projections.
#[derive(Clone, Copy, Debug)]
pub struct DeltaWeights<'a> {
    /// `[kernel, C]`, oldest input first.
    pub convolution: &'a [f32],
    /// `[VH]`: how fast a head forgets, above 0.
    pub decay_rate: &'a [f32],
    /// `[VH]`
    pub decay_bias: &'a [f32],
}

/// The projections of a step's rows.
#[derive(Clone, Copy, Debug)]
pub struct DeltaInputs<'a> {
    /// `[T, C]`: queries, keys and values.
    pub mixed: &'a [f32],
    /// `[T, VH]`: what the decay of each head depends on.
    pub decay: &'a [f32],
    /// `[T, VH]`: what the writing strength of each head depends on.
    pub strength: &'a [f32],
}

/// The gated delta rule over a packed step (Yang et al. 2025, "Gated Delta Networks", eq. 10), behind a short causal
/// convolution with SiLU of its queries, keys and values. For a head with state S `[KD, VD]`, token by token:
///
/// ```text
/// S ← exp(−decay_rate · softplus(decay + decay_bias)) · S
/// S ← S + k ⊗ sigmoid(strength) · (v − Sᵀk)          q, k of length 1, √Σ(x² + 10⁻⁶) taken for the length
/// out = Sᵀ q / √KD
/// ```
///
/// The state after the last token that a block of the cache holds stands in that block, so whoever goes on from whole
/// blocks finds it there. It is read from the block of the token before the segment's first, and is zero before position
/// 0. Tokens are taken one after another whatever the step holds: a row's bits depend on its prefix alone.
///
/// # Shapes
/// `out` `[T, VH, VD]` · `convolved` `[T, C]`, working memory · `layer` counts layers with states
///
/// # Errors
/// A wrong length; a cache whose states have another size; segments or tables out of range; a block that a segment
/// writes and another one writes or starts from.
#[allow(clippy::too_many_arguments)]
pub fn gated_delta(
    device: &Device,
    out: &mut [f32],
    convolved: &mut [f32],
    inputs: DeltaInputs<'_>,
    weights: DeltaWeights<'_>,
    cache: &mut KvCache,
    layer: usize,
    segments: &[Segment],
    tables: &[u32],
    shape: DeltaShape,
) -> Result<()> {
    let op = "gated delta";
    let DeltaShape { key_heads, value_heads, key_dim, value_dim, kernel, .. } = shape;
    if [key_heads, value_heads, key_dim, value_dim, kernel].contains(&0) || !value_heads.is_multiple_of(key_heads) {
        return Err(Error::Shape { op, problem: format!("{shape:?}") });
    }
    let geometry = *cache.geometry();
    if geometry.state_values != shape.state_values() {
        let (found, expected) = (geometry.state_values, shape.state_values());
        let problem = format!("the cache keeps states of {found} values, the layer has {expected}");
        return Err(Error::Shape { op, problem });
    }
    if layer >= geometry.state_layers {
        return Err(Error::Index { op, operand: "layer", index: layer, limit: geometry.state_layers });
    }
    let channels = ("channels", shape.channels());
    let tokens = check_rows(op, "mixed", inputs.mixed.len(), channels.1)?;
    let heads = ("value heads", value_heads);
    check_length(op, "convolved", convolved.len(), &[("tokens", tokens), channels])?;
    check_length(op, "out", out.len(), &[("tokens", tokens), heads, ("value dim", value_dim)])?;
    check_length(op, "decay", inputs.decay.len(), &[("tokens", tokens), heads])?;
    check_length(op, "strength", inputs.strength.len(), &[("tokens", tokens), heads])?;
    check_length(op, "convolution", weights.convolution.len(), &[("kernel", kernel), channels])?;
    check_length(op, "decay_rate", weights.decay_rate.len(), &[heads])?;
    check_length(op, "decay_bias", weights.decay_bias.len(), &[heads])?;
    check_segments(op, &geometry, 0, tokens, segments, tables)?;
    check_written_blocks(op, segments, tables)?;
    cache.check_place(op, device)?;
    match device.backend() {
        Backend::Cpu(cpu) => {
            cpu::delta::gated_delta(cpu, out, convolved, inputs, weights, cache, layer, segments, tables, &shape)
        }
        Backend::Cuda(cuda) => {
            on_gpu!(cuda, delta::gated_delta(out, convolved, inputs, weights, cache, layer, segments, tables, &shape))?
        }
    }
    Ok(())
}

/// Segments are computed side by side, so no two may meet in a block that one of them writes.
fn check_written_blocks(op: &'static str, segments: &[Segment], tables: &[u32]) -> Result<()> {
    let block = |segment: &Segment, position: usize| tables[segment.table.start + position / BLOCK_TOKENS];
    let busy = || segments.iter().enumerate().filter(|(_, segment)| segment.query_len > 0);
    let mut written: Vec<(u32, usize)> = busy()
        .flat_map(|(index, segment)| {
            let own = segment.context_len / BLOCK_TOKENS..segment.total_len().div_ceil(BLOCK_TOKENS);
            own.map(move |place| (block(segment, place * BLOCK_TOKENS), index))
        })
        .collect();
    written.sort_unstable();
    written.dedup();
    let by_two = written.windows(2).find(|pair| pair[0].0 == pair[1].0).map(|pair| (pair[0].0, pair[0].1, pair[1].1));
    let started_from = || {
        busy().filter(|(_, segment)| segment.context_len > 0).find_map(|(index, segment)| {
            let from = block(segment, segment.context_len - 1);
            let place = written.partition_point(|(block, _)| *block < from);
            let (_, writer) = written.get(place).filter(|(block, writer)| *block == from && *writer != index)?;
            Some((from, *writer, index))
        })
    };
    match by_two.or_else(started_from) {
        Some((block, writer, other)) => {
            let problem = format!("segment {writer} writes block {block}, which segment {other} writes or starts from");
            Err(Error::Shape { op, problem })
        }
        None => Ok(()),
    }
}
