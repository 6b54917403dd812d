//! Running a decoder the simple way: one request, its own cache.

use lifelong_kernels::{BLOCK_TOKENS, Device, KvCache, KvGeometry, KvType, Segment, Values};
use lifelong_models::architecture::{Batch, Decoder, Scratch};

/// Logits `[tokens, V]` of one request, computed in steps of `chunk` tokens.
pub fn logits(model: &dyn Decoder, device: &Device, tokens: &[u32], chunk: usize) -> Vec<f32> {
    logits_from(model, device, tokens, chunk, 0)
}

/// As [`logits`], of the tokens from position `first` on.
pub fn logits_from(model: &dyn Decoder, device: &Device, tokens: &[u32], chunk: usize, first: usize) -> Vec<f32> {
    logits_over(model, device, tokens, chunk, first, KvType::F32)
}

/// As [`logits_from`], over keys and values kept in this way.
pub fn logits_over(
    model: &dyn Decoder,
    device: &Device,
    tokens: &[u32],
    chunk: usize,
    first: usize,
    kv_type: KvType,
) -> Vec<f32> {
    let blocks = tokens.len().div_ceil(BLOCK_TOKENS);
    let mut cache = KvCache::new(device, KvGeometry { kv_type, ..model.geometry().kv(blocks) }).unwrap();
    // Blocks out of order: only the table knows where a token stands.
    let tables: Vec<u32> = (0..blocks as u32).rev().collect();
    let (mut scratch, mut logits, mut all) = (Scratch::default(), Values::default(), Vec::new());
    for start in (0..tokens.len()).step_by(chunk) {
        let end = tokens.len().min(start + chunk);
        let positions: Vec<u32> = (start as u32..end as u32).collect();
        let outputs: Vec<usize> = (first.max(start)..end).map(|position| position - start).collect();
        let segment = Segment { query_start: 0, query_len: end - start, context_len: start, table: 0..blocks };
        let batch = Batch {
            tokens: &tokens[start..end],
            positions: &positions,
            segments: &[segment],
            tables: &tables,
            outputs: &outputs,
        };
        model.forward(device, &batch, &mut cache, &mut scratch, &mut logits).unwrap();
        device.synchronize().unwrap();
        all.extend_from_slice(&logits);
    }
    all
}

/// The index of the largest logit, the first of equals.
pub fn argmax(logits: &[f32]) -> usize {
    (0..logits.len()).fold(0, |best, index| if logits[index] > logits[best] { index } else { best })
}

/// Largest difference of a row, relative to the largest expected value of the row; the worst of all rows.
pub fn error(found: &[f32], expected: &[f32], width: usize) -> f32 {
    assert_eq!(found.len(), expected.len());
    let row_error = |(found, expected): (&[f32], &[f32])| {
        let largest = expected.iter().fold(0f32, |largest, value| largest.max(value.abs()));
        let difference = found.iter().zip(expected).fold(0f32, |worst, (a, b)| worst.max((a - b).abs()));
        assert!(difference.is_finite(), "a value is not a number");
        difference / largest
    };
    found.chunks_exact(width).zip(expected.chunks_exact(width)).map(row_error).fold(0.0, f32::max)
}
