//! The stage `multi_task`: does the direction that single demonstrations voted hold when several stand together?
//! (PATH-Bench, appendix B; figure 7.)
//!
//! In front of each target stand N tasks that help it, N that mislead it, or any N. What the paper leaves open, and what
//! is done here: targets are drawn with the run's seed among the tasks with at least one positive and one negative
//! source; prefixes are drawn independently of each other, within one a task returns only after its set ran out, and a
//! random prefix may hold any task of the pool but the target. The backbone is the first of the run, the seeds and the
//! baseline are those of its matrix.

use std::time::Instant;

use anyhow::{Context as _, ensure};

use super::beside::beside;
use super::grade;
use super::matrix::Stage;
use super::order::{Deck, Sources};
use super::resolve::Resolved;
use crate::agent::{attempt, prompt};
use crate::config::MultiTaskConfig;
use crate::engine::generate::Prompter;
use crate::engine::request::Request;
use crate::record::experiment::{MultiTaskPlan, PrefixKind, PrefixPlan};
use crate::record::plan::{PoolPlan, Relations};
use crate::record::{Attempt, AttemptRecord, Coord, MemoryWork, Message, Usage};
use crate::seed::Seed;
use crate::store::UnitTiming;

/// One attempt at a target behind a prefix. It draws with its target's coordinates alone, like the target's zero-shot
/// attempt in the matrix: their difference is a paired one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shot {
    pub coord: Coord,
    /// Pool indices of the demonstrations, in the order shown.
    pub shown: Vec<u32>,
    pub target: u32,
    pub seed: u32,
}

/// Draws targets and prefixes.
///
/// # Errors
/// When no task has both positive and negative sources.
pub fn plan(
    config: &MultiTaskConfig,
    pool: &PoolPlan,
    relations: &Relations,
    seed: Seed,
) -> anyhow::Result<MultiTaskPlan> {
    let mut candidates = pool.kept.clone();
    seed.derive("targets", &[]).stream().shuffle(&mut candidates);
    let mut targets: Vec<(u32, Sources)> = candidates
        .into_iter()
        .map(|task| (task, Sources::of(task, relations, &pool.kept)))
        .filter(|(_, sources)| !sources.positive.is_empty() && !sources.negative.is_empty())
        .take(config.targets as usize)
        .collect();
    ensure!(
        !targets.is_empty(),
        "no task of the pool of {} has both a positive and a negative source, so `[multi_task]` has no target\n\
         hint: use more tasks (`benchmark.limit`, `matrix.headroom`) or more `matrix.seeds`",
        pool.kept.len()
    );
    targets.sort_by_key(|(task, _)| *task);
    let mut prefixes = Vec::new();
    for kind in PrefixKind::ALL {
        for length in &config.lengths {
            for ((task, sources), target) in targets.iter().zip(0u32..) {
                let from = match kind {
                    PrefixKind::Positive => sources.positive.clone(),
                    PrefixKind::Negative => sources.negative.clone(),
                    PrefixKind::Random => pool.kept.iter().copied().filter(|other| other != task).collect(),
                };
                for sequence in 0..config.sequences {
                    let mut stream = seed.derive(kind.as_str(), &[*length, *task, sequence]).stream();
                    let mut deck = Deck::new(&from, &[], &mut stream);
                    let shown = (0..*length).map(|_| deck.draw(&mut stream)).collect();
                    prefixes.push(PrefixPlan { kind, target, sequence, shown });
                }
            }
        }
    }
    Ok(MultiTaskPlan {
        model: pool.models[0].clone(),
        seeds: pool.seeds,
        lengths: config.lengths.clone(),
        targets: targets.into_iter().map(|(task, _)| task).collect(),
        sequences: config.sequences,
        prefixes,
    })
}

/// Every attempt of the plan.
pub fn shots(plan: &MultiTaskPlan) -> Vec<Shot> {
    let attempts = |prefix: &PrefixPlan| {
        let target = plan.targets[prefix.target as usize];
        let stage = MultiTaskPlan::stage(prefix.kind, prefix.shown.len() as u32);
        let (sequence, shown) = (plan.sequence_of(prefix), prefix.shown.clone());
        (0..plan.seeds)
            .map(move |seed| Shot {
                coord: Coord { stage: stage.clone(), sequence, step: target, attempt: seed },
                shown: shown.clone(),
                target,
                seed,
            })
            .collect::<Vec<_>>()
    };
    plan.prefixes.iter().flat_map(attempts).collect()
}

/// The prompt of a target behind a prefix of demonstrations.
pub fn prompt(
    resolved: &Resolved,
    shown: &[u32],
    target: u32,
    backbone: &dyn Prompter,
) -> anyhow::Result<prompt::Prompt> {
    let pair = |index: &u32| {
        let shown = resolved.task(*index);
        (shown.view.question.as_str(), shown.reference.solution.as_str())
    };
    let pairs: Vec<(&str, &str)> = shown.iter().map(pair).collect();
    prompt::with_demonstrations(&resolved.task(target).view, &pairs, backbone)
}

/// Attempts, grades and stores the shots that the store does not hold yet, in rounds.
///
/// # Errors
/// When the engine or the store fails. A request that the engine refuses names its shot.
pub fn run(stage: &Stage<'_>, shots: &[Shot]) -> anyhow::Result<()> {
    shots.chunks(ROUND).try_for_each(|shots| run_round(stage, shots))
}

