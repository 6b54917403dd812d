//! The turn loop of one attempt.

use anyhow::Context as _;
use serde_json::Value;

use super::prompt::{self, Prompt};
use crate::engine::generate::Generate;
use crate::engine::request::{Completion, Finish};
use crate::engine::sampling::Sampling;
use crate::environment::{self, Action, Outcome};
use crate::memory::{self, Handles, Memory};
use crate::policy::{Chosen, Policy, Turn};
use crate::record::{Attempt, Ending, Message, Role, Task, TaskView, Usage};
use crate::seed::Seed;

/// What stays the same over an agent's whole life.
pub struct Agent<'a> {
    pub policy: &'static dyn Policy,
    pub sampling: &'a Sampling,
    /// Limit on the tokens of recalled memories in one prompt; `None` shows all of them.
    pub max_memory_tokens: Option<usize>,
    /// Limit on replies of one attempt; the task's world may end it before.
    pub max_turns: u32,
}

/// One attempt's input.
pub struct Work<'a> {
    /// The whole task: its world needs the sealed part, agent and memory see the view alone.
    pub task: &'a Task,
    pub memory: &'a dyn Memory,
    pub handles: &'a Handles<'a>,
    pub seed: Seed,
}

/// An attempt, and what came of it that is no part of the attempt itself.
pub struct Made {
    pub attempt: Attempt,
    pub reused_tokens: u64,
    /// What the recall hands to the learning that may follow.
    pub pending: Value,
    /// Tokens cut from recalled texts that were longer than the budget.
    pub cut_tokens: u64,
}

/// Recalls, then lets the agent act until the world is done or a limit is reached.
///
/// # Errors
/// When the engine, the environment or the memory cannot do its part. A bad reply is an [`Ending`], not an error.
pub fn attempt(agent: &Agent<'_>, work: &Work<'_>, backbone: &dyn Generate) -> anyhow::Result<Made> {
    let task = &work.task.view;
    let recall = work.memory.recall(task, work.handles).context("recall")?;

    let bare = prompt::bare(task, backbone)?;
    let mut recalled = Vec::new();
    let mut shown = Vec::new();
    let mut dropped_memories = 0;
    let mut cut_tokens = 0;
    for context in &recall.contexts {
        let built = prompt::with_context(task, context, agent.max_memory_tokens, backbone)?;
        recalled.push(built.prompt);
        shown.extend(built.shown);
        dropped_memories += built.dropped;
        cut_tokens += built.cut_tokens;
    }

    let mut sampling = agent.sampling.clone();
    sampling.stop.extend(work.memory.stop_strings());
    let agent = Agent { sampling: &sampling, ..*agent };
    let (said, reused_tokens) = converse(&agent, work.task, bare, recalled, work.seed, backbone)?;
    let attempt = Attempt { recalled: shown, dropped_memories, ..said };
    Ok(Made { attempt, reused_tokens, pending: recall.pending, cut_tokens })
}

