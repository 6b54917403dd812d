//! Whether the reference solutions of a code benchmark pass on this machine.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;

use anyhow::Context as _;

use crate::record::{Attempt, Ending, Message, Role, Score, Task, Usage};
use crate::scorer::{self, Grading};

/// A task and why its reference does not pass; `None` where it does.
type Checked = anyhow::Result<Option<(String, String)>>;

/// Tasks whose reference does not pass, and why.
///
/// # Errors
/// When programs cannot be run at all: no sandbox, no interpreter.
pub fn failing(tasks: &[Task], allow_missing_isolation: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    let grading = Grading { allow_missing_isolation: allow_missing_isolation.to_vec() };
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Checked>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let fault = fault(task, &grading).with_context(|| format!("reference of {}", task.id()));
                    let found = fault.map(|fault| fault.map(|fault| (task.id().0.clone(), fault)));
                    let stops = found.is_err();
                    if let Ok(mut results) = results.lock() {
                        results.push(found);
                        if results.len() % 50 == 0 {
                            eprintln!("  {} of {}", results.len(), tasks.len());
                        }
                    }
                    if stops {
                        next.store(tasks.len(), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let results = results.into_inner().map_err(|_| anyhow::anyhow!("a check panicked: this is a bug in lifelong"))?;
    results.into_iter().filter_map(Result::transpose).collect()
}

fn fault(task: &Task, grading: &Grading) -> anyhow::Result<Option<String>> {
    let attempt = Attempt {
        turns: vec![Message::new(Role::Assistant, task.reference.solution.as_str())],
        answer: None,
        ending: Ending::Finished,
        usage: Usage::default(),
        recalled: Vec::new(),
        dropped_memories: 0,
        votes: Vec::new(),
    };
    let (score, detail) = scorer::find(&task.reference.scorer)?.score(task, &attempt, grading)?;
    Ok(match score {
        Score::Graded(1.0) => None,
        _ => Some(detail.split("; python ").next().unwrap_or(&detail).to_string()),
    })
}
