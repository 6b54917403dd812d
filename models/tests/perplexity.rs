//! Perplexity and logits of real weights over 20 480 tokens of prose and code, against llama.cpp and float32. Keys and values are
//! kept as 16-bit integers, the engine's default.
//! `tests/golden/perplexity/make.py` of the repository made the expected values.

mod shared;

use std::path::Path;

use lifelong_kernels::{Device, KvType};
use lifelong_models::{Checkpoint, load_decoder};
use serde::Deserialize;
use shared::decode;

#[derive(Deserialize)]
struct Golden {
    windows: Vec<Window>,
}

#[derive(Deserialize)]
struct Window {
    tokens: Vec<u32>,
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

/// −ln p of a token.
fn nats(logits: &[f32], token: u32) -> f64 {
    let largest = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = logits.iter().map(|logit| (f64::from(*logit) - largest).exp()).sum();
    sum.ln() + largest - f64::from(logits[token as usize])
}

/// Differences of logits from float32.
#[derive(Default)]
struct Errors {
    sum: f64,
    count: usize,
    largest: f64,
}

impl Errors {
    fn add(&mut self, found: impl Iterator<Item = f32>, exact: &[f32]) {
        for (found, exact) in found.zip(exact) {
            let error = f64::from((found - exact).abs());
            self.sum += error;
            self.count += 1;
            self.largest = self.largest.max(error);
        }
    }

    fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }
}

#[test]
fn smollm2_reads_as_well_as_float32_and_closer_to_it_than_llama_cpp() {
    let Some(path) = shared::weights("smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf") else { return };
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/perplexity/smollm2.json");
    let Golden { windows } = serde_json::from_str(&std::fs::read_to_string(golden).unwrap()).unwrap();
    let device = Device::cpu(2);
    let model = load_decoder(&Checkpoint::open(&path).unwrap(), &device).unwrap();

    let (mut sum, mut exact, mut theirs, mut predicted) = (0.0, 0.0, 0.0, 0);
    let (mut our_errors, mut their_errors) = (Errors::default(), Errors::default());
    for Window { tokens, nats: expected, steps } in &windows {
        let logits = decode::logits_over(model.as_ref(), &device, tokens, 256, 0, KvType::I16);
        let rows: Vec<&[f32]> = logits.chunks_exact(model.geometry().vocab).collect();
        for (row, next) in rows.iter().zip(&tokens[1..]) {
            sum += nats(row, *next);
            predicted += 1;
        }
        for Step { position, ids, reference, llama_cpp } in steps {
            our_errors.add(ids.iter().map(|id| rows[*position][*id]), reference);
            their_errors.add(llama_cpp.iter().copied(), reference);
        }
        exact += expected.reference;
        theirs += expected.llama_cpp;
    }
    assert_eq!(predicted, windows.len() * 1023);
    let [ours, exact, theirs] = [sum, exact, theirs].map(|sum: f64| (sum / f64::from(predicted as u32)).exp());
    println!("perplexity over {predicted} tokens: ours {ours:.4}, llama.cpp {theirs:.4}, float32 {exact:.4}");
    println!(
        "logit errors at {} positions: ours mean {:.4}, largest {:.4}; llama.cpp mean {:.4}, largest {:.4}",
        our_errors.count / 20,
        our_errors.mean(),
        our_errors.largest,
        their_errors.mean(),
        their_errors.largest
    );
    assert!((ours / theirs - 1.0).abs() < 0.005, "ours {ours}, llama.cpp {theirs}");
    assert!((ours / exact - 1.0).abs() < 0.005, "ours {ours}, float32 {exact}");
    assert!(our_errors.mean() <= their_errors.mean() && our_errors.largest <= their_errors.largest);
}
