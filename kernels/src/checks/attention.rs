//! Attention over the cache and over whole texts.

use super::inputs::*;
use super::{Checked, Guarded, same_bits};
use crate::ops::attention::{self, AttentionShape, DistanceBias};
use crate::ops::kv;
use crate::{BLOCK_TOKENS, Device, KvCache, KvGeometry, KvType, Segment};

/// A request: tokens in the cache, tokens of the step, and the blocks it shares with the others.
#[derive(Clone, Copy)]
struct Request {
    context: usize,
    queries: usize,
    shared_blocks: usize,
}

const fn request(context: usize, queries: usize) -> Request {
    Request { context, queries, shared_blocks: 0 }
}

const fn sharing(shared_blocks: usize, context: usize, queries: usize) -> Request {
    Request { context, queries, shared_blocks }
}

/// A step over a cache.
struct Step {
    heads: usize,
    kv_heads: usize,
    dim: usize,
    kv_type: KvType,
    window: Option<usize>,
    has_sinks: bool,
    requests: Vec<Request>,
}

/// A step as the operation takes it.
struct Packed {
    segments: Vec<Segment>,
    tables: Vec<u32>,
    blocks: usize,
    rows: usize,
}

impl Step {
    fn shape(&self) -> AttentionShape {
        let Step { heads, kv_heads, dim, window, .. } = *self;
        AttentionShape { heads, kv_heads, head_dim: dim, scale: 1.0 / (dim as f32).sqrt(), window }
    }

    /// Block numbers in a mixed order; shared ones are the first request's.
    fn packed(&self) -> Packed {
        let (mut segments, mut tables, mut rows) = (Vec::new(), Vec::new(), 0);
        let mut free = 0u32;
        for request in &self.requests {
            let start = tables.len();
            let needed = (request.context + request.queries).div_ceil(BLOCK_TOKENS);
            for block in 0..needed {
                if block < request.shared_blocks && start > 0 {
                    tables.push(tables[block]);
                } else {
                    tables.push(free);
                    free += 1;
                }
            }
            segments.push(segment(rows, request.queries, request.context, start..tables.len()));
            rows += request.queries;
        }
        // 7 is prime to every number of blocks that is no multiple of it.
        let blocks = (free as usize + 3).next_multiple_of(7) + 1;
        tables.iter_mut().for_each(|block| *block = *block * 7 % blocks as u32);
        Packed { segments, tables, blocks, rows }
    }

    /// A cache with the keys and values of all requests, and no numbers in every other slot.
    fn cache(&self, device: &Device, packed: &Packed) -> KvCache {
        let Step { kv_heads, dim, kv_type, .. } = *self;
        let geometry = KvGeometry {
            layers: 2,
            blocks: packed.blocks,
            block_tokens: BLOCK_TOKENS,
            kv_heads,
            head_dim: dim,
            kv_type,
            state_layers: 0,
            state_values: 0,
        };
        let mut cache = KvCache::new(device, geometry).unwrap();
        let all: Vec<u32> = (0..packed.blocks as u32).collect();
        let tokens = packed.blocks * BLOCK_TOKENS;
        let nothing = vec![f32::NAN; tokens * kv_heads * dim];
        for layer in 0..2 {
            let whole = [segment(0, tokens, 0, 0..packed.blocks)];
            kv::write(device, &mut cache, layer, &nothing, &nothing, &whole, &all).unwrap();
        }
        for segment in &packed.segments {
            let (from, tokens) = (segment.table.clone(), segment.total_len());
            // What stands at a position of a shared block is the same for all.
            let [k, v] = [0, 1].map(|kind| random(kind + 1000, tokens * kv_heads * dim));
            let whole = [Segment { query_start: 0, query_len: tokens, context_len: 0, table: from }];
            kv::write(device, &mut cache, 1, &k, &v, &whole, &packed.tables).unwrap();
        }
        cache
    }

    fn q(&self, rows: usize) -> Vec<f32> {
        random(1002, rows * self.heads * self.dim).iter().map(|value| value * 3.0).collect()
    }

    fn attend(
        &self,
        device: &Device,
        cache: &KvCache,
        packed: &Packed,
        segments: &[Segment],
        q: &[f32],
    ) -> Result<Vec<f32>, String> {
        let what = self.name();
        let mut out = Guarded::new(q.len());
        let sinks: Vec<f32> = random(1003, self.heads).iter().map(|sink| sink * 2.0).collect();
        let (shape, tables) = (self.shape(), &packed.tables);
        let done = match self.has_sinks {
            true => attention::paged_with_sinks(device, out.values(), q, &sinks, cache, 1, segments, tables, shape),
            false => attention::paged(device, out.values(), q, cache, 1, segments, tables, shape),
        };
        done.map_err(|error| format!("{what}: {error}"))?;
        out.taken(&what)
    }

    fn name(&self) -> String {
        let Step { heads, kv_heads, dim, kv_type, window, has_sinks, .. } = self;
        let requests: Vec<_> = self.requests.iter().map(|r| (r.context, r.queries, r.shared_blocks)).collect();
        format!(
            "{heads} heads over {kv_heads} of {dim}, {kv_type:?}, window {window:?}, sinks {has_sinks}, {requests:?}"
        )
    }

