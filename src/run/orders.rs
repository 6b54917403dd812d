//! The stage `orders`: the same tasks learned in several orders, every task attempted again after each one that was
//! learned (PATH-Bench, appendix A; figure 1).
//!
//! ```text
//!             attempted: 1   2   3  …  T
//! learned 0             b1  b2  b3     bT      a row is attempted from one frozen memory;
//! learned 1             a11 a12 a13            the attempt at the task that is learned next is what the memory
//! …                                            learns from, so a row costs no attempt more than its T
//! ```
//!
//! An attempt draws with its task and run alone: the same numbers in every row, path and agent. What changes along a
//! column is then the memory's doing, and an agent without one has equal rows. Calls made while learning a task are
//! stored with the first attempt (in the path's order) of the row that follows.

use std::time::Instant;

use anyhow::Context as _;

use super::resolve::ResolvedAgent;
use super::sequence::{Chain, World, each, experience, replayed, step_once, usage};
use crate::config::OrdersConfig;
use crate::memory::Memory;
use crate::record::experiment::{OrdersPlan, PathPlan};
use crate::record::plan::{PlannedStep, SequencePlan, StepKind};
use crate::record::{AttemptRecord, Coord, Experience, MemoryCall};
use crate::seed::Seed;
use crate::store::UnitTiming;

/// In place of a sequence's index where draws are keyed: this stage's numbers are those of no sequence.
const NO_SEQUENCE: u32 = u32::MAX;

/// Draws the tasks and their orders.
pub fn plan(config: &OrdersConfig, kept: &[u32], model: &str, agents: Vec<String>, seed: Seed) -> OrdersPlan {
    let mut tasks = kept.to_vec();
    seed.derive("tasks", &[]).stream().shuffle(&mut tasks);
    tasks.truncate(config.tasks as usize);
    let paths = (0..config.paths)
        .map(|path| {
            let mut order = tasks.clone();
            seed.derive("path", &[path]).stream().shuffle(&mut order);
            PathPlan { name: format!("path-{}", path + 1), tasks: order }
        })
        .collect();
    OrdersPlan { model: model.into(), agents, runs: config.runs, paths }
}

/// Every unit of the stage.
pub fn coords(plan: &OrdersPlan) -> impl Iterator<Item = Coord> + '_ {
    plan.paths.iter().flat_map(move |path| {
        plan.agents.iter().flat_map(move |agent| {
            (0..plan.runs).flat_map(move |run| {
                let rows = 0..=path.tasks.len() as u32;
                rows.flat_map(move |row| path.tasks.iter().map(move |task| coord(path, agent, run, row, *task)))
            })
        })
    })
}

fn coord(path: &PathPlan, agent: &str, run: u32, row: u32, task: u32) -> Coord {
    Coord { stage: OrdersPlan::stage(&path.name, agent), sequence: row, step: task, attempt: run }
}

/// One agent on one path in one run.
struct Walk<'a> {
    path: &'a PathPlan,
    agent: &'a ResolvedAgent,
    run: u32,
}

