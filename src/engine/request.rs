//! One generation asked of the engine, and what comes back.

use serde::{Deserialize, Serialize};

use super::sampling::Sampling;
use crate::seed::Seed;

/// A prompt as token ids, how to sample from it, and the seed of its draws.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub tokens: Vec<u32>,
    pub sampling: Sampling,
    /// Generated token p is drawn with the number at position p of this key: nothing else decides it.
    pub seed: u64,
}

impl Request {
    /// `count` requests that differ in the seed only, for `count` samples of one prompt: sample k draws under the key
    /// derived from this request's seed and k.
    pub fn samples(&self, count: u32) -> Vec<Request> {
        let seed_of = |sample| Seed(self.seed).derive("sample", &[sample]).0;
        (0..count).map(|sample| Request { seed: seed_of(sample), ..self.clone() }).collect()
    }

    /// The completion of a request that asks for no token: there is nothing to compute.
    pub(crate) fn completed_at_once(&self) -> Option<Completion> {
        (self.sampling.max_tokens == 0).then(|| Completion {
            tokens: Vec::new(),
            text: String::new(),
            finish: Finish::Length,
            usage: Usage { prompt: self.tokens.len(), reused: 0, generated: 0 },
            logprobs: Vec::new(),
            seed: self.seed,
        })
    }
}

/// A seed from the system's randomness, for a user who gave none. [`Completion::seed`] keeps it for a rerun.
pub fn system_seed() -> u64 {
    rand::random()
}

/// Why a completion ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model's own end token, which is not part of the completion.
    Eos(u32),
    /// One of [`Sampling::stop_tokens`], which is not part of the completion.
    StopToken(u32),
    /// One of [`Sampling::stop`]; the text ends before it, the tokens include those that hold it.
    StopString(String),
    /// [`Sampling::grammar`] is complete and admits nothing more.
    Grammar,
    /// [`Sampling::max_tokens`] were generated.
    Length,
    /// Prompt and generated tokens fill the model's context.
    Context,
}

/// Tokens of one completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub prompt: usize,
    /// Prompt tokens whose keys and values were in the cache when the request was first scheduled. Depends on what ran
    /// before: keep it out of stored results.
    pub reused: usize,
    /// Tokens drawn, an ending token included.
    pub generated: usize,
}

/// A token and the natural logarithm of its probability.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenLogprob {
    pub token: u32,
    pub logprob: f32,
}

/// Log-probabilities at one generated token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Logprobs {
    pub chosen: TokenLogprob,
    /// The most likely tokens, likeliest first, ties by lowest id.
    pub top: Vec<TokenLogprob>,
}

/// What a request became: a pure function of weights, tokens, sampling and seed, [`Usage::reused`] aside.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Completion {
    pub tokens: Vec<u32>,
    pub text: String,
    pub finish: Finish,
    pub usage: Usage,
    /// One entry a token of `tokens` when [`Sampling::logprobs`] is above 0, else empty.
    pub logprobs: Vec<Logprobs>,
    /// The request's seed.
    pub seed: u64,
}

/// One part of a streamed completion.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// Text that will not be taken back: whole characters, and nothing that could still become a stop text.
    Text(String),
    /// The whole completion; always the last piece.
    End(Completion),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_distinct_seeds_and_repeat() {
        let request = Request { tokens: vec![1], sampling: Sampling::default(), seed: 5 };
        let seeds = |requests: Vec<Request>| requests.iter().map(|request| request.seed).collect::<Vec<_>>();
        let first = seeds(request.samples(4));
        assert_eq!(first, seeds(request.samples(4)));
        assert_eq!(first[..2], seeds(request.samples(2)));
        for (index, seed) in first.iter().enumerate() {
            assert!(!first[..index].contains(seed));
        }
    }
}
