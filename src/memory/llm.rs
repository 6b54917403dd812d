//! The backbone as a memory sees it: a prompt in, what could be read out of the reply back, every call noted.
//!
//! Draws depend on where a call stands (run, sequence, step, phase, purpose, number) and on nothing else, and calls of
//! all chains meet in the engine's batches. A resumed sequence gives the stored replies instead of asking again; a reply
//! that belongs to another request stops it.

use std::cell::RefCell;
use std::collections::VecDeque;

use anyhow::{Context as _, ensure};

use crate::engine::generate::{Generate, Prompter};
use crate::engine::grammar::Grammar;
use crate::engine::request::Request;
use crate::engine::sampling::Sampling;
use crate::engine::template::ChatMessage;
use crate::record::{MemoryCall, Message, Role, Usage};
use crate::reply::think;
use crate::seed::Seed;

/// One completion to ask for: a single user turn.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Call {
    /// `METHOD/PURPOSE`, for accounting and seeds.
    pub purpose: &'static str,
    pub prompt: String,
    /// The most tokens of the reply; the run's own limit may be lower.
    pub max_tokens: usize,
    pub temperature: f64,
    /// What the reply is held to; `None` leaves it free.
    pub form: Option<Grammar>,
}

/// A backbone for one phase (recall or learn) of one step, and the calls made so far.
pub struct Llm<'a> {
    backbone: &'a dyn Generate,
    seed: Seed,
    /// Limit of the run on every reply.
    max_reply_tokens: Option<usize>,
    /// Replies of an earlier run of the same phase, in order; `None` asks the backbone.
    stored: RefCell<Option<VecDeque<MemoryCall>>>,
    calls: RefCell<Vec<MemoryCall>>,
}

impl<'a> Llm<'a> {
    pub fn new(backbone: &'a dyn Generate, seed: Seed, max_reply_tokens: Option<usize>) -> Llm<'a> {
        let (stored, calls) = (RefCell::new(None), RefCell::new(Vec::new()));
        Llm { backbone, seed, max_reply_tokens, stored, calls }
    }

    /// The same, with the replies that an earlier run stored.
    pub fn replaying(self, stored: Vec<MemoryCall>) -> Llm<'a> {
        Llm { stored: RefCell::new(Some(stored.into())), ..self }
    }

    /// The calls made, in order.
    pub fn into_calls(self) -> Vec<MemoryCall> {
        self.calls.into_inner()
    }

    /// Asks once. `read` is given the reply without its reasoning; where it finds nothing, or nothing was said, the call
    /// counts as unread and the method's fallback applies.
    ///
    /// # Errors
    /// When the engine fails, or a stored reply belongs to another request.
    pub(super) fn ask<T>(&self, call: Call, read: impl Fn(&str) -> Option<T>) -> anyhow::Result<Option<T>> {
        let mut found = self.ask_all(std::slice::from_ref(&call), |_, reply| read(reply))?;
        found.pop().context("one call has one reply")
    }

    /// Asks up to `tries` times, with other draws each time, until a reply can be read.
    pub(super) fn ask_again<T>(
        &self,
        call: &Call,
        tries: u32,
        read: impl Fn(&str) -> Option<T>,
    ) -> anyhow::Result<Option<T>> {
        for _ in 0..tries {
            let found = self.ask(call.clone(), &read)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Asks all at once, in one batch; results in the order of the calls. `read` also gets the call's index.
    pub(super) fn ask_all<T>(
        &self,
        calls: &[Call],
        read: impl Fn(usize, &str) -> Option<T>,
    ) -> anyhow::Result<Vec<Option<T>>> {
        let mut noted = Vec::with_capacity(calls.len());
        let mut open = Vec::new();
        let mut requests = Vec::new();
        for call in calls {
            let earlier = self.calls.borrow();
            let number = earlier.iter().chain(&noted).filter(|noted| noted.purpose == call.purpose).count();
            drop(earlier);
            let request = self.request(call, number as u32)?;
            let mut note = MemoryCall {
                purpose: call.purpose.to_string(),
                request: digest(&request),
                reply: String::new(),
                is_read: false,
                usage: Usage::default(),
            };
            if let Some(stored) = self.stored.borrow_mut().as_mut() {
                note = stored_reply(stored, note)?;
            } else if request.tokens.len() + request.sampling.max_tokens <= self.backbone.context() {
                open.push(noted.len());
                requests.push(request);
            }
            noted.push(note);
        }
        if !requests.is_empty() {
            for (index, completion) in open.into_iter().zip(self.backbone.complete_all(requests)?) {
                noted[index].usage = Usage {
                    prompt_tokens: completion.usage.prompt as u64,
                    generated_tokens: completion.usage.generated as u64,
                };
                noted[index].reply = completion.text;
            }
        }
        let found = noted
            .iter_mut()
            .enumerate()
            .map(|(index, note)| {
                let said = think::strip(&note.reply).filter(|said| !said.trim().is_empty());
                let found = said.and_then(|said| read(index, said));
                note.is_read = found.is_some();
                found
            })
            .collect();
        self.calls.borrow_mut().extend(noted);
        Ok(found)
    }

    /// The last reply, verbatim.
    pub(super) fn last_reply(&self) -> String {
        self.calls.borrow().last().map_or(String::new(), |call| call.reply.clone())
    }

    /// Tokens of a text.
    pub(super) fn count(&self, text: &str) -> usize {
        self.backbone.encode(text).len()
    }

    /// Tokens that a prompt may have, at most `limit`, so that a reply of `reply_tokens` still fits the context.
    pub(super) fn room(&self, limit: usize, reply_tokens: usize) -> usize {
        let reply_tokens = self.max_reply_tokens.map_or(reply_tokens, |most| most.min(reply_tokens));
        limit.min(self.backbone.context().saturating_sub(reply_tokens + TEMPLATE_TOKENS))
    }

    /// The start of a text with at most `limit` tokens, cut at a line's end where one is near.
    pub(super) fn cut(&self, text: &str, limit: usize) -> String {
        cut(text, limit, &|text| self.count(text))
    }

    fn request(&self, call: &Call, number: u32) -> anyhow::Result<Request> {
        let tokens = tokens(&[Message::new(Role::User, call.prompt.as_str())], self.backbone)
            .with_context(|| format!("prompt of {}", call.purpose))?;
        let max_tokens = self.max_reply_tokens.map_or(call.max_tokens, |most| most.min(call.max_tokens));
        let sampling =
            Sampling { temperature: call.temperature, max_tokens, grammar: call.form.clone(), ..Sampling::default() };
        Ok(Request { tokens, sampling, seed: self.seed.derive(call.purpose, &[number]).0 })
    }
}

/// The backbone as one memory asks it: with the forms of its calls, or without any.
#[derive(Clone, Copy)]
pub(super) struct Asker<'a> {
    llm: &'a Llm<'a>,
    is_constrained: bool,
}

impl<'a> Asker<'a> {
    pub(super) fn new(llm: &'a Llm<'a>, is_constrained: bool) -> Asker<'a> {
        Asker { llm, is_constrained }
    }

