//! Worlds that answer an agent's actions. A new environment is one file and one line in [`ENVIRONMENTS`].
//!
//! One fresh [`World`] is opened for every attempt. A reply that holds no action is [`Action::Invalid`]: a model's bad
//! answer is data, never an error.

mod reply;
mod tool_dialogue;

use crate::record::tool::ToolCall;
use crate::record::{Ending, Message, ReplyFormat, Role, Task, TaskView};
use crate::registry::Registered;

/// What a reply asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The agent commits this answer.
    Answer(String),
    /// The agent calls tools, all at once.
    Call(Vec<ToolCall>),
    /// Nothing that this environment can act on, and the rule that failed.
    Invalid { why: String },
    /// The dialogue no longer fits the model's context, so the agent could not be asked.
    OutOfContext,
}

/// What the world says to an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The attempt is over.
    Done { answer: Option<String>, ending: Ending },
    /// The attempt goes on: this text is the next user turn.
    Observation(String),
    /// The attempt goes on with a new turn of the task: these messages, the last of them the user's, stand behind the
    /// task's first question in place of all that was said since.
    NewTurn(Vec<Message>),
}

/// One attempt's world.
pub trait World: Send {
    fn act(&mut self, action: Action) -> anyhow::Result<Outcome>;
}

pub trait Environment: Registered + Sync {
    /// A fresh world for one attempt at `task`.
    ///
    /// # Errors
    /// The task's sealed part is not what this environment plays.
    fn open(&self, task: &Task) -> anyhow::Result<Box<dyn World>>;

    /// Reads the action out of a reply.
    fn action(&self, task: &TaskView, reply: &str) -> Action;

    /// The form in which two replies are the same proposal: what a vote counts. `None` when there is no action.
    fn canonical(&self, task: &TaskView, reply: &str) -> Option<String>;

    /// The most replies one attempt can take.
    ///
    /// # Errors
    /// As [`Environment::open`].
    fn most_replies(&self, _task: &Task) -> anyhow::Result<u32> {
        Ok(1)
    }

    /// The task as a demonstration: its question, and the reference dialogue that follows.
    ///
    /// # Errors
    /// As [`Environment::open`].
    fn demonstration(&self, task: &Task) -> anyhow::Result<Vec<Message>> {
        let question = Message::new(Role::User, task.view.question.as_str());
        Ok(vec![question, Message::new(Role::Assistant, task.reference.solution.as_str())])
    }
}

/// Every environment, by name.
pub static ENVIRONMENTS: &[&dyn Environment] = &[&reply::Reply, &tool_dialogue::TOOL_DIALOGUE];

/// The environment that plays a task, by the form of reply it asks for.
pub fn of(task: &TaskView) -> &'static dyn Environment {
    match &task.reply_format {
        ReplyFormat::ToolCalls { .. } => &tool_dialogue::TOOL_DIALOGUE,
        _ => &reply::Reply,
    }
}

/// Whether the first reply ends every attempt at the task.
pub fn is_single_reply(task: &TaskView) -> bool {
    !matches!(task.reply_format, ReplyFormat::ToolCalls { .. })
}
