//! The behaviour cases of the family `metrics` (numbers to 1e-6; null = not defined).

use std::path::PathBuf;

use lifelong::metric::{
    Distribution, Part, Weights, accuracy, group, mean_of, median, pass_at_k, retrieval, task_matrix,
};
use lifelong::record::{Attempt, AttemptRecord, Coord, Ending, Score, TaskId, Usage};
use lifelong::seed::Seed;
use lifelong::store::{Error, Machine, RunReader, TimingRecord, UnitTiming, totals};
use serde_json::Value;

/// The shared folder: `LIFELONG_SHARED`, or `shared` beside the repository.
fn shared(path: &str) -> Option<String> {
    let root = std::env::var_os("LIFELONG_SHARED")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    match std::fs::read_to_string(root.join(path)) {
        Ok(text) => Some(text),
        Err(error) => {
            println!("skipped: {} ({error})", root.join(path).display());
            None
        }
    }
}

#[test]
fn every_case_of_the_family_holds() {
    let Some(text) = shared("cases/metrics.json") else { return };
    let family: Value = serde_json::from_str(&text).unwrap();
    for case in family["cases"].as_array().unwrap() {
        let id = case["id"].as_str().unwrap();
        println!("case {id}");
        let (given, expect) = (&case["given"], &case["expect"]);
        match given["op"].as_str().unwrap() {
            "pass_at_k" => {
                let arg = |name: &str| given[name].as_u64().unwrap();
                equal(id, pass_at_k(arg("n"), arg("c"), arg("k")), &expect["value"]);
            }
            "mean_stderr" => {
                let mean = mean_of(&values(&given["values"]).into_iter().map(Some).collect::<Vec<_>>());
                equal(id, mean.value, &expect["mean"]);
                equal(id, mean.stderr, &expect["stderr"]);
                if let Some(n) = expect.get("n") {
                    assert_eq!(mean.graded as u64, n.as_u64().unwrap(), "{id}");
                }
            }
            "bootstrap" => bootstrap(id, given, expect),
            "group" => grouped(id, given, expect),
            "median" => equal(id, median(&values(&given["values"])), &expect["value"]),
            "accuracy" => accuracies(id, given, expect),
            "accuracy_rows" => duplicate_rows(id, given, expect),
            "totals" => totalled(id, given, expect),
            "ranking" => {
                let list = |name: &str| -> Vec<String> { serde_json::from_value(given[name].clone()).unwrap() };
                let k = given["k"].as_u64().unwrap() as usize;
                let found = retrieval(&list("retrieved"), &list("relevant"), k);
                equal(id, found.recall, &expect["recall"]);
                equal(id, found.ndcg, &expect["ndcg"]);
                equal(id, found.reciprocal_rank, &expect["mrr"]);
            }
            "lifelong" => {
                let rows: Vec<Vec<f64>> = given["R"].as_array().unwrap().iter().map(values).collect();
                let found = task_matrix(&rows, None);
                equal(id, found.final_accuracy, &expect["average"]);
                equal(id, found.backward, &expect["backward_transfer"]);
                equal(id, found.forgetting, &expect["forgetting"]);
                equal(id, found.forward, &expect["forward"]);
            }
            other => panic!("{id}: no test for the operation {other}"),
        }
    }
}

fn equal(id: &str, found: Option<f64>, expected: &Value) {
    match (found, expected.as_f64()) {
        (None, None) => assert!(expected.is_null(), "{id}: {expected}"),
        (Some(found), Some(expected)) => assert!((found - expected).abs() < 1e-6, "{id}: {found} {expected}"),
        (found, _) => panic!("{id}: found {found:?}, expected {expected}"),
    }
}

fn values(given: &Value) -> Vec<f64> {
    match given.as_str() {
        Some("14 ones, 293 zeros") => [vec![1.0; 14], vec![0.0; 293]].concat(),
        Some(other) => panic!("unknown list {other}"),
        None => given.as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect(),
    }
}

fn bootstrap(id: &str, given: &Value, expect: &Value) {
    let values = values(&given["values"]);
    let resamples = given["resamples"].as_u64().unwrap() as usize;
    let expected = expect["stderr"].as_f64().unwrap();
    let tolerance = expect["tolerance"].as_f64().unwrap();
    for seed in 0..3 {
        let found = Distribution::resampled(&values, Seed(seed), resamples).standard_deviation();
        assert!((found - expected).abs() < tolerance, "{id}: {found}");
    }
    let exact = Distribution::exact(&values).unwrap().standard_deviation();
    assert!((exact - expected).abs() < 1e-6, "{id}: {exact}");
}