/// Shots whose prompts are in memory at once; a prompt of twelve demonstrations is long.
const ROUND: usize = 2048;

fn run_round(stage: &Stage<'_>, shots: &[Shot]) -> anyhow::Result<()> {
    let Stage { resolved, session, store, progress, .. } = *stage;
    let sampling = &resolved.config.sampling;
    let mut todo: Vec<(&Shot, Vec<Message>)> = Vec::new();
    let mut requests: Vec<Request> = Vec::new();
    for shot in shots.iter().filter(|shot| !store.has(&shot.coord)) {
        let built = prompt(resolved, &shot.shown, shot.target, session).with_context(|| shot.coord.to_string())?;
        if built.tokens.len() + sampling.max_tokens > session.context() {
            store.append(graded(resolved, shot, attempt::over_context(&built.messages)))?;
            progress.done(Usage::default());
            continue;
        }
        let seed = Seed(resolved.config.seed).derive("matrix", &[shot.target, shot.seed]).0;
        requests.push(Request { tokens: built.tokens, sampling: sampling.clone(), seed });
        todo.push((shot, built.messages));
    }
    let started = Instant::now();
    let completions = session.complete_all(requests).map(|(index, completion)| {
        let completion = completion.with_context(|| todo[index].0.coord.to_string())?;
        Ok((index, completion, started.elapsed().as_secs_f64()))
    });
    beside(completions, |(index, completion, seconds)| {
        let (shot, prompt) = &todo[index];
        let attempt = attempt::single_turn(&resolved.task(shot.target).view, prompt, &completion);
        let usage = attempt.usage;
        store.append(graded(resolved, shot, attempt))?;
        store.note(&shot.coord, UnitTiming { seconds, reused_tokens: completion.usage.reused as u64 });
        progress.done(usage);
        Ok(())
    })
}

fn graded(resolved: &Resolved, shot: &Shot, attempt: Attempt) -> AttemptRecord {
    let task = resolved.task(shot.target);
    let (score, detail) = grade::grade(task, &attempt, &resolved.grading);
    AttemptRecord {
        coord: shot.coord.clone(),
        task: task.id().clone(),
        attempt,
        score,
        detail,
        memory: None,
        memory_work: MemoryWork::default(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::record::TaskId;
    use crate::record::plan::{PoolTask, Relation};

    fn pool(tasks: u32) -> PoolPlan {
        let task = |_| PoolTask { id: TaskId("t".into()), family: None };
        let tasks: Vec<PoolTask> = (0..tasks).map(task).collect();
        PoolPlan { kept: (0..tasks.len() as u32).collect(), tasks, models: vec!["m".into()], seeds: 2 }
    }

    /// Even sources help and odd ones mislead every target but task 3, which nothing helps.
    fn relations(tasks: usize) -> Relations {
        let mut square = Relations::undecided(tasks);
        for source in 0..tasks {
            for target in (0..tasks).filter(|target| *target != source) {
                let helps = source % 2 == 0 && target != 3;
                square.set(source, target, Some(if helps { Relation::Positive } else { Relation::Negative }));
            }
        }
        square
    }

    #[test]
    fn prefixes_come_from_their_set_and_repeat_only_when_it_runs_out() {
        let config = MultiTaskConfig { targets: 5, lengths: vec![3, 12], sequences: 2 };
        let plan = plan(&config, &pool(12), &relations(12), Seed(1)).unwrap();
        assert_eq!(plan.targets.len(), 5);
        assert!(!plan.targets.contains(&3), "{:?}", plan.targets);
        assert_eq!(plan.prefixes.len(), 3 * 2 * 5 * 2);
        for prefix in &plan.prefixes {
            let target = plan.targets[prefix.target as usize];
            assert!(!prefix.shown.contains(&target));
            let is_from = |task: &u32| match prefix.kind {
                PrefixKind::Positive => task.is_multiple_of(2),
                PrefixKind::Negative => task % 2 == 1,
                PrefixKind::Random => true,
            };
            assert!(prefix.shown.iter().all(is_from), "{prefix:?}");
            let distinct: BTreeSet<&u32> = prefix.shown.iter().collect();
            let set = if prefix.kind == PrefixKind::Random {
                11
            } else {
                6 - usize::from(target.is_multiple_of(2) == (prefix.kind == PrefixKind::Positive))
            };
            assert_eq!(distinct.len(), prefix.shown.len().min(set), "{prefix:?}");
        }
    }

    #[test]
    fn every_attempt_has_a_coordinate_of_its_own() {
        let config = MultiTaskConfig { targets: 4, lengths: vec![1, 2], sequences: 3 };
        let plan = plan(&config, &pool(8), &relations(8), Seed(1)).unwrap();
        let shots = shots(&plan);
        let coords: BTreeSet<&Coord> = shots.iter().map(|shot| &shot.coord).collect();
        assert_eq!((shots.len(), coords.len()), (3 * 2 * 4 * 3 * 2, shots.len()));
    }

    #[test]
    fn a_pool_without_targets_is_said() {
        let mut all_help = relations(4);
        for source in 0..4 {
            for target in (0..4).filter(|target| *target != source) {
                all_help.set(source, target, Some(Relation::Positive));
            }
        }
        let message = plan(&MultiTaskConfig::default(), &pool(4), &all_help, Seed(1)).unwrap_err().to_string();
        assert!(message.contains("pool of 4") && message.contains("hint:"), "{message}");
    }
}
