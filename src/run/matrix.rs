//! The stage `matrix`: zero-shot and one-shot scores of every ordered pair of tasks (PATH-Bench §4.1).
//!
//! S(j | i) shows task i with its reference solution as an earlier turn in front of task j; S(j | nothing) is the
//! baseline of j. Pair and baseline draw with the target's coordinates (common random numbers), so that a gain is a
//! paired difference. The whole stage is handed to the engine at once: its planner orders it by shared prefix.

use std::time::Instant;

use anyhow::Context as _;

use super::beside::beside;
use super::progress::Progress;
use super::resolve::Resolved;
use super::{dialogue, grade};
use crate::agent::{attempt, prompt};
use crate::engine::generate::Prompter;
use crate::engine::request::{Completion, Request};
use crate::engine::session::Session;
use crate::environment;
use crate::record::{Attempt, AttemptRecord, Coord, MemoryWork, Message, Task};
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

/// Each of the tasks alone.
pub fn zero_shot(tasks: &[u32], seeds: u32) -> Vec<Unit> {
    let unit = |target, seed| Unit { demonstration: None, target, seed };
    tasks.iter().flat_map(|target| (0..seeds).map(move |seed| unit(*target, seed))).collect()
}

/// Every ordered pair of the kept tasks, the diagonal left out.
pub fn one_shot(kept: &[u32], seeds: u32) -> Vec<Unit> {
    let pairs = pairs(kept).into_iter();
    let unit = |(demonstration, target), seed| Unit { demonstration: Some(demonstration), target, seed };
    pairs.flat_map(|pair| (0..seeds).map(move |seed| unit(pair, seed))).collect()
}

/// Demonstration and target of every ordered pair.
pub fn pairs(kept: &[u32]) -> Vec<(u32, u32)> {
    let others = |demonstration: u32| kept.iter().copied().filter(move |target| *target != demonstration);
    kept.iter().flat_map(|source| others(*source).map(move |target| (*source, target))).collect()
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
pub(super) const ROUND: usize = 8192;

/// Attempts, grades and stores the units that the store does not hold yet, in rounds, so that a plan of any length needs
/// the memory of one.
///
/// # Errors
/// When the engine or the store fails. A request that the engine refuses names its unit.
pub fn run(stage: &Stage<'_>, units: &[Unit]) -> anyhow::Result<()> {
    let (single, dialogues): (Vec<Unit>, Vec<Unit>) = units.iter().copied().partition(|unit| is_single(stage, *unit));
    single.chunks(ROUND).try_for_each(|units| run_round(stage, units))?;
    dialogue::run(stage, &dialogues)
}

/// Grading runs on threads of its own while the engine goes on.
fn run_round(stage: &Stage<'_>, units: &[Unit]) -> anyhow::Result<()> {
    let Stage { model, session, store, .. } = *stage;
    let mut todo: Vec<(Unit, Vec<Message>)> = Vec::new();
    let mut requests: Vec<Request> = Vec::new();
    for unit in units.iter().copied().filter(|unit| !store.has(&unit.coord(model))) {
        match ask(stage, unit)? {
            Asked::Request(request, messages) => {
                requests.push(*request);
                todo.push((unit, messages));
            }
            Asked::OverContext(record) => keep(stage, *record, None)?,
        }
    }
    let started = Instant::now();
    let completions = session.complete_all(requests).map(|(index, completion)| {
        let completion = completion.with_context(|| todo[index].0.coord(model).to_string())?;
        Ok((index, completion, started.elapsed().as_secs_f64()))
    });
    beside(completions, |(index, completion, seconds)| {
        let (unit, prompt) = &todo[index];
        grade_and_keep(stage, *unit, prompt, &completion, seconds).map(drop)
    })
}

/// Whether one reply ends the attempt.
fn is_single(stage: &Stage<'_>, unit: Unit) -> bool {
    environment::is_single_reply(&stage.resolved.task(unit.target).view)
}

/// What is asked of the engine for one unit.
enum Asked {
    Request(Box<Request>, Vec<Message>),
    /// Prompt and longest reply do not fit the context: the record says so.
    OverContext(Box<AttemptRecord>),
}

fn ask(stage: &Stage<'_>, unit: Unit) -> anyhow::Result<Asked> {
    let Stage { resolved, model, session, .. } = *stage;
    let (task, sampling) = (resolved.task(unit.target), &resolved.config.sampling);
    let built = prompt(resolved, unit, session).with_context(|| format!("prompt of task {}", task.id()))?;
    if built.tokens.len() + sampling.max_tokens > session.context() {
        let attempt = attempt::over_context(&built.messages);
        return Ok(Asked::OverContext(Box::new(graded(task, unit.coord(model), attempt, &resolved.grading))));
    }
    // The target's coordinates alone: common random numbers.
    let seed = unit.draws(resolved).0;
    let request = Request { tokens: built.tokens, sampling: sampling.clone(), seed };
    Ok(Asked::Request(Box::new(request), built.messages))
}

/// Attempts, grades and stores one unit that the store does not hold, and waits for it.
///
/// # Errors
/// When the engine or the store fails.
pub fn attempt_one(stage: &Stage<'_>, unit: Unit) -> anyhow::Result<AttemptRecord> {
    if !is_single(stage, unit) {
        return dialogue::play(stage, unit);
    }
    let started = Instant::now();
    match ask(stage, unit)? {
        Asked::Request(request, prompt) => {
            let place = || unit.coord(stage.model).to_string();
            let completion = stage.session.complete(*request).with_context(place)?;
            grade_and_keep(stage, unit, &prompt, &completion, started.elapsed().as_secs_f64())
        }
        Asked::OverContext(record) => {
            keep(stage, (*record).clone(), None)?;
            Ok(*record)
        }
    }
}

fn grade_and_keep(
    stage: &Stage<'_>,
    unit: Unit,
    prompt: &[Message],
    completion: &Completion,
    seconds: f64,
) -> anyhow::Result<AttemptRecord> {
    let task = stage.resolved.task(unit.target);
    let attempt = attempt::single_turn(&task.view, prompt, completion);
    let record = graded(task, unit.coord(stage.model), attempt, &stage.resolved.grading);
    let reused_tokens = completion.usage.reused as u64;
    keep(stage, record.clone(), Some(UnitTiming { seconds, reused_tokens }))?;
    Ok(record)
}

/// Stores a record; one that asked the engine for nothing has no timing.
pub(super) fn keep(stage: &Stage<'_>, record: AttemptRecord, timing: Option<UnitTiming>) -> anyhow::Result<()> {
    let (coord, usage) = (record.coord.clone(), record.attempt.usage);
    stage.store.append(record)?;
    if let Some(timing) = timing {
        stage.store.note(&coord, timing);
    }
    stage.progress.done(usage);
    Ok(())
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
