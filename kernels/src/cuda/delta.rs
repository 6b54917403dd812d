//! The gated delta rule over states in the blocks of a cache.

use bytemuck::NoUninit;

use super::Cuda;
use super::operation::Operation;
use super::runner::{Argument, arguments};
use crate::error::{Error, Result};
use crate::kv::{KvCache, Segment};
use crate::ops::delta::{DeltaInputs, DeltaShape, DeltaWeights, HeadOrder};

/// The longest convolution whose window a thread keeps in registers.
const MOST_KERNEL: usize = 8;
/// Columns of a state that a block of threads owns.
const COLUMNS: usize = 32;

/// `Span` of `cuda/delta.cu`.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Span {
    query_start: i32,
    query_len: i32,
    context_len: i32,
    table: i32,
}

/// `Delta` of `cuda/delta.cu`.
#[repr(C)]
#[derive(Clone, Copy, NoUninit)]
struct Delta {
    out: u64,
    convolved: u64,
    states: u64,
    mixed: u64,
    decay: u64,
    strength: u64,
    convolution: u64,
    decay_rate: u64,
    decay_bias: u64,
    spans: u64,
    tables: u64,
    state_values: i64,
    key_heads: i32,
    value_heads: i32,
    key_dim: i32,
    value_dim: i32,
    kernel: i32,
    channels: i32,
    is_tiled: i32,
    fill: i32,
}

/// The caller has checked that the cache lies on the device.
#[allow(clippy::too_many_arguments)]
pub(crate) fn gated_delta(
    cuda: &Cuda,
    out: &mut [f32],
    convolved: &mut [f32],
    inputs: DeltaInputs<'_>,
    weights: DeltaWeights<'_>,
    cache: &mut KvCache,
    layer: usize,
    segments: &[Segment],
    tables: &[u32],
    shape: &DeltaShape,
) -> Result<()> {
    let op = "gated delta";
    let DeltaShape { key_heads, value_heads, key_dim, value_dim, kernel, order } = *shape;
    if kernel > MOST_KERNEL {
        let problem = format!("a convolution over {kernel} inputs; GPU kernels keep up to {MOST_KERNEL}, use the cpu");
        return Err(Error::Shape { op, problem });
    }
    let spans: Vec<Span> = segments
        .iter()
        .map(|segment| Span {
            query_start: segment.query_start as i32,
            query_len: segment.query_len as i32,
            context_len: segment.context_len as i32,
            table: segment.table.start as i32,
        })
        .collect();
    let geometry = *cache.geometry();
    let layer_bytes = geometry.blocks * geometry.state_values * size_of::<f32>();
    let channels = shape.channels();
    let rows = inputs.mixed.len() / channels;
    let covers_all = segments.iter().map(|segment| segment.query_len).sum::<usize>() == rows;
    let mut operation = Operation::begin(cuda, op)?;
    let delta = Delta {
        out: if covers_all { operation.output(out)? } else { operation.in_out(out)? },
        convolved: if covers_all { operation.output(convolved)? } else { operation.in_out(convolved)? },
        states: cache.on_device().states.address() + (layer * layer_bytes) as u64,
        mixed: operation.input(inputs.mixed)?,
        decay: operation.input(inputs.decay)?,
        strength: operation.input(inputs.strength)?,
        convolution: operation.input(weights.convolution)?,
        decay_rate: operation.input(weights.decay_rate)?,
        decay_bias: operation.input(weights.decay_bias)?,
        spans: operation.step_input("delta spans", &spans)?,
        tables: operation.step_input("tables", tables)?,
        state_values: geometry.state_values as i64,
        key_heads: key_heads as i32,
        value_heads: value_heads as i32,
        key_dim: key_dim as i32,
        value_dim: value_dim as i32,
        kernel: kernel as i32,
        channels: channels as i32,
        is_tiled: i32::from(order == HeadOrder::Tiled),
        fill: 0,
    };
    let grid = [channels.div_ceil(128) as u32, segments.len() as u32, 1];
    operation.launch("convolve", grid, 128, 0, arguments![Argument::of(&delta)])?;
    let grid = [(2 * key_heads).div_ceil(8) as u32, rows as u32, 1];
    operation.launch("normalise_heads", grid, 128, 0, arguments![Argument::of(&delta)])?;
    let width = value_dim.next_multiple_of(16);
    let grid = [width.div_ceil(COLUMNS) as u32, value_heads as u32, segments.len() as u32];
    let shared_bytes = key_dim * (COLUMNS + 2) * size_of::<f32>();
    operation.launch("recur", grid, COLUMNS as u32, shared_bytes, arguments![Argument::of(&delta)])?;
    operation.finish()
}
