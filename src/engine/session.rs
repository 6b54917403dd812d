//! The engine as its users see it: start it with a model, take sessions from it, ask for completions.
//!
//! Threads, not async: one thread owns a device and any number of threads block on sessions. They share batches
//! because they wait at once. The same model on several devices is one engine with as many threads.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use lifelong_kernels::{Device, KvCache, KvGeometry, KvType};
use lifelong_models::Batching;

use super::block::{BLOCK_TOKENS, blocks_for, default_kv_type};
use super::cache::Cache;
use super::error::{Error, Result};
use super::forced::{ForcedLogprobs, ForcedRequest};
use super::generate::{Generate, Prompter};
use super::generation::Generation;
use super::grammar::{Constraint, GrammarCompiler};
use super::model::{LoadedModel, render};
use super::planner;
use super::replicas::{Replicas, Share};
use super::request::{Completion, Finish, Piece, Request};
use super::sampler::Sampler;
use super::scheduler::{Limits, Outputs, RequestId, Scheduler};
use super::serve::serve;
use super::stats::Stats;
use super::step::{Buffers, Core, Ended, Event, Reply, Work};
use super::submission::{Submission, Submissions};
use super::template::{ChatMessage, RenderOptions};
use super::tokenizer::{Specials, Tokenizer};
use crate::reply::tool_call::{self, Dialect, Reading, Tool, opens_thought};

/// How an engine uses the machine. Only `kv_type` changes a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Requests decoded in one step. Default 64.
    pub max_batch: usize,
    /// Memory of the KV cache in bytes, on each device. Default: a quarter of the free memory, at most 8 GiB, on a GPU nine tenths of what the
    /// weights leave; and no more than `max_batch` requests of the model's whole context can use.
    pub kv_memory_bytes: Option<u64>,
    /// Prompt tokens computed in one step, beside the tokens of requests that are decoding. Default 256.
    pub prefill_chunk: usize,
    /// Whether computed prefixes are kept for later requests. Default true.
    pub prefix_cache: bool,
    /// How keys and values are kept. Default `i16`, on a GPU and of keys with a bias `f16`; a model that keeps them itself does so in `f32`.
    pub kv_type: Option<KvType>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions { max_batch: 64, kv_memory_bytes: None, prefill_chunk: 256, prefix_cache: true, kv_type: None }
    }
}

/// A running engine. Dropping it ends requests that still wait with [`Error::Stopped`].
pub struct Engine {
    session: Session,
    /// One a replica.
    threads: Vec<JoinHandle<()>>,
}

/// A way to ask an engine for completions; clones are cheap and may be used by many threads at once.
#[derive(Clone)]
pub struct Session {
    shared: Arc<Shared>,
    replicas: Replicas,
}

struct Shared {
    model: LoadedModel,
    grammars: GrammarCompiler,
    kv_blocks: usize,
    bytes_per_block: u64,
    next_id: AtomicU64,
    /// Of each replica.
    stats: Vec<Arc<Mutex<Stats>>>,
    /// Why the engine thread ended, once it has.
    stopped: OnceLock<String>,
}

impl Shared {
    fn stats_of_each(&self) -> Vec<Stats> {
        self.stats.iter().map(|stats| stats.lock().map(|stats| *stats).unwrap_or_default()).collect()
    }
}

impl Engine {
    /// Starts the engine thread over a loaded model.
    ///
    /// # Errors
    /// [`Error::Option`] for an option out of range, [`Error::Forward`] when the device refuses the KV cache.
    pub fn start(model: LoadedModel, options: &EngineOptions) -> Result<Engine> {
        Self::start_replicas(vec![model], options)
    }

