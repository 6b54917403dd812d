//! `--quantize` reaches the weights from the command line, and is said by the errors of files that cannot take it.

mod support;

use std::process::{Command, Output};

use support::tiny::{letters, with_tokenizer};

fn generate(model: &str, more: &[&str]) -> Output {
    let head = ["generate", "--model", model, "--prompt", "abcd", "--seed", "4", "--json", "--kv-memory", "16MiB"];
    let sampling = ["--temperature", "1.2", "--max-tokens", "60", "--threads", "1"];
    let arguments = [&head[..], &sampling[..], more].concat();
    Command::new(env!("CARGO_BIN_EXE_lifelong")).args(arguments).output().unwrap()
}

fn tokens(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let completion: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(completion["tokens"].as_array().is_some_and(|tokens| !tokens.is_empty()), "{completion}");
    completion["tokens"].clone()
}

#[test]
fn the_command_line_quantises_at_load() {
    let folder = with_tokenizer("llama-tied-llama3", &letters(["<pad>", "<unk>", "<s>", "</s>"], None, 3));
    let model = folder.path().to_str().unwrap();
    let plain = tokens(&generate(model, &[]));
    let four = tokens(&generate(model, &["--quantize", "q4_0"]));
    assert_ne!(plain, four, "quantising changes nothing");
    assert_eq!(four, tokens(&generate(model, &["--quantize", "q4_0"])), "the same weights each time");
    let refused = generate(model, &["--quantize", "q3_k"]);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && message.contains("q8_0") && message.contains("q4_k"), "{message}");
}

#[test]
fn a_gguf_file_is_used_as_it_is_stored() {
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("models/tests/golden/llama-gguf-f16");
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(golden.join("model.gguf"), folder.path().join("model.gguf")).unwrap();
    let refused = generate(folder.path().to_str().unwrap(), &["--quantize", "q8_0"]);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && message.contains("GGUF"), "{message}");
}
