//! Families that run through candle: tiny models against transformers in float32 (`golden/candle/make.py` made the expected
//! values), and what is refused because candle would compute something else.
#![cfg(feature = "candle")]

mod shared;

use std::path::Path;

use lifelong_kernels::{BLOCK_TOKENS, Device, KvCache, Segment, Values};
use lifelong_models::architecture::{Batch, Batching, Decoder, Scratch};
use lifelong_models::{ARCHITECTURES, Checkpoint, Error, load_decoder};
use serde_json::{Map, Value, json};
use shared::candle::{golden, prompt};
use shared::decode;

const TOLERANCE: f32 = 1e-4;

/// Writes a family's tiny model into a folder of the test's own.
fn written(family: &str, test: &str, change: shared::candle::Change) -> std::path::PathBuf {
    let folder = shared::folder(&format!("candle-{family}-{test}"));
    shared::candle::write(family, &folder, change);
    folder
}

fn families() -> Vec<&'static str> {
    ARCHITECTURES.iter().filter(|entry| entry.through().is_some()).map(|entry| entry.name).collect()
}

fn load(folder: &Path, threads: usize) -> Box<dyn Decoder> {
    load_decoder(&Checkpoint::open(folder).unwrap(), &Device::cpu(threads)).unwrap()
}

/// One request of a model that computes one at a time: the logits behind all of `tokens`, computed from `start` on.
fn step(model: &dyn Decoder, tokens: &[u32], start: usize) -> lifelong_models::Result<Vec<f32>> {
    let device = Device::cpu(1);
    let blocks = tokens.len().div_ceil(BLOCK_TOKENS);
    let mut cache = KvCache::new(&device, model.geometry().kv(blocks)).unwrap();
    let positions: Vec<u32> = (start as u32..tokens.len() as u32).collect();
    let tables: Vec<u32> = (0..blocks as u32).collect();
    let count = tokens.len() - start;
    let segment = Segment { query_start: 0, query_len: count, context_len: start, table: 0..blocks };
    let batch = Batch {
        tokens: &tokens[start..],
        positions: &positions,
        segments: &[segment],
        tables: &tables,
        outputs: &[count - 1],
    };
    let mut logits = Values::default();
    model.forward(&device, &batch, &mut cache, &mut Scratch::default(), &mut logits)?;
    Ok(logits.to_vec())
}

/// The logits behind the prompt, and the greedy tokens after it.
fn greedy(model: &dyn Decoder, prompt: &[u32], count: usize) -> (Vec<f32>, Vec<u32>) {
    let mut tokens = prompt.to_vec();
    let first = step(model, &tokens, 0).unwrap();
    let mut logits = first.clone();
    for added in 0..count {
        if added > 0 {
            logits = step(model, &tokens, tokens.len() - 1).unwrap();
        }
        tokens.push(decode::argmax(&logits) as u32);
    }
    (first, tokens[prompt.len()..].to_vec())
}

#[test]
fn logits_and_greedy_tokens_are_those_of_transformers() {
    assert!(families().len() >= 8, "{:?}", families());
    for family in families() {
        let (expected, model) = (golden(family), load(&written(family, "parity", &|_, _| {}), 2));
        let vocab = model.geometry().vocab;
        assert_eq!((model.geometry().architecture.as_str(), model.batching()), (family, Batching::OneAtATime));
        assert!(model.notes()[0].contains("through candle"), "{:?}", model.notes());
        for case in expected["prompts"].as_array().unwrap() {
            let tokens = prompt(case["length"].as_u64().unwrap(), vocab as u64);
            let (logits, added) = greedy(model.as_ref(), &tokens, 12);
            let reference: Vec<f32> = serde_json::from_value(case["logits"].clone()).unwrap();
            let error = decode::error(&logits, &reference, vocab);
            println!("{family}, {} tokens: relative error {error:.1e}", tokens.len());
            assert!(error <= TOLERANCE, "{family}, {} tokens: {error}", tokens.len());
            assert_eq!(json!(added), case["greedy"], "{family}, {} tokens", tokens.len());
        }
    }
}

/// The same request again, behind another one, after an error, and on other threads: the same bits.
#[test]
fn a_request_has_its_own_bits_whatever_came_before() {
    for family in families() {
        let folder = written(family, "again", &|_, _| {});
        let bits = |model: &dyn Decoder, tokens: &[u32]| {
            let (logits, added) = greedy(model, tokens, 5);
            (logits.into_iter().map(f32::to_bits).collect::<Vec<_>>(), added)
        };
        let (long, short) = (prompt(130, 48), prompt(9, 31));
        let model = load(&folder, 1);
        let first = bits(model.as_ref(), &long);
        let other = bits(model.as_ref(), &short);
        assert_eq!(bits(model.as_ref(), &long), first, "{family}");
        assert!(step(model.as_ref(), &long, 7).is_err(), "{family}: a sequence is gone on from its end alone");
        assert!(step(model.as_ref(), &long, long.len() - 1).is_err(), "{family}: after an error only a new one begins");
        assert_eq!(bits(model.as_ref(), &short), other, "{family}");
        let threads = load(&folder, 4);
        assert_eq!((bits(threads.as_ref(), &long), bits(threads.as_ref(), &short)), (first, other), "{family}");
    }
}

