//! Tiny seeded checkpoints against transformers in float32; `golden/make.py` made both sides.

mod shared;

use std::path::{Path, PathBuf};

use lifelong_kernels::{Device, Format, Values};
use lifelong_models::architecture::{Decoder, Encoder, Scratch};
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
    /// Whose logits follow; all when absent.
    positions: Option<Vec<usize>>,
    logits: Vec<f32>,
}

impl Decoded {
    /// The rows of `logits` `[tokens][vocab]` that are compared.
    fn compared(&self, logits: &[f32], vocab: usize) -> Vec<f32> {
        let Some(positions) = &self.positions else { return logits.to_vec() };
        positions.iter().flat_map(|position| &logits[position * vocab..][..vocab]).copied().collect()
    }
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn expected<T: for<'de> Deserialize<'de>>(name: &str) -> T {
    serde_json::from_str(&std::fs::read_to_string(golden(name).join("expected.json")).unwrap()).unwrap()
}

fn check_decoder(name: &str, tolerance: f32) {
    let expected: Decoded = expected(name);
    let device = Device::cpu(2);
    let model = load_decoder(&Checkpoint::open(&golden(name)).unwrap(), &device).unwrap();
    let vocab = model.geometry().vocab;
    let found = decode::logits(model.as_ref(), &device, &expected.tokens, expected.tokens.len());
    let error = decode::error(&expected.compared(&found, vocab), &expected.logits, vocab);
    println!("{name}: relative error {error:.1e}");
    assert!(error <= tolerance, "{name}: relative error {error}, allowed {tolerance}");
}

/// Weights of 8 bits: what 8-bit activations do to a few rows is allowed to them.
fn check_quantised(name: &str) {
    let expected: Decoded = expected(name);
    let device = Device::cpu(2);
    let model = load_decoder(&Checkpoint::open(&golden(name)).unwrap(), &device).unwrap();
    let vocab = model.geometry().vocab;
    let found = decode::logits(model.as_ref(), &device, &expected.tokens, expected.tokens.len());
    let found = expected.compared(&found, vocab);
    let rows = found.chunks_exact(vocab).zip(expected.logits.chunks_exact(vocab));
    let mut errors: Vec<f32> = rows.map(|(found, expected)| decode::error(found, expected, vocab)).collect();
    errors.sort_by(f32::total_cmp);
    let (median, worst) = (errors[errors.len() / 2], errors[errors.len() - 1]);
    println!("{name}: median {median:.1e}, worst {worst:.1e}");
    assert!(median <= FLOAT_TOLERANCE && worst <= FLIPPED_TOLERANCE, "{name}: median {median}, worst {worst}");
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
    check_quantised(name);
}

#[test]
fn a_window_in_every_layer() {
    check_decoder("mistral-window", FLOAT_TOLERANCE);
}

#[test]
fn yarn_past_the_original_length_and_a_window_in_later_layers() {
    check_decoder("qwen2-yarn-window", FLOAT_TOLERANCE);
    check_decoder("qwen2-gguf-f16", FLOAT_TOLERANCE);
}

#[test]
fn eight_bit_floats_with_scales_by_block() {
    let checkpoint = Checkpoint::open(&golden("qwen3-fp8")).unwrap();
    assert!(checkpoint.tensor("model.layers.0.mlp.up_proj.weight").is_err(), "stored in 8 bits");
    check_decoder("qwen3-fp8", FLOAT_TOLERANCE);
}

/// Projections of 32-value blocks, those of other widths as stored, and the rest of the model untouched.
#[test]
fn projections_are_quantised_at_load() {
    let expected: Decoded = expected("llama-tied-llama3");
    let device = Device::cpu(2);
    let load = |format: Option<Format>| {
        let checkpoint = Checkpoint::open(&golden("llama-tied-llama3")).unwrap();
        let checkpoint = match format {
            Some(format) => checkpoint.quantized(format).unwrap(),
            None => checkpoint,
        };
        load_decoder(&checkpoint, &device).unwrap()
    };
    let run = |format| {
        let model = load(format);
        let vocab = model.geometry().vocab;
        let found = decode::logits(model.as_ref(), &device, &expected.tokens, expected.tokens.len());
        decode::error(&expected.compared(&found, vocab), &expected.logits, vocab)
    };
    let (plain, eight, four) = (run(None), run(Some(Format::Q8_0)), run(Some(Format::Q4_0)));
    println!("relative error: plain {plain:.1e}, Q8_0 {eight:.1e}, Q4_0 {four:.1e}");
    assert!(plain <= FLOAT_TOLERANCE && plain < eight && eight < four, "{plain} {eight} {four}");
    assert!(eight < 0.12 && four < 1.0, "{eight} {four}");
    // Rows of 96 and 128 numbers are no blocks of 256: Q8_0 instead, and a note says so.
    assert_eq!(run(Some(Format::Q4K)), eight);
    assert!(load(Some(Format::Q4K)).notes().iter().any(|note| note.contains("Q8_0")));
    // Experts are projections too; a stack of them says once that its rows are too short.
    let mixture = Checkpoint::open(&golden("qwen3moe-stacked")).unwrap().quantized(Format::Q8_0).unwrap();
    let mixture = load_decoder(&mixture, &device).unwrap();
    let about = |note: &&String| note.contains("layers.1.mlp.experts.down_proj");
    assert_eq!(mixture.notes().iter().filter(about).count(), 1, "{:?}", mixture.notes());
    // Routers are none; a query and its gate, whose rows take turns in one tensor, are.
    assert!(!mixture.notes().iter().any(|note| note.contains("mlp.gate.weight")), "{:?}", mixture.notes());
    let gated = Checkpoint::open(&golden("qwen3_5-dense")).unwrap().quantized(Format::Q8_0).unwrap();
    let gated = load_decoder(&gated, &device).unwrap();
    let about = |note: &&String| note.contains("self_attn.q_proj.weight");
    assert!(gated.notes().iter().filter(about).count() > 0, "{:?}", gated.notes());
    let gguf = Checkpoint::open(&golden("llama-gguf-f16")).unwrap();
    assert!(gguf.quantized(Format::Q8_0).unwrap_err().to_string().contains("GGUF"));
    let other = Checkpoint::open(&golden("llama-untied")).unwrap();
    assert!(other.quantized(Format::Q2K).unwrap_err().to_string().contains("Q2K"));
}

#[test]
fn normalised_heads_of_their_own_size() {
    check_decoder("qwen3", FLOAT_TOLERANCE);
    check_decoder("qwen3-gguf-f16", FLOAT_TOLERANCE);
}

#[test]
fn windows_with_their_own_angles_and_scaled_embeddings() {
    check_decoder("gemma3", FLOAT_TOLERANCE);
    check_decoder("gemma3-gguf-f16", FLOAT_TOLERANCE);
    check_quantised("gemma3-gguf-q8_0");
}

#[test]
fn layers_without_positions() {
    check_decoder("smollm3", FLOAT_TOLERANCE);
    check_decoder("smollm3-gguf-f16", FLOAT_TOLERANCE);
}

#[test]
fn fused_matrices_partly_rotated_heads_and_divisors_in_the_file() {
    check_decoder("phi3-longrope", FLOAT_TOLERANCE);
    check_decoder("phi3-gguf-f16", FLOAT_TOLERANCE);
}

/// Ties included: two experts of each mixture have the same logits for every token.
#[test]
fn mixtures_of_experts() {
    check_decoder("qwen3moe", FLOAT_TOLERANCE);
    check_decoder("qwen3moe-stacked", FLOAT_TOLERANCE);
    check_decoder("qwen3moe-gguf-f16", FLOAT_TOLERANCE);
    check_quantised("qwen3moe-gguf-q8_0");
}

#[test]
fn sinks_and_experts_with_a_clamped_gate() {
    check_decoder("gpt-oss-bf16", FLOAT_TOLERANCE);
}

/// Plain but for the experts, whose activations are of 8 bits.
#[test]
fn experts_of_four_bit_floats() {
    check_quantised("gpt-oss");
    let (device, tokens) = (Device::cpu(1), expected::<Decoded>("gpt-oss").tokens);
    let logits = ["gpt-oss", "gpt-oss-gguf-mxfp4"].map(|name| {
        let model = load_decoder(&Checkpoint::open(&golden(name)).unwrap(), &device).unwrap();
        (model.geometry().parameters, decode::logits(model.as_ref(), &device, &tokens, 600))
    });
    // Two layouts of the same numbers.
    assert!(logits[0] == logits[1]);
}

#[test]
fn linear_attention_beside_gated_attention() {
    check_decoder("qwen3_5-moe", FLOAT_TOLERANCE);
    check_decoder("qwen3_5-dense", FLOAT_TOLERANCE);
    check_decoder("qwen3_5-gguf-f16", FLOAT_TOLERANCE);
    let model = load_decoder(&Checkpoint::open(&golden("qwen3_5-moe")).unwrap(), &Device::cpu(1)).unwrap();
    for part in ["vision is not used (tensors: 1)", "multi-token prediction is not used (tensors: 1)"] {
        assert!(model.notes().iter().any(|note| note.contains(part)), "{:?}", model.notes());
    }
}

/// A multimodal checkpoint leaves out keys that equal the defaults and keeps tensors one level down.
#[test]
fn a_text_model_inside_a_multimodal_one() {
    let device = Device::cpu(1);
    let [plain, nested] = ["gemma3", "gemma3-nested"]
        .map(|name| load_decoder(&Checkpoint::open(&golden(name)).unwrap(), &device).unwrap());
    let tokens: Vec<u32> = (0..40).collect();
    let logits = |model: &dyn Decoder| decode::logits(model, &device, &tokens, 40);
    assert_eq!(logits(plain.as_ref()), logits(nested.as_ref()));
    let notes = nested.notes();
    assert!(notes.iter().any(|note| note.contains("vision part is not used (tensors: 1)")), "{notes:?}");
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
    let mut hidden = Values::default();
    model.forward(device, &texts.concat(), &lengths, &mut Scratch::default(), &mut hidden).unwrap();
    hidden.to_vec()
}

fn check_encoder(name: &str) {
    let Encoded { texts, hidden } = expected(name);
    let device = Device::cpu(2);
    let model = load_encoder(&Checkpoint::open(&golden(name)).unwrap(), &device).unwrap();
    let width = model.geometry().hidden;
    for (text, expected) in texts.iter().zip(&hidden) {
        let found = encode(model.as_ref(), &device, std::slice::from_ref(text));
        let (error, cosine) = (decode::error(&found, expected, width), cosine(&found, expected, width));
        assert!(error <= FLOAT_TOLERANCE, "{name}, {} tokens: relative error {error}", text.len());
        assert!(cosine >= 0.99999, "{name}, {} tokens: cosine {cosine}", text.len());
    }
    let packed = encode(model.as_ref(), &device, &texts);
    let error = decode::error(&packed, &hidden.concat(), width);
    println!("{name}: relative error {error:.1e}");
    assert!(error <= FLOAT_TOLERANCE, "{name}: {error}");
}

/// The cosine of two texts' vectors, each the mean of its rows.
fn cosine(a: &[f32], b: &[f32], width: usize) -> f64 {
    let mean = |rows: &[f32]| -> Vec<f64> {
        (0..width).map(|column| rows.iter().skip(column).step_by(width).map(|x| f64::from(*x)).sum()).collect()
    };
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let (a, b) = (mean(a), mean(b));
    dot(&a, &b) / (dot(&a, &a) * dot(&b, &b)).sqrt()
}

/// 162 rows of positions, the first two of which no text takes; distances up to 159.
#[test]
fn scores_with_a_bias_by_distance() {
    check_encoder("mpnet");
    let model = load_encoder(&Checkpoint::open(&golden("mpnet")).unwrap(), &Device::cpu(1)).unwrap();
    assert_eq!((model.geometry().context, model.geometry().architecture.as_str()), (160, "mpnet"));
}

/// Names without `model.` before them, and the last token's row as the text's vector.
#[test]
fn a_decoder_body_as_an_encoder() {
    check_encoder("qwen3-embedding");
    let Encoded { texts, hidden } = expected("qwen3-embedding");
    let device = Device::cpu(2);
    let model = load_encoder(&Checkpoint::open(&golden("qwen3-embedding")).unwrap(), &device).unwrap();
    let width = model.geometry().hidden;
    assert_eq!((model.geometry().architecture.as_str(), width), ("qwen3-embedding", 16));
    for (text, expected) in texts.iter().zip(&hidden) {
        let found = encode(model.as_ref(), &device, std::slice::from_ref(text));
        let last = |rows: &[f32]| rows[rows.len() - width..].to_vec();
        let cosine = cosine(&last(&found), &last(expected), width);
        assert!(cosine >= 0.99999, "{} tokens: cosine {cosine}", text.len());
    }
    // A decoder that no embedding model is made of stays a decoder.
    assert!(load_encoder(&Checkpoint::open(&golden("llama-untied")).unwrap(), &device).is_err());
}

#[test]
fn bert_hidden_states_alone_and_packed() {
    check_encoder("bert");
}

/// 43 rows of positions, the first three of which no text takes.
#[test]
fn positions_behind_the_padding_token() {
    check_encoder("xlm-roberta");
    let model = load_encoder(&Checkpoint::open(&golden("xlm-roberta")).unwrap(), &Device::cpu(1)).unwrap();
    assert_eq!((model.geometry().context, model.geometry().architecture.as_str()), (40, "xlm-roberta"));
}