    /// As [`Engine::start`], over the same model on several devices, which share all requests. No result shows how many
    /// there are.
    ///
    /// # Errors
    /// As [`Engine::start`].
    pub fn start_replicas(models: Vec<LoadedModel>, options: &EngineOptions) -> Result<Engine> {
        let at_least_one = |option, value: usize| match value {
            0 => Err(Error::Option { option, expected: "at least 1".to_string(), found: "0".to_string() }),
            _ => Ok(()),
        };
        at_least_one("max_batch", options.max_batch)?;
        at_least_one("prefill_chunk", options.prefill_chunk)?;

        let (mut cores, mut blocks, mut bytes_per_block) = (Vec::with_capacity(models.len()), usize::MAX, 0);
        for model in &models {
            let (core, geometry) = start_core(model, options)?;
            cores.push(core);
            blocks = blocks.min(geometry.blocks);
            bytes_per_block = (geometry.bytes_per_block() / parts(&model.device)) as u64;
        }
        let Some(model) = models.into_iter().next() else {
            let (expected, found) = ("at least one model".to_string(), "none".to_string());
            return Err(Error::Option { option: "replicas", expected, found });
        };
        let shared = Arc::new(Shared {
            grammars: GrammarCompiler::new(model.tokenizer.clone(), model.eos.clone()),
            model,
            kv_blocks: blocks,
            bytes_per_block,
            next_id: AtomicU64::new(0),
            stats: cores.iter().map(|core| Arc::clone(&core.stats)).collect(),
            stopped: OnceLock::new(),
        });
        let (mut threads, mut outboxes) = (Vec::new(), Vec::new());
        for core in cores {
            let (outbox, inbox) = channel();
            let thread_shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new()
                .name("engine".to_string())
                .spawn(move || serve(core, inbox, &thread_shared.stopped))
                .map_err(|error| Error::Stopped { reason: format!("its thread did not start: {error}") })?;
            threads.push(thread);
            outboxes.push(outbox);
        }
        Ok(Engine { session: Session { shared, replicas: Replicas::new(outboxes) }, threads })
    }

    pub fn session(&self) -> Session {
        self.session.clone()
    }

    /// What the engine has done so far; readable while it runs.
    pub fn stats(&self) -> Stats {
        self.session.stats()
    }

    /// What each replica has done so far.
    pub fn stats_of_each(&self) -> Vec<Stats> {
        self.session.shared.stats_of_each()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.session.replicas.stop();
        for thread in self.threads.drain(..) {
            // Its panic, if any, has been answered to every request.
            let _ = thread.join();
        }
    }
}

impl Session {
    /// One completion; blocks until it is done.
    ///
    /// # Errors
    /// When the request is invalid or can never fit (checked before it is queued), when the model's numbers are not
    /// finite, or when the engine stops.
    pub fn complete(&self, request: Request) -> Result<Completion> {
        let mut completions = self.complete_all(vec![request]);
        let (_, completion) = completions.next().expect("one request gives one completion");
        completion
    }

    /// Completions of a whole set of requests, in the order in which they end, each with its index in `requests`.
    ///
    /// The set is ordered by shared prefix before it is queued. Dropping the iterator cancels what has not ended.
    pub fn complete_all(&self, requests: Vec<Request>) -> Completions {
        let order = planner::by_shared_prefix(&requests);
        Completions { events: self.submit(requests, order, false) }
    }

    /// One completion, in pieces as they are generated. Dropping the iterator cancels it.
    ///
    /// # Errors
    /// When the request is invalid or can never fit.
    pub fn stream(&self, request: Request) -> Result<Pieces> {
        self.check(&request)?;
        Ok(Pieces { events: self.submit(vec![request], vec![0], true) })
    }

    pub fn tokenizer(&self) -> &Tokenizer {
        &self.shared.model.tokenizer
    }

    /// Whether the model has a chat template.
    pub fn has_template(&self) -> bool {
        self.shared.model.template.is_some()
    }

    /// The prompt of a dialogue through the model's chat template.
    ///
    /// # Errors
    /// [`Error::Render`] when the model has no template or the template refuses the dialogue.
    pub fn render(&self, messages: &[ChatMessage], options: &RenderOptions) -> Result<Vec<u32>> {
        let model = &self.shared.model;
        render(&model.name, &model.tokenizer, model.template.as_ref(), messages, options)
    }

