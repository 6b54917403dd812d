//! The narrow faces of a backbone: what policies and agents need of an engine, so that their logic can be tested with
//! scripted replies and a plan can be priced without loading weights.

use super::request::{Completion, Request};
use super::template::ChatMessage;

/// Turns dialogues and texts into prompts.
pub trait Prompter {
    /// The prompt of a dialogue, ready for the assistant's reply.
    ///
    /// # Errors
    /// When the model's chat template refuses the dialogue.
    fn render(&self, messages: &[ChatMessage]) -> anyhow::Result<Vec<u32>>;

    /// The prompt for a model without a chat template: text as it is.
    fn encode(&self, text: &str) -> Vec<u32>;

    /// Whether the model has a chat template.
    fn has_template(&self) -> bool;
}

/// A backbone that answers.
pub trait Generate: Prompter + Send + Sync {
    /// One completion a request, in the order asked. Blocks; many threads may wait at once and share batches.
    ///
    /// # Errors
    /// The first request that could not be completed.
    fn complete_all(&self, requests: Vec<Request>) -> anyhow::Result<Vec<Completion>>;

    /// The model's context in tokens.
    fn context(&self) -> usize;
}
