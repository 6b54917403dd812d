//! Matrix units whose attempts take many replies: tool dialogues.
//!
//! A dialogue cannot be handed to the engine at once, since what is asked next depends on what was replied. Many are
//! played at the same time, each a plain loop on a thread that waits in the engine beside the others. They are started
//! in the order of the plan, so those behind one demonstration run together and share its cache.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::Context as _;

use super::matrix::{self, Stage, Unit};
use crate::agent::{Agent, converse};
use crate::environment;
use crate::policy;
use crate::record::AttemptRecord;
use crate::store::UnitTiming;

/// Attempts, grades and stores the units that the store does not hold yet.
///
/// # Errors
/// The first unit that cannot be done, with its place; the others end with the one they are at. What was stored stays.
pub fn run(stage: &Stage<'_>, units: &[Unit]) -> anyhow::Result<()> {
    let todo: Vec<Unit> = units.iter().copied().filter(|unit| !stage.store.has(&unit.coord(stage.model))).collect();
    // More dialogues than rows, so that the batch stays full while some are graded.
    let threads = (2 * stage.resolved.config.engine.max_batch).min(todo.len());
    let next = AtomicUsize::new(0);
    let failure: Mutex<Option<anyhow::Error>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(unit) = todo.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if failure.lock().map_or(true, |failure| failure.is_some()) {
                        return;
                    }
                    if let Err(error) = play(stage, *unit) {
                        let place = unit.coord(stage.model).to_string();
                        if let Ok(mut failure) = failure.lock() {
                            failure.get_or_insert(error.context(place));
                        }
                    }
                }
            });
        }
    });
    match failure.into_inner() {
        Ok(None) => Ok(()),
        Ok(Some(error)) => Err(error),
        Err(_) => anyhow::bail!("a dialogue panicked: this is a bug in lifelong"),
    }
}

/// Attempts, grades and stores one unit, and waits for it.
///
/// # Errors
/// When the engine or the store fails.
pub(super) fn play(stage: &Stage<'_>, unit: Unit) -> anyhow::Result<AttemptRecord> {
    let started = Instant::now();
    let resolved = stage.resolved;
    let task = resolved.task(unit.target);
    let built =
        matrix::prompt(resolved, unit, stage.session).with_context(|| format!("prompt of task {}", task.id()))?;
    let agent = Agent {
        policy: policy::find("single")?,
        sampling: &resolved.config.sampling,
        max_memory_tokens: None,
        max_turns: environment::of(&task.view).most_replies(task)?,
    };
    let (attempt, reused_tokens) = converse(&agent, task, built, Vec::new(), unit.draws(resolved), stage.session)?;
    let record = matrix::graded(task, unit.coord(stage.model), attempt, &resolved.grading);
    let timing = UnitTiming { seconds: started.elapsed().as_secs_f64(), reused_tokens };
    matrix::keep(stage, record.clone(), Some(timing))?;
    Ok(record)
}
