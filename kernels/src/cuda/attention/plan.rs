//! Which queries go to which block of threads, for all kv heads alike.

use std::ops::Range;

use bytemuck::{Pod, Zeroable};

use crate::kv::{BLOCK_TOKENS, Segment};
use crate::ops::attention::AttentionShape;

/// Positions of a split.
pub(super) const SPLIT_TOKENS: usize = 256;
const SPLIT_BLOCKS: usize = SPLIT_TOKENS / BLOCK_TOKENS;
/// Rows of an item whose blocks several requests share: as many as the first-level cache serves from one read.
const SHARED_ROWS: usize = 64;
/// Blocks of threads that keep a large GPU busy: two for each of its processors.
const BUSY: usize = 264;
/// Partial results at most, in (split, head) pairs: some 600 MB of heads of 128.
const MOST_PARTIALS: usize = 1 << 20;

/// `Query` of `cuda/attention.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub(super) struct Query {
    pub(super) row: i32,
    pub(super) table: i32,
    pub(super) visible_start: i32,
    pub(super) visible_end: i32,
    pub(super) partial: i32,
}

/// `Item` of `cuda/attention.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub(super) struct Item {
    pub(super) first_query: i32,
    pub(super) queries: i32,
    pub(super) first_split: i32,
    pub(super) splits: i32,
}

#[derive(Default)]
pub(super) struct Plan {
    pub(super) queries: Vec<Query>,
    pub(super) items: Vec<Item>,
    /// The queries whose splits are computed apart and merged.
    pub(super) merges: Vec<Query>,
    /// Splits of those.
    pub(super) partials: usize,
}

impl Query {
    fn new(row: usize, table: usize, visible: Range<usize>) -> Self {
        Self {
            row: row as i32,
            table: table as i32,
            visible_start: visible.start as i32,
            visible_end: visible.end as i32,
            partial: -1,
        }
    }

    fn splits(&self) -> Range<usize> {
        self.visible_start as usize / SPLIT_TOKENS..(self.visible_end as usize).div_ceil(SPLIT_TOKENS)
    }
}

/// A request's queries, and its blocks.
struct Request<'a> {
    queries: Range<usize>,
    blocks: &'a [u32],
}

impl Request<'_> {
    /// The blocks of a split when all of them are there.
    fn whole_split(&self, split: usize) -> Option<&[u32]> {
        self.blocks.get(split * SPLIT_BLOCKS..(split + 1) * SPLIT_BLOCKS)
    }
}

impl Plan {
    /// `rows` (queries by query heads of a kv head) are computed at a time.
    pub(super) fn of_segments(segments: &[Segment], tables: &[u32], shape: &AttentionShape, rows: usize) -> Self {
        let mut order: Vec<&Segment> = segments.iter().filter(|segment| segment.query_len > 0).collect();
        // Requests that share blocks stand side by side; the order changes no result.
        order.sort_by(|a, b| tables[a.table.clone()].cmp(&tables[b.table.clone()]));
        let mut plan = Plan::default();
        let mut requests = Vec::with_capacity(order.len());
        for segment in order {
            let first = plan.queries.len();
            for token in 0..segment.query_len {
                let end = segment.context_len + token + 1;
                let visible = end.saturating_sub(shape.window.unwrap_or(end))..end;
                plan.queries.push(Query::new(segment.query_start + token, segment.table.start, visible));
            }
            let needed = segment.total_len().div_ceil(BLOCK_TOKENS);
            let blocks = &tables[segment.table.clone()][..needed];
            requests.push(Request { queries: first..plan.queries.len(), blocks });
        }
        plan.fill(&requests, shape, rows);
        plan
    }

    /// Texts whose blocks follow one another, each query seeing its text on both sides.
    pub(super) fn of_texts(lengths: &[usize], shape: &AttentionShape, rows: usize) -> Self {
        let mut plan = Plan::default();
        let mut requests = Vec::with_capacity(lengths.len());
        let mut table = 0;
        for length in lengths {
            let first = plan.queries.len();
            let reach = shape.window.unwrap_or(*length);
            for token in 0..*length {
                let visible = (token + 1).saturating_sub(reach)..(*length).min(token + reach);
                plan.queries.push(Query::new(first + token, table, visible));
            }
            table += length.div_ceil(BLOCK_TOKENS);
            requests.push(Request { queries: first..plan.queries.len(), blocks: &[] });
        }
        plan.fill(&requests, shape, rows);
        plan
    }

