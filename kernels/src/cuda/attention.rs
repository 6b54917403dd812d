//! Attention: which rows a block of threads takes together. `cuda/attention.cu` says what it does with them.
//!
//! Without need a block of threads walks all keys of its few rows. The splits of 256 positions get blocks of their own, and
//! their results are merged afterwards, where rows of several requests share cache blocks, which are then read once for all
//! of them, and where there are too few rows to keep a GPU busy. Neither changes a bit of a row.

mod plan;

use bytemuck::NoUninit;

use super::Cuda;
use super::operation::Operation;
use super::runner::{Argument, arguments};
use crate::error::{Error, Result};
use crate::kv::{BLOCK_TOKENS, KvCache, KvType, Segment};
use crate::ops::attention::{AttentionShape, DistanceBias};
use plan::{Plan, SPLIT_TOKENS};

const THREADS: u32 = 128;
/// Rows that a block of threads computes at a time.
const ROWS: usize = 8;
/// Columns of the outputs that a thread keeps, by threads.
const MOST_DIM: usize = 2 * THREADS as usize;
const LANES: usize = 16;

/// `Attention` of `cuda/attention.cu`.
#[repr(C)]
#[derive(Clone, Copy, NoUninit)]
struct Attention {
    out: u64,
    partial: u64,
    q: u64,
    cache: u64,
    queries: u64,
    items: u64,
    tables: u64,
    sinks: u64,
    heads: i32,
    kv_heads: i32,
    dim: i32,
    cache_blocks: i32,
    scale: f32,
    fill: i32,
}

/// `Biased` of `cuda/attention.cu`.
#[repr(C)]
#[derive(Clone, Copy, NoUninit)]
struct Biased {
    out: u64,
    q: u64,
    k: u64,
    v: u64,
    bias: u64,
    starts: u64,
    lengths: u64,
    heads: i32,
    dim: i32,
    reach: i32,
    scale: f32,
}

/// The caller has checked that the cache lies on the device.
#[allow(clippy::too_many_arguments)]
pub(crate) fn paged(
    cuda: &Cuda,
    out: &mut [f32],
    q: &[f32],
    cache: &KvCache,
    layer: usize,
    segments: &[Segment],
    tables: &[u32],
    shape: &AttentionShape,
    sinks: Option<&[f32]>,
) -> Result<()> {
    let op = "paged attention";
    check_dim(op, shape)?;
    let geometry = cache.geometry();
    let attend = Attend::of(geometry.kv_type, shape.head_dim);
    let plan = Plan::of_segments(segments, tables, shape, attend.rows);
    let rows = q.len() / (shape.heads * shape.head_dim);
    let mut operation = Operation::begin(cuda, op)?;
    let out = if plan.queries.len() == rows { operation.output(out)? } else { operation.in_out(out)? };
    let attention = Attention {
        out,
        partial: 0,
        q: operation.input(q)?,
        cache: cache.on_device().layer(cache, layer),
        queries: 0,
        items: 0,
        tables: operation.step_input("tables", tables)?,
        sinks: match sinks {
            Some(sinks) => operation.input(sinks)?,
            None => 0,
        },
        heads: shape.heads as i32,
        kv_heads: shape.kv_heads as i32,
        dim: shape.head_dim as i32,
        cache_blocks: geometry.blocks as i32,
        scale: shape.scale,
        fill: 0,
    };
    let names = match shape.window {
        None => ["attention queries", "attention items", "attention merges"],
        Some(_) => ["windowed queries", "windowed items", "windowed merges"],
    };
    launch(&mut operation, attend, names, attention, &plan)?;
    operation.finish()
}

/// Keys and values of whole texts go into the layout of the cache first.
pub(crate) fn bidirectional(
    cuda: &Cuda,
    out: &mut [f32],
    q: &[f32],
    k: &[f32],
    v: &[f32],
    lengths: &[usize],
    shape: &AttentionShape,
) -> Result<()> {
    let op = "bidirectional attention";
    check_dim(op, shape)?;
    let AttentionShape { heads, kv_heads, head_dim: dim, scale, .. } = *shape;
    let (mut starts, mut counts) = (Vec::new(), Vec::new());
    let mut first = 0;
    for length in lengths {
        for from in (0..*length).step_by(BLOCK_TOKENS) {
            starts.push((first + from) as i32);
            counts.push(BLOCK_TOKENS.min(length - from) as i32);
        }
        first += length;
    }
    let blocks = starts.len();
    let tables: Vec<u32> = (0..blocks as u32).collect();
    let attend = Attend::plain("attend_f32", dim);
    let plan = Plan::of_texts(lengths, shape, attend.rows);
    let mut operation = Operation::begin(cuda, op)?;
    let head_block = BLOCK_TOKENS * (dim + dim.next_multiple_of(LANES));
    let packed = operation.scratch(kv_heads * blocks * head_block * size_of::<f32>())?;
    let (k, v) = (operation.input(k)?, operation.input(v)?);
    let starts = operation.step_input("text block starts", &starts)?;
    let counts = operation.step_input("text block tokens", &counts)?;
    let arguments = arguments![packed, k, v, starts, counts, kv_heads as i32, dim as i32];
    operation.launch("pack_texts", [blocks as u32, kv_heads as u32, 1], THREADS, 0, arguments)?;
    let attention = Attention {
        out: operation.output(out)?,
        partial: 0,
        q: operation.input(q)?,
        cache: packed,
        queries: 0,
        items: 0,
        tables: operation.step_input("text blocks", &tables)?,
        sinks: 0,
        heads: heads as i32,
        kv_heads: kv_heads as i32,
        dim: dim as i32,
        cache_blocks: blocks as i32,
        scale,
        fill: 0,
    };
    let names = match shape.window {
        None => ["text queries", "text items", "text merges"],
        Some(_) => ["windowed text queries", "windowed text items", "windowed text merges"],
    };
    launch(&mut operation, attend, names, attention, &plan)?;
    operation.finish()
}