    /// The form in which the model calls tools and thinks, where its template shows a known one.
    pub fn dialect(&self) -> Option<&'static dyn Dialect> {
        self.shared.model.template.as_ref()?.dialect()
    }

    /// Takes the reply to a chat apart: calls, thought and text, in the form that the model's template asks for.
    /// `prompt` are the tokens that were answered, `tools` what was on offer. `None` for a model whose form of calls is
    /// not known.
    pub fn read_reply(&self, prompt: &[u32], completion: &Completion, tools: &[Tool]) -> Option<tool_call::Reply> {
        let dialect = self.dialect()?;
        let tokenizer = self.tokenizer();
        // A template opens a thought with its last few tokens, or not at all.
        const TAIL: usize = 16;
        let end = tokenizer.decode_with_specials(&prompt[prompt.len().saturating_sub(TAIL)..]);
        let reading = Reading { tools, thought_is_open: opens_thought(&end), ..Reading::default() };
        // Marks may be control tokens, which the completion's text leaves out; a stop text's tokens are no part of it.
        Some(match completion.finish {
            Finish::StopString(_) => dialect.read(&completion.text, &reading),
            _ => dialect.read(&tokenizer.decode_with_specials(&completion.tokens), &reading),
        })
    }

    /// The model's context in tokens.
    pub fn context(&self) -> usize {
        self.shared.model.decoder.geometry().context
    }

    /// The loaded model, for its name, digest and device.
    pub fn model(&self) -> &LoadedModel {
        &self.shared.model
    }

    /// What the engine has done so far; readable while it runs.
    pub fn stats(&self) -> Stats {
        let mut all = Stats::default();
        self.shared.stats_of_each().into_iter().for_each(|stats| all += stats);
        all
    }

    /// Hands requests over in this order; invalid ones are answered at once.
    fn submit(&self, mut requests: Vec<Request>, mut order: Vec<usize>, streams: bool) -> Events {
        let Opened { ids, sender, events } = self.open(requests.len());
        let mut constraints = BTreeMap::new();
        order.retain(|&index| {
            let request = &requests[index];
            let answered = match (self.check(request), request.completed_at_once()) {
                (Err(error), _) => Some(Err(error)),
                (Ok(_), Some(completion)) => Some(Ok(Ended::Completion(completion))),
                (Ok(constraint), None) => {
                    constraints.extend(constraint.map(|constraint| (index, constraint)));
                    None
                }
            };
            let is_open = answered.is_none();
            if let Some(outcome) = answered {
                Reply { index, sender: sender.clone(), streams }.end(outcome);
            }
            is_open
        });
        let runs = self.runs(order, |index| {
            let Request { tokens, sampling, .. } = &requests[index];
            Share { prompt: tokens, behind: sampling.max_tokens }
        });
        let (first, shared) = (ids.start, Arc::clone(&self.shared));
        self.hand_over(ids, runs, move |index| {
            let request = &mut requests[index];
            let stream = shared.model.text_stream(&request.tokens);
            let generation = Generation::new(request, stream, constraints.remove(&index));
            Submission {
                id: first + index as u64,
                tokens: std::mem::take(&mut request.tokens),
                outputs: Outputs::Last,
                work: Work::Generation(Box::new(generation)),
                reply: Reply { index, sender: sender.clone(), streams },
            }
        });
        events
    }

    /// Ids and a channel for one call of `count` requests.
    pub(super) fn open(&self, count: usize) -> Opened {
        let first = self.shared.next_id.fetch_add(count as u64, Ordering::Relaxed);
        let ids = first..first + count as u64;
        let (sender, events) = channel();
        let has_ended = vec![false; count];
        let events = Events { session: self.clone(), ids: ids.clone(), events, has_ended, open: count };
        Opened { ids, sender, events }
    }

    /// Gives the replicas their runs of a call's valid requests, each made ready when its turn is near.
    pub(super) fn hand_over(
        &self,
        ids: Range<RequestId>,
        runs: Vec<(usize, Vec<usize>)>,
        make_ready: impl FnMut(usize) -> Submission + Send + 'static,
    ) {
        // One copy of a call's requests, whatever takes them: a plan may hold a hundred thousand.
        let make_ready = Arc::new(Mutex::new(make_ready));
        for (replica, run) in runs {
            let make_ready = Arc::clone(&make_ready);
            let ready = run.into_iter().map(move |index| {
                let mut make_ready = make_ready.lock().unwrap_or_else(PoisonError::into_inner);
                (*make_ready)(index)
            });
            self.replicas.submit(replica, Submissions { ids: ids.clone(), ready: Box::new(ready) });
        }
    }

    /// The runs of a call's requests, each with the replica that takes it.
    pub(super) fn runs<'a>(&self, order: Vec<usize>, share: impl Fn(usize) -> Share<'a>) -> Vec<(usize, Vec<usize>)> {
        self.replicas.runs(order, share)
    }

    /// Checks a request, and compiles its grammar.
    fn check(&self, request: &Request) -> Result<Option<Constraint>> {
        let Request { tokens, sampling, .. } = request;
        sampling.validate()?;
        self.check_tokens(tokens)?;
        let generated = sampling.max_tokens.min(self.context() - tokens.len());
        self.check_blocks(tokens.len(), generated, blocks_for(tokens.len() + generated))?;
        sampling.grammar.as_ref().map(|grammar| self.shared.grammars.constraint(grammar)).transpose()
    }

    /// Checks a prompt against the model.
    pub(super) fn check_tokens(&self, prompt: &[u32]) -> Result<()> {
        if prompt.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        self.check_vocabulary(prompt, 0)?;
        if prompt.len() >= self.context() {
            return Err(Error::PromptTooLong { prompt: prompt.len(), context: self.context() });
        }
        Ok(())
    }

    /// Checks tokens that stand behind `before` others.
    pub(super) fn check_vocabulary(&self, tokens: &[u32], before: usize) -> Result<()> {
        let vocabulary = self.shared.model.decoder.geometry().vocab;
        match tokens.iter().position(|&token| token as usize >= vocabulary) {
            Some(at) => Err(Error::TokenOutOfVocabulary { token: tokens[at], position: before + at, vocabulary }),
            None => Ok(()),
        }
    }

    /// Checks that a request can ever fit the KV cache.
    pub(super) fn check_blocks(&self, prompt: usize, generated: usize, needed_blocks: usize) -> Result<()> {
        let budget_blocks = self.shared.kv_blocks;
        if needed_blocks > budget_blocks {
            let needed_bytes = needed_blocks as u64 * self.shared.bytes_per_block;
            return Err(Error::KvBudget { prompt, generated, needed_blocks, budget_blocks, needed_bytes });
        }
        Ok(())
    }

    fn stopped(&self) -> Error {
        let reason = self.shared.stopped.get();
        Error::Stopped { reason: reason.map_or_else(|| "it ended".to_string(), String::clone) }
    }
}

