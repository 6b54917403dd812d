//! Attention: which rows are computed together, and by whom.
//!
//! Rows are taken in tiles of up to 16 queries by the query heads of one kv head. Requests whose tables start with the
//! same block come into one tile, so that a shared block is read once for all of them. The keys of a row are cut into
//! splits of 256 positions, counted from position 0: each split has its own softmax, and splits are merged in order.
//! A split is a fixed number of positions, so the arithmetic of a row depends on its own position alone, while a single
//! long row can still be shared out over threads.

mod distance;
mod floats;
mod levels;
mod rows;
mod stored;

use std::cell::RefCell;
use std::ops::Range;

use super::Cpu;
use super::rounding::to_integers;
use super::vector::LANES;
use crate::kv::{BLOCK_TOKENS, KvCache, KvStorage, KvType, Segment, most_level};
use crate::ops::attention::AttentionShape;
use crate::threads::Parts;
pub(crate) use distance::bidirectional_biased;
use rows::{Query, Rows, attend_split, finish, merge_sink, merge_split};
use stored::{HeadBlocks, Numbers};

/// Queries in a tile at most.
const TILE_QUERIES: usize = 16;
/// Blocks in a split.
const SPLIT_BLOCKS: usize = 16;
const SPLIT_TOKENS: usize = SPLIT_BLOCKS * BLOCK_TOKENS;

thread_local! {
    /// The working memory of the thread that computes a tile.
    static WORK: RefCell<Work> = RefCell::default();
    /// Softmax states of splits that different threads compute, and the plan of the calling thread.
    static PARTIAL: RefCell<(Vec<f32>, Plan)> = RefCell::default();
}

#[derive(Default)]
struct Work {
    q: Vec<f32>,
    total: Vec<f32>,
    part: Vec<f32>,
    keys_values: Vec<f32>,
}

/// The queries of a step, and the ranges of them that make up tiles.
#[derive(Default)]
struct Plan {
    order: Vec<usize>,
    queries: Vec<Query>,
    tiles: Vec<Range<usize>>,
}

#[allow(clippy::too_many_arguments)]
pub(crate) fn paged(
    cpu: &Cpu,
    out: &mut [f32],
    q: &[f32],
    cache: &KvCache,
    layer: usize,
    segments: &[Segment],
    tables: &[u32],
    shape: &AttentionShape,
    sinks: Option<&[f32]>,
) {
    let geometry = cache.geometry();
    let blocks = |kv_head| HeadBlocks {
        numbers: match (cache.storage(), geometry.kv_type) {
            (KvStorage::F32(values), _) => Numbers::F32(values),
            (KvStorage::Half(bits), KvType::BF16) => Numbers::BF16(bits),
            (KvStorage::Half(bits), KvType::I16) => Numbers::I16(bits),
            (KvStorage::Half(bits), _) => Numbers::F16(bits),
            (KvStorage::Device(_) | KvStorage::Parts(_), _) => {
                unreachable!("operations check where a cache lies: our bug")
            }
        },
        first: cache.offset(layer, 0, kv_head),
        stride: geometry.head_block(),
        dim: shape.head_dim,
    };
    let out = Parts::new(out);
    PARTIAL.with_borrow_mut(|(partial, plan)| {
        plan.fill(segments, tables, shape);
        let plan = &*plan;
        let pairs = plan.tiles.len() * shape.kv_heads;
        let splits = plan.queries.iter().map(|query| query.visible.end.div_ceil(SPLIT_TOKENS)).max().unwrap_or(0);
        let task = |pair: usize| {
            let queries = &plan.queries[plan.tiles[pair / shape.kv_heads].clone()];
            Tile { shape, queries, tables, kv_head: pair % shape.kv_heads, sinks }
        };
        if splits == 1 || pairs >= 2 * cpu.threads() {
            cpu.run(pairs, |pair| {
                let tile = task(pair);
                WORK.with_borrow_mut(|work| tile.attend(cpu, &out, q, &blocks(tile.kv_head), work));
            });
            return;
        }
        let size = Rows::size(TILE_QUERIES * shape.heads / shape.kv_heads, shape.head_dim);
        partial.resize(pairs * splits * size, 0.0);
        let parts = Parts::new(partial);
        cpu.run(pairs * splits, |index| {
            let tile = task(index / splits);
            // SAFETY: each index has its own part.
            let part = unsafe { parts.take(index * size..(index + 1) * size) };
            let mut part = Rows::of(part, tile.rows(), shape.head_dim);
            WORK.with_borrow_mut(|work| {
                let blocks = blocks(tile.kv_head);
                tile.gather(cpu, q, &blocks, &mut work.q);
                tile.attend_split(cpu, &mut part, &work.q, &blocks, index % splits);
            });
        });
        cpu.run(pairs, |pair| {
            let tile = task(pair);
            WORK.with_borrow_mut(|work| {
                let mut total = Rows::resized(&mut work.total, tile.rows(), shape.head_dim);
                for split in 0..splits {
                    // SAFETY: this part belongs to this pair; the tasks that wrote it have ended.
                    let part =
                        unsafe { parts.take((pair * splits + split) * size..(pair * splits + split + 1) * size) };
                    let part = Rows::of(part, tile.rows(), shape.head_dim);
                    tile.merge(cpu, &mut total, &part, split);
                }
                tile.finish(cpu, &out, &mut total);
            });
        });
    });
}

