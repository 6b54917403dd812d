//! Whole models on a GPU, run by the emulator: the numbers of the processor within what rounding allows, and rows that do not
//! depend on their step, bit for bit.
//!
//! Needs the feature `emulate`; without it every test prints that it was skipped.

mod shared;

use std::path::Path;

use lifelong_kernels::{BLOCK_TOKENS, Device, KvCache, Segment, Values};
use lifelong_models::architecture::{Batch, Decoder, Scratch};
use lifelong_models::{Checkpoint, load_decoder, load_encoder};
use shared::{decode, draw};

/// Weights in f32 and in blocks are multiplied as the processor does, to the bit; what differs is the order of a sum in
/// attention, if anything.
const SAME: f32 = 1e-5;
/// With weights of 16 bits, activations are rounded to as many.
const F16: f32 = 4e-3;
const BF16: f32 = 3e-2;

const DECODERS: [(&str, f32); 15] = [
    ("llama-untied", SAME),
    ("llama-bias-linear", SAME),
    ("llama-gguf-q8_0", SAME),
    ("mistral-window", SAME),
    ("qwen2-yarn-window", SAME),
    ("qwen2-gguf-f16", F16),
    ("qwen3-fp8", BF16),
    ("gemma3", SAME),
    ("smollm3", SAME),
    ("phi3-longrope", SAME),
    ("qwen3moe", SAME),
    ("qwen3moe-gguf-q8_0", SAME),
    ("gpt-oss", SAME),
    ("gpt-oss-bf16", BF16),
    ("qwen3_5-moe", SAME),
];

fn emulated(order: u64) -> Option<Device> {
    match Device::emulated(order) {
        Ok(device) => Some(device),
        Err(reason) => {
            println!("skipped: {reason}");
            None
        }
    }
}

fn checkpoint(name: &str) -> Checkpoint {
    Checkpoint::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)).unwrap()
}

fn tokens(vocab: usize, seed: u64, len: usize) -> Vec<u32> {
    (0..len as u64).map(|at| (draw(seed, at) % vocab as u64) as u32).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn decoders_compute_what_they_do_on_the_processor() {
    let Some(device) = emulated(0) else { return };
    for (name, tolerance) in DECODERS {
        let cpu = Device::cpu(1);
        let expected = load_decoder(&checkpoint(name), &cpu).unwrap();
        let model = load_decoder(&checkpoint(name), &device).unwrap();
        assert_eq!(model.geometry(), expected.geometry());
        let vocab = model.geometry().vocab;
        let tokens = tokens(vocab, 7, 37);
        let expected = decode::logits(expected.as_ref(), &cpu, &tokens, 37);
        let found = decode::logits(model.as_ref(), &device, &tokens, 37);
        let error = decode::error(&found, &expected, vocab);
        let same = if bits(&found) == bits(&expected) { ", bit for bit" } else { "" };
        println!("{name}: relative error {error:.1e}{same}");
        assert!(error <= tolerance, "{name}: relative error {error}");
    }
}

#[test]
fn a_row_does_not_depend_on_its_step_nor_on_the_order_of_threads() {
    let Some(device) = emulated(0) else { return };
    for name in ["llama-gguf-q8_0", "qwen2-gguf-f16", "gemma3", "gpt-oss", "qwen3_5-moe"] {
        let model = load_decoder(&checkpoint(name), &device).unwrap();
        let tokens = tokens(model.geometry().vocab, 7, 35);
        let whole = bits(&decode::logits(model.as_ref(), &device, &tokens, 35));
        for chunk in [1, 17] {
            let found = decode::logits(model.as_ref(), &device, &tokens, chunk);
            assert_eq!(bits(&found), whole, "{name}, chunks of {chunk}");
        }
        let Some(other) = emulated(99) else { return };
        let shuffled = load_decoder(&checkpoint(name), &other).unwrap();
        let found = decode::logits(shuffled.as_ref(), &other, &tokens, 20);
        assert_eq!(bits(&found), whole, "{name}, threads in another order");
        batched_equals_alone(model.as_ref(), &device, name);
    }
}

/// Three requests in one step, two of which share their first block.
fn batched_equals_alone(model: &dyn Decoder, device: &Device, name: &str) {
    let vocab = model.geometry().vocab;
    let shared = tokens(vocab, 3, BLOCK_TOKENS);
    let texts = [4u64, 5, 6].map(|seed| {
        let own = tokens(vocab, seed, 9);
        if seed == 6 { own } else { [shared.clone(), own].concat() }
    });
    let mut cache = KvCache::new(device, model.geometry().kv(8)).unwrap();
    let (mut scratch, mut logits) = (Scratch::default(), Values::default());
    let positions: Vec<u32> = (0..BLOCK_TOKENS as u32).collect();
    let segments = [Segment { query_start: 0, query_len: BLOCK_TOKENS, context_len: 0, table: 0..1 }];
    let batch = Batch { tokens: &shared, positions: &positions, segments: &segments, tables: &[5], outputs: &[] };
    model.forward(device, &batch, &mut cache, &mut scratch, &mut logits).unwrap();
    let own: Vec<&[u32]> = texts.iter().map(|text| &text[text.len() - 9..]).collect();
    let contexts = [BLOCK_TOKENS, BLOCK_TOKENS, 0];
    let tables = [5u32, 2, 5, 7, 1];
    let segment =
        |index: usize, table| Segment { query_start: index * 9, query_len: 9, context_len: contexts[index], table };
    let segments = [segment(0, 0..2), segment(1, 2..4), segment(2, 4..5)];
    let positions: Vec<u32> = contexts.iter().flat_map(|context| *context as u32..*context as u32 + 9).collect();
    let outputs: Vec<usize> = (0..27).collect();
    let batch =
        Batch { tokens: &own.concat(), positions: &positions, segments: &segments, tables: &tables, outputs: &outputs };
    model.forward(device, &batch, &mut cache, &mut scratch, &mut logits).unwrap();
    device.synchronize().unwrap();
    for (index, text) in texts.iter().enumerate() {
        let alone = decode::logits_from(model, device, text, text.len(), contexts[index]);
        assert_eq!(bits(&logits[index * 9 * vocab..][..9 * vocab]), bits(&alone), "{name}, request {index} of a step");
    }
}

#[test]
fn encoders_compute_what_they_do_on_the_processor() {
    let Some(device) = emulated(0) else { return };
    for name in ["bert", "xlm-roberta", "mpnet", "qwen3-embedding"] {
        let texts: Vec<Vec<u32>> = [1usize, 17, 5].iter().map(|len| tokens(40, *len as u64, *len)).collect();
        let run = |device: &Device, texts: &[Vec<u32>]| {
            let model = load_encoder(&checkpoint(name), device).unwrap();
            let lengths: Vec<usize> = texts.iter().map(Vec::len).collect();
            let mut hidden = Values::default();
            model.forward(device, &texts.concat(), &lengths, &mut Scratch::default(), &mut hidden).unwrap();
            device.synchronize().unwrap();
            (hidden.to_vec(), model.geometry().hidden)
        };
        let (expected, width) = run(&Device::cpu(1), &texts);
        let (found, _) = run(&device, &texts);
        let error = decode::error(&found, &expected, width);
        println!("{name}: relative error {error:.1e}");
        assert!(error <= SAME, "{name}: relative error {error}");
        let alone: Vec<f32> = texts.iter().flat_map(|text| run(&device, std::slice::from_ref(text)).0).collect();
        assert_eq!(bits(&found), bits(&alone), "{name}, texts together and alone");
    }
}
