//! Models that run through candle, in the whole program: one request at a time, the same bytes whatever waits beside it, and
//! marked as what they are.
#![cfg(feature = "candle")]

#[path = "../models/tests/shared/candle.rs"]
mod candle;
#[path = "support/engine.rs"]
mod engine;

use std::path::Path;
use std::process::Command;

use engine::{outcomes, probe, start};
use lifelong::engine::error::Error;
use lifelong::engine::hub::{ModelFile, ModelFiles};
use lifelong::engine::model::{LoadedModel, load, runs_through};
use lifelong::engine::session::{Engine, EngineOptions};
use lifelong_kernels::{Device, KvType};
use serde_json::{Value, json};

/// A tiny model with a tokenizer of words `w0 w1 …` beside it.
fn written(family: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    candle::write(family, folder.path(), &|_, _| {});
    let vocabulary: serde_json::Map<String, Value> = (0..48).map(|id| (format!("w{id}"), json!(id))).collect();
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
        "added_tokens": [], "pre_tokenizer": { "type": "BertPreTokenizer" },
        "decoder": { "type": "WordPiece", "prefix": "##", "cleanup": false },
        "model": { "type": "WordPiece", "unk_token": "w0", "continuing_subword_prefix": "##",
                   "max_input_chars_per_word": 100, "vocab": vocabulary }
    });
    std::fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    folder
}

fn files(folder: &Path) -> ModelFiles {
    let describe = |name: &str| {
        let path = folder.join(name);
        let size = std::fs::metadata(&path).unwrap().len();
        ModelFile { name: name.into(), path, size, sha256: None, origin: "test".into() }
    };
    let files = ["config.json", "model.safetensors", "tokenizer.json"].map(describe).to_vec();
    ModelFiles { name: "tiny".into(), kind: None, folder: folder.to_path_buf(), files }
}

fn model(folder: &Path) -> LoadedModel {
    load(&files(folder), &Device::cpu(2)).unwrap()
}

#[test]
fn requests_give_the_same_bytes_alone_and_together() {
    for family in ["olmo2", "granite", "phi"] {
        let folder = written(family);
        let model = model(folder.path());
        // Prompts that share a beginning, that are longer than a chunk of other models, and one of a single token.
        let shared = candle::prompt(300, 48);
        let requests: Vec<_> = (0..6u64)
            .map(|index| {
                let own = candle::prompt(20 * index, 31);
                probe([&shared[..], &own].concat(), 0.9, 8, index)
            })
            .chain([probe(vec![7], 0.0, 8, 9)])
            .collect();
        let options = EngineOptions { max_batch: 8, prefill_chunk: 64, ..EngineOptions::default() };
        let alone: Vec<_> = requests
            .iter()
            .map(|request| outcomes(&start(&model, options.clone()).session(), std::slice::from_ref(request)).remove(0))
            .collect();
        let together = start(&model, options);
        assert_eq!(outcomes(&together.session(), &requests), alone, "{family}");
        let stats = together.stats();
        assert_eq!((stats.reused_tokens, stats.preemptions), (0, 0), "{family}: nothing is gone on from");
        // A step for the whole prompt and one for each further token: no two requests ever shared one.
        assert_eq!(stats.steps, requests.len() as u64 * 8, "{family}");
    }
}

#[test]
fn a_cancelled_request_leaves_the_next_one_alone() {
    let folder = written("olmo2");
    let engine = start(&model(folder.path()), EngineOptions::default());
    let request = probe(candle::prompt(40, 48), 0.7, 30, 5);
    let expected = outcomes(&engine.session(), std::slice::from_ref(&request));
    let mut pieces = engine.session().stream(probe(candle::prompt(200, 31), 0.7, 300, 6)).unwrap();
    drop(pieces.next());
    drop(pieces);
    assert_eq!(outcomes(&engine.session(), std::slice::from_ref(&request)), expected);
}

#[test]
fn keys_and_values_in_another_type_are_refused() {
    let folder = written("olmo2");
    let options = EngineOptions { kv_type: Some(KvType::F16), ..EngineOptions::default() };
    match Engine::start(model(folder.path()), &options).err() {
        Some(Error::Option { option: "kv_type", expected, .. }) => assert!(expected.contains("f32"), "{expected}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_program_says_what_runs_it() {
    let folder = written("olmo2");
    let program = runs_through(&files(folder.path())).unwrap().unwrap();
    assert!(program.starts_with("candle "), "{program}");
    let lifelong = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_lifelong")).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let path = folder.path().to_str().unwrap();
    let text = lifelong(&["models", "show", path]);
    assert!(text.contains(&format!("(runs through {program}, one request at a time")), "{text}");
    let json: Value = serde_json::from_str(&lifelong(&["models", "show", path, "--json"])).unwrap();
    assert_eq!((&json["runs"], &json["through"]), (&json!(true), &json!(program)));
    let completion: Value = serde_json::from_str(&lifelong(&[
        "generate",
        "--model",
        path,
        "--prompt",
        "w3 w4 w5",
        "--max-tokens",
        "4",
        "--seed",
        "1",
        "--json",
    ]))
    .unwrap();
    assert_eq!(completion["tokens"].as_array().unwrap().len(), 4, "{completion}");
}

/// Another version of what runs a model is another run: the manifest says which it was.
#[test]
fn a_run_notes_what_ran_its_backbone() {
    let folder = written("olmo2");
    let run = format!(
        "name = \"through\"\nseed = 1\n[models]\nbackbones = ['{}']\n[sampling]\nmax_tokens = 2\n\
         [benchmark]\nname = \"kata\"\nlimit = 2\n[matrix]\nseeds = 1\n",
        folder.path().display()
    );
    let (file, out) = (folder.path().join("run.toml"), folder.path().join("out"));
    std::fs::write(&file, run).unwrap();
    let command = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lifelong"));
        command.args(["run", file.to_str().unwrap(), "--out", out.to_str().unwrap()]).output().unwrap()
    };
    let output = command();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let manifest: Value = serde_json::from_slice(&std::fs::read(out.join("manifest.json")).unwrap()).unwrap();
    let models = manifest["identity"]["models"].to_string();
    assert!(models.contains(", through candle 0."), "{models}");
    assert!(command().status.success(), "the same command goes on");
}