fn grouped(id: &str, given: &Value, expect: &Value) {
    let parts: Vec<Part> = given["subtasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| Part {
            mean: part["mean"].as_f64().unwrap(),
            stderr: part["stderr"].as_f64(),
            n: part["n"].as_u64().unwrap() as usize,
        })
        .collect();
    let weights = if given["weights"] == "size" { Weights::Size } else { Weights::Equal };
    let found = group(&parts, weights);
    equal(id, found.value, &expect["mean"]);
    equal(id, found.stderr, &expect["stderr"]);
}

fn score(result: &Value) -> Option<Score> {
    match result.as_str() {
        None => None,
        Some("pass") => Some(Score::Graded(1.0)),
        Some("fail" | "timeout") => Some(Score::Graded(0.0)),
        Some("grader_error") => Some(Score::Ungraded { why: "grader failed".into() }),
        Some(other) => panic!("unknown result {other}"),
    }
}

fn accuracies(id: &str, given: &Value, expect: &Value) {
    let scores: Vec<Option<Score>> = given["results"].as_array().unwrap().iter().map(score).collect();
    let found = accuracy(&scores.iter().map(Option::as_ref).collect::<Vec<_>>());
    equal(id, found.value, &expect["accuracy"]);
    assert_eq!(found.n, scores.len(), "{id}");
    assert_eq!(found.errors as u64, expect["errors"].as_u64().unwrap(), "{id}");
    if let Some(missing) = expect.get("missing") {
        assert_eq!(found.missing as u64, missing.as_u64().unwrap(), "{id}");
    }
    if let Some(excluding) = expect.get("accuracy_excluding_errors") {
        equal(id, found.excluding_errors, excluding);
    }
}

/// Two results of one item are stopped by the store before any metric sees them.
fn duplicate_rows(id: &str, given: &Value, expect: &Value) {
    let folder = tempfile::tempdir().unwrap();
    let manifest = folder.path().join("manifest.json");
    let text = r#"{"run_id":"x","identity":{"format":1,"code":"t","config":{},"data":{},"models":{},"device":"cpu"},
        "instruction_set":"scalar"}"#;
    std::fs::write(manifest, text).unwrap();
    let mut lines = String::new();
    for row in given["rows"].as_array().unwrap() {
        let record = AttemptRecord {
            coord: Coord { stage: row[0].as_str().unwrap().into(), sequence: 0, step: 0, attempt: 0 },
            task: TaskId(row[0].as_str().unwrap().into()),
            attempt: Attempt {
                turns: vec![],
                answer: None,
                ending: Ending::Finished,
                usage: Usage::default(),
                recalled: vec![],
                dropped_memories: 0,
                votes: vec![],
            },
            score: score(&row[2]).unwrap(),
            detail: String::new(),
            memory: None,
            memory_work: Default::default(),
        };
        let text = serde_json::to_string(&record).unwrap();
        let check = &blake3::hash(text.as_bytes()).to_hex()[..16];
        lines += &format!("{{\"record\":{text},\"check\":\"{check}\"}}\n");
    }
    std::fs::write(folder.path().join("attempts.jsonl"), lines).unwrap();
    match RunReader::open(folder.path()).unwrap().records() {
        Err(Error::DuplicateResult { coord, .. }) => assert_eq!(expect["error"]["ids"][0], coord.stage, "{id}"),
        other => panic!("{id}: {:?}", other.map(|found| found.0.len())),
    }
}

fn totalled(id: &str, given: &Value, expect: &Value) {
    let mut log = Vec::new();
    for segment in given["segments"].as_array().unwrap() {
        let samples = segment["samples"].as_u64().unwrap();
        let started = "2026-01-01T10:00:00Z".parse().unwrap();
        log.push(TimingRecord::Segment { started, machine: Machine::default() });
        for sample in 1..=samples {
            let share = sample as f64 / samples as f64;
            log.push(TimingRecord::Unit {
                coord: Coord { stage: "s".into(), sequence: 0, step: 0, attempt: 0 },
                timing: UnitTiming { seconds: 1.0, reused_tokens: segment["tokens"].as_u64().unwrap() / samples },
                at_s: segment["seconds"].as_f64().unwrap() * share,
            });
        }
    }
    let found = totals(&log);
    assert_eq!(found.reused_tokens, expect["tokens"].as_u64().unwrap(), "{id}");
    assert_eq!(found.active_seconds, expect["active_seconds"].as_f64().unwrap(), "{id}");
    assert_eq!(found.units, expect["samples"].as_u64().unwrap(), "{id}");
    assert_eq!(u64::from(found.segments), expect["segments"].as_u64().unwrap(), "{id}");
}
