//! `lifelong bench` on a tiny model: valid JSON, real rates, and a helpful error for an unknown workload.

#[path = "support/mod.rs"]
mod models;
#[path = "support/engine.rs"]
mod support;

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use support::{Shape, Storage, TINY, Written};

/// The program without any model but the one named, and no network.
fn bench(home: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lifelong"));
    command.arg("bench").args(arguments).env("LIFELONG_HOME", home).env("HF_HOME", home).env("HF_HUB_OFFLINE", "1");
    command.env_remove("HF_HUB_CACHE").output().unwrap()
}

#[test]
fn every_rate_is_a_positive_number_and_a_missing_embedder_a_note() {
    let home = tempfile::tempdir().unwrap();
    let model = Written::new(Shape { context: 4096, ..TINY }, Storage::F32, 1);
    let arguments = ["--model", model.path().to_str().unwrap(), "--json", "--quick", "--threads", "1"];
    let output = bench(home.path(), &arguments);
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    assert!(messages.contains("lifelong models pull all-minilm-l6-v2"), "{messages}");

    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["threads"], 1);
    let workloads = found["workloads"].as_array().unwrap();
    assert_eq!(workloads.len(), 9, "prefill, decode and matrix");
    for workload in workloads {
        let rate = |name: &str| workload[name].as_f64().unwrap_or_else(|| panic!("{name}: {workload}"));
        let (least, median, most) = (rate("min"), rate("median"), rate("max"));
        assert!(least > 0.0 && least <= median && median <= most && most.is_finite(), "{workload}");
        let runs = workload["runs"].as_array().unwrap();
        assert!(!runs.is_empty() && runs.iter().all(|seconds| seconds.as_f64().unwrap() > 0.0), "{workload}");
        assert!(workload["tokens"].as_u64().unwrap() > 0, "{workload}");
        let share = |group: &str, name: &str| workload[group][name].as_f64().unwrap();
        let (products, attention) = (share("kernels", "products"), share("kernels", "attention"));
        assert!(products > 0.0 && attention > 0.0 && products + attention < share("shares", "forward"), "{workload}");
        // Plain weights: no 8-bit products.
        assert!(share("of_limits", "integers") == 0.0, "{workload}");
        assert!(share("of_limits", "floats") > 0.0 && share("of_limits", "read") > 0.0, "{workload}");
    }
}