#[allow(clippy::too_many_arguments)]
pub(crate) fn bidirectional_biased(
    cuda: &Cuda,
    out: &mut [f32],
    q: &[f32],
    k: &[f32],
    v: &[f32],
    lengths: &[usize],
    shape: &AttentionShape,
    bias: &DistanceBias,
) -> Result<()> {
    let op = "biased bidirectional attention";
    let (mut starts, mut of_row) = (Vec::new(), Vec::new());
    for length in lengths {
        let first = starts.len() as i32;
        starts.resize(starts.len() + length, first);
        of_row.resize(of_row.len() + length, *length as i32);
    }
    let longest = lengths.iter().copied().max().unwrap_or(0);
    let shared_bytes = longest * size_of::<f32>();
    if shared_bytes > MOST_SHARED {
        let problem = format!("a text of {longest} tokens; GPU kernels hold the scores of {}", MOST_SHARED / 4);
        return Err(Error::Shape { op, problem: problem + ", use the cpu" });
    }
    let rows = starts.len();
    let mut operation = Operation::begin(cuda, op)?;
    let biased = Biased {
        out: operation.output(out)?,
        q: operation.input(q)?,
        k: operation.input(k)?,
        v: operation.input(v)?,
        bias: operation.step_input("distance bias", bias.values())?,
        starts: operation.step_input("text starts", &starts)?,
        lengths: operation.step_input("text lengths", &of_row)?,
        heads: shape.heads as i32,
        dim: shape.head_dim as i32,
        reach: bias.reach() as i32,
        scale: shape.scale,
    };
    let grid = [rows as u32, shape.heads as u32, 1];
    operation.launch("attend_biased", grid, THREADS, shared_bytes, arguments![Argument::of(&biased)])?;
    operation.finish()
}

/// Dynamic shared memory that every GPU gives a block beside what `attend_biased` declares.
const MOST_SHARED: usize = 96 << 10;

fn check_dim(op: &'static str, shape: &AttentionShape) -> Result<()> {
    if shape.head_dim <= MOST_DIM {
        return Ok(());
    }
    let problem = format!("heads of {} values; GPU kernels hold up to {MOST_DIM}, use the cpu", shape.head_dim);
    Err(Error::Shape { op, problem })
}

/// A kernel that attends.
struct Attend {
    kernel: &'static str,
    /// Rows that a block of threads computes at a time.
    rows: usize,
    threads: u32,
    shared_bytes: usize,
}

impl Attend {
    /// On tensor cores where there is a kernel for heads of this size: a choice that is the same for all steps of a model.
    fn of(kv_type: KvType, dim: usize) -> Self {
        let kernel = match (kv_type, dim) {
            (KvType::F16, 64) => "attend_64_f16",
            (KvType::F16, 80) => "attend_80_f16",
            (KvType::F16, 96) => "attend_96_f16",
            (KvType::F16, 128) => "attend_128_f16",
            (KvType::F16, 256) => "attend_256_f16",
            (KvType::BF16, 64) => "attend_64_bf16",
            (KvType::BF16, 80) => "attend_80_bf16",
            (KvType::BF16, 96) => "attend_96_bf16",
            (KvType::BF16, 128) => "attend_128_bf16",
            (KvType::BF16, 256) => "attend_256_bf16",
            (KvType::F32, _) => return Self::plain("attend_f32", dim),
            (KvType::F16, _) => return Self::plain("attend_f16", dim),
            (KvType::BF16, _) => return Self::plain("attend_bf16", dim),
            (KvType::I16, _) => unreachable!("a cache of integers is refused on a GPU: our bug"),
        };
        // Outputs in f32, queries as two numbers of two bytes.
        Self { kernel, rows: 16, threads: 32, shared_bytes: 16 * dim * 8 }
    }

    fn plain(kernel: &'static str, dim: usize) -> Self {
        let q_width = dim / 4 * 4 + 4;
        let values = SPLIT_TOKENS + q_width + SPLIT_TOKENS / BLOCK_TOKENS + 2 * LANES + 4;
        let shared_bytes = ROWS * (values * size_of::<f32>() + size_of::<plan::Query>());
        Self { kernel, rows: ROWS, threads: THREADS, shared_bytes }
    }
}

/// Attends, and merges where splits had blocks of threads of their own.
fn launch(
    operation: &mut Operation<'_>,
    attend: Attend,
    [queries, items, merges]: [&'static str; 3],
    mut attention: Attention,
    plan: &Plan,
) -> Result<()> {
    let (heads, dim) = (attention.heads as usize, attention.dim as usize);
    let partial_values = dim.next_multiple_of(LANES) + LANES + 1;
    attention.queries = operation.step_input(queries, &plan.queries)?;
    attention.items = operation.step_input(items, &plan.items)?;
    attention.partial = operation.scratch(plan.partials * heads * partial_values * size_of::<f32>())?;
    let grid = [plan.items.len() as u32, attention.kv_heads as u32, 1];
    operation.launch(attend.kernel, grid, attend.threads, attend.shared_bytes, arguments![Argument::of(&attention)])?;
    if plan.merges.is_empty() {
        return Ok(());
    }
    attention.queries = operation.step_input(merges, &plan.merges)?;
    let grid = [plan.merges.len() as u32, attention.heads as u32, 1];
    operation.launch("merge_splits", grid, THREADS, 0, arguments![Argument::of(&attention)])
}
