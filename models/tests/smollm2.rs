//! Real weights: greedy text of SmolLM2 against llama.cpp, judged by a float32 model where the two part.
//! `tests/golden/smollm2/make.py` of the repository made the expected values.

mod shared;

use std::path::Path;
use std::time::Instant;

use lifelong_kernels::{BLOCK_TOKENS, Device, KvCache, Segment};
use lifelong_models::architecture::{Batch, Decoder, Scratch};
use lifelong_models::{Checkpoint, load_decoder};
use serde::Deserialize;
use shared::decode::argmax;

#[derive(Deserialize)]
struct Golden {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    text: String,
    prompt: Vec<u32>,
    continuation: Vec<u32>,
    steps: Vec<Step>,
}

/// The 20 most likely tokens of one position and their logits by each reference.
#[derive(Deserialize)]
struct Step {
    ids: Vec<usize>,
    reference: Vec<f32>,
    llama_cpp: Vec<f32>,
}

fn golden() -> Golden {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/smollm2/greedy.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Root mean square difference of the logits of a step's 20 tokens, from the float32 reference.
fn distance(logits: impl Iterator<Item = f32>, step: &Step) -> f64 {
    let squares = logits.zip(&step.reference).map(|(a, b)| f64::from(a - b).powi(2));
    (squares.sum::<f64>() / step.reference.len() as f64).sqrt()
}

/// Logits at every position of a continuation that is given, not chosen: `[steps][V]`.
fn forced(model: &dyn Decoder, device: &Device, case: &Case) -> Vec<Vec<f32>> {
    let tokens: Vec<u32> = case.prompt.iter().chain(&case.continuation[..case.continuation.len() - 1]).copied().collect();
    let blocks = tokens.len().div_ceil(BLOCK_TOKENS);
    let mut cache = KvCache::new(device, model.geometry().kv(blocks)).unwrap();
    let tables: Vec<u32> = (0..blocks as u32).collect();
    let positions: Vec<u32> = (0..tokens.len() as u32).collect();
    let outputs: Vec<usize> = (case.prompt.len() - 1..tokens.len()).collect();
    let segments = [Segment { query_start: 0, query_len: tokens.len(), context_len: 0, table: 0..blocks }];
    let batch = Batch { tokens: &tokens, positions: &positions, segments: &segments, tables: &tables, outputs: &outputs };
    let mut logits = Vec::new();
    model.forward(device, &batch, &mut cache, &mut Scratch::default(), &mut logits).unwrap();
    logits.chunks_exact(model.geometry().vocab).map(<[f32]>::to_vec).collect()
}

#[test]
fn greedy_text_follows_llama_cpp_or_the_float32_model() {
    let Some(path) = shared::weights("smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf") else { return };
    let device = Device::cpu(2);
    let begun = Instant::now();
    let model = load_decoder(&Checkpoint::open(&path).unwrap(), &device).unwrap();
    println!("loaded in {:.3} s", begun.elapsed().as_secs_f64());
    let (mut same, mut ours, mut theirs) = (0, Vec::new(), Vec::new());
    let cases = golden().cases;
    for case in &cases {
        let logits = forced(model.as_ref(), &device, case);
        // On llama.cpp's own path, greedy decoding leaves it where the first choice differs.
        let parted = (0..logits.len()).find(|at| argmax(&logits[*at]) != case.continuation[*at] as usize);
        same += usize::from(parted.is_none());
        for (found, step) in logits.iter().zip(&case.steps) {
            ours.push(distance(step.ids.iter().map(|id| found[*id]), step));
            theirs.push(distance(step.llama_cpp.iter().copied(), step));
        }
        if let Some(at) = parted {
            let (a, b) = (distance(case.steps[at].ids.iter().map(|id| logits[at][*id]), &case.steps[at]), distance(case.steps[at].llama_cpp.iter().copied(), &case.steps[at]));
            println!("parted at {at} of {:?}: ours {a:.4}, llama.cpp {b:.4}; reference takes {} ours {} llama.cpp {}", case.text, case.steps[at].ids[0], argmax(&logits[at]), case.continuation[at]);
        }
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    println!("{same} of {} continuations equal; mean distance from float32: ours {:.4}, llama.cpp {:.4}", cases.len(), mean(&ours), mean(&theirs));
}
