//! Tiny seeded checkpoints against transformers in float32; `golden/make.py` made both sides.

mod shared;

use std::path::{Path, PathBuf};

use lifelong_kernels::{Device, Format};
use lifelong_models::architecture::{Encoder, Scratch};
use lifelong_models::{Checkpoint, load_decoder, load_encoder};
use serde::Deserialize;
use shared::decode;

/// Rounding of float32 sums in another order, through two layers.
const FLOAT_TOLERANCE: f32 = 1e-4;
/// A value on the edge between two 8-bit levels may round the other way after float32 noise: a level is one part in 127
/// of its group's largest value, and what follows from it passes the remaining layers. Most rows meet no such value.
const FLIPPED_TOLERANCE: f32 = 6e-2;

#[derive(Deserialize)]
struct Decoded {
    tokens: Vec<u32>,
    logits: Vec<f32>,
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn expected<T: for<'de> Deserialize<'de>>(name: &str) -> T {
    serde_json::from_str(&std::fs::read_to_string(golden(name).join("expected.json")).unwrap()).unwrap()
}

fn check_decoder(name: &str, tolerance: f32) {
    let Decoded { tokens, logits } = expected(name);
    let device = Device::cpu(2);
    let model = load_decoder(&Checkpoint::open(&golden(name)).unwrap(), &device).unwrap();
    let found = decode::logits(model.as_ref(), &device, &tokens, tokens.len());
    let error = decode::error(&found, &logits, model.geometry().vocab);
    println!("{name}: relative error {error:.1e}");
    assert!(error <= tolerance, "{name}: relative error {error}, allowed {tolerance}");
}

#[test]
fn a_separate_head_and_odd_head_counts() {
    check_decoder("llama-untied", FLOAT_TOLERANCE);
}

#[test]
fn biases_heads_of_their_own_size_and_linear_scaling() {
    check_decoder("llama-bias-linear", FLOAT_TOLERANCE);
}

#[test]
fn a_tied_head_and_llama3_scaling_past_the_original_length_from_shards() {
    check_decoder("llama-tied-llama3", FLOAT_TOLERANCE);
}

#[test]
fn permuted_rows_and_stored_divisors_of_gguf() {
    check_decoder("llama-gguf-f16", FLOAT_TOLERANCE);
}

#[test]
fn quantised_weights_of_gguf() {
    let name = "llama-gguf-q8_0";
    let checkpoint = Checkpoint::open(&golden(name)).unwrap();
    assert_eq!(checkpoint.tensor("blk.1.ffn_down.weight").unwrap().format, Format::Q8_0);
    let Decoded { tokens, logits } = expected(name);
    let device = Device::cpu(2);
    let model = load_decoder(&checkpoint, &device).unwrap();
    let found = decode::logits(model.as_ref(), &device, &tokens, tokens.len());
    let vocab = model.geometry().vocab;
    let rows = found.chunks_exact(vocab).zip(logits.chunks_exact(vocab));
    let mut errors: Vec<f32> = rows.map(|(found, expected)| decode::error(found, expected, vocab)).collect();
    errors.sort_by(f32::total_cmp);
    let (median, worst) = (errors[errors.len() / 2], errors[errors.len() - 1]);
    assert!(median <= FLOAT_TOLERANCE && worst <= FLIPPED_TOLERANCE, "median {median}, worst {worst}");
}

/// The two containers hold the same weights, q and k in another order of rows.
#[test]
fn both_containers_give_the_same_model() {
    let device = Device::cpu(1);
    let [a, b] = ["llama-tied-llama3", "llama-gguf-f16"].map(|name| {
        let model = load_decoder(&Checkpoint::open(&golden(name)).unwrap(), &device).unwrap();
        let tokens = expected::<Decoded>(name).tokens;
        (model.geometry().clone(), decode::logits(model.as_ref(), &device, &tokens, 16))
    });
    assert_eq!((a.0.layers, a.0.hidden, a.0.heads, a.0.kv_heads, a.0.head_dim), (2, 96, 3, 1, 32));
    assert_eq!((a.0.parameters, a.0.vocab, a.0.context), (b.0.parameters, b.0.vocab, b.0.context));
    assert!(decode::error(&a.1, &b.1, a.0.vocab) < FLOAT_TOLERANCE);
}

#[derive(Deserialize)]
struct Encoded {
    texts: Vec<Vec<u32>>,
    hidden: Vec<Vec<f32>>,
}

fn encode(model: &dyn Encoder, device: &Device, texts: &[Vec<u32>]) -> Vec<f32> {
    let lengths: Vec<usize> = texts.iter().map(Vec::len).collect();
    let mut hidden = Vec::new();
    model.forward(device, &texts.concat(), &lengths, &mut Scratch::default(), &mut hidden).unwrap();
    hidden
}

#[test]
fn bert_hidden_states_alone_and_packed() {
    let Encoded { texts, hidden } = expected("bert");
    let device = Device::cpu(2);
    let model = load_encoder(&Checkpoint::open(&golden("bert")).unwrap(), &device).unwrap();
    let width = model.geometry().hidden;
    for (text, expected) in texts.iter().zip(&hidden) {
        let error = decode::error(&encode(model.as_ref(), &device, std::slice::from_ref(text)), expected, width);
        assert!(error <= FLOAT_TOLERANCE, "{} tokens: relative error {error}", text.len());
    }
    let packed = encode(model.as_ref(), &device, &texts);
    assert!(decode::error(&packed, &hidden.concat(), width) <= FLOAT_TOLERANCE);
}