/// Lets the agent act from the prompts it is given: the bare one, and those with memories or demonstrations. Returns
/// the attempt, and how many prompt tokens were found in the cache.
///
/// # Errors
/// As [`attempt`].
pub fn converse(
    agent: &Agent<'_>,
    task: &Task,
    bare: Prompt,
    recalled: Vec<Prompt>,
    seed: Seed,
    backbone: &dyn Generate,
) -> anyhow::Result<(Attempt, u64)> {
    let environment = environment::of(&task.view);
    let mut world = environment.open(task)?;
    let mut attempt = Attempt {
        turns: recalled.first().unwrap_or(&bare).messages.clone(),
        answer: None,
        ending: Ending::StepLimit,
        usage: Usage::default(),
        recalled: Vec::new(),
        dropped_memories: 0,
        votes: Vec::new(),
    };
    let mut reused_tokens = 0;
    let mut dialogues: Vec<Vec<Message>> = std::iter::once(bare).chain(recalled).map(|built| built.messages).collect();
    let openings: Vec<usize> = dialogues.iter().map(Vec::len).collect();
    let mut place = Place::default();

    for _ in 0..agent.max_turns {
        let mut prompts = dialogues
            .iter()
            .map(|messages| memory::tokens(messages, backbone))
            .collect::<anyhow::Result<Vec<Vec<u32>>>>()?;
        let fits = |tokens: &Vec<u32>| tokens.len() + agent.sampling.max_tokens <= backbone.context();
        let reply = match prompts.iter().all(fits) {
            false => None,
            true => {
                let turn = Turn {
                    task: &task.view,
                    bare: prompts.remove(0),
                    recalled: prompts,
                    sampling: agent.sampling,
                    seed: place.seed(seed),
                    canonical: &|reply| environment.canonical(&task.view, reply),
                };
                let Chosen { completion, usage, reused_tokens: reused, votes } = agent.policy.reply(turn, backbone)?;
                attempt.usage += usage;
                reused_tokens += reused;
                attempt.votes.extend(votes);
                attempt.turns.push(Message::new(Role::Assistant, completion.text.as_str()));
                Some(completion)
            }
        };

        let action =
            reply.as_ref().map_or(Action::OutOfContext, |completion| environment.action(&task.view, &completion.text));
        let said = reply.iter().map(|completion| Message::new(Role::Assistant, completion.text.as_str()));
        match world.act(action)? {
            Outcome::Done { answer, ending } => {
                attempt.answer = answer;
                attempt.ending = reply.map_or(ending, |completion| ending_of(&completion, ending));
                break;
            }
            Outcome::Observation(text) => {
                let said: Vec<Message> = said.chain([Message::new(Role::User, text.as_str())]).collect();
                attempt.turns.extend(said.last().cloned());
                dialogues.iter_mut().for_each(|dialogue| dialogue.extend_from_slice(&said));
                place.step += 1;
            }
            Outcome::NewTurn(history) => {
                attempt.turns.extend(history.last().cloned());
                for (dialogue, opening) in dialogues.iter_mut().zip(&openings) {
                    dialogue.truncate(*opening);
                    dialogue.extend_from_slice(&history);
                }
                place = Place { turn: place.turn + 1, step: 0 };
            }
        }
    }
    Ok((attempt, reused_tokens))
}

/// Where in an attempt a reply is drawn. A turn's draws do not depend on how many replies the turns before it took.
#[derive(Default)]
struct Place {
    turn: u32,
    step: u32,
}

impl Place {
    fn seed(&self, attempt: Seed) -> Seed {
        match (self.turn, self.step) {
            (0, 0) => attempt,
            (0, step) => attempt.derive("turn", &[step]),
            (turn, step) => attempt.derive("turn", &[step, turn]),
        }
    }
}

/// The attempt at a single-turn task that a completion is, when the prompt was built and sent elsewhere.
pub fn single_turn(task: &TaskView, prompt: &[Message], completion: &Completion) -> Attempt {
    let (answer, ending) = match environment::of(task).action(task, &completion.text) {
        Action::Answer(answer) => (Some(answer), Ending::Finished),
        Action::Call(_) | Action::Invalid { .. } => (None, Ending::InvalidAction),
        Action::OutOfContext => (None, Ending::ContextLimit),
    };
    let mut turns = prompt.to_vec();
    turns.push(Message::new(Role::Assistant, completion.text.as_str()));
    Attempt {
        turns,
        answer,
        ending: ending_of(completion, ending),
        usage: completion.usage.into(),
        recalled: Vec::new(),
        dropped_memories: 0,
        votes: Vec::new(),
    }
}

/// The attempt that could not be made because the prompt and the longest reply do not fit the model's context.
pub fn over_context(prompt: &[Message]) -> Attempt {
    Attempt {
        turns: prompt.to_vec(),
        answer: None,
        ending: Ending::ContextLimit,
        usage: Usage::default(),
        recalled: Vec::new(),
        dropped_memories: 0,
        votes: Vec::new(),
    }
}

/// A reply that was cut off by a limit says so, even where an answer could be read from it.
fn ending_of(completion: &Completion, ending: Ending) -> Ending {
    match completion.finish {
        Finish::Length if ending == Ending::Finished => Ending::TokenLimit,
        Finish::Context => Ending::ContextLimit,
        _ => ending,
    }
}
