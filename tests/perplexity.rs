//! Perplexity and logits of Gemma 3 270M over the whole windows of a text, against llama.cpp and float32, keys and values in
//! 16-bit integers, the engine's default. SmolLM2's stand in
//! `models/tests/perplexity.rs`; this one also cuts the text into tokens. `tests/golden/perplexity/make.py` made the values.

#[path = "support/mod.rs"]
mod models;

use std::path::Path;

use lifelong::engine::model::{LoadedModel, load};
use lifelong::engine::tokenizer::Specials;
use lifelong_kernels::{BLOCK_TOKENS, Device, KvCache, KvGeometry, KvType, Segment, Values};
use lifelong_models::architecture::{Batch, Scratch};
use serde::Deserialize;

const WINDOW: usize = 1024;

/// Rows of logits at once: a whole window of them would be a gigabyte.
const ROWS: usize = 128;

#[derive(Deserialize)]
struct Golden {
    windows: Vec<Window>,
}

#[derive(Deserialize)]
struct Window {
    token_sum: u64,
    nats: Nats,
    steps: Vec<Step>,
}

/// Sums of −ln p over a window.
#[derive(Deserialize)]
struct Nats {
    reference: f64,
    llama_cpp: f64,
}

/// The 20 most likely tokens after one position by the float32 model, and their logits by both references.
#[derive(Deserialize)]
struct Step {
    position: usize,
    ids: Vec<usize>,
    reference: Vec<f32>,
    llama_cpp: Vec<f32>,
}

/// Differences of logits from float32.
#[derive(Default)]
struct Errors {
    all: Vec<f64>,
}

impl Errors {
    fn add(&mut self, found: impl Iterator<Item = f32>, exact: &[f32]) {
        self.all.extend(found.zip(exact).map(|(found, exact)| f64::from((found - exact).abs())));
    }

    fn mean(&self) -> f64 {
        self.all.iter().sum::<f64>() / self.all.len() as f64
    }

    fn largest(&self) -> f64 {
        self.all.iter().copied().fold(0.0, f64::max)
    }
}

/// Gives each row of logits of one window, with its position.
fn read(model: &LoadedModel, tokens: &[u32], mut row: impl FnMut(usize, &[f32])) {
    let geometry = model.decoder.geometry();
    let blocks = tokens.len().div_ceil(BLOCK_TOKENS);
    let mut cache = KvCache::new(&model.device, KvGeometry { kv_type: KvType::I16, ..geometry.kv(blocks) }).unwrap();
    let tables: Vec<u32> = (0..blocks as u32).collect();
    let (mut scratch, mut logits) = (Scratch::default(), Values::default());
    for start in (0..tokens.len()).step_by(ROWS) {
        let part = &tokens[start..tokens.len().min(start + ROWS)];
        let positions: Vec<u32> = (start as u32..).take(part.len()).collect();
        let outputs: Vec<usize> = (0..part.len()).collect();
        let segment = Segment { query_start: 0, query_len: part.len(), context_len: start, table: 0..blocks };
        let segments = [segment];
        let batch =
            Batch { tokens: part, positions: &positions, segments: &segments, tables: &tables, outputs: &outputs };
        model.decoder.forward(&model.device, &batch, &mut cache, &mut scratch, &mut logits).unwrap();
        for (index, logits) in logits.chunks_exact(geometry.vocab).enumerate() {
            row(start + index, logits);
        }
    }
}

/// −ln p of a token.
fn nats(logits: &[f32], token: u32) -> f64 {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|logit| f64::from(logit - largest).exp()).sum();
    sum.ln() + f64::from(largest) - f64::from(logits[token as usize])
}

#[test]
fn gemma_3_reads_as_well_as_float32_and_closer_to_it_than_llama_cpp() {
    let Some(files) = models::local_model_files("gemma-3-270m") else { return };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/perplexity");
    let text = std::fs::read_to_string(folder.join("text.txt")).unwrap();
    let Golden { windows } =
        serde_json::from_str(&std::fs::read_to_string(folder.join("gemma3.json")).unwrap()).unwrap();
    let model = load(&files, &Device::cpu(2)).unwrap();
    // The beginning token comes first, and again before each window.
    let tokens = model.tokenizer.encode_prompt(&text, Specials::Literal);
    let (begin, tokens) = tokens.split_first().unwrap();
    let mut parts = tokens.chunks_exact(WINDOW - 1);
    assert_eq!(parts.len(), windows.len());

    let (mut ours, mut exact, mut theirs) = (0.0, 0.0, 0.0);
    let (mut our_errors, mut their_errors) = (Errors::default(), Errors::default());
    for Window { token_sum, nats: expected, steps } in &windows {
        let tokens = [&[*begin], parts.next().unwrap()].concat();
        assert_eq!(tokens.iter().map(|token| u64::from(*token)).sum::<u64>(), *token_sum, "other tokens");
        read(&model, &tokens, |position, logits| {
            if let Some(next) = tokens.get(position + 1) {
                ours += nats(logits, *next);
            }
            for Step { ids, reference, llama_cpp, .. } in steps.iter().filter(|step| step.position == position) {
                our_errors.add(ids.iter().map(|id| logits[*id]), reference);
                their_errors.add(llama_cpp.iter().copied(), reference);
            }
        });
        exact += expected.reference;
        theirs += expected.llama_cpp;
    }
    let predicted = (windows.len() * (WINDOW - 1)) as f64;
    let [ours, exact, theirs] = [ours, exact, theirs].map(|sum: f64| (sum / predicted).exp());
    println!("perplexity over {predicted} tokens: ours {ours:.4}, llama.cpp {theirs:.4}, float32 {exact:.4}");
    println!(
        "logit errors at {} positions: ours mean {:.4}, largest {:.4}; llama.cpp mean {:.4}, largest {:.4}",
        our_errors.all.len() / 20,
        our_errors.mean(),
        our_errors.largest(),
        their_errors.mean(),
        their_errors.largest()
    );
    assert!(!our_errors.all.is_empty());
    assert!((ours / theirs - 1.0).abs() < 0.005, "ours {ours}, llama.cpp {theirs}");
    assert!((ours / exact - 1.0).abs() < 0.005, "ours {ours}, float32 {exact}");
    assert!(our_errors.mean() <= their_errors.mean() && our_errors.largest() <= their_errors.largest());
}
