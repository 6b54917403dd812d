//! What a memory may learn from.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Message, TaskView};

/// What the run's config lets a memory know about how an attempt went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Feedback {
    /// Nothing is said.
    Withheld,
    Correct(bool),
    Graded(f64),
    /// Right or wrong, and the reference solution itself.
    Revealed {
        is_correct: bool,
        solution: String,
    },
}

impl Feedback {
    /// Right or wrong, where the feedback tells; a grade counts as right only at 1.
    pub fn is_correct(&self) -> Option<bool> {
        match self {
            Feedback::Withheld => None,
            Feedback::Correct(value) | Feedback::Revealed { is_correct: value, .. } => Some(*value),
            Feedback::Graded(value) => Some(*value >= 1.0),
        }
    }

    /// The grade in 0..=1, where the feedback tells; right is 1, wrong is 0.
    pub fn grade(&self) -> Option<f64> {
        match self {
            Feedback::Graded(value) => Some(*value),
            _ => self.is_correct().map(|is_correct| if is_correct { 1.0 } else { 0.0 }),
        }
    }
}

/// One finished attempt as a memory sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experience {
    pub task: TaskView,
    /// The agent's own turns and what answered them, without the prompt and without recalled memories.
    pub turns: Vec<Message>,
    pub answer: Option<String>,
    /// Whether the agent ended by itself (as opposed to a limit or a fault).
    pub is_finished: bool,
    pub feedback: Feedback,
    /// Position in the sequence, 0-based: the only clock a memory has.
    pub position: u32,
    /// Ids of the memories that were shown in the attempt.
    #[serde(default)]
    pub recalled: Vec<String>,
    /// What the recall before the attempt handed on, `null` where it handed on nothing.
    #[serde(default)]
    pub pending: Value,
}
