//! The published solutions of HumanEval pass through our scorer.

mod code_benchmarks;

use code_benchmarks::{in_parallel, score, shared, tasks};
use lifelong::record::Score;

#[test]
fn published_solutions_pass() {
    let Some(data) = shared("data/humaneval/HumanEval.jsonl.gz") else { return };
    let tasks = tasks("humaneval", data, "");
    assert_eq!(tasks.len(), 164);
    let scores = in_parallel(&tasks, |task| score(task, &task.reference.solution));
    let failed: Vec<String> = tasks
        .iter()
        .zip(&scores)
        .filter(|(_, (score, _))| *score != Score::Graded(1.0))
        .map(|(task, (score, detail))| format!("{}: {score:?} {detail}", task.id()))
        .collect();
    assert!(failed.is_empty(), "{} of {} fail:\n{}", failed.len(), tasks.len(), failed.join("\n"));
}
