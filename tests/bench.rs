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
