//! Records and plans put into a run folder by hand, for reports whose numbers can be computed on paper.

use lifelong::record::{Attempt, AttemptRecord, Coord, Ending, Score, TaskId, Usage};
use lifelong::store::RunStore;

/// In place of a score: the attempt could not be graded.
pub const UNGRADED: f64 = -1.0;

/// A record of ten prompt tokens and two generated ones, without a memory.
pub fn record(stage: &str, (sequence, step, attempt): (u32, u32, u32), score: f64) -> AttemptRecord {
    let score = if score == UNGRADED { Score::Ungraded { why: "no sandbox".into() } } else { Score::Graded(score) };
    AttemptRecord {
        coord: Coord { stage: stage.into(), sequence, step, attempt },
        task: TaskId("set/a".into()),
        attempt: Attempt {
            turns: vec![],
            answer: None,
            ending: Ending::Finished,
            usage: Usage { prompt_tokens: 10, generated_tokens: 2 },
            recalled: vec![],
            dropped_memories: 0,
            votes: vec![],
        },
        score,
        detail: String::new(),
        memory: None,
        memory_work: Default::default(),
    }
}

pub fn put(store: &RunStore, name: &str, plan: &impl serde::Serialize) {
    store.put_once(name, &serde_json::to_vec(plan).unwrap()).unwrap();
}
