//! A task: the part an agent sees, and the part only scoring sees.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Stable name of a task, `benchmark/local-id`, for example `kata/reverse-word/3`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(pub String);

impl fmt::Display for TaskId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    System,
    User,
    Assistant,
}

impl Role {
    /// The role's name in a chat template.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    pub role: Role,
    pub content: String,
}

impl Message {
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Message { role, content: content.into() }
    }
}

/// What form of reply the task asks for; decides how an answer is read out of a reply and how answers are compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplyFormat {
    /// The whole reply, trimmed.
    FreeText,
    /// The first line that is not empty.
    Line,
    /// The last number in the reply.
    Number,
    /// One of these option letters.
    Choice(Vec<String>),
    /// A program in the named language, with the name it must define where there is one.
    Code { language: String, entry_point: Option<String> },
    /// Calls of these tools, or text, over as many replies as the task takes. Declarations are JSON schemas as chat
    /// templates take them: `{"type": "function", "function": {"name", "description", "parameters"}}`.
    ToolCalls { tools: Vec<serde_json::Value> },
}

/// The only part of a task that agents, policies and memories receive: no answer can leak through it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskView {
    pub id: TaskId,
    /// Group of tasks that share a skill, where the benchmark names one.
    pub family: Option<String>,
    /// Instructions shared by all tasks of the benchmark; comes first in every prompt so that it is a shared prefix.
    pub system: Option<String>,
    /// The question as the agent sees it (the user turn).
    pub question: String,
    pub reply_format: ReplyFormat,
}

/// What scoring knows and agents never see.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reference {
    /// The right reply as an assistant would write it: shown as the demonstration of this task in transfer runs.
    pub solution: String,
    /// Name of the scorer.
    pub scorer: String,
    /// The scorer's own data (answers, tests, tolerances), read by that scorer and, where a world plays the task, by it.
    pub options: serde_json::Value,
}

/// One task of a benchmark.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    pub view: TaskView,
    pub reference: Reference,
}

impl Task {
    pub fn id(&self) -> &TaskId {
        &self.view.id
    }
}