    /// The results of the device and of the processor.
    fn both(&self, device: &Device) -> Result<[Vec<f32>; 2], String> {
        let packed = self.packed();
        let q = self.q(packed.rows);
        let run = |device: &Device| self.attend(device, &self.cache(device, &packed), &packed, &packed.segments, &q);
        Ok([run(device)?, run(&Device::cpu(1))?])
    }

    fn matches_the_processor(&self, device: &Device) -> Checked {
        let [found, expected] = self.both(device)?;
        same_bits(&found, &expected, &self.name())
    }

    /// Weights are rounded to the cache's type once.
    fn is_near_the_processor(&self, device: &Device) -> Checked {
        let [found, expected] = self.both(device)?;
        let most = if self.kv_type == KvType::F16 { 6e-4 } else { 4e-3 };
        let expected: Vec<f64> = expected.into_iter().map(f64::from).collect();
        let error = relative_error(&found, &expected);
        if error > most { Err(format!("{}: off by {error:e}, {most:e} allowed", self.name())) } else { Ok(()) }
    }

    /// Every row alone, over the same cache.
    fn rows_are_their_own(&self, device: &Device) -> Checked {
        let packed = self.packed();
        let q = self.q(packed.rows);
        let cache = self.cache(device, &packed);
        let together = self.attend(device, &cache, &packed, &packed.segments, &q)?;
        let width = self.heads * self.dim;
        for segment in &packed.segments {
            for token in 0..segment.query_len {
                let context_len = segment.context_len + token;
                let alone = Segment { query_start: 0, query_len: 1, context_len, table: segment.table.clone() };
                let row = segment.query_start + token;
                let found = self.attend(device, &cache, &packed, &[alone], &q[row * width..][..width])?;
                same_bits(&together[row * width..][..width], &found, &format!("row {row} of {}", self.name()))?;
            }
        }
        Ok(())
    }
}

fn step(heads: usize, kv_heads: usize, dim: usize, kv_type: KvType, requests: &[Request]) -> Step {
    Step { heads, kv_heads, dim, kv_type, window: None, has_sinks: false, requests: requests.to_vec() }
}

/// Sizes of head and group, types of the cache, empty prefixes, ends inside of blocks and splits.
pub fn paged_attention_has_the_processors_bits(device: &Device) -> Checked {
    let some = [request(0, 1), request(30, 3), request(255, 1), request(256, 1), request(250, 9)];
    step(4, 4, 80, KvType::F32, &some).matches_the_processor(device)?;
    step(8, 1, 256, KvType::F32, &some[..4]).matches_the_processor(device)?;
    step(6, 1, 40, KvType::F16, &some).matches_the_processor(device)?;
    step(5, 1, 24, KvType::BF16, &some).matches_the_processor(device)?;
    step(7, 1, 6, KvType::F32, &some).matches_the_processor(device)?;
    step(12, 1, 20, KvType::F32, &some[..3]).matches_the_processor(device)?;
    // Many rows in one chunk: blocks of threads that walk all splits.
    step(3, 3, 16, KvType::F32, &[request(200, 120), request(0, 77)]).matches_the_processor(device)
}

pub fn long_contexts_have_the_processors_bits(device: &Device) -> Checked {
    step(2, 1, 16, KvType::F32, &[request(4095, 1)]).matches_the_processor(device)
}

/// Every size of head that has a kernel of its own, groups of 1 to 8, windows and sinks.
pub fn tensor_cores_are_near_the_processor(device: &Device) -> Checked {
    let some = [request(0, 1), request(30, 3), request(255, 1), request(256, 1), request(250, 9)];
    for (heads, kv_heads, dim, kv_type) in [
        (8, 1, 64, KvType::F16),
        (7, 1, 80, KvType::BF16),
        (6, 2, 96, KvType::F16),
        (2, 2, 128, KvType::BF16),
        (5, 1, 128, KvType::F16),
        (4, 1, 256, KvType::BF16),
        (2, 1, 80, KvType::F16),
    ] {
        step(heads, kv_heads, dim, kv_type, &some).is_near_the_processor(device)?;
    }
    step(2, 1, 64, KvType::F16, &[request(4095, 1)]).is_near_the_processor(device)?;
    let step = step(4, 2, 64, KvType::BF16, &[request(0, 20), request(700, 2), request(511, 3)]);
    Step { window: Some(17), has_sinks: true, ..step }.is_near_the_processor(device)
}

/// On tensor cores too, whoever stands beside a row and however its splits are shared out.
pub fn tensor_cores_change_no_row(device: &Device) -> Checked {
    let requests = [
        sharing(0, 530, 1),
        sharing(33, 530, 2),
        sharing(32, 600, 1),
        request(520, 1),
        sharing(20, 321, 5),
        request(0, 9),
    ];
    for (window, has_sinks) in [(None, true), (Some(290), false)] {
        Step { window, has_sinks, ..step(6, 2, 64, KvType::F16, &requests) }.rows_are_their_own(device)?;
    }
    // A chunk long enough that blocks of threads walk all splits.
    step(4, 4, 64, KvType::BF16, &[request(240, 70), request(3, 1)]).rows_are_their_own(device)
}