    /// As [`Llm::ask`].
    pub(super) fn ask<T>(&self, call: Call, read: impl Fn(&str) -> Option<T>) -> anyhow::Result<Option<T>> {
        self.llm.ask(self.formed(call), read)
    }

    /// As [`Llm::ask_again`].
    pub(super) fn ask_again<T>(
        &self,
        call: Call,
        tries: u32,
        read: impl Fn(&str) -> Option<T>,
    ) -> anyhow::Result<Option<T>> {
        self.llm.ask_again(&self.formed(call), tries, read)
    }

    /// As [`Llm::ask_all`].
    pub(super) fn ask_all<T>(
        &self,
        calls: Vec<Call>,
        read: impl Fn(usize, &str) -> Option<T>,
    ) -> anyhow::Result<Vec<Option<T>>> {
        let calls: Vec<Call> = calls.into_iter().map(|call| self.formed(call)).collect();
        self.llm.ask_all(&calls, read)
    }

    fn formed(&self, call: Call) -> Call {
        Call { form: call.form.filter(|_| self.is_constrained), ..call }
    }
}

/// Everything that is no question: counting, cutting, room.
impl<'a> std::ops::Deref for Asker<'a> {
    type Target = Llm<'a>;

    fn deref(&self) -> &Llm<'a> {
        self.llm
    }
}

/// What a chat template adds around one turn, and room to spare.
const TEMPLATE_TOKENS: usize = 64;

/// The longest start of a text that `count` measures as at most `limit`, by characters; then back to the end of a line
/// when that loses less than a fifth.
pub fn cut(text: &str, limit: usize, count: &dyn Fn(&str) -> usize) -> String {
    if count(text) <= limit {
        return text.to_string();
    }
    let ends: Vec<usize> = text.char_indices().map(|(start, _)| start).collect();
    let kept = ends.partition_point(|end| *end == 0 || count(&text[..*end]) <= limit);
    let kept = &text[..ends[kept.saturating_sub(1)]];
    match kept.rfind('\n') {
        Some(line_end) if line_end * 5 >= kept.len() * 4 => kept[..line_end].to_string(),
        _ => kept.to_string(),
    }
}

/// The tokens that ask for the reply to a dialogue. A model without a chat template gets plain labelled text.
pub fn tokens(messages: &[Message], backbone: &dyn Prompter) -> anyhow::Result<Vec<u32>> {
    if backbone.has_template() {
        let chat: Vec<ChatMessage> =
            messages.iter().map(|message| ChatMessage::new(message.role.as_str(), &message.content)).collect();
        return backbone.render(&chat);
    }
    let mut text = String::new();
    for message in messages {
        match message.role {
            Role::System => text.push_str(&format!("{}\n\n", message.content)),
            Role::User => text.push_str(&format!("Question: {}\nReply:", message.content)),
            Role::Assistant => text.push_str(&format!(" {}\n\n", message.content)),
        }
    }
    Ok(backbone.encode(&text))
}

fn stored_reply(stored: &mut VecDeque<MemoryCall>, asked: MemoryCall) -> anyhow::Result<MemoryCall> {
    let call =
        stored.pop_front().with_context(|| format!("replay asks {}, which the stored run did not", asked.purpose))?;
    ensure!(
        (&call.purpose, &call.request) == (&asked.purpose, &asked.request),
        "the stored run asked {} (request {}), replay asks {} (request {}): the memory's code or prompts changed since; \
         start a new run folder with --out",
        call.purpose,
        call.request,
        asked.purpose,
        asked.request
    );
    Ok(call)
}

fn digest(request: &Request) -> String {
    let mut hasher = blake3::Hasher::new();
    for token in &request.tokens {
        hasher.update(&token.to_le_bytes());
    }
    let Sampling { temperature, max_tokens, ref grammar, .. } = request.sampling;
    if let Some(grammar) = grammar {
        hasher.update(&serde_json::to_vec(grammar).expect("a grammar is plain data"));
    }
    hasher.update(&temperature.to_le_bytes()).update(&(max_tokens as u64).to_le_bytes());
    hasher.update(&request.seed.to_le_bytes());
    hasher.finalize().to_hex()[..16].to_string()
}
