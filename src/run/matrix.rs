//! The stage `matrix`: zero-shot and one-shot scores of every ordered pair of tasks (PATH-Bench §4.1).
//!
//! S(j | i) shows task i with its reference solution as an earlier turn in front of task j; S(j | nothing) is the
//! baseline of j. Pair and baseline draw with the target's coordinates (common random numbers), so that a gain is a
//! paired difference. The whole stage is handed to the engine at once: its planner orders it by shared prefix.

use std::sync::mpsc;
use std::thread::available_parallelism;
use std::time::Instant;

use anyhow::Context as _;

use super::progress::Progress;
use super::resolve::Resolved;
use super::{dialogue, grade};
use crate::agent::{attempt, prompt};
use crate::config::Headroom;
use crate::engine::generate::Prompter;
use crate::engine::request::{Completion, Request};
use crate::engine::session::Session;
use crate::environment;
use crate::record::{Attempt, AttemptRecord, Coord, MemoryWork, Message, Task, Usage};
use crate::scorer::Grading;
use crate::seed::Seed;
use crate::store::{RunStore, UnitTiming};

/// One attempt of the stage: a target behind a demonstration, or alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    pub demonstration: Option<u32>,
    pub target: u32,
    pub seed: u32,
}

impl Unit {
    pub fn coord(self, model: &str) -> Coord {
        Coord {
            stage: stage_name(model),
            sequence: self.demonstration.map_or(0, |index| index + 1),
            step: self.target,
            attempt: self.seed,
        }
    }

    /// The key of its draws: the target's own, whatever is shown before it.
    pub(super) fn draws(self, resolved: &Resolved) -> Seed {
        Seed(resolved.config.seed).derive("matrix", &[self.target, self.seed])
    }
}

/// What every unit of one model's stage shares.
pub struct Stage<'a> {
    pub resolved: &'a Resolved,
    pub model: &'a str,
    pub session: &'a Session,
    pub store: &'a RunStore,
    pub progress: &'a Progress,
}

/// The stage's name for one model.
pub fn stage_name(model: &str) -> String {
    format!("matrix/{model}")
}

/// Every task alone.
pub fn zero_shot(tasks: u32, seeds: u32) -> Vec<Unit> {
    (0..tasks).flat_map(|target| (0..seeds).map(move |seed| Unit { demonstration: None, target, seed })).collect()
}

/// Every ordered pair of the kept tasks, the diagonal left out.
pub fn one_shot(kept: &[u32], seeds: u32) -> Vec<Unit> {
    let mut units = Vec::new();
    for demonstration in kept {
        for target in kept.iter().filter(|target| *target != demonstration) {
            units.extend((0..seeds).map(|seed| Unit { demonstration: Some(*demonstration), target: *target, seed }));
        }
    }
    units
}

/// The prompt of a unit.
pub fn prompt(resolved: &Resolved, unit: Unit, backbone: &dyn Prompter) -> anyhow::Result<prompt::Prompt> {
    let task = &resolved.task(unit.target).view;
    match unit.demonstration {
        None => prompt::bare(task, backbone),
        Some(index) => {
            let shown = resolved.task(index);
            prompt::behind(task, &environment::of(&shown.view).demonstration(shown)?, backbone)
        }
    }
}

/// Units whose prompts are in memory at once: enough that the batch, which empties at the end of a round, is full nearly
/// always.
const ROUND: usize = 8192;

/// Attempts, grades and stores the units that the store does not hold yet, in rounds, so that a plan of any length needs
/// the memory of one.
///
/// # Errors
/// When the engine or the store fails. A request that the engine refuses names its unit.
pub fn run(stage: &Stage<'_>, units: &[Unit]) -> anyhow::Result<()> {
    let is_single = |unit: &Unit| environment::is_single_reply(&stage.resolved.task(unit.target).view);
    let (single, dialogues): (Vec<Unit>, Vec<Unit>) = units.iter().copied().partition(is_single);
    single.chunks(ROUND).try_for_each(|units| run_round(stage, units))?;
    dialogue::run(stage, &dialogues)
}

