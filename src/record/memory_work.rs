//! What a memory did around one attempt: the calls it made to the backbone, kept as evidence and for a resume.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Usage;

/// One completion that a memory asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryCall {
    /// What the call was for, `METHOD/PURPOSE`, for example `clin/update`.
    pub purpose: String,
    /// First 16 hex digits of the BLAKE3 digest of prompt, sampling and seed: what a replayed reply must belong to.
    pub request: String,
    /// The reply, verbatim. Empty where the prompt did not fit the model's context and nothing was asked.
    pub reply: String,
    /// Whether the method could read what it needed out of the reply. If not, or if nothing was asked, its fallback applied.
    pub is_read: bool,
    pub usage: Usage,
}

impl MemoryCall {
    /// Whether the backbone was asked: a prompt that does not fit its context is not sent, and one that is has tokens.
    pub fn is_asked(&self) -> bool {
        self.usage.prompt_tokens > 0
    }
}

/// A memory's part of one attempt's record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemoryWork {
    /// Calls made while learning since the sequence's previous record.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub learned: Vec<MemoryCall>,
    /// Calls made while recalling for this attempt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recalled: Vec<MemoryCall>,
    /// What recall handed to the learning that follows it.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub pending: Value,
    /// Tokens cut from the end of a recalled text that was longer than the budget.
    #[serde(skip_serializing_if = "is_zero")]
    pub cut_tokens: u64,
}

impl MemoryWork {
    /// Whether there is nothing to store.
    pub fn is_empty(&self) -> bool {
        *self == MemoryWork::default()
    }

    /// Every call, learning first: the order they were made in.
    pub fn calls(&self) -> impl Iterator<Item = &MemoryCall> {
        self.learned.iter().chain(&self.recalled)
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}
