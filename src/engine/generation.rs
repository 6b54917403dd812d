//! What one request has generated so far, and when it ends.

use std::sync::Mutex;

use lifelong_kernels::ops::sample::Sampling as DeviceSampling;

use super::grammar::Constraint;
use super::penalty::History;
use super::request::{Completion, Finish, Logprobs, Request, Usage};
use super::sampler::{Draw, Held, RowSampling};
use super::sampling::Sampling;
use super::stop::StopText;
use super::thought::{Phase, TextStream};
use crate::seed::Seed;

/// What a model says of its own limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModelLimits<'a> {
    /// Tokens that end a generation.
    pub(crate) eos: &'a [u32],
    /// Positions the model was trained for.
    pub(crate) context: usize,
}

/// The generated part of one request.
pub(crate) struct Generation {
    prompt: usize,
    sampling: Sampling,
    seed: u64,
    history: History,
    stream: Box<dyn TextStream>,
    stop: StopText,
    constraint: Option<Mutex<Constraint>>,
    tokens: Vec<u32>,
    text: String,
    logprobs: Vec<Logprobs>,
    drawn: usize,
}

/// What one drawn token did.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Progress {
    /// Text to show, which will not be taken back.
    pub(crate) shown: String,
    /// Set when this token ended the generation.
    pub(crate) finish: Option<Finish>,
}

impl Generation {
    pub(crate) fn new(request: &Request, stream: Box<dyn TextStream>, constraint: Option<Constraint>) -> Self {
        let Request { tokens, sampling, seed } = request;
        let history = if sampling.has_penalties() { History::of_prompt(tokens) } else { History::default() };
        Generation {
            prompt: tokens.len(),
            sampling: sampling.clone(),
            seed: *seed,
            history,
            stream,
            stop: StopText::new(sampling),
            constraint: constraint.map(Mutex::new),
            tokens: Vec::new(),
            text: String::new(),
            logprobs: Vec::new(),
            drawn: 0,
        }
    }

    /// How the next token is drawn: its number is that of its position under the request's seed.
    pub(crate) fn row_sampling(&self) -> RowSampling<'_> {
        let uniform = Seed(self.seed).uniform_at(self.drawn as u64);
        let constraint = self.constraint.as_ref().and_then(|walk| match self.phase() {
            Phase::Answer => Some(Held { walk, beside: None }),
            Phase::Start { opens } => Some(Held { walk, beside: Some(opens) }),
            Phase::Thought => None,
        });
        RowSampling { sampling: &self.sampling, history: &self.history, constraint, uniform }
    }

    /// How the next token is drawn where the logits are; `None` when more is asked than that: penalties, a grammar,
    /// log-probabilities.
    pub(crate) fn device_sampling(&self) -> Option<DeviceSampling> {
        let RowSampling { sampling, constraint, .. } = self.row_sampling();
        if sampling.has_penalties() || sampling.logprobs > 0 || constraint.is_some() {
            return None;
        }
        Some(DeviceSampling {
            temperature: sampling.temperature as f32,
            top_k: u32::try_from(sampling.top_k).unwrap_or(0),
            top_p: sampling.top_p,
            min_p: sampling.min_p,
            key: self.seed,
            position: self.drawn as u64,
        })
    }

    /// What the next token belongs to: where the request says what ends a thought, that alone decides.
    fn phase(&self) -> Phase {
        match self.sampling.think_end {
            Some(_) if self.stop.is_thinking() => Phase::Thought,
            Some(_) => Phase::Answer,
            None => self.stream.phase(),
        }
    }

    /// Why the request's grammar could not go on, when it could not.
    pub(crate) fn grammar_fault(&self) -> Option<String> {
        let walk = self.constraint.as_ref()?.lock().ok()?;
        walk.fault().map(str::to_string)
    }

    pub(crate) fn prompt(&self) -> usize {
        self.prompt
    }

    /// Tokens drawn so far, an ending one included.
    pub(crate) fn drawn(&self) -> usize {
        self.drawn
    }

    /// Takes in the next token. Ending tokens are looked at first (under a grammar they always end: the grammar has said
    /// that it is complete), then stop texts, the grammar's own end, and the limits on length.
    pub(crate) fn accept(&mut self, draw: Draw, limits: ModelLimits<'_>) -> Progress {
        let Draw { token, logprobs } = draw;
        self.drawn += 1;
        let is_answer = match self.phase() {
            Phase::Answer => true,
            Phase::Thought => false,
            Phase::Start { opens } => token != opens,
        };
        let is_constrained = self.constraint.is_some() && is_answer;
        if limits.eos.contains(&token) && (is_constrained || !self.sampling.ignore_eos) {
            return self.end(String::new(), Finish::Eos(token));
        }
        if self.sampling.stop_tokens.contains(&token) {
            return self.end(String::new(), Finish::StopToken(token));
        }
        self.tokens.push(token);
        self.logprobs.extend(logprobs);
        if self.sampling.has_penalties() {
            self.history.push(token);
        }
        let shown = self.stop.push(&self.stream.push(token));
        if let Some(stop) = shown.stopped_by {
            return self.end(shown.text, Finish::StopString(stop));
        }
        let constraint = self.constraint.as_mut().filter(|_| is_constrained);
        let is_complete = constraint.is_some_and(|walk| walk.get_mut().is_ok_and(|walk| walk.push(token)));
        if is_complete {
            return self.end(shown.text, Finish::Grammar);
        }
        if self.tokens.len() == self.sampling.max_tokens {
            return self.end(shown.text, Finish::Length);
        }
        if self.prompt + self.tokens.len() == limits.context {
            return self.end(shown.text, Finish::Context);
        }
        self.text.push_str(&shown.text);
        Progress { shown: shown.text, finish: None }
    }

    /// Takes what has been generated out, as a completion. Call only once, at the end.
    pub(crate) fn take_completion(&mut self, finish: Finish, reused: usize) -> Completion {
        Completion {
            usage: Usage { prompt: self.prompt, reused, generated: self.drawn },
            tokens: std::mem::take(&mut self.tokens),
            text: std::mem::take(&mut self.text),
            finish,
            logprobs: std::mem::take(&mut self.logprobs),
            seed: self.seed,
        }
    }

    /// Ends with what the matcher held back, which is nothing after a stop text.
    fn end(&mut self, mut shown: String, finish: Finish) -> Progress {
        shown.push_str(&self.stop.flush());
        self.text.push_str(&shown);
        Progress { shown, finish: Some(finish) }
    }
}

/// Every token id that a model's files declare to end a generation, ascending: the union of `config.json`,
/// `generation_config.json` and the tokenizer's own. Any one file may list only some of them.
pub(crate) fn declared_eos(configs: &[&serde_json::Value], tokenizer: &[u32]) -> Vec<u32> {
    let mut ids = tokenizer.to_vec();
    for config in configs {
        match &config["eos_token_id"] {
            serde_json::Value::Array(list) => ids.extend(list.iter().filter_map(token_id)),
            single => ids.extend(token_id(single)),
        }
    }
    ids.sort_unstable();
    ids.dedup();
    ids
}

fn token_id(value: &serde_json::Value) -> Option<u32> {
    value.as_u64().and_then(|id| u32::try_from(id).ok())
}
