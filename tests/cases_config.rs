//! The published configuration cases that concern run files (the model-file ones are in the models crate).

use std::fs;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

fn run(config: &str) -> (Output, Duration) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.toml");
    fs::write(&path, config).unwrap();
    let started = Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_lifelong"))
        .args(["run".as_ref(), path.as_os_str(), "--out".as_ref(), folder.path().join("out").as_os_str()])
        .output()
        .unwrap();
    assert!(!folder.path().join("out").exists(), "a refused config leaves no run folder");
    (output, started.elapsed())
}

fn refused(config: &str, parts: &[&str]) {
    let (output, _) = run(config);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{config}");
    for part in parts {
        assert!(message.contains(part), "expected `{part}` in: {message}");
    }
}

const HEAD: &str = "name = \"x\"\n[models]\nbackbones = [\"smollm2-135m-instruct\"]\n[benchmark]\nname = \"kata\"\n";

#[test]
fn cf_typo() {
    refused(&format!("{HEAD}[sampling]\ntemprature = 0.7\n"), &["temprature", "did you mean `temperature`"]);
}

#[test]
fn cf_dup_key() {
    refused(&format!("seed = 1\nseed = 2\n{HEAD}"), &["seed", "duplicate key"]);
}

#[test]
fn cf_yaml_bool() {
    refused(&HEAD.replace("\"kata\"", "[\"no\", 1e3]"), &["name", "expected a string"]);
}

#[test]
fn cf_path() {
    let (output, _) = run(&HEAD.replace("smollm2-135m-instruct", "./does-not-exist"));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && message.contains("./does-not-exist"), "{message}");
}

#[test]
fn cf_gpu_missing() {
    if lifelong_kernels::Device::cuda(0).is_ok() {
        println!("skipped: this machine has a GPU");
        return;
    }
    let config = lifelong::config::EngineConfig { device: "cuda:0".into(), ..Default::default() };
    let message = format!("{:#}", lifelong::run::start::device(&config).expect_err("no GPU here"));
    assert!(message.contains("cuda:0") && message.contains("hint:") && message.contains("auto"), "{message}");
    let auto = lifelong::config::EngineConfig::default();
    assert_eq!(lifelong::run::start::device(&auto).unwrap().name(), "cpu");
}

/// A single seed is the seed of everything: the config's number and the engine's draws come from it alone.
#[test]
fn cf_seed_list() {
    let config = lifelong::config::parse(&format!("seed = 1234\n{HEAD}")).unwrap();
    assert_eq!(config.seed, 1234);
}

#[test]
fn unknown_things_list_the_nearest() {
    refused(&HEAD.replace("\"kata\"", "\"kate\""), &["kate", "did you mean `kata`", "humaneval"]);
    refused(&HEAD.replace("smollm2-135m-instruct", "smollm2-135m-instuct"), &["did you mean `smollm2-135m-instruct`"]);
    refused(
        &format!("{HEAD}[[agents]]\nname = \"a\"\nmemory = \"ragg\"\n"),
        &["agent `a`", "ragg", "did you mean `rag`"],
    );
    refused(&format!("{HEAD}[[agents]]\nname = \"a\"\nmemory = \"rag\"\n"), &["embedding model", "all-minilm-l6-v2"]);
    refused(
        &format!("{HEAD}[[agents]]\nname = \"a\"\nmemory = \"replay\"\nfeedback = \"withheld\"\n"),
        &["replay", "feedback"],
    );
}
