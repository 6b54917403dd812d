//! A tiny Llama with random weights, written to a temporary folder and loaded like any model.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::path::Path;

use lifelong::engine::error::Result;
use lifelong::engine::hub::{ModelFile, ModelFiles};
use lifelong::engine::model::{LoadedModel, load};
use lifelong::engine::request::{Completion, Finish, Request};
use lifelong::engine::sampling::Sampling;
use lifelong::engine::session::{Engine, EngineOptions, Session};
use lifelong::seed::{Seed, Stream};
use lifelong_kernels::{Device, KvGeometry, KvType};
use serde_json::json;

/// Bytes of a block of the model's cache as the engine keeps it unless asked otherwise.
pub fn block_bytes(model: &LoadedModel) -> u64 {
    KvGeometry { kv_type: KvType::I16, ..model.decoder.geometry().kv(1) }.bytes_per_block() as u64
}

/// How the tiny model's matrices are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    F32,
    Bf16,
}

/// Extents of a Llama written for a test.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub layers: usize,
    pub hidden: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub feed_forward: usize,
    pub vocabulary: usize,
    pub context: usize,
}

/// 256 byte tokens, one end token, and room for more.
pub const TINY: Shape = Shape {
    layers: 2,
    hidden: 64,
    heads: 4,
    kv_heads: 2,
    head_dim: 16,
    feed_forward: 96,
    vocabulary: 320,
    context: 512,
};

/// The end token of a written model.
pub const END: u32 = 256;

/// A written model, in a folder that lives as long as this value.
pub struct Written {
    folder: tempfile::TempDir,
}

