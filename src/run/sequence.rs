//! The stage `sequence`: agents live through probe-centred sequences, all chains decoded together.
//!
//! A chain is one agent on one sequence in one run: strictly sequential inside, independent of every other chain, so
//! each runs on a thread of its own and reads as a plain loop. On resume the stored steps are replayed into a fresh
//! memory instead of being loaded from a snapshot: learning is a pure function of the records.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context as _, ensure};

use super::grade;
use super::progress::Progress;
use super::resolve::{Resolved, ResolvedAgent};
use crate::agent::{Agent, Made, Work, attempt};
use crate::config::Freeze;
use crate::engine::generate::Generate;
use crate::memory::freeze::Freezable;
use crate::memory::{Embed, Handles, Llm, Memory, Similarities};
use crate::record::plan::{PlannedStep, SequencePlan, SequencesPlan, StepKind};
use crate::record::{AttemptRecord, Coord, Experience, MemoryCall, MemoryWork, Role, Task, Usage};
use crate::seed::Seed;
use crate::store::{RunStore, UnitTiming};

/// Turns of one attempt; the environments so far are single-turn.
const MAX_TURNS: u32 = 1;

/// What every chain of the stage shares.
pub struct World<'a> {
    pub resolved: &'a Resolved,
    pub store: &'a RunStore,
    pub backbone: &'a dyn Generate,
    pub embedder: Option<&'a dyn Embed>,
    /// Of the pool's tasks, where there is an embedder.
    pub similarities: Option<&'a Similarities>,
    pub progress: &'a Progress,
}

/// One agent's life over one sequence in one run.
pub(super) struct Chain<'a> {
    pub(super) stage: String,
    pub(super) sequence: u32,
    pub(super) run: u32,
    pub(super) plan: &'a SequencePlan,
    pub(super) agent: &'a ResolvedAgent,
}

/// The kind of sequences, which names their stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Probe-centred sequences under histories.
    Sequence,
    /// Controlled path transitions.
    Transition,
}

impl Family {
    /// The stage's name for one history (or condition) and agent.
    pub fn stage(self, history: &str, agent: &str) -> String {
        let family = match self {
            Family::Sequence => "sequence",
            Family::Transition => "transition",
        };
        format!("{family}/{history}/{agent}")
    }
}

/// Every unit of the stage.
pub fn coords(family: Family, plan: &SequencesPlan) -> impl Iterator<Item = Coord> + '_ {
    plan.histories.iter().flat_map(move |history| {
        plan.agents.iter().flat_map(move |agent| {
            let stage = family.stage(&history.name, agent);
            plan.lived(history, agent).iter().enumerate().flat_map(move |(sequence, planned)| {
                let stage = stage.clone();
                (0..plan.runs).flat_map(move |run| {
                    let stage = stage.clone();
                    (0..planned.steps.len()).map(move |step| Coord {
                        stage: stage.clone(),
                        sequence: sequence as u32,
                        step: step as u32,
                        attempt: run,
                    })
                })
            })
        })
    })
}

/// Runs every chain to its end on up to `threads` threads.
///
/// # Errors
/// The first chain that cannot go on, with its place; the others stop at their next step. What was stored stays.
pub fn run(world: &World<'_>, family: Family, plan: &SequencesPlan, threads: usize) -> anyhow::Result<()> {
    let chains = chains(world.resolved, family, plan)?;
    each(&chains, threads, |chain, has_failed| {
        let place = || format!("{} sequence {} run {}", chain.stage, chain.sequence, chain.run);
        live(world, chain, has_failed).with_context(place)
    })
}

/// Does every chain's work on up to `threads` threads. The work is told how to find out that another has failed.
///
/// # Errors
/// The first failure.
pub(super) fn each<T: Sync>(
    chains: &[T],
    threads: usize,
    work: impl Fn(&T, &dyn Fn() -> bool) -> anyhow::Result<()> + Sync,
) -> anyhow::Result<()> {
    let next = AtomicUsize::new(0);
    let failure: Mutex<Option<anyhow::Error>> = Mutex::new(None);
    let has_failed = || failure.lock().map_or(true, |failure| failure.is_some());
    std::thread::scope(|scope| {
        for _ in 0..threads.min(chains.len()) {
            scope.spawn(|| {
                while let Some(chain) = chains.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = work(chain, &has_failed) {
                        if let Ok(mut failure) = failure.lock() {
                            failure.get_or_insert(error);
                        }
                        return;
                    }
                }
            });
        }
    });
    match failure.into_inner() {
        Ok(None) => Ok(()),
        Ok(Some(error)) => Err(error),
        Err(_) => anyhow::bail!("a sequence thread panicked: this is a bug in lifelong"),
    }
}

