//! `lifelong gpu-check`: without a GPU one line and code 2; on the emulator, at tiny sizes, everything that a GPU goes through.

use std::process::Command;

use lifelong_kernels::Device;
use serde_json::Value;

fn gpu_check(arguments: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_lifelong")).arg("gpu-check").args(arguments).output().unwrap()
}

#[test]
fn without_a_gpu_one_line_says_so() {
    if Device::cuda(0).is_ok() {
        return println!("skipped: this machine has a GPU");
    }
    let output = gpu_check(&["--json"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.starts_with("gpu-check: no GPU to check: ") && text.lines().count() == 1, "{text}");
    assert!(output.stdout.is_empty());
}

/// Needs the feature `emulate`.
#[test]
fn everything_holds_on_the_emulator() {
    if let Err(reason) = Device::emulated(0) {
        return println!("skipped: {reason}");
    }
    let output = gpu_check(&["--emulated", "--json", "--no-peer"]);
    let table = String::from_utf8(output.stderr).unwrap();
    println!("{table}");
    assert_eq!(output.status.code(), Some(0), "{table}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["failures"], 0);
    let checks = found["checks"].as_array().unwrap();
    let of = |group: &str| checks.iter().filter(|check| check["group"] == group).count();
    assert_eq!(of("operations"), lifelong_kernels::checks::CHECKS.len());
    assert!(of("models") >= 20 && of("determinism") >= 10 && of("split") == 10, "{table}");
    let names: Vec<&str> = found["rates"].as_array().unwrap().iter().filter_map(|rate| rate["name"].as_str()).collect();
    let measured = ["prefill-64", "decode-1-own", "decode-3-shared", "matrix"];
    assert_eq!(names, [&measured[..], &["decode-1-graphs", "decode-8-graphs", "embeddings"]].concat());
    assert!(found["rates"].as_array().unwrap().iter().all(|rate| rate["rate"].as_f64().unwrap() > 0.0));
    assert!(found["limits"]["read_bytes_s"].as_f64().unwrap() > 0.0);
    assert!(table.contains("checks hold on emulated"), "{table}");
}
