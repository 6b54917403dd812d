//! What an engine has done so far, for progress lines and measurements.

/// Counters since the engine started, as of its last step; over all replicas where there are several.
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

impl std::ops::AddAssign for Stats {
    fn add_assign(&mut self, other: Stats) {
        self.finished_requests += other.finished_requests;
        self.prompt_tokens += other.prompt_tokens;
        self.reused_tokens += other.reused_tokens;
        self.generated_tokens += other.generated_tokens;
        self.computed_tokens += other.computed_tokens;
        self.steps += other.steps;
        self.forward_seconds += other.forward_seconds;
        self.sample_seconds += other.sample_seconds;
        self.evictions += other.evictions;
        self.preemptions += other.preemptions;
        self.running += other.running;
        self.waiting += other.waiting;
    }
}
