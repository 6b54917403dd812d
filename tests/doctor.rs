//! `lifelong doctor` says what is there and how to mend what is not, in seconds, and a device that cannot be used is named
//! with the way out. Runs in builds with and without CUDA: there a machine without a driver is one of the cases.

#[path = "support/engine.rs"]
mod engine;

use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;

use engine::{Storage, TINY, Written};
use serde_json::Value;

fn doctor(home: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lifelong"));
    command.arg("doctor").args(arguments).env("LIFELONG_HOME", home);
    for name in ["HF_HUB_OFFLINE", "ALL_PROXY", "all_proxy", "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"] {
        command.env_remove(name);
    }
    command.env("HF_ENDPOINT", "http://127.0.0.1:9").envs(variables.iter().copied());
    command.output().unwrap()
}

fn findings(home: &Path, variables: &[(&str, &str)]) -> Vec<Value> {
    let output = doctor(home, &["--json"], variables);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn of<'a>(findings: &'a [Value], part: &str) -> &'a Value {
    findings.iter().find(|finding| finding["part"] == part).unwrap_or_else(|| panic!("no {part} in {findings:?}"))
}

#[test]
fn every_part_is_looked_at_without_waiting() {
    let home = tempfile::tempdir().unwrap();
    let started = Instant::now();
    let output = doctor(home.path(), &[], &[]);
    let seconds = started.elapsed().as_secs_f64();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    for part in ["program", "processor", "memory", "GPU", "sandbox", "Python", "model cache", "hub"] {
        assert!(text.lines().any(|line| line.starts_with(part)), "{part}:\n{text}");
    }
    assert!(text.contains("cannot reach http://127.0.0.1:9"), "{text}");
    assert!(seconds < 20.0, "{seconds} s");
}

#[test]
fn what_is_missing_comes_with_what_to_do() {
    let home = tempfile::tempdir().unwrap();
    let findings = findings(home.path(), &[("LIFELONG_PYTHON", "/no/such/python"), ("HF_HUB_OFFLINE", "1")]);
    assert!(of(&findings, "Python")["mend"].as_str().unwrap().contains("/no/such/python"));
    assert!(of(&findings, "model cache")["mend"].as_str().unwrap().contains("lifelong models pull"));
    assert!(of(&findings, "hub")["found"].as_str().unwrap().contains("HF_HUB_OFFLINE"));
    let gpu = of(&findings, "GPU");
    match lifelong_kernels::survey_cuda() {
        survey if survey.built_for.is_none() => assert!(gpu["mend"].as_str().unwrap().contains("--features cuda")),
        survey if survey.problem.is_some() => assert!(gpu["mend"].as_str().unwrap().contains("use the cpu")),
        _ => assert_eq!(gpu["mend"], Value::Null),
    }
}

#[test]
fn models_in_the_cache_are_counted() {
    let home = tempfile::tempdir().unwrap();
    for name in ["one", "two"] {
        std::fs::create_dir_all(home.path().join("models").join(name)).unwrap();
    }
    let findings = findings(home.path(), &[]);
    let cache = of(&findings, "model cache");
    assert!(cache["found"].as_str().unwrap().contains("2 models") && cache["mend"].is_null(), "{cache}");
}

/// A completion of a tiny model: on whatever `auto` finds, and on a GPU that no machine has.
#[test]
fn auto_answers_everywhere_and_a_gpu_that_is_not_there_is_refused() {
    let model = Written::new(TINY, Storage::F32, 11);
    let generate = |device: &str| {
        let model = ["generate", "--model", model.path().to_str().unwrap(), "--prompt", "ab", "--max-tokens", "3"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_lifelong"));
        command.args(model).args(["--seed", "1", "--device", device]).output().unwrap()
    };
    let output = generate("auto");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let survey = lifelong_kernels::survey_cuda();
    let falls_back = survey.built_for.is_some() && survey.problem.is_some();
    assert_eq!(
        said.lines().filter(|line| line.starts_with("device auto: the cpu")).count(),
        usize::from(falls_back),
        "{said}"
    );
    let output = generate("cuda:77");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("cuda:77") && said.contains("hint:"), "{said}");
    let output = generate("cuda:76+77");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("cuda:76") && said.contains("hint:"), "{said}");
    let output = generate("cuda:0+1,2");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("each copy in as many parts"), "{said}");
}