/// What a call to the engine begins with.
pub(super) struct Opened {
    pub(super) ids: Range<RequestId>,
    pub(super) sender: Sender<(usize, Event)>,
    pub(super) events: Events,
}

/// What comes back for the requests of one call. Dropping it cancels those that have not ended.
pub(super) struct Events {
    session: Session,
    ids: Range<RequestId>,
    events: Receiver<(usize, Event)>,
    has_ended: Vec<bool>,
    /// Requests that have not ended.
    open: usize,
}

impl Events {
    /// The next event; once the engine has stopped, an error for each request that has not ended.
    fn next_event(&mut self) -> Option<(usize, Event)> {
        if self.open == 0 {
            return None;
        }
        let (index, event) = match self.events.recv() {
            Ok(event) => event,
            Err(_) => {
                (self.has_ended.iter().position(|has_ended| !has_ended)?, Event::End(Err(self.session.stopped())))
            }
        };
        if matches!(event, Event::End(_)) {
            self.has_ended[index] = true;
            self.open -= 1;
        }
        Some((index, event))
    }

    /// The next request that ends, texts on the way passed over.
    pub(super) fn next_end(&mut self) -> Option<(usize, Result<Ended>)> {
        loop {
            if let (index, Event::End(outcome)) = self.next_event()? {
                return Some((index, outcome));
            }
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        if self.open > 0 {
            self.session.replicas.cancel(&self.ids);
        }
    }
}

fn completion(ended: Ended) -> Completion {
    match ended {
        Ended::Completion(completion) => completion,
        Ended::Logprobs(_) => unreachable!("a request that draws ends with a completion"),
    }
}

/// Completions as they end. See [`Session::complete_all`].
pub struct Completions {
    events: Events,
}

impl Iterator for Completions {
    type Item = (usize, Result<Completion>);