/// Grading runs on threads of its own while the engine goes on.
fn run_round(stage: &Stage<'_>, units: &[Unit]) -> anyhow::Result<()> {
    let Stage { resolved, model, session, store, progress } = *stage;
    let grading = &resolved.grading;
    let mut todo: Vec<(Unit, Vec<Message>)> = Vec::new();
    let mut requests: Vec<Request> = Vec::new();
    let sampling = &resolved.config.sampling;
    for unit in units.iter().copied().filter(|unit| !store.has(&unit.coord(model))) {
        let task = resolved.task(unit.target);
        let built = prompt(resolved, unit, session).with_context(|| format!("prompt of task {}", task.id()))?;
        if built.tokens.len() + sampling.max_tokens > session.context() {
            let record = graded(task, unit.coord(model), attempt::over_context(&built.messages), grading);
            store.append(record)?;
            progress.done(Usage::default());
            continue;
        }
        let seed = unit.draws(resolved).0;
        requests.push(Request { tokens: built.tokens, sampling: sampling.clone(), seed });
        todo.push((unit, built.messages));
    }

    let (finished, to_grade) = mpsc::channel::<(usize, Completion, f64)>();
    let to_grade = std::sync::Mutex::new(to_grade);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..available_parallelism().map_or(1, usize::from))
            .map(|_| {
                scope.spawn(|| -> anyhow::Result<()> {
                    loop {
                        let next = to_grade.lock().ok().and_then(|queue| queue.recv().ok());
                        let Some((index, completion, seconds)) = next else { return Ok(()) };
                        let (unit, prompt) = &todo[index];
                        let task = resolved.task(unit.target);
                        let attempt = attempt::single_turn(&task.view, prompt, &completion);
                        let usage = attempt.usage;
                        let record = graded(task, unit.coord(model), attempt, grading);
                        let coord = record.coord.clone();
                        store.append(record)?;
                        store.note(&coord, UnitTiming { seconds, reused_tokens: completion.usage.reused as u64 });
                        progress.done(usage);
                    }
                })
            })
            .collect();
        let started = Instant::now();
        let mut outcome = Ok(());
        for (index, completion) in session.complete_all(requests) {
            let place = || format!("{}", todo[index].0.coord(model));
            match completion.with_context(place) {
                Ok(completion) => {
                    // Fails when every grader is gone; its own error says why.
                    if finished.send((index, completion, started.elapsed().as_secs_f64())).is_err() {
                        break;
                    }
                }
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        drop(finished);
        for worker in workers {
            let graded =
                worker.join().unwrap_or_else(|_| anyhow::bail!("a grader panicked: this is a bug in lifelong"));
            outcome = outcome.and(graded);
        }
        outcome
    })
}

pub(super) fn graded(task: &Task, coord: Coord, attempt: Attempt, grading: &Grading) -> AttemptRecord {
    let (score, detail) = grade::grade(task, &attempt, grading);
    AttemptRecord {
        coord,
        task: task.id().clone(),
        attempt,
        score,
        detail,
        memory: None,
        memory_work: MemoryWork::default(),
    }
}

/// The tasks whose mean zero-shot score over models and seeds lies in the range, ascending. Tasks of which nothing
/// could be graded are left out.
pub fn headroom(records: &[AttemptRecord], models: &[String], tasks: u32, range: Option<Headroom>) -> Vec<u32> {
    let Some(Headroom { min, max }) = range else {
        return (0..tasks).collect();
    };
    let stages: Vec<String> = models.iter().map(|model| stage_name(model)).collect();
    let mut sums = vec![(0.0, 0u32); tasks as usize];
    for record in records {
        let is_baseline = record.coord.sequence == 0 && stages.contains(&record.coord.stage);
        if let (true, Some(grade)) = (is_baseline, record.score.graded()) {
            let (sum, count) = &mut sums[record.coord.step as usize];
            *sum += grade;
            *count += 1;
        }
    }
    (0..tasks)
        .filter(|task| {
            let (sum, count) = sums[*task as usize];
            count > 0 && (min..=max).contains(&(sum / f64::from(count)))
        })
        .collect()
}