/// Chains of one sequence and run next to each other: the agents then meet the same question at about the same time
/// and share its prefix.
fn chains<'a>(resolved: &'a Resolved, family: Family, plan: &'a SequencesPlan) -> anyhow::Result<Vec<Chain<'a>>> {
    let agents = plan.agents.iter().map(|name| resolved.agent(name)).collect::<anyhow::Result<Vec<_>>>()?;
    let most = plan.histories.iter().map(|history| history.sequences.len()).max().unwrap_or(0);
    let mut chains = Vec::new();
    for sequence in 0..most {
        for run in 0..plan.runs {
            for history in &plan.histories {
                for agent in &agents {
                    let Some(planned) = plan.lived(history, &agent.config.name).get(sequence) else { continue };
                    chains.push(Chain {
                        stage: family.stage(&history.name, &agent.config.name),
                        sequence: sequence as u32,
                        run,
                        plan: planned,
                        agent,
                    });
                }
            }
        }
    }
    Ok(chains)
}

/// The loop of a life: recall → attempt → score → store → learn.
fn live(world: &World<'_>, chain: &Chain<'_>, is_stopped: &dyn Fn() -> bool) -> anyhow::Result<()> {
    let mut memory = chain.new_memory()?;
    // Calls made while learning are stored with the next record: that record says what its memory came from.
    let mut learned: Vec<MemoryCall> = Vec::new();
    for (step, planned) in chain.plan.steps.iter().enumerate() {
        if is_stopped() {
            return Ok(());
        }
        let coord = chain.coord(step);
        let place = chain.place(world, step);
        let learned_before = std::mem::take(&mut learned);
        let record = match world.store.get(&coord)? {
            Some(record) => replayed(record, &memory).context(place.clone())?,
            None => {
                let started = Instant::now();
                let (record, reused_tokens) =
                    step_once(world, chain, coord, planned, &memory, learned_before).context(place.clone())?;
                world.store.append(record.clone())?;
                let seconds = started.elapsed().as_secs_f64();
                world.store.note(&record.coord, UnitTiming { seconds, reused_tokens });
                world.progress.done(usage(&record));
                record
            }
        };
        if planned.kind.is_probe() {
            unchanged(&record, &memory).context(place.clone())?;
        }
        if planned.kind.updates_memory() {
            learned = learn(world, chain, step, &record, &mut memory).context(place)?;
        }
        chain.freeze_after(planned.kind, &mut memory);
    }
    Ok(())
}

/// Learns from a step's record; where the next step is stored, from the replies that are stored with it.
pub(super) fn learn(
    world: &World<'_>,
    chain: &Chain<'_>,
    step: usize,
    record: &AttemptRecord,
    memory: &mut dyn Memory,
) -> anyhow::Result<Vec<MemoryCall>> {
    let next = world.store.get(&chain.coord(step + 1))?;
    learn_from(world, chain, step, record, memory, next.map(|next| next.memory_work.learned))
}

/// The same with given replies, or by asking the backbone.
pub(super) fn learn_from(
    world: &World<'_>,
    chain: &Chain<'_>,
    step: usize,
    record: &AttemptRecord,
    memory: &mut dyn Memory,
    replies: Option<Vec<MemoryCall>>,
) -> anyhow::Result<Vec<MemoryCall>> {
    let experience = experience(world, chain, &chain.plan.steps[step], record);
    let llm = chain.llm(world, "memory learn", step);
    let llm = match replies {
        Some(replies) => llm.replaying(replies),
        None => llm,
    };
    memory.learn(&experience, &chain.handles(world, &llm, step)).context("learn")?;
    Ok(llm.into_calls())
}

impl Chain<'_> {
    /// An empty memory of the chain's agent.
    pub(super) fn new_memory(&self) -> anyhow::Result<Freezable> {
        Ok(Freezable::new(self.agent.method.create(&self.agent.config.options)?))
    }

    /// Holds the memory as it is from here on, where the agent's config says so.
    pub(super) fn freeze_after(&self, kind: StepKind, memory: &mut Freezable) {
        match self.agent.config.freeze {
            Some(Freeze::AfterWarmUp) if kind == StepKind::WarmProbe => memory.freeze(),
            _ => {}
        }
    }

    /// For errors.
    pub(super) fn place(&self, world: &World<'_>, step: usize) -> String {
        format!("step {step}, task {}", world.resolved.task(self.plan.steps[step].task).id())
    }

    pub(super) fn coord(&self, step: usize) -> Coord {
        Coord { stage: self.stage.clone(), sequence: self.sequence, step: step as u32, attempt: self.run }
    }

    /// The key of one phase of a step. Without the agent and the history: every agent draws the same numbers at the
    /// same step.
    pub(super) fn seed(&self, world: &World<'_>, phase: &str, step: usize) -> Seed {
        Seed(world.resolved.config.seed).derive(phase, &[self.sequence, step as u32, self.run])
    }

    pub fn llm<'w>(&self, world: &World<'w>, phase: &str, step: usize) -> Llm<'w> {
        Llm::new(world.backbone, self.seed(world, phase, step), self.agent.config.max_call_tokens)
    }

    pub fn handles<'w>(&self, world: &World<'w>, llm: &'w Llm<'w>, step: usize) -> Handles<'w> {
        Handles {
            embedder: world.embedder,
            llm: Some(llm),
            similarities: world.similarities,
            seed: self.seed(world, "memory", step),
        }
    }
}

