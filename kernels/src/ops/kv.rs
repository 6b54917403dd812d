//! Filling the key-value cache.

use crate::cpu;
use crate::cuda::on_gpu;
use crate::device::{Backend, Device};
use crate::error::{Error, Result, check_rows};
use crate::kv::{BLOCK_TOKENS, KvCache, KvGeometry, Segment};

/// The keys and values of some rows of a step.
///
/// # Shapes
/// `k`, `v` `[T, KVH, D]` · `segments` as in [`Segment`], over these rows
#[derive(Clone, Copy)]
pub struct NewRows<'a> {
    pub k: &'a [f32],
    pub v: &'a [f32],
    pub segments: &'a [Segment],
}

/// Writes a step's keys and values into their blocks: the token of packed row `query_start + i` goes to position
/// `context_len + i` of its request.
///
/// # Shapes
/// `k`, `v` `[T, KVH, D]` · `segments` as in [`Segment`] · `tables` block numbers
///
/// # Errors
/// A segment outside of the packed rows, a table too short for its tokens, a block or layer outside of the cache.
pub fn write(
    device: &Device,
    cache: &mut KvCache,
    layer: usize,
    k: &[f32],
    v: &[f32],
    segments: &[Segment],
    tables: &[u32],
) -> Result<()> {
    let rows = NewRows { k, v, segments };
    check_new(device, cache, layer, rows, tables)?;
    match device.backend() {
        Backend::Cpu(cpu) => cpu::kv::write(cpu, cache, layer, rows, tables),
        Backend::Cuda(cuda) => on_gpu!(cuda, kv::write(cache, layer, k, v, segments, tables))?,
    }
    Ok(())
}

/// [`write()`] of several pieces of a step: the same as one after the other. On the processor a thread writes all of a piece,
/// unless two pieces write to one block.
///
/// # Errors
/// As [`write()`]; then nothing is written.
pub fn write_pieces(
    device: &Device,
    cache: &mut KvCache,
    layer: usize,
    pieces: &[NewRows<'_>],
    tables: &[u32],
) -> Result<()> {
    pieces.iter().try_for_each(|rows| check_new(device, cache, layer, *rows, tables))?;
    if let Backend::Cpu(cpu) = device.backend() {
        cpu::kv::write_pieces(cpu, cache, layer, pieces, tables);
        return Ok(());
    }
    pieces.iter().try_for_each(|rows| write(device, cache, layer, rows.k, rows.v, rows.segments, tables))
}

fn check_new(device: &Device, cache: &KvCache, layer: usize, rows: NewRows<'_>, tables: &[u32]) -> Result<()> {
    let op = "kv write";
    let geometry = cache.geometry();
    let NewRows { k, v, segments } = rows;
    let tokens = check_rows(op, "k", k.len(), geometry.kv_heads * geometry.head_dim)?;
    if v.len() != k.len() {
        let problem = format!("k holds {} values and v {}", k.len(), v.len());
        return Err(Error::Shape { op, problem });
    }
    check_segments(op, geometry, layer, tokens, segments, tables)?;
    cache.check_place(op, device)
}

/// Copies one block over all layers, for a request that goes its own way inside a shared block.
///
/// # Errors
/// A block outside of the cache.
pub fn copy_block(device: &Device, cache: &mut KvCache, from: u32, to: u32) -> Result<()> {
    let op = "kv copy block";
    cache.check_place(op, device)?;
    let limit = cache.geometry().blocks;
    if let Some(block) = [from, to].into_iter().find(|block| *block as usize >= limit) {
        return Err(Error::Index { op, operand: "block", index: block as usize, limit });
    }
    match device.backend() {
        Backend::Cpu(_) => cpu::kv::copy_block(cache, from as usize, to as usize),
        Backend::Cuda(cuda) => on_gpu!(cuda, kv::copy_block(cache, from, to))?,
    }
    Ok(())
}

/// Checks that segments lie in the packed rows without overlap, in order, and that their tables reach far enough.
pub(super) fn check_segments(
    op: &'static str,
    geometry: &KvGeometry,
    layer: usize,
    tokens: usize,
    segments: &[Segment],
    tables: &[u32],
) -> Result<()> {
    if layer >= geometry.layers {
        return Err(Error::Index { op, operand: "layer", index: layer, limit: geometry.layers });
    }
    let mut free = 0;
    for (index, segment) in segments.iter().enumerate() {
        let problem = |problem: String| Err(Error::Shape { op, problem: format!("segment {index}: {problem}") });
        let (start, end) = (segment.query_start, segment.query_start + segment.query_len);
        if start < free || end > tokens {
            return problem(format!("rows {start}..{end} are not inside the free packed rows {free}..{tokens}"));
        }
        free = end;
        let Some(table) = tables.get(segment.table.clone()) else {
            return problem(format!("table {:?} is outside of {} block numbers", segment.table, tables.len()));
        };
        let needed = segment.total_len().div_ceil(BLOCK_TOKENS);
        if table.len() < needed {
            return problem(format!(
                "{} tokens need {needed} blocks, its table has {}",
                segment.total_len(),
                table.len()
            ));
        }
        if let Some(block) = table[..needed].iter().find(|block| **block as usize >= geometry.blocks) {
            return Err(Error::Index { op, operand: "block", index: *block as usize, limit: geometry.blocks });
        }
    }
    Ok(())
}
