//! Real weights: sentence vectors of all-MiniLM-L6-v2 against sentence-transformers.
//! `tests/golden/minilm/make.py` of the repository made the expected values.

mod shared;

use std::path::Path;

use lifelong_kernels::ops::pool;
use lifelong_kernels::{Device, Values};
use lifelong_models::architecture::{Encoder, Scratch};
use lifelong_models::{Checkpoint, load_encoder};
use serde::Deserialize;

#[derive(Deserialize)]
struct Golden {
    texts: Vec<String>,
    tokens: Vec<Vec<u32>>,
    embeddings: Vec<Vec<f32>>,
}

/// Vectors of length 1, one a text: the mean of the last hidden states.
fn embed(model: &dyn Encoder, device: &Device, texts: &[Vec<u32>]) -> Vec<Vec<f32>> {
    let lengths: Vec<usize> = texts.iter().map(Vec::len).collect();
    let width = model.geometry().hidden;
    let (mut hidden, mut pooled) = (Values::default(), vec![0.0; texts.len() * width]);
    model.forward(device, &texts.concat(), &lengths, &mut Scratch::default(), &mut hidden).unwrap();
    pool::mean(device, &mut pooled, &hidden, &lengths).unwrap();
    pool::l2_normalize(device, &mut pooled, width).unwrap();
    pooled.chunks_exact(width).map(<[f32]>::to_vec).collect()
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

#[test]
fn fifty_texts_alone_and_in_a_batch() {
    let Some(path) = shared::weights("minilm", "model.safetensors") else { return };
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/minilm/embeddings.json");
    let golden: Golden = serde_json::from_str(&std::fs::read_to_string(golden).unwrap()).unwrap();
    assert_eq!(golden.texts.len(), 50);
    let device = Device::cpu(2);
    let checkpoint = || Checkpoint::open(path.parent().unwrap()).unwrap();
    // In f32, and as a processor embeds: projections as integers of 16 bits.
    for (checkpoint, most) in [(checkpoint(), 1e-10), (checkpoint().rounded(), 1e-6)] {
        let model = load_encoder(&checkpoint, &device).unwrap();
        let batch = embed(model.as_ref(), &device, &golden.tokens);
        let mut smallest = 1f64;
        for (index, text) in golden.texts.iter().enumerate() {
            let alone = embed(model.as_ref(), &device, &golden.tokens[index..=index]);
            assert_eq!(alone[0], batch[index], "{text:?} in a batch");
            smallest = smallest.min(cosine(&batch[index], &golden.embeddings[index]));
        }
        println!("smallest cosine 1 - {:.2e}", 1.0 - smallest);
        assert!(smallest >= 1.0 - most, "smallest cosine {smallest}");
    }
}
