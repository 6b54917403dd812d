//! The narrow face of a backbone: what policies and agents need of an engine, so that their logic can be tested with
//! scripted replies.

use super::request::{Completion, Request};
use super::template::ChatMessage;

pub trait Generate: Send + Sync {
    /// The prompt of a dialogue, ready for the assistant's reply.
    ///
    /// # Errors
    /// When the model's chat template refuses the dialogue.
    fn render(&self, messages: &[ChatMessage]) -> anyhow::Result<Vec<u32>>;

    /// The prompt for a model without a chat template: text as it is.
    fn encode(&self, text: &str) -> anyhow::Result<Vec<u32>>;

    /// Whether the model has a chat template.
    fn has_template(&self) -> bool;

    /// One completion a request, in the order asked. Blocks; many threads may wait at once and share batches.
    fn complete_all(&self, requests: Vec<Request>) -> anyhow::Result<Vec<Completion>>;

    /// The model's context in tokens.
    fn context(&self) -> usize;
}
