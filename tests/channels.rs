//! A backbone that answers in channels is refused by a run, in words: its thoughts would be graded with its answers.

mod support;

use std::process::Command;

use support::tiny::{letters, with_tokenizer};

#[test]
fn a_run_refuses_a_backbone_that_answers_in_channels() {
    let folder = with_tokenizer("llama-tied-llama3", &letters(["<pad>", "<unk>", "<s>", "</s>"], None, 3));
    let template = "<|start|>user<|message|>{{ messages[0].content }}<|end|><|start|>assistant<|channel|>";
    std::fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
    let run = format!(
        "name = \"channels\"\nseed = 1\n[models]\nbackbones = ['{}']\n[sampling]\nmax_tokens = 2\n\
         [benchmark]\nname = \"kata\"\n[matrix]\nseeds = 1\n",
        folder.path().display()
    );
    let file = folder.path().join("run.toml");
    std::fs::write(&file, run).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_lifelong"))
        .args(["run", file.to_str().unwrap(), "--out", folder.path().join("out").to_str().unwrap()])
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && message.contains("harmony channels"), "{message}");
    assert!(message.contains("lifelong generate --json"), "{message}");
}
