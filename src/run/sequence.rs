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
use crate::config::SequenceConfig;
use crate::engine::generate::Generate;
use crate::environment;
use crate::memory::{Embed, Handles, Llm, Memory, Similarities};
use crate::record::plan::{PlannedStep, SequencePlan, SequencesPlan};
use crate::record::{
    Attempt, AttemptRecord, Coord, Experience, MemoryCall, MemoryWork, Message, ReplyFormat, Role, Task, Usage,
};
use crate::seed::Seed;
use crate::store::{RunStore, UnitTiming};

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
struct Chain<'a> {
    stage: String,
    sequence: u32,
    run: u32,
    plan: &'a SequencePlan,
    agent: &'a ResolvedAgent,
}

/// The stage's name for one history and agent.
pub fn stage_name(history: &str, agent: &str) -> String {
    format!("sequence/{history}/{agent}")
}

/// Every unit of the stage.
pub fn coords(plan: &SequencesPlan) -> impl Iterator<Item = Coord> + '_ {
    plan.histories.iter().flat_map(move |history| {
        plan.agents.iter().flat_map(move |agent| {
            let stage = stage_name(&history.name, agent);
            history.sequences.iter().enumerate().flat_map(move |(sequence, planned)| {
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
pub fn run(world: &World<'_>, plan: &SequencesPlan, config: &SequenceConfig, threads: usize) -> anyhow::Result<()> {
    let chains = chains(world.resolved, plan, config);
    let next = AtomicUsize::new(0);
    let failure: Mutex<Option<anyhow::Error>> = Mutex::new(None);
    let has_failed = || failure.lock().map_or(true, |failure| failure.is_some());
    std::thread::scope(|scope| {
        for _ in 0..threads.min(chains.len()) {
            scope.spawn(|| {
                while let Some(chain) = chains.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = live(world, chain, &has_failed) {
                        let place = format!("{} sequence {} run {}", chain.stage, chain.sequence, chain.run);
                        if let Ok(mut failure) = failure.lock() {
                            failure.get_or_insert(error.context(place));
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
fn chains<'a>(resolved: &'a Resolved, plan: &'a SequencesPlan, config: &SequenceConfig) -> Vec<Chain<'a>> {
    let mut chains = Vec::new();
    for sequence in 0..config.sequences {
        for run in 0..plan.runs {
            for history in &plan.histories {
                for agent in &resolved.agents {
                    chains.push(Chain {
                        stage: stage_name(&history.name, &agent.config.name),
                        sequence,
                        run,
                        plan: &history.sequences[sequence as usize],
                        agent,
                    });
                }
            }
        }
    }
    chains
}

/// The loop of a life: recall → attempt → score → store → learn.
fn live(world: &World<'_>, chain: &Chain<'_>, is_stopped: &dyn Fn() -> bool) -> anyhow::Result<()> {
    let mut memory = chain.agent.method.create(&chain.agent.config.options)?;
    // Calls made while learning are stored with the next record: that record says what its memory came from.
    let mut learned: Vec<MemoryCall> = Vec::new();
    for (step, planned) in chain.plan.steps.iter().enumerate() {
        if is_stopped() {
            return Ok(());
        }
        let coord = chain.coord(step);
        let place = format!("step {step}, task {}", world.resolved.task(planned.task).id());
        let learned_before = std::mem::take(&mut learned);
        let record = match world.store.get(&coord)? {
            Some(record) => replayed(record, memory.as_ref()).context(place.clone())?,
            None => {
                let started = Instant::now();
                let (record, reused_tokens) =
                    step_once(world, chain, coord, planned, memory.as_ref(), learned_before).context(place.clone())?;
                world.store.append(record.clone())?;
                let seconds = started.elapsed().as_secs_f64();
                world.store.note(&record.coord, UnitTiming { seconds, reused_tokens });
                world.progress.done(usage(&record));
                record
            }
        };
        if planned.kind.updates_memory() {
            let experience = experience(world, chain, planned, &record);
            let next = world.store.get(&chain.coord(step + 1))?;
            let llm = chain.llm(world, "memory learn", step);
            let llm = match next {
                Some(next) => llm.replaying(next.memory_work.learned),
                None => llm,
            };
            memory.learn(&experience, &chain.handles(world, &llm, step)).context("learn").context(place)?;
            learned = llm.into_calls();
        }
    }
    Ok(())
}

impl Chain<'_> {
    fn coord(&self, step: usize) -> Coord {
        Coord { stage: self.stage.clone(), sequence: self.sequence, step: step as u32, attempt: self.run }
    }

    /// The key of one phase of a step. Without the agent and the history: every agent draws the same numbers at the
    /// same step.
    fn seed(&self, world: &World<'_>, phase: &str, step: usize) -> Seed {
        Seed(world.resolved.config.seed).derive(phase, &[self.sequence, step as u32, self.run])
    }

    fn llm<'w>(&self, world: &World<'w>, phase: &str, step: usize) -> Llm<'w> {
        Llm::new(world.backbone, self.seed(world, phase, step), self.agent.config.max_call_tokens)
    }

    fn handles<'w>(&self, world: &World<'w>, llm: &'w Llm<'w>, step: usize) -> Handles<'w> {
        Handles {
            embedder: world.embedder,
            llm: Some(llm),
            similarities: world.similarities,
            seed: self.seed(world, "memory", step),
        }
    }
}

fn step_once(
    world: &World<'_>,
    chain: &Chain<'_>,
    coord: Coord,
    planned: &PlannedStep,
    memory: &dyn Memory,
    learned: Vec<MemoryCall>,
) -> anyhow::Result<(AttemptRecord, u64)> {
    let task = world.resolved.task(planned.task);
    let config = &world.resolved.config;
    let agent = Agent {
        policy: chain.agent.policy,
        sampling: &config.sampling,
        max_memory_tokens: chain.agent.config.max_memory_tokens.filter(|limit| *limit > 0),
        max_turns: environment::of(&task.view).most_replies(task)?,
    };
    let step = coord.step as usize;
    let llm = chain.llm(world, "memory recall", step);
    let work =
        Work { task, memory, handles: &chain.handles(world, &llm, step), seed: chain.seed(world, "sequence", step) };
    let Made { attempt, reused_tokens, pending, cut_tokens } = attempt(&agent, &work, world.backbone)?;
    let memory_work = MemoryWork { learned, recalled: llm.into_calls(), pending, cut_tokens };
    let (score, detail) = grade::grade(task, &attempt, &world.resolved.grading);
    let record =
        AttemptRecord { coord, task: task.id().clone(), attempt, score, detail, memory: digest(memory), memory_work };
    Ok((record, reused_tokens))
}

/// Tokens of the attempt and of the memory's own calls.
fn usage(record: &AttemptRecord) -> Usage {
    let mut usage = record.attempt.usage;
    record.memory_work.calls().for_each(|call| usage += call.usage);
    usage
}

/// A stored step, when the memory that replay built is the one it was made with.
fn replayed(record: AttemptRecord, memory: &dyn Memory) -> anyhow::Result<AttemptRecord> {
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

fn digest(memory: &dyn Memory) -> Option<String> {
    let state = memory.save();
    (!state.is_empty()).then(|| blake3::hash(&state).to_hex()[..16].to_string())
}

fn experience(world: &World<'_>, chain: &Chain<'_>, planned: &PlannedStep, record: &AttemptRecord) -> Experience {
    let task = world.resolved.task(planned.task);
    // Memories stand before the question or around it; what follows the turn that ends with it is the agent's and its
    // world's.
    let asks = |turn: &Message| turn.role == Role::User && turn.content.ends_with(&task.view.question);
    let first_reply = record.attempt.turns.iter().rposition(asks).map_or(0, |question| question + 1);
    Experience {
        task: task.view.clone(),
        turns: record.attempt.turns[first_reply..].to_vec(),
        answer: shown_answer(task, &record.attempt),
        is_finished: record.attempt.answer.is_some(),
        feedback: grade::feedback(chain.agent.config.feedback, task, &record.score),
        position: record.coord.step,
        recalled: record.attempt.recalled.clone(),
        pending: record.memory_work.pending.clone(),
    }
}

/// The answer as a memory may see it. That of a tool dialogue says which of the agent's steps were in place, so the agent's
/// last words stand for it.
fn shown_answer(task: &Task, attempt: &Attempt) -> Option<String> {
    match task.view.reply_format {
        ReplyFormat::ToolCalls { .. } => attempt.answer.as_ref().map(|_| attempt.reply().to_string()),
        _ => attempt.answer.clone(),
    }
}
