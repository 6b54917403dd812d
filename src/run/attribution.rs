//! The stage `attribution`: which experience did a probe harm, and which did it help?
//!
//! A probe that scores lower than an earlier one is attempted again from the memory as it would be without one of the
//! experiences in between, each left out in turn:
//!
//! ```text
//! earlier probe   e1 e2 e3   probe       the memory as it is            (left out: nothing)
//!       └────────────  e2 e3 probe       the memory without e1          (left out: e1)
//!       └───────────e1 ── e3 probe       …
//! ```
//!
//! The memory is taken up as it was before the experience, and learns the others again from their records: later
//! experiences stay what they were, and what the memory asks the backbone meanwhile draws the numbers of the run. So does
//! the first draw of the probe. What the other memory would have made of the tasks in between is not asked: that is
//! another life, and this one has the drop to be explained. All cases and memories share the engine's batches.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context as _, ensure};

use super::logprob;
use super::sequence::{Chain, Family, World, digest, learn, learn_from, replayed, try_step, usage};
use crate::config::{AttributionConfig, TracedProbes};
use crate::memory::{self, Memory as _};
use crate::record::plan::{AttributionCase, AttributionGroup, AttributionPlan, SequencePlan, SequencesPlan};
use crate::record::{AttemptRecord, Coord, MemoryCall, Role, Usage};
use crate::store::{RunStore, UnitTiming};

/// The stage's name for one history and agent.
pub fn stage_name(history: &str, agent: &str) -> String {
    format!("attribution/{history}/{agent}")
}

/// The stage of the reference's log-probabilities after the same prompts.
pub fn logprob_stage_name(history: &str, agent: &str) -> String {
    format!("attribution-logprob/{history}/{agent}")
}

/// Chooses the probes to trace. Agents without a memory have nothing to trace.
///
/// # Errors
/// When the store cannot be read, or lacks a step of the sequences.
pub fn plan(
    store: &RunStore,
    sequences: &SequencesPlan,
    config: &AttributionConfig,
) -> anyhow::Result<AttributionPlan> {
    let mut groups = Vec::new();
    for history in &sequences.histories {
        for agent in sequences.agents.iter().filter(|agent| sequences.baseline.as_ref() != Some(*agent)) {
            let mut cases = Vec::new();
            for (sequence, planned) in (0u32..).zip(sequences.lived(history, agent)) {
                for run in 0..sequences.runs {
                    let stage = Family::Sequence.stage(&history.name, agent);
                    let at = |step: usize| Coord { stage: stage.clone(), sequence, step: step as u32, attempt: run };
                    let probes = probes(store, planned, at)?;
                    cases.extend(traced(planned, &probes, config).map(|case| AttributionCase {
                        sequence,
                        run,
                        ..case
                    }));
                }
            }
            groups.push(AttributionGroup {
                history: history.name.clone(),
                agent: agent.clone(),
                cases: deepest(cases, config.max_probes),
            });
        }
    }
    Ok(AttributionPlan { draws: config.draws, groups })
}

/// Steps and scores of the probes of one life that could be graded.
fn probes(store: &RunStore, plan: &SequencePlan, at: impl Fn(usize) -> Coord) -> anyhow::Result<Vec<(u32, f64)>> {
    let mut probes = Vec::new();
    for (step, _) in plan.steps.iter().enumerate().filter(|(_, planned)| planned.kind.is_probe()) {
        let coord = at(step);
        let record = store.get(&coord)?.with_context(|| format!("{coord} is not done: nothing can be traced yet"))?;
        probes.extend(record.score.graded().map(|score| (step as u32, score)));
    }
    Ok(probes)
}