    fn fill(&mut self, requests: &[Request<'_>], shape: &AttentionShape, rows: usize) {
        let group = shape.heads / shape.kv_heads;
        let together = (rows / group).max(1);
        let whole: usize = requests.iter().map(|request| request.queries.len().div_ceil(together)).sum();
        let is_idle = whole * shape.kv_heads < BUSY;
        let mut begin = 0;
        while begin < requests.len() {
            // Requests that share their first split, if any does.
            let first = requests[begin].whole_split(0);
            let same = requests[begin + 1..].iter().take_while(|next| first.is_some() && next.whole_split(0) == first);
            let end = begin + 1 + same.count();
            let family = &requests[begin..end];
            let splits: usize = family
                .iter()
                .flat_map(|request| request.queries.clone())
                .map(|query| self.queries[query].splits().len())
                .sum();
            let is_long = family
                .iter()
                .any(|request| request.queries.clone().any(|query| self.queries[query].splits().len() > 1));
            let fits = (self.partials + splits) * shape.heads <= MOST_PARTIALS;
            if fits && is_long && (is_idle || family.len() > 1) {
                self.part(family, (SHARED_ROWS / group).max(1));
            } else {
                family.iter().for_each(|request| self.keep(request.queries.clone(), together));
            }
            begin = end;
        }
    }

    /// Blocks of threads that walk all splits of their queries.
    fn keep(&mut self, queries: Range<usize>, together: usize) {
        for first in queries.clone().step_by(together) {
            let own = first..queries.end.min(first + together);
            let starts = self.queries[own.clone()].iter().map(|query| query.splits().start).min();
            let ends = self.queries[own.clone()].iter().map(|query| query.splits().end).max();
            let (start, end) = (starts.unwrap_or(0), ends.unwrap_or(0));
            self.push(own, start..end);
        }
    }

    /// Blocks of threads for each split, with the queries of all requests whose blocks there are the same.
    fn part(&mut self, family: &[Request<'_>], together: usize) {
        let all = family[0].queries.start..family[family.len() - 1].queries.end;
        for query in &mut self.queries[all.clone()] {
            query.partial = self.partials as i32;
            self.partials += query.splits().len();
        }
        self.merges.extend_from_slice(&self.queries[all.clone()]);
        let last = self.queries[all.clone()].iter().map(|query| query.splits().end).max().unwrap_or(0);
        for split in 0..last {
            let mut begin = 0;
            while begin < family.len() {
                let blocks = family[begin].whole_split(split);
                let same =
                    family[begin + 1..].iter().take_while(|next| blocks.is_some() && next.whole_split(split) == blocks);
                let end = begin + 1 + same.count();
                self.part_split(family[begin].queries.start..family[end - 1].queries.end, split, together);
                begin = end;
            }
        }
    }

    /// Runs of queries that see the split.
    fn part_split(&mut self, queries: Range<usize>, split: usize, together: usize) {
        let mut first = queries.start;
        while first < queries.end {
            let seeing = self.queries[first..queries.end].iter().take(together);
            let count = seeing.take_while(|query| query.splits().contains(&split)).count();
            if count > 0 {
                self.push(first..first + count, split..split + 1);
            }
            first += count.max(1);
        }
    }

    fn push(&mut self, queries: Range<usize>, splits: Range<usize>) {
        self.items.push(Item {
            first_query: queries.start as i32,
            queries: queries.len() as i32,
            first_split: splits.start as i32,
            splits: splits.len() as i32,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(window: Option<usize>) -> AttentionShape {
        AttentionShape { heads: 4, kv_heads: 2, head_dim: 64, scale: 1.0, window }
    }

    fn segment(query_start: usize, query_len: usize, context_len: usize, table: Range<usize>) -> Segment {
        Segment { query_start, query_len, context_len, table }
    }

    /// How often each (query, split) that is seen is computed.
    fn computed(plan: &Plan) -> Vec<(i32, usize)> {
        let mut pairs = Vec::new();
        for item in &plan.items {
            for query in &plan.queries[item.first_query as usize..][..item.queries as usize] {
                let own = item.first_split as usize..(item.first_split + item.splits) as usize;
                pairs.extend(query.splits().filter(|split| own.contains(split)).map(|split| (query.row, split)));
            }
        }
        pairs.sort_unstable();
        pairs
    }

    fn seen(plan: &Plan) -> Vec<(i32, usize)> {
        let mut pairs: Vec<_> =
            plan.queries.iter().flat_map(|query| query.splits().map(|split| (query.row, split))).collect();
        pairs.sort_unstable();
        pairs
    }

    #[test]
    fn every_split_of_every_query_is_computed_once() {
        for window in [None, Some(5), Some(300)] {
            let tables: Vec<u32> = (0..200).collect();
            let segments = [
                segment(0, 1, 1000, 0..63),
                segment(1, 40, 260, 63..82),
                segment(41, 3, 0, 82..83),
                segment(44, 0, 5, 83..84),
            ];
            let plan = Plan::of_segments(&segments, &tables, &shape(window), 8);
            assert_eq!(computed(&plan), seen(&plan), "{window:?}");
            assert_eq!(plan.queries.len(), 44);
            let texts = Plan::of_texts(&[3, 700, 16], &shape(window), 8);
            assert_eq!(computed(&texts), seen(&texts), "{window:?}");
        }
    }

    #[test]
    fn a_shared_split_is_read_once_for_all_who_share_it() {
        // Two requests of 520 tokens that share 512, one that shares nothing.
        let mut tables: Vec<u32> = (0..33).chain((0..32).chain([40])).collect();
        tables.extend(50..83);
        let segments = [segment(0, 1, 519, 0..33), segment(1, 1, 519, 33..66), segment(2, 1, 519, 66..99)];
        let plan = Plan::of_segments(&segments, &tables, &shape(None), 8);
        assert_eq!(computed(&plan), seen(&plan));
        let of_two = |split| plan.items.iter().filter(|item| item.first_split == split && item.queries == 2).count();
        assert_eq!([of_two(0), of_two(1), of_two(2)], [1, 1, 0]);
        assert_eq!((plan.partials, plan.merges.len()), (9, 3));
    }

    #[test]
    fn many_rows_walk_their_keys_themselves() {
        let tables: Vec<u32> = (0..128).collect();
        let plan = Plan::of_segments(&[segment(0, 2000, 0, 0..128)], &tables, &shape(None), 8);
        assert_eq!((plan.partials, plan.merges.len(), plan.items.len()), (0, 0, 500));
    }
}