pub(super) fn step_once(
    world: &World<'_>,
    chain: &Chain<'_>,
    coord: Coord,
    planned: &PlannedStep,
    memory: &dyn Memory,
    learned: Vec<MemoryCall>,
) -> anyhow::Result<(AttemptRecord, u64)> {
    let step = coord.step as usize;
    let seed = chain.seed(world, "sequence", step);
    let recalled_from = digest(memory);
    let tried = try_step(world, chain, step, seed, memory)?;
    let task = world.resolved.task(planned.task);
    Ok((tried.record(world, task, coord, recalled_from, learned), tried.reused_tokens()))
}

/// An attempt at the task of a step, and what its recall asked.
pub(super) struct Tried {
    made: Made,
    recalled: Vec<MemoryCall>,
}

/// Attempts the task of a step from a memory. `seed` is the key of the reply's draws; the recall's are those of the step.
pub(super) fn try_step(
    world: &World<'_>,
    chain: &Chain<'_>,
    step: usize,
    seed: Seed,
    memory: &dyn Memory,
) -> anyhow::Result<Tried> {
    let task = world.resolved.task(chain.plan.steps[step].task);
    let agent = Agent {
        policy: chain.agent.policy,
        sampling: &world.resolved.config.sampling,
        max_memory_tokens: chain.agent.config.max_memory_tokens.filter(|limit| *limit > 0),
        max_turns: MAX_TURNS,
    };
    let llm = chain.llm(world, "memory recall", step);
    let work = Work { task: &task.view, memory, handles: &chain.handles(world, &llm, step), seed };
    let made = attempt(&agent, &work, world.backbone)?;
    Ok(Tried { made, recalled: llm.into_calls() })
}

impl Tried {
    pub(super) fn reused_tokens(&self) -> u64 {
        self.made.reused_tokens
    }

    /// The record of the attempt, graded.
    pub(super) fn record(
        &self,
        world: &World<'_>,
        task: &Task,
        coord: Coord,
        memory: Option<String>,
        learned: Vec<MemoryCall>,
    ) -> AttemptRecord {
        let Made { attempt, pending, cut_tokens, .. } = &self.made;
        let (score, detail) = grade::grade(task, attempt, &world.resolved.grading);
        let memory_work =
            MemoryWork { learned, recalled: self.recalled.clone(), pending: pending.clone(), cut_tokens: *cut_tokens };
        AttemptRecord { coord, task: task.id().clone(), attempt: attempt.clone(), score, detail, memory, memory_work }
    }
}

/// Tokens of the attempt and of the memory's own calls.
pub(super) fn usage(record: &AttemptRecord) -> Usage {
    let mut usage = record.attempt.usage;
    record.memory_work.calls().for_each(|call| usage += call.usage);
    usage
}

/// A stored step, when the memory that replay built is the one it was made with.
pub(super) fn replayed(record: AttemptRecord, memory: &dyn Memory) -> anyhow::Result<AttemptRecord> {
    let found = digest(memory);
    ensure!(
        record.memory == found,
        "the stored attempt was made with memory {}, replay built {}: the memory's code changed since; start a new run \
         folder with --out",
        record.memory.as_deref().unwrap_or("none"),
        found.as_deref().unwrap_or("none"),
    );
    Ok(record)
}

/// A probe may look, not touch.
fn unchanged(record: &AttemptRecord, memory: &dyn Memory) -> anyhow::Result<()> {
    let after = digest(memory);
    ensure!(
        record.memory == after,
        "a probe changed the memory it recalled from, from {} to {}: this is a bug in lifelong",
        record.memory.as_deref().unwrap_or("none"),
        after.as_deref().unwrap_or("none"),
    );
    Ok(())
}

pub(super) fn digest(memory: &dyn Memory) -> Option<String> {
    let state = memory.save();
    (!state.is_empty()).then(|| blake3::hash(&state).to_hex()[..16].to_string())
}

pub(super) fn experience(
    world: &World<'_>,
    chain: &Chain<'_>,
    planned: &PlannedStep,
    record: &AttemptRecord,
) -> Experience {
    let task = world.resolved.task(planned.task);
    let first_reply =
        record.attempt.turns.iter().rposition(|turn| turn.role == Role::User).map_or(0, |last_user| last_user + 1);
    Experience {
        task: task.view.clone(),
        turns: record.attempt.turns[first_reply..].to_vec(),
        answer: record.attempt.answer.clone(),
        is_finished: record.attempt.answer.is_some(),
        feedback: grade::feedback(chain.agent.config.feedback, task, &record.score),
        position: record.coord.step,
        recalled: record.attempt.recalled.clone(),
        pending: record.memory_work.pending.clone(),
    }
}