/// A case for each probe to trace, sequence and run left open.
fn traced<'a>(
    plan: &'a SequencePlan,
    probes: &'a [(u32, f64)],
    config: &'a AttributionConfig,
) -> impl Iterator<Item = AttributionCase> + 'a {
    (1..probes.len()).filter_map(move |index| {
        let (probe, score) = probes[index];
        let before = &probes[..index];
        let (previous, previous_score) = before[index - 1];
        if config.probes == TracedProbes::Dropped && score >= previous_score {
            return None;
        }
        // A low score that stays low goes back to the last good probe.
        let better = before.iter().rev().find(|(_, earlier)| *earlier > score).copied();
        let (earlier, earlier_score) = better.unwrap_or((previous, previous_score));
        let learned = (earlier..probe).filter(|step| plan.steps[*step as usize].kind.updates_memory());
        let mut left_out: Vec<u32> = learned.collect();
        left_out.drain(..left_out.len().saturating_sub(config.max_experiences));
        let case = AttributionCase { sequence: 0, run: 0, probe, earlier, score, earlier_score, left_out };
        (!case.left_out.is_empty()).then_some(case)
    })
}

/// At most `most` cases, those with the deepest drops, in order of place. Ties keep the earlier place.
fn deepest(cases: Vec<AttributionCase>, most: usize) -> Vec<AttributionCase> {
    let mut order: Vec<usize> = (0..cases.len()).collect();
    let drop = |index: &usize| cases[*index].earlier_score - cases[*index].score;
    order.sort_by(|left, right| drop(right).total_cmp(&drop(left)).then(left.cmp(right)));
    order.truncate(most);
    order.sort_unstable();
    order.into_iter().map(|index| cases[index].clone()).collect()
}

/// Every unit of the stage.
pub fn coords(plan: &AttributionPlan) -> impl Iterator<Item = Coord> + '_ {
    plan.groups.iter().flat_map(move |group| {
        (0u32..).zip(&group.cases).flat_map(move |(case, planned)| {
            (0..=planned.left_out.len() as u32).flat_map(move |left_out| {
                let draws = (0..plan.draws).map(move |draw| draw_coord(group, case, left_out, draw));
                draws.chain([logprob_coord(group, case, left_out)])
            })
        })
    })
}

fn draw_coord(group: &AttributionGroup, case: u32, left_out: u32, draw: u32) -> Coord {
    Coord { stage: stage_name(&group.history, &group.agent), sequence: case, step: left_out, attempt: draw }
}

fn logprob_coord(group: &AttributionGroup, case: u32, left_out: u32) -> Coord {
    let stage = logprob_stage_name(&group.history, &group.agent);
    Coord { stage, sequence: case, step: left_out, attempt: 0 }
}

/// One case with its place in the plan.
struct Case<'a> {
    group: &'a AttributionGroup,
    index: u32,
    plan: &'a AttributionCase,
    draws: u32,
}

impl Case<'_> {
    fn coords(&self, left_out: u32) -> impl Iterator<Item = Coord> + '_ {
        let draws = (0..self.draws).map(move |draw| draw_coord(self.group, self.index, left_out, draw));
        draws.chain([logprob_coord(self.group, self.index, left_out)])
    }

    /// Memories of which a unit is missing: 0 for the whole one, i + 1 for the one without experience i.
    fn open(&self, store: &RunStore) -> Vec<u32> {
        let is_open = |left_out: &u32| self.coords(*left_out).any(|coord| !store.has(&coord));
        (0..=self.plan.left_out.len() as u32).filter(is_open).collect()
    }
}

