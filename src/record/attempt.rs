//! One attempt at one task, as it is stored.

use serde::{Deserialize, Serialize};

use super::{Coord, MemoryWork, Message, Score, TaskId};

/// Why an attempt stopped; says nothing about whether it was right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The agent ended its reply itself.
    Finished,
    /// The reply reached its token limit.
    TokenLimit,
    /// The agent used up its turns.
    StepLimit,
    /// The prompt and its reply did not fit the model's context.
    ContextLimit,
    /// No action in the required form.
    InvalidAction,
    /// The environment failed.
    EnvironmentFault,
}

/// Tokens of one attempt. Only what the result itself decides is kept here: how many prompt tokens were reused depends
/// on scheduling and is counted in the run's timing log instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    pub prompt_tokens: u64,
    pub generated_tokens: u64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        self.prompt_tokens += other.prompt_tokens;
        self.generated_tokens += other.generated_tokens;
    }
}

/// One candidate of a vote: the canonical form of what it proposed, `None` when nothing could be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vote {
    pub reply: String,
    pub canonical: Option<String>,
    pub is_chosen: bool,
}

/// Everything said in one attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attempt {
    /// The dialogue verbatim: every message the model was given and every reply, reasoning included. A later turn of a tool
    /// dialogue begins with the user's message alone: what stood before it then is the reference's dialogue.
    pub turns: Vec<Message>,
    /// What the benchmark's reply format reads out of the last reply; `None` when it holds no answer.
    pub answer: Option<String>,
    pub ending: Ending,
    pub usage: Usage,
    /// Ids of the memories that were shown, in the order shown.
    pub recalled: Vec<String>,
    /// How many recalled memories did not fit the budget and were left out.
    pub dropped_memories: u32,
    /// The candidates when the policy voted; empty otherwise.
    pub votes: Vec<Vote>,
}

impl Attempt {
    /// The reply that counts: the last turn.
    pub fn reply(&self) -> &str {
        self.turns.last().map_or("", |turn| turn.content.as_str())
    }
}

/// One line of the run store: an attempt, where it belongs, and its score.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttemptRecord {
    pub coord: Coord,
    pub task: TaskId,
    pub attempt: Attempt,
    pub score: Score,
    /// What the scorer found, for people (which rule failed, which test, how the process ended).
    pub detail: String,
    /// Digest of the memory that this attempt recalled from; `None` where there is none or it keeps nothing.
    pub memory: Option<String>,
    /// What the memory did around this attempt; absent where it did nothing that must be kept.
    #[serde(default, skip_serializing_if = "MemoryWork::is_empty")]
    pub memory_work: MemoryWork,
}
