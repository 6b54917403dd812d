//! What the two LifelongAgentBench memories keep of an attempt: a finished and correct one, cut where a model starts
//! to invent the user's next turn.

use serde::{Deserialize, Serialize};

use super::{Block, Content};
use crate::record::{Experience, Role, TaskView};

/// Transcripts carry role markers, so small models go on to write the user's turn; the released code cuts there, both
/// while generating and when storing.
pub(super) const TURN_MARKER: &str = "\nuser: ";

pub(super) const PREAMBLE: &str = include_str!("../../configs/prompts/replay_preamble.txt");

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Success {
    pub task: TaskView,
    pub transcript: String,
    pub position: u32,
}

impl Success {
    /// The success in an experience, `None` when it was not finished, not correct, or could not be graded.
    pub fn of(experience: &Experience) -> Option<Success> {
        let is_success = experience.is_finished && experience.feedback.is_correct() == Some(true);
        if !is_success {
            return None;
        }
        let transcript = experience
            .turns
            .iter()
            .map(|turn| match turn.role {
                Role::Assistant => turn.content.split(TURN_MARKER).next().unwrap_or("").to_string(),
                _ => format!("{}: {}", turn.role.as_str(), turn.content),
            })
            .collect::<Vec<_>>()
            .join("\n");
        Some(Success { task: experience.task.clone(), transcript, position: experience.position })
    }

    /// Newer successes score higher, so a short budget drops the oldest first.
    pub fn block(&self) -> Block {
        Block {
            id: format!("{}@{}", self.task.id, self.position),
            content: Content::Pair { question: self.task.question.clone(), reply: self.transcript.clone() },
            score: f64::from(self.position),
        }
    }
}