/// Keys and values of one text are put into the cache's block layout first, so that both kinds of attention are one
/// kernel.
pub(crate) fn bidirectional(
    cpu: &Cpu,
    out: &mut [f32],
    q: &[f32],
    k: &[f32],
    v: &[f32],
    lengths: &[usize],
    shape: &AttentionShape,
) {
    let out = Parts::new(out);
    cpu.run(lengths.len() * shape.kv_heads, |task| {
        let (text, kv_head) = (task / shape.kv_heads, task % shape.kv_heads);
        let (start, length) = (lengths[..text].iter().sum::<usize>(), lengths[text]);
        WORK.with_borrow_mut(|work| {
            let mut keys_values = std::mem::take(&mut work.keys_values);
            let at = |token: usize| ((start + token) * shape.kv_heads + kv_head) * shape.head_dim;
            let blocks = HeadBlocks::pack(&mut keys_values, length, shape.head_dim, |token| {
                (&k[at(token)..][..shape.head_dim], &v[at(token)..][..shape.head_dim])
            });
            let table: Vec<u32> = (0..length.div_ceil(BLOCK_TOKENS) as u32).collect();
            let reach = shape.window.unwrap_or(length);
            let queries: Vec<Query> = (0..length)
                .map(|token| {
                    let visible = (token + 1).saturating_sub(reach)..length.min(token + reach);
                    Query { row: start + token, table: 0..table.len(), visible }
                })
                .collect();
            for queries in queries.chunks(TILE_QUERIES) {
                Tile { shape, queries, tables: &table, kv_head, sinks: None }.attend(cpu, &out, q, &blocks, work);
            }
            work.keys_values = keys_values;
        });
    });
}

impl Plan {
    fn fill(&mut self, segments: &[Segment], tables: &[u32], shape: &AttentionShape) {
        self.order.clear();
        self.order.extend(0..segments.len());
        // Requests that share blocks stand side by side; the order changes no result.
        self.order.sort_unstable_by(|a, b| {
            tables[segments[*a].table.clone()].cmp(&tables[segments[*b].table.clone()]).then(a.cmp(b))
        });
        self.queries.clear();
        self.tiles.clear();
        let mut start = 0;
        let mut shared = None;
        for index in &self.order {
            let segment = &segments[*index];
            let first_block = tables.get(segment.table.start).copied();
            for token in 0..segment.query_len {
                let end = segment.context_len + token + 1;
                let visible = end.saturating_sub(shape.window.unwrap_or(end))..end;
                let count = self.queries.len() - start;
                if count == TILE_QUERIES || (count > 0 && shared != first_block) {
                    self.tiles.push(start..self.queries.len());
                    start = self.queries.len();
                }
                shared = first_block;
                self.queries.push(Query { row: segment.query_start + token, table: segment.table.clone(), visible });
            }
        }
        if start < self.queries.len() {
            self.tiles.push(start..self.queries.len());
        }
    }
}

/// The queries of a tile by the query heads of one kv head; rows are (query, head) in this order.
struct Tile<'a> {
    shape: &'a AttentionShape,
    queries: &'a [Query],
    tables: &'a [u32],
    kv_head: usize,
    /// A logit for each query head that joins the softmax behind all keys.
    sinks: Option<&'a [f32]>,
}

