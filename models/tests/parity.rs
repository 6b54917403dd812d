//! The same checkpoints through candle-transformers, another implementation in Rust.

mod shared;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use candle_core::{DType, Device as CandleDevice, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::{bert, llama, quantized_llama};
use lifelong_kernels::{Device, Values};
use lifelong_models::architecture::Scratch;
use lifelong_models::{Checkpoint, load_decoder, load_encoder};
use shared::decode;

const CANDLE: CandleDevice = CandleDevice::Cpu;
/// Rounding of float32 sums in another order.
const FLOAT_TOLERANCE: f32 = 1e-4;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn read_config<T: for<'de> serde::Deserialize<'de>>(folder: &Path) -> T {
    serde_json::from_str(&std::fs::read_to_string(folder.join("config.json")).unwrap()).unwrap()
}

fn tensors(folder: &Path) -> VarBuilder<'static> {
    let mut all = HashMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "safetensors") {
            all.extend(candle_core::safetensors::load(path, &CANDLE).unwrap());
        }
    }
    VarBuilder::from_tensors(all, DType::F32, &CANDLE)
}

fn batch_of_one(tokens: &[u32]) -> Tensor {
    Tensor::new(tokens, &CANDLE).unwrap().unsqueeze(0).unwrap()
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

/// Our logits of the last token.
fn last_logits(path: &Path, tokens: &[u32]) -> Vec<f32> {
    let device = Device::cpu(2);
    let model = load_decoder(&Checkpoint::open(path).unwrap(), &device).unwrap();
    let all = decode::logits(model.as_ref(), &device, tokens, tokens.len());
    all[all.len() - model.geometry().vocab..].to_vec()
}

#[test]
fn llama_in_floats() {
    for name in ["llama-untied", "llama-tied-llama3"] {
        let folder = golden(name);
        let config = read_config::<llama::LlamaConfig>(&folder).into_config(false);
        let model = llama::Llama::load(tensors(&folder), &config).unwrap();
        for len in [1, 9, 40] {
            let tokens: Vec<u32> = (0..len).map(|at| (shared::draw(5, at) % config.vocab_size as u64) as u32).collect();
            let mut cache = llama::Cache::new(false, DType::F32, &config, &CANDLE).unwrap();
            let theirs = values(&model.forward(&batch_of_one(&tokens), 0, &mut cache).unwrap());
            let error = decode::error(&last_logits(&folder, &tokens), &theirs, theirs.len());
            assert!(error <= FLOAT_TOLERANCE, "{name}, {len} tokens: {error}");
        }
    }
}

/// Our last hidden states and candle's, of one text.
fn check_bert(folder: &Path, texts: &[Vec<u32>]) {
    let theirs = bert::BertModel::load(tensors(folder), &read_config(folder)).unwrap();
    let device = Device::cpu(2);
    let ours = load_encoder(&Checkpoint::open(folder).unwrap(), &device).unwrap();
    let mut hidden = Values::default();
    for text in texts {
        let ids = batch_of_one(text);
        let expected = values(&theirs.forward(&ids, &ids.zeros_like().unwrap(), None).unwrap());
        ours.forward(&device, text, &[text.len()], &mut Scratch::default(), &mut hidden).unwrap();
        let error = decode::error(&hidden, &expected, ours.geometry().hidden);
        assert!(error <= FLOAT_TOLERANCE, "{} tokens: {error}", text.len());
    }
}

#[test]
fn bert_in_floats() {
    let texts = [vec![3], vec![1, 2, 3, 4, 5], (0..40).collect()];
    check_bert(&golden("bert"), &texts);
}

#[test]
fn minilm() {
    let Some(path) = shared::weights("minilm", "model.safetensors") else { return };
    check_bert(path.parent().unwrap(), &[vec![101, 7592, 2088, 102], (1000..1050).collect()]);
}

/// candle rounds the inputs of quantised products to 8 bits as well, and in its own way.
#[test]
fn smollm2_quantised() {
    const ROUNDED_INPUTS: f32 = 6e-2;
    let Some(path) = shared::weights("smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf") else { return };
    let mut file = std::fs::File::open(&path).unwrap();
    let content = candle_core::quantized::gguf_file::Content::read(&mut file).unwrap();
    let mut model = quantized_llama::ModelWeights::from_gguf(content, &mut file, &CANDLE).unwrap();
    // "The capital of France is"
    let tokens = [504, 3575, 282, 4649, 314];
    let theirs = values(&model.forward(&batch_of_one(&tokens), 0).unwrap());
    let ours = last_logits(&path, &tokens);
    assert_eq!(decode::argmax(&ours), decode::argmax(&theirs));
    let error = decode::error(&ours, &theirs, theirs.len());
    assert!(error <= ROUNDED_INPUTS, "{error}");
}