/// Does every unit that the store does not hold, cases beside each other, on up to about `threads` threads.
///
/// # Errors
/// The first case that cannot go on, with its place; what was stored stays.
pub fn run(world: &World<'_>, plan: &AttributionPlan, sequences: &SequencesPlan, threads: usize) -> anyhow::Result<()> {
    let cases: Vec<Case<'_>> = plan
        .groups
        .iter()
        .flat_map(|group| {
            let case = |(index, plan_case)| Case { group, index, plan: plan_case, draws: plan.draws };
            (0u32..).zip(&group.cases).map(case)
        })
        .collect();
    let widest = cases.iter().map(|case| case.plan.left_out.len() + 1).max().unwrap_or(1);
    let next = AtomicUsize::new(0);
    let failure: Mutex<Option<anyhow::Error>> = Mutex::new(None);
    let has_failed = || failure.lock().map_or(true, |failure| failure.is_some());
    std::thread::scope(|scope| {
        for _ in 0..threads.div_ceil(widest).min(cases.len()) {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if has_failed() {
                        return;
                    }
                    if let Err(error) = trace(world, case, sequences)
                        && let Ok(mut failure) = failure.lock()
                    {
                        let AttributionGroup { history, agent, .. } = case.group;
                        failure
                            .get_or_insert(error.context(format!("attribution/{history}/{agent} case {}", case.index)));
                    }
                }
            });
        }
    });
    match failure.into_inner() {
        Ok(None) => Ok(()),
        Ok(Some(error)) => Err(error),
        Err(_) => anyhow::bail!("a thread of the attribution panicked: this is a bug in lifelong"),
    }
}

/// All memories of one case.
fn trace(world: &World<'_>, case: &Case<'_>, sequences: &SequencesPlan) -> anyhow::Result<()> {
    let open = case.open(world.store);
    if open.is_empty() {
        return Ok(());
    }
    let chain = chain_of(world, case, sequences)?;
    let states = states(world, &chain, case)?;
    let outcomes: Vec<anyhow::Result<()>> = std::thread::scope(|scope| {
        let (chain, states) = (&chain, &states);
        let threads: Vec<_> = open
            .into_iter()
            .map(|left_out| scope.spawn(move || probe_without(world, chain, case, left_out, states)))
            .collect();
        let joined = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| anyhow::bail!("a memory's thread panicked: this is a bug in lifelong"))
        });
        joined.collect()
    });
    outcomes.into_iter().collect()
}

fn chain_of<'a>(world: &World<'a>, case: &Case<'_>, sequences: &'a SequencesPlan) -> anyhow::Result<Chain<'a>> {
    let AttributionGroup { history, agent, .. } = case.group;
    let planned = sequences.histories.iter().find(|other| other.name == *history);
    let agent = world.resolved.agents.iter().find(|other| other.config.name == *agent);
    let (planned, agent) = planned.zip(agent).context("the plan names a history and an agent of this run")?;
    Ok(Chain {
        stage: Family::Sequence.stage(history, &agent.config.name),
        sequence: case.plan.sequence,
        run: case.plan.run,
        plan: &planned.sequences[case.plan.sequence as usize],
        agent,
    })
}

/// The memory's state before each of the case's experiences, and at the probe, from the life's records.
fn states(world: &World<'_>, chain: &Chain<'_>, case: &Case<'_>) -> anyhow::Result<BTreeMap<u32, Vec<u8>>> {
    let mut memory = chain.new_memory()?;
    let mut states = BTreeMap::new();
    for step in 0..=case.plan.probe {
        let planned = &chain.plan.steps[step as usize];
        let record = stored(world, chain, step).and_then(|record| replayed(record, &memory));
        let record = record.with_context(|| chain.place(world, step as usize))?;
        if case.plan.left_out.contains(&step) || step == case.plan.probe {
            states.insert(step, memory.save());
        }
        if planned.kind.updates_memory() && step < case.plan.probe {
            learn(world, chain, step as usize, &record, &mut memory)
                .with_context(|| chain.place(world, step as usize))?;
        }
        chain.freeze_after(planned.kind, &mut memory);
    }
    Ok(states)
}

fn stored(world: &World<'_>, chain: &Chain<'_>, step: u32) -> anyhow::Result<AttemptRecord> {
    let coord = chain.coord(step as usize);
    world.store.get(&coord)?.with_context(|| format!("{coord} is not stored"))
}

