//! The stage `logprob`: how likely the model finds each task's reference, alone and behind every demonstration.
//!
//! The prompts are those of the matrix and nothing is drawn, so one pass a pair takes the place of several seeds, and a
//! gain has no noise of sampling. It measures another thing: the one wording that the benchmark calls right, whether or
//! not the model would say it so. A record's score is the probability of a token of the reference, as the geometric
//! mean over its tokens, exp(mean log-probability); its reply is the reference itself.

use std::time::Instant;

use anyhow::Context as _;

use super::beside::beside;
use super::matrix::{self, Stage, Unit};
use crate::agent::prompt;
use crate::engine::forced::{ForcedLogprobs, ForcedRequest};
use crate::record::{Attempt, AttemptRecord, Coord, Ending, MemoryWork, Message, Role, Score, Task, Usage};
use crate::store::UnitTiming;

/// The stage's name for one model.
pub fn stage_name(model: &str) -> String {
    format!("logprob/{model}")
}

/// Every kept task alone and behind every other.
pub fn units(kept: &[u32]) -> Vec<Unit> {
    let alone = kept.iter().map(|target| Unit { demonstration: None, target: *target, seed: 0 });
    alone.chain(matrix::one_shot(kept, 1)).collect()
}

/// The unit of the stage with the prompt of a matrix unit.
pub fn coord(unit: Unit, model: &str) -> Coord {
    Coord { stage: stage_name(model), ..unit.coord(model) }
}

/// Rates and stores the units that the store does not hold yet, in rounds as the matrix.
///
/// # Errors
/// When the engine or the store fails.
pub fn run(stage: &Stage<'_>, units: &[Unit]) -> anyhow::Result<()> {
    units.chunks(matrix::ROUND).try_for_each(|units| run_round(stage, units))
}

fn run_round(stage: &Stage<'_>, units: &[Unit]) -> anyhow::Result<()> {
    let Stage { resolved, model, session, store, .. } = *stage;
    let mut todo: Vec<Unit> = Vec::new();
    let mut requests: Vec<ForcedRequest> = Vec::new();
    for unit in units.iter().copied().filter(|unit| !store.has(&coord(*unit, model))) {
        let task = resolved.task(unit.target);
        let built = matrix::prompt(resolved, unit, session).with_context(|| format!("prompt of task {}", task.id()))?;
        match request(task, built.tokens, session) {
            Ok(request) => {
                requests.push(request);
                todo.push(unit);
            }
            Err(why) => matrix::keep(stage, unrated(task, coord(unit, model), why), None)?,
        }
    }
    let started = Instant::now();
    let found = session.logprobs_all(requests).map(|(index, found)| {
        let found = found.with_context(|| coord(todo[index], model).to_string())?;
        Ok((index, found, started.elapsed().as_secs_f64()))
    });
    beside(found, |(index, found, seconds)| {
        let unit = todo[index];
        let timing = UnitTiming { seconds, reused_tokens: found.usage.reused as u64 };
        matrix::keep(stage, rated(resolved.task(unit.target), coord(unit, model), &found), Some(timing))
    })
}

/// The request for a task's reference after a prompt; why there is none, where there is none.
pub(super) fn request(
    task: &Task,
    prompt: Vec<u32>,
    backbone: &dyn crate::engine::generate::Generate,
) -> Result<ForcedRequest, String> {
    let continuation = prompt::reply_tokens(&task.reference.solution, backbone);
    if continuation.is_empty() {
        return Err("the benchmark gives no reference solution for this task".to_string());
    }
    let (needed, context) = (prompt.len() + continuation.len(), backbone.context());
    if needed > context {
        return Err(format!("prompt and reference have {needed} tokens, the model's context {context}"));
    }
    Ok(ForcedRequest { prompt, continuation })
}

/// The record of a reference whose log-probabilities are known.
pub(super) fn rated(task: &Task, coord: Coord, found: &ForcedLogprobs) -> AttemptRecord {
    let mean = found.mean();
    let score = match mean.exp() {
        chance if chance > 0.0 => Score::Graded(chance),
        _ => Score::Ungraded { why: format!("the model rules the reference out: mean log-probability {mean}") },
    };
    let each: Vec<String> = found.logprobs.iter().map(f32::to_string).collect();
    let detail = format!("mean log-probability {mean} of {} tokens: {}", each.len(), each.join(" "));
    let prompt_tokens = (found.usage.prompt + found.logprobs.len()) as u64;
    record(task, coord, Ending::Finished, Usage { prompt_tokens, generated_tokens: 0 }, score, detail)
}

/// The record of a reference that cannot be rated.
pub(super) fn unrated(task: &Task, coord: Coord, why: String) -> AttemptRecord {
    record(task, coord, Ending::ContextLimit, Usage::default(), Score::Ungraded { why }, String::new())
}

/// The prompt is that of another record (of the matrix, or of the traced probe) and is not stored again.
fn record(task: &Task, coord: Coord, ending: Ending, usage: Usage, score: Score, detail: String) -> AttemptRecord {
    AttemptRecord {
        coord,
        task: task.id().clone(),
        attempt: Attempt {
            turns: vec![Message::new(Role::Assistant, task.reference.solution.as_str())],
            answer: None,
            ending,
            usage,
            recalled: Vec::new(),
            dropped_memories: 0,
            votes: Vec::new(),
        },
        score,
        detail,
        memory: None,
        memory_work: MemoryWork::default(),
    }
}