pub fn windows_and_sinks_have_the_processors_bits(device: &Device) -> Checked {
    let some = [request(0, 20), request(700, 2), request(255, 1), request(511, 3)];
    for (window, has_sinks) in [(Some(1), false), (Some(17), true), (Some(300), false), (None, true)] {
        let step = Step { window, has_sinks, ..step(4, 2, 32, KvType::F32, &some) };
        step.matches_the_processor(device)?;
    }
    Ok(())
}

/// A shared prefix is read once for all who share it, and no row can tell.
pub fn shared_prefixes_change_no_row(device: &Device) -> Checked {
    let requests = [
        sharing(0, 530, 1),
        sharing(33, 530, 2),
        sharing(32, 600, 1),
        sharing(16, 300, 1),
        request(520, 1),
        sharing(20, 321, 5),
    ];
    for window in [None, Some(290)] {
        let step = Step { window, ..step(4, 2, 16, KvType::F32, &requests) };
        step.matches_the_processor(device)?;
        step.rows_are_their_own(device)?;
    }
    Ok(())
}

pub fn rows_of_no_segment_stay(device: &Device) -> Checked {
    let step = step(2, 1, 16, KvType::F32, &[request(20, 2)]);
    let mut packed = step.packed();
    packed.segments[0].query_start = 1;
    let q = step.q(4);
    let mut out = vec![7.0; q.len()];
    let cache = step.cache(device, &packed);
    attention::paged(device, &mut out, &q, &cache, 1, &packed.segments, &packed.tables, step.shape())
        .map_err(|error| error.to_string())?;
    let width = step.heads * step.dim;
    let stayed = |row: usize| out[row * width..][..width].iter().all(|value| *value == 7.0);
    match [0, 1, 2, 3].map(stayed) {
        [true, false, false, true] => Ok(()),
        found => Err(format!("rows that stayed: {found:?}, expected the first and the last")),
    }
}

/// Over two layers, as a request that leaves a shared block does it.
pub fn copied_blocks_are_the_blocks(device: &Device) -> Checked {
    let step = step(4, 2, 20, KvType::F16, &[request(40, 1)]);
    let packed = step.packed();
    let q = step.q(1);
    let mut cache = step.cache(device, &packed);
    let expected = step.attend(device, &cache, &packed, &packed.segments, &q)?;
    let used = &packed.tables;
    let free = (0..packed.blocks as u32).find(|block| !used.contains(block)).ok_or("no block is free")?;
    kv::copy_block(device, &mut cache, used[1], free).map_err(|error| error.to_string())?;
    let mut copied = packed.tables.clone();
    copied[1] = free;
    let packed = Packed { tables: copied, ..packed };
    let found = step.attend(device, &cache, &packed, &packed.segments, &q)?;
    same_bits(&found, &expected, "behind a copied block")
}

pub fn bidirectional_attention_has_the_processors_bits(device: &Device) -> Checked {
    let cpu = Device::cpu(1);
    let lengths = [1, 16, 40, 275];
    let tokens: usize = lengths.iter().sum();
    for (heads, kv_heads, dim, window) in [(4, 4, 32, None), (6, 2, 20, Some(9)), (2, 1, 64, Some(260))] {
        let shape = AttentionShape { heads, kv_heads, head_dim: dim, scale: 0.3, window };
        let q = random(1010, tokens * heads * dim);
        let [k, v] = [1011, 1012].map(|seed| random(seed, tokens * kv_heads * dim));
        let what = format!("whole texts, {shape:?}");
        let mut expected = vec![0.0; q.len()];
        attention::bidirectional(&cpu, &mut expected, &q, &k, &v, &lengths, shape).unwrap();
        let mut out = Guarded::new(q.len());
        attention::bidirectional(device, out.values(), &q, &k, &v, &lengths, shape)
            .map_err(|error| format!("{what}: {error}"))?;
        same_bits(&out.taken(&what)?, &expected, &what)?;
    }
    Ok(())
}

pub fn biased_attention_has_the_processors_bits(device: &Device) -> Checked {
    let cpu = Device::cpu(1);
    let lengths = [1, 33, 150];
    let tokens: usize = lengths.iter().sum();
    let (heads, dim) = (3, 18);
    let shape = AttentionShape { heads, kv_heads: heads, head_dim: dim, scale: 0.5, window: None };
    let bias = DistanceBias::new(heads, 160, |head, distance| (head as f32 + 1.0) * (distance as f32 * 0.1).sin());
    let [q, k, v] = [1020, 1021, 1022].map(|seed| random(seed, tokens * heads * dim));
    let mut expected = vec![0.0; q.len()];
    attention::bidirectional_biased(&cpu, &mut expected, &q, &k, &v, &lengths, shape, &bias).unwrap();
    let mut out = Guarded::new(q.len());
    attention::bidirectional_biased(device, out.values(), &q, &k, &v, &lengths, shape, &bias)
        .map_err(|error| error.to_string())?;
    same_bits(&out.taken("biased attention")?, &expected, "biased attention")
}
