//! Requests on their way to the engine, made ready a few at a time.
//!
//! A plan may be a hundred thousand requests. What one needs while it runs (sampling state, a text stream, a place in the queue)
//! is several times its prompt, so it is made when its turn is near, and a plan costs little more than its prompts.

use std::ops::Range;

use super::scheduler::{Outputs, RequestId};
use super::step::{Reply, Work};

/// A checked request, ready to wait for its first step.
pub(crate) struct Submission {
    pub(crate) id: RequestId,
    pub(crate) tokens: Vec<u32>,
    pub(crate) outputs: Outputs,
    pub(crate) work: Work,
    pub(crate) reply: Reply,
}

/// The checked requests of one call, in the order in which they join the queue. Dropping it hangs up on whoever waits.
pub(crate) struct Submissions {
    /// Ids of the call, those of requests that ended before they were queued included.
    pub(crate) ids: Range<RequestId>,
    pub(crate) ready: Box<dyn ExactSizeIterator<Item = Submission> + Send>,
}
