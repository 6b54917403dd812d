//! The stage `matrix`: zero-shot and one-shot scores of every ordered pair of tasks (PATH-Bench §4.1).
//!
//! S(j | i) shows task i with its reference solution as an earlier turn in front of task j; S(j | nothing) is the
//! baseline of j. Pair and baseline draw with the target's coordinates (common random numbers), so that a gain is a
//! paired difference. The whole stage is handed to the engine at once: its planner orders it by shared prefix.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::thread::available_parallelism;
use std::time::Instant;

use anyhow::Context as _;

use super::grade;
use super::progress::Progress;
use super::resolve::Resolved;
use crate::agent::{attempt, prompt};
use crate::config::Headroom;
use crate::engine::generate::Prompter;
use crate::engine::request::{Completion, Request};
use crate::engine::session::Session;
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
}

/// One attempt behind any number of demonstrations: what the stages `matrix` and `multi_task` are made of. It draws with
/// its target's coordinates alone, whatever stands in front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shot {
    pub coord: Coord,
    /// Pool indices of the demonstrations, in the order shown.
    pub shown: Vec<u32>,
    pub target: u32,
    pub seed: u32,
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
    prompt_behind(resolved, unit.demonstration.as_slice(), unit.target, backbone)
}

/// The prompt of a target behind demonstrations.
pub fn prompt_behind(
    resolved: &Resolved,
    shown: &[u32],
    target: u32,
    backbone: &dyn Prompter,
) -> anyhow::Result<prompt::Prompt> {
    let task = &resolved.task(target).view;
    let pair = |index: &u32| {
        let shown = resolved.task(*index);
        (shown.view.question.as_str(), shown.reference.solution.as_str())
    };
    match shown.iter().map(pair).collect::<Vec<_>>().as_slice() {
        [] => prompt::bare(task, backbone),
        pairs => prompt::with_demonstrations(task, pairs, backbone),
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
    run_shots(stage, units, |unit| Shot {
        coord: unit.coord(stage.model),
        shown: unit.demonstration.into_iter().collect(),
        target: unit.target,
        seed: unit.seed,
    })
}

/// As [`run`], of any units that are shots.
///
/// # Errors
/// As [`run`].
pub fn run_shots<U>(stage: &Stage<'_>, units: &[U], shot: impl Fn(&U) -> Shot) -> anyhow::Result<()> {
    units.chunks(ROUND).try_for_each(|units| run_round(stage, units.iter().map(&shot)))
}

/// Grading runs on threads of its own while the engine goes on.
fn run_round(stage: &Stage<'_>, units: impl Iterator<Item = Shot>) -> anyhow::Result<()> {
    let Stage { resolved, session, store, progress, .. } = *stage;
    let grading = &resolved.grading;
    let mut todo: Vec<(Shot, Vec<Message>)> = Vec::new();
    let mut requests: Vec<Request> = Vec::new();
    let sampling = &resolved.config.sampling;
    for unit in units.filter(|unit| !store.has(&unit.coord)) {
        let task = resolved.task(unit.target);
        let built = prompt_behind(resolved, &unit.shown, unit.target, session)
            .with_context(|| format!("prompt of task {}", task.id()))?;
        if built.tokens.len() + sampling.max_tokens > session.context() {
            let record = graded(task, unit.coord, attempt::over_context(&built.messages), grading);
            store.append(record)?;
            progress.done(Usage::default());
            continue;
        }
        let seed = Seed(resolved.config.seed).derive("matrix", &[unit.target, unit.seed]).0;
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
                        let record = graded(task, unit.coord.clone(), attempt, grading);
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
            let place = || format!("{}", todo[index].0.coord);
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

fn graded(task: &Task, coord: Coord, attempt: Attempt, grading: &Grading) -> AttemptRecord {
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

/// The tasks whose mean zero-shot score over strong models and seeds lies in the range, ascending. Tasks of which nothing
/// could be graded are left out.
pub fn headroom(records: &[AttemptRecord], models: &[String], tasks: u32, range: Option<&Headroom>) -> Vec<u32> {
    let Some(Headroom { min, max, models: strong }) = range else {
        return (0..tasks).collect();
    };
    let strong = if strong.is_empty() { models } else { strong };
    let stages: Vec<String> = strong.iter().map(|model| stage_name(model)).collect();
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
            count > 0 && (*min..=*max).contains(&(sum / f64::from(count)))
        })
        .collect()
}

/// At most `limit` of the tasks, ascending, so that every family keeps its share: families in the order of their first
/// task take seats by largest remainder (the earlier family where remainders are equal), and each family's seats go to
/// tasks drawn with the run's seed. `family` is a task's group; tasks without one are a group of their own.
pub fn stratified(kept: &[u32], limit: Option<u32>, family: impl Fn(u32) -> Option<String>, seed: Seed) -> Vec<u32> {
    let Some(limit) = limit.map(|limit| limit as usize).filter(|limit| *limit < kept.len()) else {
        return kept.to_vec();
    };
    let mut first: BTreeMap<Option<String>, usize> = BTreeMap::new();
    let mut groups: Vec<Vec<u32>> = Vec::new();
    for task in kept {
        let place = *first.entry(family(*task)).or_insert(groups.len());
        if place == groups.len() {
            groups.push(Vec::new());
        }
        groups[place].push(*task);
    }
    let share = |group: &Vec<u32>| group.len() * limit;
    let mut seats: Vec<usize> = groups.iter().map(|group| share(group) / kept.len()).collect();
    let mut by_remainder: Vec<usize> = (0..groups.len()).collect();
    by_remainder.sort_by_key(|place| (std::cmp::Reverse(share(&groups[*place]) % kept.len()), *place));
    let left = limit - seats.iter().sum::<usize>();
    by_remainder.into_iter().take(left).for_each(|place| seats[place] += 1);
    let mut drawn: Vec<u32> = Vec::with_capacity(limit);
    for ((mut group, seats), place) in groups.into_iter().zip(seats).zip(0u32..) {
        seed.derive("stratum", &[place]).stream().shuffle(&mut group);
        drawn.extend(group.into_iter().take(seats));
    }
    drawn.sort_unstable();
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_keeps_the_shares_of_families() {
        let kept: Vec<u32> = (0..30).collect();
        let family = |task: u32| Some(if task < 20 { "large" } else { "small" }.to_string());
        let drawn = stratified(&kept, Some(9), family, Seed(4));
        assert_eq!((drawn.len(), drawn.iter().filter(|task| **task < 20).count()), (9, 6));
        assert!(drawn.windows(2).all(|pair| pair[0] < pair[1]), "{drawn:?}");
        assert_eq!(drawn, stratified(&kept, Some(9), family, Seed(4)));
        assert_ne!(drawn, stratified(&kept, Some(9), family, Seed(5)));
        assert_eq!(stratified(&kept, Some(30), family, Seed(4)), kept);
        assert_eq!(stratified(&kept, None, family, Seed(4)), kept);
    }

    /// 3 of (4, 2, 1): shares 12/7, 6/7, 3/7 take one seat, and two seats go by remainder 6/7, 5/7.
    #[test]
    fn seats_go_by_largest_remainder() {
        let kept: Vec<u32> = (0..7).collect();
        let family = |task: u32| Some(match task {
            0..4 => "a",
            4..6 => "b",
            _ => "c",
        }.to_string());
        let drawn = stratified(&kept, Some(3), family, Seed(1));
        let count = |range: std::ops::Range<u32>| drawn.iter().filter(|task| range.contains(task)).count();
        assert_eq!((count(0..4), count(4..6), count(6..7)), (2, 1, 0));
    }
}
