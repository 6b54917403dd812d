//! `kv_type` reaches the cache from the command line and from a run file, and is part of a run's identity.

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const MODEL: &str = "smollm2-135m-instruct";

fn lifelong(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lifelong")).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Sampled at a high temperature over enough tokens that a rounded cache draws others.
#[test]
fn the_command_line_chooses_it() {
    if support::model_files(MODEL).is_none() {
        return;
    }
    let complete = |more: &[&str]| {
        let head = ["generate", "--model", MODEL, "--prompt", "A list of words: sea,", "--seed", "4", "--json"];
        let sampling = ["--temperature", "1.5", "--max-tokens", "96", "--kv-memory", "64MiB"];
        stdout(&lifelong(&[&head[..], &sampling[..], more].concat()))
    };
    let integers = complete(&[]);
    assert_eq!(integers, complete(&["--kv-type", "i16"]), "i16 is the default");
    let [exact, half, brain] = ["f32", "f16", "bf16"].map(|kv_type| complete(&["--kv-type", kv_type]));
    assert!(exact != brain && half != brain, "bf16 rounds nothing: {brain}");
    assert!(integers != half && integers != brain, "i16 rounds as another: {integers}");

    let refused = lifelong(&["generate", "--model", MODEL, "--prompt", "a", "--kv-type", "f8"]);
    let message = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && message.contains("f8") && message.contains("f32, f16, bf16, i16"),
        "{message}"
    );
}

#[test]
fn a_run_file_chooses_it_and_a_run_does_not_change_it() {
    if support::model_files(MODEL).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let run = |kv_type: &str, out: &Path| {
        let config = folder.path().join("run.toml");
        let text = format!(
            "name = \"kv\"\n[models]\nbackbones = [\"{MODEL}\"]\n{kv_type}\n[sampling]\ntemperature = 1.5\n\
             max_tokens = 48\n[benchmark]\nname = \"kata\"\nlimit = 3\n[matrix]\nseeds = 2\n"
        );
        fs::write(&config, text).unwrap();
        lifelong(&["run", config.to_str().unwrap(), "--out", out.to_str().unwrap()])
    };
    let replies = |out: &Path| fs::read_to_string(out.join("attempts.jsonl")).unwrap();
    let [default, brain] = ["default", "brain"].map(|name| folder.path().join(name));
    stdout(&run("", &default));
    stdout(&run("kv_type = \"bf16\"", &brain));
    assert_ne!(replies(&default), replies(&brain), "the run's cache rounds nothing");

    let refused = run("kv_type = \"bf16\"", &default);
    let message = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && message.contains("models.kv_type"), "{message}");
}