/// Runs every walk to its end on up to `threads` threads.
///
/// # Errors
/// The first walk that cannot go on, with its place; the others stop at their next row. What was stored stays.
pub fn run(world: &World<'_>, plan: &OrdersPlan, threads: usize) -> anyhow::Result<()> {
    let agents = plan.agents.iter().map(|name| world.resolved.agent(name)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut walks = Vec::new();
    for run in 0..plan.runs {
        for path in &plan.paths {
            walks.extend(agents.iter().map(|agent| Walk { path, agent, run }));
        }
    }
    let per_walk = (threads / walks.len().max(1)).clamp(1, 8);
    each(&walks, threads, |walk, is_stopped| {
        let place = || format!("{} run {}", OrdersPlan::stage(&walk.path.name, &walk.agent.config.name), walk.run);
        walk_path(world, walk, per_walk, is_stopped).with_context(place)
    })
}

fn walk_path(world: &World<'_>, walk: &Walk<'_>, threads: usize, is_stopped: &dyn Fn() -> bool) -> anyhow::Result<()> {
    let options = &walk.agent.config.options;
    let mut memory = walk.agent.method.create(options)?;
    // A task's step is its place in the pool: what is drawn at it depends on the task alone.
    let steps = (0..world.resolved.tasks.len() as u32).map(planned).collect();
    let by_task = SequencePlan { probe: 0, steps };
    let chain = Chain {
        stage: OrdersPlan::stage(&walk.path.name, &walk.agent.config.name),
        sequence: NO_SEQUENCE,
        run: walk.run,
        plan: &by_task,
        agent: walk.agent,
    };
    let mut learned: Vec<MemoryCall> = Vec::new();
    let first = walk.path.tasks[0];
    for row in 0..=walk.path.tasks.len() as u32 {
        if is_stopped() {
            return Ok(());
        }
        let at = |task: u32| coord(walk.path, &walk.agent.config.name, walk.run, row, task);
        // The first attempt carries the calls of the learning before it; it is made before the others.
        attempt_once(world, &chain, at(first), memory.as_ref(), std::mem::take(&mut learned))?;
        let snapshot = memory.save();
        let missing: Vec<u32> =
            walk.path.tasks[1..].iter().copied().filter(|task| !world.store.has(&at(*task))).collect();
        each(&missing.chunks(missing.len().div_ceil(threads).max(1)).collect::<Vec<_>>(), threads, |tasks, _| {
            // Each thread recalls from a memory of its own, read back from the frozen one.
            let mut frozen = walk.agent.method.create(options)?;
            if !snapshot.is_empty() {
                frozen.load(&snapshot)?;
            }
            tasks
                .iter()
                .try_for_each(|task| attempt_once(world, &chain, at(*task), frozen.as_ref(), Vec::new()).map(drop))
        })?;
        let Some(next) = walk.path.tasks.get(row as usize) else { continue };
        let record = world.store.get(&at(*next))?.context("the attempt was stored above: this is a bug in lifelong")?;
        let record = replayed(record, memory.as_ref()).with_context(|| at(*next).to_string())?;
        let experience = learnable(world, &chain, row, *next, &record);
        let llm = chain.llm(world, "memory learn", *next as usize);
        let stored = world.store.get(&Coord { sequence: row + 1, ..at(first) })?;
        let llm = match stored {
            Some(stored) => llm.replaying(stored.memory_work.learned),
            None => llm,
        };
        memory
            .learn(&experience, &chain.handles(world, &llm, *next as usize))
            .with_context(|| format!("learn task {}", world.resolved.task(*next).id()))?;
        learned = llm.into_calls();
    }
    Ok(())
}

/// Its clock is the number of tasks learned before.
fn learnable(world: &World<'_>, chain: &Chain<'_>, row: u32, task: u32, record: &AttemptRecord) -> Experience {
    Experience { position: row, ..experience(world, chain, &planned(task), record) }
}

fn planned(task: u32) -> PlannedStep {
    PlannedStep { task, kind: StepKind::Intervening }
}

/// The stored attempt of a place, or a new one.
fn attempt_once(
    world: &World<'_>,
    chain: &Chain<'_>,
    coord: Coord,
    memory: &dyn Memory,
    learned: Vec<MemoryCall>,
) -> anyhow::Result<AttemptRecord> {
    if let Some(record) = world.store.get(&coord)? {
        return replayed(record, memory).with_context(|| coord.to_string());
    }
    let place = coord.to_string();
    let started = Instant::now();
    let (record, reused_tokens) =
        step_once(world, chain, coord.clone(), &planned(coord.step), memory, learned).context(place)?;
    world.store.append(record.clone())?;
    world.store.note(&record.coord, UnitTiming { seconds: started.elapsed().as_secs_f64(), reused_tokens });
    world.progress.done(usage(&record));
    Ok(record)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn paths_hold_the_same_tasks_in_other_orders() {
        let kept: Vec<u32> = (0..40).step_by(2).collect();
        let config = OrdersConfig { tasks: 8, paths: 3, runs: 2, agents: None };
        let plan = plan(&config, &kept, "m", vec!["a".into(), "b".into()], Seed(3));
        let set = |path: &PathPlan| path.tasks.iter().copied().collect::<BTreeSet<u32>>();
        assert_eq!(set(&plan.paths[0]).len(), 8);
        assert!(set(&plan.paths[0]).iter().all(|task| kept.contains(task)));
        assert!(plan.paths.iter().all(|path| set(path) == set(&plan.paths[0])));
        assert_ne!(plan.paths[0].tasks, plan.paths[1].tasks);
        let coords: BTreeSet<Coord> = coords(&plan).collect();
        assert_eq!(coords.len(), 3 * 2 * 2 * 9 * 8);
    }
}
