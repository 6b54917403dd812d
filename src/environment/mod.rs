//! Worlds that answer an agent's actions. A new environment is one file and one line in [`ENVIRONMENTS`].
//!
//! One fresh [`World`] is opened for every attempt. A reply that holds no action is [`Action::Invalid`]: a model's bad
//! answer is data, never an error.

mod reply;

use crate::record::{Ending, TaskView};
use crate::registry::Registered;

/// What a reply asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The agent commits this answer.
    Answer(String),
    /// Nothing that this environment can act on, and the rule that failed.
    Invalid { why: String },
}

/// What the world says to an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The attempt is over.
    Done { answer: Option<String>, ending: Ending },
    /// The attempt goes on: this text is the next user turn.
    Observation(String),
}

/// One attempt's world.
pub trait World: Send {
    fn act(&mut self, action: Action) -> anyhow::Result<Outcome>;
}

pub trait Environment: Registered + Sync {
    /// A fresh world for one attempt at `task`.
    fn open(&self, task: &TaskView) -> anyhow::Result<Box<dyn World>>;

    /// Reads the action out of a reply.
    fn action(&self, task: &TaskView, reply: &str) -> Action;

    /// The form in which two replies are the same proposal: what a vote counts. `None` when there is no action.
    fn canonical(&self, task: &TaskView, reply: &str) -> Option<String>;
}

/// Every environment, by name.
pub static ENVIRONMENTS: &[&dyn Environment] = &[&reply::Reply];

/// The environment of single-turn tasks: that of every benchmark so far.
pub fn single_turn() -> &'static dyn Environment {
    &reply::Reply
}