impl Tile<'_> {
    fn group(&self) -> usize {
        self.shape.heads / self.shape.kv_heads
    }

    fn rows(&self) -> usize {
        self.queries.len() * self.group()
    }

    /// The place of each row in `q` and `out`.
    fn places(&self) -> impl Iterator<Item = Range<usize>> {
        let (group, dim) = (self.group(), self.shape.head_dim);
        self.queries.iter().flat_map(move |query| {
            let first = query.row * self.shape.heads + self.kv_head * group;
            (first..first + group).map(move |head| head * dim..(head + 1) * dim)
        })
    }

    /// All splits, one after another.
    fn attend(&self, cpu: &Cpu, out: &Parts<'_, f32>, q: &[f32], blocks: &HeadBlocks<'_>, work: &mut Work) {
        self.gather(cpu, q, blocks, &mut work.q);
        let dim = self.shape.head_dim;
        let mut total = Rows::resized(&mut work.total, self.rows(), dim);
        let mut part = Rows::resized(&mut work.part, self.rows(), dim);
        let starts = self.queries.iter().map(|query| query.visible.start / SPLIT_TOKENS).min().unwrap_or(0);
        let ends = self.queries.iter().map(|query| query.visible.end.div_ceil(SPLIT_TOKENS)).max().unwrap_or(0);
        for split in starts..ends {
            self.attend_split(cpu, &mut part, &work.q, blocks, split);
            self.merge(cpu, &mut total, &part, split);
        }
        self.finish(cpu, out, &mut total);
    }

    /// The rows of `q`, scaled, side by side, as the form of the blocks asks for them.
    fn gather(&self, cpu: &Cpu, q: &[f32], blocks: &HeadBlocks<'_>, scaled: &mut Vec<f32>) {
        let (rows, dim) = (self.rows(), self.shape.head_dim);
        if let Numbers::I16(_) = blocks.numbers {
            let pairs = dim.next_multiple_of(LANES) / 2;
            scaled.resize((pairs + 1) * rows, 0.0);
            let (scaled, units) = scaled.split_at_mut(pairs * rows);
            for (row, place) in self.places().enumerate() {
                let unit = to_integers(cpu.instruction_set, &q[place], most_level(dim), |d, [low, high]| {
                    scaled[d / 2 * rows + row] = f32::from_bits(u32::from(low) | u32::from(high) << 16);
                });
                units[row] = unit * self.shape.scale;
            }
            return;
        }
        scaled.resize(rows * dim, 0.0);
        for (row, place) in self.places().enumerate() {
            for (scaled, q) in scaled[row..].iter_mut().step_by(rows).zip(&q[place]) {
                *scaled = q * self.shape.scale;
            }
        }
    }

    fn attend_split(&self, cpu: &Cpu, part: &mut Rows<'_>, q: &[f32], blocks: &HeadBlocks<'_>, split: usize) {
        let range = split * SPLIT_BLOCKS..(split + 1) * SPLIT_BLOCKS;
        attend_split(cpu.instruction_set, part, q, self.queries, self.tables, self.group(), blocks, range);
    }

    fn merge(&self, cpu: &Cpu, total: &mut Rows<'_>, part: &Rows<'_>, split: usize) {
        for (index, query) in self.queries.iter().enumerate() {
            let (first, end) = (query.visible.start / SPLIT_TOKENS, query.visible.end.div_ceil(SPLIT_TOKENS));
            let rows = index * self.group()..(index + 1) * self.group();
            if split == first {
                rows.for_each(|row| total.copy_row(part, row));
            } else if (first..end).contains(&split) {
                rows.for_each(|row| merge_split(cpu.instruction_set, total, part, row));
            }
        }
    }

    fn finish(&self, cpu: &Cpu, out: &Parts<'_, f32>, total: &mut Rows<'_>) {
        for (row, place) in self.places().enumerate() {
            if let Some(sinks) = self.sinks {
                let sink = sinks[self.kv_head * self.group() + row % self.group()];
                merge_sink(cpu.instruction_set, total, row, sink);
            }
            // SAFETY: a (query, head) is in one tile, and the tile is this task's.
            finish(cpu.instruction_set, total, row, unsafe { out.take(place) });
        }
    }
}