    fn next(&mut self) -> Option<Self::Item> {
        let (index, outcome) = self.events.next_end()?;
        Some((index, outcome.map(completion)))
    }
}

/// A completion in pieces. See [`Session::stream`].
pub struct Pieces {
    events: Events,
}

impl Iterator for Pieces {
    type Item = Result<Piece>;

    fn next(&mut self) -> Option<Self::Item> {
        let (_, event) = self.events.next_event()?;
        Some(match event {
            Event::Text(text) => Ok(Piece::Text(text)),
            Event::End(outcome) => outcome.map(|ended| Piece::End(completion(ended))),
        })
    }
}

/// Everything that one engine thread owns, and the extents of its cache.
fn start_core(model: &LoadedModel, options: &EngineOptions) -> Result<(Core, KvGeometry)> {
    let (limits, reuses_prefixes) = limits(model, options)?;
    let geometry = kv_geometry(model, options, limits)?;
    let kv = KvCache::new(&model.device, geometry).map_err(|error| Error::Forward { reason: error.to_string() })?;
    let core = Core {
        decoder: Arc::clone(&model.decoder),
        device: model.device.clone(),
        kv,
        scheduler: Scheduler::new(limits, Cache::new(geometry.blocks, reuses_prefixes)),
        sampler: Sampler::new(&model.device),
        eos: model.eos.clone(),
        stats: Arc::default(),
        buffers: Buffers::default(),
    };
    Ok((core, geometry))
}

/// What a step may hold, and whether computed prefixes are kept: as the options say, where the model can.
fn limits(model: &LoadedModel, options: &EngineOptions) -> Result<(Limits, bool)> {
    let found = || options.kv_type.map(|kv_type| format!("{kv_type:?}").to_lowercase()).unwrap_or_default();
    match model.decoder.batching() {
        Batching::Packed if model.device.is_gpu() && options.kv_type == Some(KvType::I16) => Err(Error::Option {
            option: "kv_type",
            expected: "`f16`, `bf16` or `f32` on a GPU".to_string(),
            found: found(),
        }),
        Batching::Packed => {
            let limits = Limits { max_batch: options.max_batch, prefill_chunk: options.prefill_chunk };
            Ok((limits, options.prefix_cache))
        }
        Batching::OneAtATime if options.kv_type.is_some_and(|kv_type| kv_type != KvType::F32) => Err(Error::Option {
            option: "kv_type",
            expected: format!("`f32`: model `{}` keeps its keys and values itself", model.name),
            found: found(),
        }),
        Batching::OneAtATime => Ok((Limits { max_batch: 1, prefill_chunk: usize::MAX }, false)),
    }
}

/// Devices that hold an equal part of the cache each.
fn parts(device: &Device) -> usize {
    device.members().len().max(1)
}

/// The extents of the KV cache that the budget of the device with the least memory allows.
fn kv_geometry(model: &LoadedModel, options: &EngineOptions, limits: Limits) -> Result<KvGeometry> {
    let geometry = model.decoder.geometry();
    let one_block = KvGeometry {
        kv_type: options.kv_type.unwrap_or_else(|| default_kv_type(&model.device, geometry)),
        ..geometry.kv(1)
    };
    let bytes_per_block = (one_block.bytes_per_block() / parts(&model.device)) as u64;
    let most_useful = (limits.max_batch as u64).saturating_mul(blocks_for(geometry.context) as u64);
    let blocks = match options.kv_memory_bytes {
        Some(bytes) => bytes / bytes_per_block,
        None => (default_kv_bytes(&model.device) / bytes_per_block).min(most_useful),
    };
    if blocks == 0 {
        return Err(Error::Option {
            option: "kv_memory_bytes",
            expected: format!("at least the {bytes_per_block} bytes of one block of {BLOCK_TOKENS} tokens"),
            found: options.kv_memory_bytes.unwrap_or_else(|| default_kv_bytes(&model.device)).to_string(),
        });
    }
    Ok(KvGeometry { blocks: usize::try_from(blocks).unwrap_or(usize::MAX).min(u32::MAX as usize), ..one_block })
}

/// On a GPU, all that is free but room for activations, in a group on the one that has least; of the processor's memory, which others want too, a quarter of what
/// is free now, at most 8 GiB, and 2 GiB where the system does not say.
fn default_kv_bytes(device: &Device) -> u64 {
    const MOST: u64 = 8 << 30;
    const UNKNOWN: u64 = 2 << 30;
    if let Ok(Some(free)) = device.free_memory() {
        return gpu_kv_bytes(free as u64);
    }
    super::machine::available_bytes().map_or(UNKNOWN, |bytes| (bytes / 4).min(MOST)) / parts(device) as u64
}

/// The weights are there already. Activations of a step take some hundred megabytes; a tenth covers them on small cards and
/// a gibibyte elsewhere.
fn gpu_kv_bytes(free: u64) -> u64 {
    free - (free / 10).max(1 << 30).min(free / 2)
}

impl Prompter for Session {
    fn render(&self, messages: &[ChatMessage]) -> anyhow::Result<Vec<u32>> {
        Ok(Session::render(self, messages, &RenderOptions::default())?)
    }

