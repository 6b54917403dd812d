//! The narrow faces of a backbone: what policies and agents need of an engine, so that their logic can be tested with
//! scripted replies and a plan can be priced without loading weights.

use super::forced::{ForcedLogprobs, ForcedRequest};
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

    /// A text as it goes on after a prompt. Models whose prompts open with a control token leave it out here.
    fn encode_reply(&self, text: &str) -> Vec<u32> {
        self.encode(text)
    }

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

    /// The log-probabilities of given continuations, in the order asked. Blocks.
    ///
    /// # Errors
    /// The first request that could not be computed; a backbone that has no logits to show.
    fn logprobs_all(&self, _requests: Vec<ForcedRequest>) -> anyhow::Result<Vec<ForcedLogprobs>> {
        anyhow::bail!("this backbone gives replies alone, no probabilities of a given text")
    }

    /// The model's context in tokens.
    fn context(&self) -> usize;
}