#[test]
fn a_step_of_two_requests_or_of_other_rows_is_refused() {
    let model = load(&written("olmo2", "rows", &|_, _| {}), 1);
    let device = Device::cpu(1);
    let segment = |row: usize| Segment { query_start: row, query_len: 1, context_len: 0, table: row..row + 1 };
    let try_step = |segments: &[Segment], outputs: &[usize]| {
        let mut cache = KvCache::new(&device, model.geometry().kv(2)).unwrap();
        let batch = Batch { tokens: &[3, 4], positions: &[0, 1], segments, tables: &[0, 1], outputs };
        let error =
            model.forward(&device, &batch, &mut cache, &mut Scratch::default(), &mut Values::default()).unwrap_err();
        error.to_string()
    };
    assert!(try_step(&[segment(0), segment(1)], &[1]).contains("one request"));
    let both = Segment { query_start: 0, query_len: 2, context_len: 0, table: 0..1 };
    assert!(try_step(&[both], &[0]).contains("only the last of 2 tokens"));
}

#[test]
fn the_context_ends_where_candle_would_need_a_window() {
    for family in ["starcoder2", "gemma2"] {
        let model = load(&written(family, "window", &|_, _| {}), 1);
        assert_eq!(model.geometry().context, 640, "{family}");
        assert!(model.notes().iter().any(|note| note.contains("window of 640")), "{:?}", model.notes());
    }
    let none = |config: &mut Map<String, Value>, _: &mut Map<String, Value>| {
        config.insert("sliding_window".into(), Value::Null);
    };
    assert_eq!(load(&written("starcoder2", "no-window", &none), 1).geometry().context, 1024);
}

/// What changes numbers and candle does not know is an error that names the key.
#[test]
fn what_candle_leaves_out_is_refused() {
    let refused = |family: &str, key: &str, value: Value| {
        let change = |config: &mut Map<String, Value>, _: &mut Map<String, Value>| {
            config.insert(key.into(), value.clone());
        };
        let folder = written(family, &format!("refused-{key}"), &change);
        match load_decoder(&Checkpoint::open(&folder).unwrap(), &Device::cpu(1)).err() {
            Some(error) => error.to_string(),
            None => panic!("{family}: {key} = {value} was accepted"),
        }
    };
    let scaled = json!({ "rope_type": "yarn", "factor": 4.0 });
    for family in families() {
        let message = refused(family, "rope_scaling", scaled.clone());
        assert!(message.contains("`rope_scaling`") && message.contains("plain angles"), "{message}");
        assert!(refused(family, "quantization_config", json!({ "quant_method": "gptq" })).contains("quantize"));
        assert!(refused(family, "num_attention_heads", json!(0)).contains("num_attention_heads"));
        assert!(refused(family, "num_key_value_heads", json!(3)).contains("num_key_value_heads"));
        assert!(refused(family, "max_position_embeddings", json!(1u64 << 40)).contains("max_position_embeddings"));
        refused(family, "vocab_size", json!(47));
        refused(family, "hidden_size", json!(33));
        refused(family, "num_hidden_layers", json!(3));
    }
    assert!(refused("phi", "qk_layernorm", json!(true)).contains("`qk_layernorm`"));
    assert!(refused("starcoder2", "tie_word_embeddings", json!(false)).contains("`tie_word_embeddings`"));
    assert!(refused("granite", "hidden_act", json!("gelu")).contains("`hidden_act`"));
    assert!(refused("olmo2", "hidden_act", json!("snake")).contains("snake"));
}

#[test]
fn tensors_that_are_missing_or_of_no_use_are_told() {
    let load = |test: &str, change: fn(&mut Map<String, Value>)| {
        let folder = written("olmo2", test, &|_, tensors| change(tensors));
        load_decoder(&Checkpoint::open(&folder).unwrap(), &Device::cpu(1)).err()
    };
    let missing = load("missing", |tensors| drop(tensors.remove("model.norm.weight")));
    assert!(
        matches!(missing, Some(Error::MissingTensor { ref tensor, .. }) if tensor == "model.norm.weight"),
        "{missing:?}"
    );
    let more = load("more", |tensors| drop(tensors.insert("model.layers.0.extra.weight".into(), json!([4]))));
    assert!(matches!(more, Some(Error::UnknownTensors { .. })), "{more:?}");
    let shape = load("shape", |tensors| drop(tensors.insert("lm_head.weight".into(), json!([48, 31]))));
    assert!(matches!(shape, Some(Error::ShapeMismatch { ref tensor, .. }) if tensor == "lm_head.weight"), "{shape:?}");
    // Quantising is for models of our own.
    let folder = written("olmo2", "quantize", &|_, _| {});
    let checkpoint = Checkpoint::open(&folder).unwrap().quantized(lifelong_kernels::Format::Q8_0).unwrap();
    assert!(load_decoder(&checkpoint, &Device::cpu(1)).err().unwrap().to_string().contains("quantize"));
}

/// The version that manifests name is the one that is built in.
#[test]
fn the_version_of_candle_is_the_one_of_the_workspace() {
    let manifest = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml")).unwrap();
    let program = ARCHITECTURES.iter().find_map(|entry| entry.through()).unwrap();
    let version = program.strip_prefix("candle ").unwrap();
    assert!(manifest.contains(&format!("candle-transformers = \"={version}\"")), "{program}");
}