/// A context of 1024 tokens holds all but the long prompt; the rest is measured.
#[test]
fn what_the_context_does_not_hold_is_a_note() {
    let home = tempfile::tempdir().unwrap();
    let model = Written::new(Shape { context: 1024, ..TINY }, Storage::F32, 1);
    let output =
        bench(home.path(), &["--model", model.path().to_str().unwrap(), "--json", "--quick", "--only", "prefill"]);
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    assert!(messages.contains("prefill-2048 left out") && messages.contains("2049"), "{messages}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<&str> =
        found["workloads"].as_array().unwrap().iter().map(|workload| workload["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["prefill-512"]);
}

/// Three curves of real times, of which the demonstrations are the tree's tokens and not the requests', and their figure.
#[test]
fn growth_is_measured_and_drawn() {
    let home = tempfile::tempdir().unwrap();
    let model = Written::new(Shape { context: 1024, ..TINY }, Storage::F32, 1);
    let figures = home.path().join("figures");
    let arguments =
        ["--growth", "--quick", "--json", "--threads", "1", "--model", model.path().to_str().unwrap(), "--out"];
    let output = bench(home.path(), &[&arguments[..], &[figures.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let curves = found["curves"].as_array().unwrap();
    let places = |curve: &Value, field: &str| -> Vec<f64> {
        curve["points"].as_array().unwrap().iter().map(|point| point[field].as_f64().unwrap()).collect()
    };
    let names: Vec<&str> = curves.iter().map(|curve| curve["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["prompt", "batch", "demonstrations"]);
    // 1024 tokens leave no room for a new one.
    assert_eq!(places(&curves[0], "x"), [128.0, 512.0]);
    assert_eq!(places(&curves[1], "x"), [1.0, 4.0, 16.0]);
    assert_eq!(places(&curves[2], "x"), [1.0, 2.0, 3.0]);
    for curve in curves {
        assert!(places(curve, "law").iter().all(|seconds| *seconds > 0.0), "{curve}");
        for point in curve["points"].as_array().unwrap() {
            let seconds = point["seconds"].as_array().unwrap();
            assert!(!seconds.is_empty() && seconds.iter().all(|seconds| seconds.as_f64().unwrap() > 0.0), "{curve}");
        }
    }
    assert_eq!(places(&curves[0], "new_prompt_tokens"), [128.0, 512.0]);
    assert_eq!(places(&curves[1], "new_prompt_tokens"), [1.0, 4.0, 16.0]);
    // 20 prompts of 550 tokens behind each demonstration. The tree holds 400 + 4 x 150 of them, and whole blocks are shared:
    // the four other seeds of a target compute the 6 tokens of its last block.
    assert_eq!(places(&curves[2], "prompt_tokens"), [11_000.0, 22_000.0, 33_000.0]);
    for (demonstrations, computed) in places(&curves[2], "new_prompt_tokens").iter().enumerate() {
        let tree = (demonstrations + 1) as f64 * f64::from(400 + 4 * 150);
        assert!((tree..1.25 * tree).contains(computed), "{computed} computed of a tree of {tree}");
    }

    let text = std::fs::read_to_string(figures.join("growth.svg")).unwrap();
    let lines = svg_texts(&text);
    let count = |words: &str| lines.iter().filter(|line| line.contains(words)).count();
    assert_eq!([count("time against"), count("measured"), count("seconds"), count(" ms")], [3; 4], "{lines:?}");
}

/// What a figure says in words, after a check that its elements are nested as XML asks.
fn svg_texts(svg: &str) -> Vec<String> {
    let (mut open, mut texts): (Vec<&str>, Vec<String>) = (Vec::new(), Vec::new());
    for part in svg.split('<').skip(1) {
        let (tag, text) = part.split_once('>').unwrap_or_else(|| panic!("`<{part}` is not closed"));
        assert_eq!(tag.matches('"').count() % 2, 0, "an attribute is not closed: {tag}");
        let name = tag.split_whitespace().next().unwrap();
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.ends_with('/') {
            open.push(name);
            if name == "text" {
                texts.push(text.trim().to_string());
            }
        }
        assert!(!open.is_empty() || tag.starts_with('/') && text.trim().is_empty(), "after the root: {text}");
        assert!(open.is_empty() || open[0] == "svg");
    }
    assert!(open.is_empty(), "not closed: {open:?}");
    texts
}

/// On the real encoder, from the user's model cache.
#[test]
fn sentences_are_measured() {
    if models::model_files("all-minilm-l6-v2").is_none() {
        return;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_lifelong"))
        .args(["bench", "--only", "embed", "--quick", "--json", "--runs", "1"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let shapes: Vec<(u64, u64, usize)> = (found["workloads"].as_array().unwrap().iter())
        .map(|workload| {
            assert!(workload["median"].as_f64().unwrap() > 0.0 && workload["unit"] == "sentences/s", "{workload}");
            let number = |name: &str| workload[name].as_u64().unwrap();
            (number("count"), number("tokens"), workload["runs"].as_array().unwrap().len())
        })
        .collect();
    assert_eq!(shapes, [(1, 63, 1), (32, 32 * 63, 1), (128, 128 * 63, 1)]);
}

#[test]
fn an_unknown_workload_is_an_error_that_lists_the_names() {
    let home = tempfile::tempdir().unwrap();
    let output = bench(home.path(), &["--only", "nonsense"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    for part in ["nonsense", "prefill-512", "decode-32-shared", "matrix", "embed-128"] {
        assert!(message.contains(part), "{message}");
    }
}