impl Written {
    /// Writes `config.json`, `tokenizer.json` and `model.safetensors` with weights drawn from `seed`.
    pub fn new(shape: Shape, storage: Storage, seed: u64) -> Written {
        let folder = tempfile::tempdir().unwrap();
        let config = json!({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
            "num_hidden_layers": shape.layers, "hidden_size": shape.hidden, "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads, "head_dim": shape.head_dim, "intermediate_size": shape.feed_forward,
            "vocab_size": shape.vocabulary, "max_position_embeddings": shape.context, "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0, "tie_word_embeddings": false, "eos_token_id": END,
        });
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        std::fs::write(folder.path().join("tokenizer.json"), tokenizer().to_string()).unwrap();
        write_safetensors(&folder.path().join("model.safetensors"), &tensors(shape), storage, seed);
        Written { folder }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn files(&self) -> ModelFiles {
        let names = ["config.json", "model.safetensors", "tokenizer.json"];
        model_files("tiny", self.folder.path(), &names.map(String::from))
    }

    pub fn load(&self, device: &Device) -> LoadedModel {
        load(&self.files(), device).unwrap()
    }
}

fn model_files(name: &str, folder: &Path, names: &[String]) -> ModelFiles {
    let describe = |name: &String| {
        let path = folder.join(name);
        let size = std::fs::metadata(&path).unwrap().len();
        ModelFile { name: name.clone(), path, size, sha256: None, origin: "test".to_string() }
    };
    let files = names.iter().map(describe).collect();
    ModelFiles { name: name.to_string(), kind: None, folder: folder.to_path_buf(), files }
}

/// Everything of a completion that must not depend on what ran beside it: log-probabilities as bits.
pub type Outcome = (Vec<u32>, String, Finish, Vec<(u32, u32)>);

pub fn outcome(completion: Completion) -> Outcome {
    let bits = completion
        .logprobs
        .iter()
        .flat_map(|entry| std::iter::once(&entry.chosen).chain(&entry.top))
        .map(|entry| (entry.token, entry.logprob.to_bits()))
        .collect();
    (completion.tokens, completion.text, completion.finish, bits)
}

/// Outcomes in the order of the requests.
pub fn outcomes(session: &Session, requests: &[Request]) -> Vec<Outcome> {
    let mut all: Vec<Option<Outcome>> = vec![None; requests.len()];
    for (index, completion) in session.complete_all(requests.to_vec()) {
        all[index] = Some(outcome(completion.unwrap()));
    }
    all.into_iter().map(Option::unwrap).collect()
}

pub fn start(model: &LoadedModel, options: EngineOptions) -> Engine {
    let started: Result<Engine> = Engine::start(model.clone(), &options);
    started.unwrap()
}

/// `count` random tokens of a vocabulary of bytes.
pub fn random_tokens(stream: &mut Stream, count: usize) -> Vec<u32> {
    (0..count).map(|_| stream.below(256) as u32).collect()
}

/// A request that shows every bit of its logits: log-probabilities at each token, no early end.
pub fn probe(tokens: Vec<u32>, temperature: f64, max_tokens: usize, seed: u64) -> Request {
    let sampling =
        Sampling { temperature, top_p: 0.95, max_tokens, ignore_eos: true, logprobs: 3, ..Sampling::default() };
    Request { tokens, sampling, seed }
}

type Tensor = (String, Vec<usize>, f32);

/// Name, shape and standard deviation; vectors are norms, drawn around 1. Spread wide enough that tokens differ in
/// probability and attention does not average everything out.
fn tensors(shape: Shape) -> Vec<Tensor> {
    let Shape { layers, hidden, heads, kv_heads, head_dim, feed_forward, vocabulary, .. } = shape;
    let scale = |inputs: usize, gain: f32| gain / (inputs as f32).sqrt();
    let mut tensors = vec![
        ("model.embed_tokens.weight".to_string(), vec![vocabulary, hidden], 1.0),
        ("model.norm.weight".to_string(), vec![hidden], 0.1),
        ("lm_head.weight".to_string(), vec![vocabulary, hidden], scale(hidden, 3.0)),
    ];
    for layer in 0..layers {
        let mut add = |name: &str, shape: Vec<usize>, deviation: f32| {
            tensors.push((format!("model.layers.{layer}.{name}.weight"), shape, deviation));
        };
        add("input_layernorm", vec![hidden], 0.1);
        add("self_attn.q_proj", vec![heads * head_dim, hidden], scale(hidden, 2.0));
        add("self_attn.k_proj", vec![kv_heads * head_dim, hidden], scale(hidden, 2.0));
        add("self_attn.v_proj", vec![kv_heads * head_dim, hidden], scale(hidden, 1.0));
        add("self_attn.o_proj", vec![hidden, heads * head_dim], scale(heads * head_dim, 2.0));
        add("post_attention_layernorm", vec![hidden], 0.1);
        add("mlp.gate_proj", vec![feed_forward, hidden], scale(hidden, 1.0));
        add("mlp.up_proj", vec![feed_forward, hidden], scale(hidden, 1.0));
        add("mlp.down_proj", vec![hidden, feed_forward], scale(feed_forward, 1.0));
    }
    tensors
}

fn write_safetensors(path: &Path, tensors: &[Tensor], storage: Storage, seed: u64) {
    let mut stream = Seed(seed).stream();
    let mut header = serde_json::Map::new();
    let mut data: Vec<u8> = Vec::new();
    for (name, shape, deviation) in tensors {
        let start = data.len();
        let is_norm = shape.len() == 1;
        for _ in 0..shape.iter().product::<usize>() {
            // Twelve uniforms less six: close to a normal number, and the same on every machine.
            let normal = (0..12).map(|_| stream.next_f64()).sum::<f64>() - 6.0;
            let value = (if is_norm { 1.0 } else { 0.0 }) + normal as f32 * deviation;
            match storage {
                Storage::Bf16 if !is_norm => data.extend(((value.to_bits() >> 16) as u16).to_le_bytes()),
                _ => data.extend(value.to_le_bytes()),
            }
        }
        let dtype = if storage == Storage::Bf16 && !is_norm { "BF16" } else { "F32" };
        header.insert(name.clone(), json!({ "dtype": dtype, "shape": shape, "data_offsets": [start, data.len()] }));
    }
    let mut header = serde_json::Value::Object(header).to_string();
    while !header.len().is_multiple_of(8) {
        header.push(' ');
    }
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(data);
    std::fs::write(path, file).unwrap();
}

/// A byte-level tokenizer without merges: token i is byte i.
fn tokenizer() -> serde_json::Value {
    let mut vocabulary = serde_json::Map::new();
    for (id, character) in byte_characters().into_iter().enumerate() {
        vocabulary.insert(character.to_string(), json!(id));
    }
    let byte_level = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true });
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
        "pre_tokenizer": byte_level, "decoder": byte_level,
        "added_tokens": [{
            "id": END, "content": "<|endoftext|>", "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true
        }],
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocabulary, "merges": []
        }
    })
}

/// The printable character that byte-level vocabularies write for each byte (Radford et al. 2019, `bytes_to_unicode`).
fn byte_characters() -> Vec<char> {
    let is_printable = |byte: u32| (33..=126).contains(&byte) || (161..=172).contains(&byte) || byte >= 174;
    let mut next_substitute = 256;
    let character = |byte: u32| {
        let code = if is_printable(byte) {
            byte
        } else {
            next_substitute += 1;
            next_substitute - 1
        };
        char::from_u32(code).unwrap()
    };
    (0..256u32).map(character).collect()
}