/// The probe from the memory without one experience (`left_out` − 1; 0: without none), each draw and the reference.
fn probe_without(
    world: &World<'_>,
    chain: &Chain<'_>,
    case: &Case<'_>,
    left_out: u32,
    states: &BTreeMap<u32, Vec<u8>>,
) -> anyhow::Result<()> {
    let from = match left_out {
        0 => case.plan.probe,
        index => case.plan.left_out[index as usize - 1],
    };
    let mut memory = chain.new_memory()?;
    memory.load(&states[&from])?;
    // What is frozen at the probe was frozen before the experience that is left out, or has none.
    chain.plan.steps[..from as usize].iter().for_each(|before| chain.freeze_after(before.kind, &mut memory));
    let mut learned: Vec<MemoryCall> = Vec::new();
    for step in (from + 1..case.plan.probe).filter(|step| chain.plan.steps[*step as usize].kind.updates_memory()) {
        let place = || format!("{} again, without step {from}", chain.place(world, step as usize));
        let record = stored(world, chain, step).with_context(place)?;
        learned.extend(learn_from(world, chain, step as usize, &record, &mut memory, None).with_context(place)?);
    }
    let step = case.plan.probe as usize;
    let seed = chain.seed(world, "sequence", step);
    let task = world.resolved.task(chain.plan.steps[step].task);
    let mut prompt = None;
    for draw in 0..case.draws {
        let coord = draw_coord(case.group, case.index, left_out, draw);
        if draw > 0 && world.store.has(&coord) {
            continue;
        }
        let started = Instant::now();
        // The first draw is the run's own.
        let key = if draw == 0 { seed } else { seed.derive("attribution", &[draw]) };
        let tried = try_step(world, chain, step, key, &memory)?;
        // Calls made while learning are kept with the first draw, which all others share them with.
        let calls = if draw == 0 { std::mem::take(&mut learned) } else { Vec::new() };
        let record = tried.record(world, task, coord, digest(&memory), calls);
        if draw == 0 {
            prompt = Some(prompt_of(&record, world)?);
        }
        if left_out == 0 && draw == 0 {
            check_same(&record, &stored(world, chain, case.plan.probe)?)?;
        }
        keep(world, record, started, tried.reused_tokens())?;
    }
    let prompt = prompt.context("there is at least one draw")?;
    rate(world, task, prompt, logprob_coord(case.group, case.index, left_out))
}

/// The whole memory probed with the run's own numbers gives the run's own reply: anything else is no explanation of it.
fn check_same(again: &AttemptRecord, first: &AttemptRecord) -> anyhow::Result<()> {
    ensure!(
        again.attempt == first.attempt,
        "{}: the memory as it was gives another attempt than the run stored, which replied {:?}: this is a bug in lifelong",
        again.coord,
        first.attempt.reply()
    );
    Ok(())
}

/// The tokens that the first reply of an attempt answers.
fn prompt_of(record: &AttemptRecord, world: &World<'_>) -> anyhow::Result<Vec<u32>> {
    let turns = &record.attempt.turns;
    let end = turns.iter().rposition(|turn| turn.role == Role::User).map_or(0, |last_user| last_user + 1);
    memory::tokens(&turns[..end], world.backbone)
}

fn rate(world: &World<'_>, task: &crate::record::Task, prompt: Vec<u32>, coord: Coord) -> anyhow::Result<()> {
    if world.store.has(&coord) {
        return Ok(());
    }
    let started = Instant::now();
    match logprob::request(task, prompt, world.backbone) {
        Err(why) => keep(world, logprob::unrated(task, coord, why), started, 0),
        Ok(request) => {
            let found = world.backbone.logprobs_all(vec![request])?.pop().context("one request has one end")?;
            keep(world, logprob::rated(task, coord, &found), started, found.usage.reused as u64)
        }
    }
}

fn keep(world: &World<'_>, record: AttemptRecord, started: Instant, reused_tokens: u64) -> anyhow::Result<()> {
    let (coord, usage): (Coord, Usage) = (record.coord.clone(), usage(&record));
    let is_new = !world.store.has(&coord);
    world.store.append(record)?;
    if is_new {
        world.store.note(&coord, UnitTiming { seconds: started.elapsed().as_secs_f64(), reused_tokens });
        world.progress.done(usage);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
