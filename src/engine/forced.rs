//! How likely a given text is after a prompt: the log-probability of each of its tokens, nothing drawn (teacher forcing).
//!
//! All positions of the text go through the model together, as a prompt does, so that a reference of 300 tokens costs a
//! prefill and not 300 steps. A logit is a function of the token prefix alone, so the numbers are the bits that drawing
//! these very tokens would have shown.

use serde::{Deserialize, Serialize};

use super::block::blocks_for;
use super::error::{Error, Result};
use super::planner;
use super::replicas::Share;
use super::request::Usage;
use super::scheduler::Outputs;
use super::session::{Events, Opened, Session};
use super::step::{Ended, Reply, Work};
use super::submission::Submission;

/// A prompt and the tokens that are supposed to follow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForcedRequest {
    pub prompt: Vec<u32>,
    /// At least one token.
    pub continuation: Vec<u32>,
}

/// What a forced request became: a pure function of weights and tokens, [`Usage::reused`] aside.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ForcedLogprobs {
    /// Natural logarithm of the probability of each token of the continuation after all before it, at temperature 1 and
    /// without penalties; −∞ for a token that the model rules out.
    pub logprobs: Vec<f32>,
    pub usage: Usage,
}

impl ForcedLogprobs {
    /// Mean log-probability a token, in nats.
    pub fn mean(&self) -> f64 {
        let total: f64 = self.logprobs.iter().map(|logprob| f64::from(*logprob)).sum();
        total / self.logprobs.len() as f64
    }
}

/// A forced request in flight.
pub(crate) struct Forcing {
    prompt: usize,
    continuation: Vec<u32>,
    /// As far as they are known. A row that was preempted begins again and finds the same.
    logprobs: Vec<f32>,
}

impl Forcing {
    /// The tokens of the row: the last one of the continuation is asked for and never read.
    fn row(request: ForcedRequest) -> (Vec<u32>, Forcing) {
        let ForcedRequest { prompt: mut tokens, continuation } = request;
        let prompt = tokens.len();
        tokens.extend_from_slice(&continuation[..continuation.len() - 1]);
        let logprobs = Vec::with_capacity(continuation.len());
        (tokens, Forcing { prompt, continuation, logprobs })
    }

    pub(crate) fn prompt(&self) -> usize {
        self.prompt
    }

    /// The tokens that follow the positions `end − count .. end` of the row.
    pub(crate) fn targets(&self, end: usize, count: usize) -> &[u32] {
        let after = end + 1 - self.prompt;
        &self.continuation[after - count..after]
    }

    /// Takes in the log-probabilities of [`Forcing::targets`].
    pub(crate) fn accept(&mut self, end: usize, found: &[f32]) {
        self.logprobs.truncate(end + 1 - self.prompt - found.len());
        self.logprobs.extend_from_slice(found);
    }

    /// Takes everything out, once all positions are computed.
    pub(crate) fn take(&mut self, reused: usize) -> ForcedLogprobs {
        debug_assert_eq!(self.logprobs.len(), self.continuation.len());
        let usage = Usage { prompt: self.prompt, reused, generated: 0 };
        ForcedLogprobs { logprobs: std::mem::take(&mut self.logprobs), usage }
    }
}

impl Session {
    /// The log-probabilities of a given continuation; blocks until they are there.
    ///
    /// # Errors
    /// When the request is invalid or can never fit, when the model's numbers are not finite, or when the engine stops.
    pub fn logprobs(&self, request: ForcedRequest) -> Result<ForcedLogprobs> {
        let (_, found) = self.logprobs_all(vec![request]).next().expect("one request has one end");
        found
    }

    /// The same for a whole set, in the order in which they end, each with its index in `requests`. Prefixes are shared
    /// as those of completions are, and with them. Dropping the iterator cancels what has not ended.
    pub fn logprobs_all(&self, mut requests: Vec<ForcedRequest>) -> AllLogprobs {
        let mut order = planner::in_token_order(&requests, |request| &request.prompt);
        let Opened { ids, sender, events } = self.open(requests.len());
        order.retain(|&index| match self.check_forced(&requests[index]) {
            Ok(()) => true,
            Err(error) => {
                Reply { index, sender: sender.clone(), streams: false }.end(Err(error));
                false
            }
        });
        let runs = self.runs(order, |index| {
            let ForcedRequest { prompt, continuation } = &requests[index];
            Share { prompt, behind: continuation.len() }
        });
        let first = ids.start;
        self.hand_over(ids, runs, move |index| {
            let empty = ForcedRequest { prompt: Vec::new(), continuation: Vec::new() };
            let (tokens, forcing) = Forcing::row(std::mem::replace(&mut requests[index], empty));
            Submission {
                id: first + index as u64,
                outputs: Outputs::From(forcing.prompt - 1),
                tokens,
                work: Work::Forcing(forcing),
                reply: Reply { index, sender: sender.clone(), streams: false },
            }
        });
        AllLogprobs { events }
    }

    fn check_forced(&self, request: &ForcedRequest) -> Result<()> {
        let ForcedRequest { prompt, continuation } = request;
        self.check_tokens(prompt)?;
        if continuation.is_empty() {
            return Err(Error::EmptyContinuation);
        }
        self.check_vocabulary(continuation, prompt.len())?;
        if prompt.len() + continuation.len() > self.context() {
            let (prompt, continuation) = (prompt.len(), continuation.len());
            return Err(Error::ContinuationTooLong { prompt, continuation, context: self.context() });
        }
        self.check_blocks(prompt.len(), continuation.len(), blocks_for(prompt.len() + continuation.len()))
    }
}

/// Log-probabilities as they end. See [`Session::logprobs_all`].
pub struct AllLogprobs {
    events: Events,
}

impl Iterator for AllLogprobs {
    type Item = (usize, Result<ForcedLogprobs>);

    fn next(&mut self) -> Option<Self::Item> {
        let (index, outcome) = self.events.next_end()?;
        let found = outcome.map(|ended| match ended {
            Ended::Logprobs(found) => found,
            Ended::Completion(_) => unreachable!("a forced request draws nothing"),
        });
        Some((index, found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forcing() -> (Vec<u32>, Forcing) {
        Forcing::row(ForcedRequest { prompt: vec![1, 2, 3], continuation: vec![4, 5, 6, 7] })
    }

    #[test]
    fn the_row_ends_before_the_last_token_and_each_position_asks_for_the_next() {
        let (tokens, forcing) = forcing();
        assert_eq!(tokens, [1, 2, 3, 4, 5, 6]);
        // Positions 2..=5 have logits that are wanted; position 2 asks for token 4.
        assert_eq!(forcing.targets(3, 1), [4]);
        assert_eq!(forcing.targets(6, 4), [4, 5, 6, 7]);
        assert_eq!(forcing.targets(5, 2), [5, 6]);
    }

    #[test]
    fn a_row_that_begins_again_replaces_what_it_had() {
        let (_, mut forcing) = forcing();
        forcing.accept(4, &[-1.0, -2.0]);
        forcing.accept(3, &[-1.0]);
        forcing.accept(6, &[-2.0, -3.0, -4.0]);
        let found = forcing.take(0);
        assert_eq!(found.logprobs, [-1.0, -2.0, -3.0, -4.0]);
        assert_eq!(found.mean(), -2.5);
    }
}
