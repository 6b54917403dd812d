//! What an engine has done so far, for progress lines and measurements.

/// Counters since the engine started, as of its last step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    pub finished_requests: u64,
    /// Prompt tokens of finished requests.
    pub prompt_tokens: u64,
    /// Of those, found in the cache.
    pub reused_tokens: u64,
    /// Tokens drawn so far, for finished and running requests.
    pub generated_tokens: u64,
    /// Tokens that went through a forward pass, those computed again after a preemption included.
    pub computed_tokens: u64,
    pub steps: u64,
    pub forward_seconds: f64,
    pub sample_seconds: f64,
    /// Cached blocks forgotten to make room.
    pub evictions: u64,
    /// Rows that gave their blocks back and were computed again.
    pub preemptions: u64,
    /// Rows running and requests waiting right now.
    pub running: usize,
    pub waiting: usize,
}
