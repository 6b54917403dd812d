//! What the tests of the code benchmarks share: the data folder, one attempt, many scores at once.

#![allow(dead_code, reason = "each test program uses its part")]

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use lifelong::benchmark::{self, Selection};
use lifelong::record::{Attempt, Ending, Message, Role, Score, Task, Usage};
use lifelong::sandbox::Launcher;
use lifelong::scorer::{self, Grading};

/// A file of the shared folder (`LIFELONG_SHARED`, or `shared` beside the repository), or one line saying it is absent.
pub fn shared(path: &str) -> Option<PathBuf> {
    let root = std::env::var_os("LIFELONG_SHARED")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    let path = root.join(path);
    if !path.exists() {
        println!("skipped: {} is absent; set LIFELONG_SHARED to the folder that holds it", path.display());
        return None;
    }
    Some(path)
}

pub fn tasks(benchmark: &str, path: PathBuf, options: &str) -> Vec<Task> {
    let selection = Selection { path: Some(path), options: options.parse().unwrap() };
    benchmark::find(benchmark).unwrap().load(&selection).unwrap().tasks
}

pub fn attempt(reply: &str) -> Attempt {
    Attempt {
        turns: vec![Message::new(Role::User, "question"), Message::new(Role::Assistant, reply)],
        answer: None,
        ending: Ending::Finished,
        usage: Usage::default(),
        recalled: Vec::new(),
        dropped_memories: 0,
        votes: Vec::new(),
    }
}

pub fn score(task: &Task, reply: &str) -> (Score, String) {
    Launcher::of_binary(env!("CARGO_BIN_EXE_lifelong")).use_for_process();
    let scorer = scorer::find("unit_tests").unwrap();
    scorer.check(&task.reference).unwrap();
    scorer.score(task, &attempt(reply), &Grading::default()).unwrap()
}

/// Calls a function with every item, on several threads because test runs mostly wait; results in the order of items.
pub fn in_parallel<T: Sync, R: Send>(items: &[T], call: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = 3 * std::thread::available_parallelism().map_or(2, usize::from);
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.min(items.len()) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else { return };
                    let result = call(item);
                    results.lock().unwrap().push((index, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap();
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}
