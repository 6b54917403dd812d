//! What the engine can fail at, each with the operands and what to do.

/// Why the engine could not do its part of a request. A model's bad answer is not among these.
///
/// Cheap to clone: one broken step answers many waiting requests.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("sampling parameter `{parameter}`: expected {expected}, found {found}")]
    Sampling { parameter: &'static str, expected: &'static str, found: String },

    #[error("engine option `{option}`: expected {expected}, found {found}")]
    Option { option: &'static str, expected: String, found: String },

    #[error("the prompt holds no token: a completion needs at least one token to continue from")]
    EmptyPrompt,

    #[error(
        "prompt token {token} at position {position} is outside the model's vocabulary of {vocabulary} tokens: \
         was the prompt encoded with another model's tokenizer?"
    )]
    TokenOutOfVocabulary { token: u32, position: usize, vocabulary: usize },

    #[error(
        "the prompt of {prompt} tokens leaves no room in the model's context of {context} tokens: shorten the prompt"
    )]
    PromptTooLong { prompt: usize, context: usize },

    #[error("the continuation holds no token: there is nothing whose probability could be asked for")]
    EmptyContinuation,

    #[error(
        "the prompt of {prompt} tokens and the continuation of {continuation} do not fit the model's context of {context} \
         tokens: shorten one of them"
    )]
    ContinuationTooLong { prompt: usize, continuation: usize, context: usize },

    #[error(
        "a prompt of {prompt} tokens with up to {generated} generated tokens needs {needed_blocks} KV blocks and the KV \
         budget holds {budget_blocks}: raise the KV memory to at least {needed_bytes} bytes or lower max_tokens"
    )]
    KvBudget { prompt: usize, generated: usize, needed_blocks: usize, budget_blocks: usize, needed_bytes: u64 },

    #[error(
        "the model gave logits that are not finite for generated token {position} of request {request} (prompt of \
         {prompt} tokens): the weights or the kernels of this model are broken"
    )]
    NonFiniteLogits { request: u64, prompt: usize, position: usize },

    #[error(
        "the {what} of the request cannot be used: {reason}; what it says must be exactly what the reply can be, so \
         nothing of it is left out"
    )]
    Grammar { what: &'static str, reason: String },

    #[error(
        "the grammar of request {request} could not go on at generated token {position}: {reason}; a smaller or less \
         ambiguous grammar takes less work a token"
    )]
    GrammarWork { request: u64, position: usize, reason: String },

    #[error("a forward pass failed: {reason}")]
    Forward { reason: String },

    #[error("loading {what}: {reason}")]
    Load { what: String, reason: String },

    #[error("rendering the chat: {reason}")]
    Render { reason: String },

    #[error("the engine thread has stopped: {reason}")]
    Stopped { reason: String },
}

/// The engine's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;
