//! The published solutions of BigCodeBench pass through our scorer, and broken ones do not.

mod code_benchmarks;

use std::collections::BTreeMap;

use code_benchmarks::{in_parallel, score, shared, tasks};
use lifelong::record::{Score, Task};

const DATA: &str = "data/bigcodebench/bigcodebench-v0.1.4.jsonl.gz";
const STATUS: &str = "data/bigcodebench/stdlib_reference_status.json";

/// Tasks whose published solution passes under CPython 3.11 with nothing installed, longest first.
fn passing(options: &str) -> Option<Vec<Task>> {
    let (data, status) = (shared(DATA)?, shared(STATUS)?);
    let status: serde_json::Value = serde_json::from_slice(&std::fs::read(status).unwrap()).unwrap();
    let results = status["results"].as_array().unwrap();
    let seconds: BTreeMap<String, f64> = results
        .iter()
        .filter(|result| result["status"] == "pass")
        .map(|result| {
            let id = result["task_id"].as_str().unwrap().rsplit('/').next().unwrap();
            (format!("bigcodebench/{id}"), result["seconds"].as_f64().unwrap())
        })
        .collect();
    assert_eq!(seconds.len(), 290);
    let mut chosen = tasks("bigcodebench", data, options);
    chosen.retain(|task| seconds.contains_key(&task.id().0));
    chosen.sort_by(|one, other| seconds[&other.id().0].total_cmp(&seconds[&one.id().0]));
    assert_eq!(chosen.len(), 290);
    Some(chosen)
}

#[test]
fn published_solutions_of_the_standard_library_tasks_pass() {
    let Some(tasks) = passing("") else { return };
    let scores = in_parallel(&tasks, |task| score(task, &task.reference.solution));
    let failed: Vec<String> = tasks
        .iter()
        .zip(&scores)
        .filter(|(_, (score, _))| *score != Score::Graded(1.0))
        .map(|(task, (score, detail))| format!("{}: {score:?} {detail}", task.id()))
        .collect();
    assert!(failed.is_empty(), "{} of {} fail:\n{}", failed.len(), tasks.len(), failed.join("\n"));
}
