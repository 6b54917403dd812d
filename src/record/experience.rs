//! What a memory may learn from.

use serde::{Deserialize, Serialize};

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
}
