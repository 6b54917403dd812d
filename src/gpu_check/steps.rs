//! Running a decoder the simple way: one request, its own cache, no engine.

use anyhow::ensure;
use lifelong_kernels::{BLOCK_TOKENS, Device, KvCache, Segment, Values};
use lifelong_models::{Batch, Decoder, Scratch};

/// A model on a device.
#[derive(Clone, Copy)]
pub(super) struct Placed<'a> {
    pub model: &'a dyn Decoder,
    pub device: &'a Device,
}

impl Placed<'_> {
    /// Logits `[tokens from `first` on, V]` of one request, computed in steps of `chunk` tokens.
    pub fn logits(self, tokens: &[u32], chunk: usize, first: usize) -> anyhow::Result<Vec<f32>> {
        let blocks = tokens.len().div_ceil(BLOCK_TOKENS);
        let mut cache = KvCache::new(self.device, self.model.geometry().kv(blocks))?;
        // Blocks out of order: only the table knows where a token stands.
        let tables: Vec<u32> = (0..blocks as u32).rev().collect();
        let (mut scratch, mut logits, mut all) = (Scratch::default(), Values::default(), Vec::new());
        for start in (0..tokens.len()).step_by(chunk) {
            let end = tokens.len().min(start + chunk);
            let segment = Segment { query_start: 0, query_len: end - start, context_len: start, table: 0..blocks };
            let batch = Batch {
                tokens: &tokens[start..end],
                positions: &(start as u32..end as u32).collect::<Vec<_>>(),
                segments: &[segment],
                tables: &tables,
                outputs: &(first.max(start)..end).map(|position| position - start).collect::<Vec<_>>(),
            };
            self.model.forward(self.device, &batch, &mut cache, &mut scratch, &mut logits)?;
            self.device.synchronize()?;
            all.extend_from_slice(&logits);
        }
        Ok(all)
    }

    /// The likeliest token behind `prompt`, and behind that, `count` times.
    pub fn greedy(self, prompt: &[u32], count: usize) -> anyhow::Result<Vec<u32>> {
        let blocks = (prompt.len() + count).div_ceil(BLOCK_TOKENS);
        let mut cache = KvCache::new(self.device, self.model.geometry().kv(blocks))?;
        let tables: Vec<u32> = (0..blocks as u32).collect();
        let (mut scratch, mut logits) = (Scratch::default(), Values::default());
        let (mut step, mut context, mut drawn) = (prompt.to_vec(), 0, Vec::with_capacity(count));
        for _ in 0..count {
            let (len, end) = (step.len(), context + step.len());
            let batch = Batch {
                tokens: &step,
                positions: &(context as u32..end as u32).collect::<Vec<_>>(),
                segments: &[Segment { query_start: 0, query_len: len, context_len: context, table: 0..blocks }],
                tables: &tables,
                outputs: &[len - 1],
            };
            self.model.forward(self.device, &batch, &mut cache, &mut scratch, &mut logits)?;
            self.device.synchronize()?;
            let best = (0..logits.len()).fold(0, |best, at| if logits[at] > logits[best] { at } else { best }) as u32;
            drawn.push(best);
            (step, context) = (vec![best], end);
        }
        Ok(drawn)
    }

    /// Logits of every row of a step of three requests of `OWN` tokens each, two of them behind the same block.
    pub fn batched(self, shared: &[u32], own: [&[u32]; 3]) -> anyhow::Result<Vec<f32>> {
        ensure!(shared.len() == BLOCK_TOKENS, "a prefix of one block");
        let mut cache = KvCache::new(self.device, self.model.geometry().kv(8))?;
        let (mut scratch, mut logits) = (Scratch::default(), Values::default());
        let batch = Batch {
            tokens: shared,
            positions: &(0..BLOCK_TOKENS as u32).collect::<Vec<_>>(),
            segments: &[Segment { query_start: 0, query_len: BLOCK_TOKENS, context_len: 0, table: 0..1 }],
            tables: &[5],
            outputs: &[],
        };
        self.model.forward(self.device, &batch, &mut cache, &mut scratch, &mut logits)?;
        let (contexts, ranges) = ([BLOCK_TOKENS, BLOCK_TOKENS, 0], [0..2, 2..4, 4..5]);
        let (mut segments, mut positions, mut rows) = (Vec::new(), Vec::new(), 0);
        for ((own, context_len), table) in own.iter().zip(contexts).zip(ranges) {
            segments.push(Segment { query_start: rows, query_len: own.len(), context_len, table });
            positions.extend(context_len as u32..(context_len + own.len()) as u32);
            rows += own.len();
        }
        let batch = Batch {
            tokens: &own.concat(),
            positions: &positions,
            segments: &segments,
            tables: &[5, 2, 5, 7, 1],
            outputs: &(0..rows).collect::<Vec<_>>(),
        };
        self.model.forward(self.device, &batch, &mut cache, &mut scratch, &mut logits)?;
        self.device.synchronize()?;
        Ok(logits.to_vec())
    }
}

pub(super) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Largest difference of a row, relative to the largest expected value of the row; the worst of all rows.
pub(super) fn error(found: &[f32], expected: &[f32], width: usize) -> f32 {
    let row_error = |(found, expected): (&[f32], &[f32])| {
        let largest = expected.iter().fold(0f32, |largest, value| largest.max(value.abs()));
        let difference = found.iter().zip(expected).map(|(a, b)| (a - b).abs());
        difference.fold(0f32, |worst, value| if value.is_nan() { f32::INFINITY } else { worst.max(value) }) / largest
    };
    found.chunks_exact(width).zip(expected.chunks_exact(width)).map(row_error).fold(0.0, f32::max)
}