    fn encode(&self, text: &str) -> Vec<u32> {
        self.tokenizer().encode_prompt(text, Specials::Literal)
    }

    fn encode_reply(&self, text: &str) -> Vec<u32> {
        self.tokenizer().encode(text, Specials::Literal)
    }

    fn has_template(&self) -> bool {
        Session::has_template(self)
    }
}

impl Generate for Session {
    fn complete_all(&self, requests: Vec<Request>) -> anyhow::Result<Vec<Completion>> {
        let mut in_order: Vec<Option<Completion>> = vec![None; requests.len()];
        for (index, completion) in Session::complete_all(self, requests) {
            in_order[index] = Some(completion?);
        }
        Ok(in_order.into_iter().flatten().collect())
    }

    fn logprobs_all(&self, requests: Vec<ForcedRequest>) -> anyhow::Result<Vec<ForcedLogprobs>> {
        let mut in_order: Vec<Option<ForcedLogprobs>> = vec![None; requests.len()];
        for (index, found) in Session::logprobs_all(self, requests) {
            in_order[index] = Some(found?);
        }
        Ok(in_order.into_iter().flatten().collect())
    }

    fn context(&self) -> usize {
        Session::context(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_keeps_room_for_activations() {
        const GIB: u64 = 1 << 30;
        assert_eq!(gpu_kv_bytes(100 * GIB), 90 * GIB);
        assert_eq!(gpu_kv_bytes(5 * GIB), 4 * GIB);
        assert_eq!((gpu_kv_bytes(GIB), gpu_kv_bytes(0)), (GIB / 2, 0));
        assert!(default_kv_bytes(&Device::cpu(1)) <= 8 * GIB);
    }
}
