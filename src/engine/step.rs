//! The engine's loop body: schedule → pack → forward → sample → commit.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use lifelong_kernels::ops::sample::Sampling as DeviceSampling;
use lifelong_kernels::{Device, KvCache, Values};
use lifelong_models::architecture::{Decoder, Scratch};

use super::batch::PackedBatch;
use super::device_sampler;
use super::error::{Error, Result};
use super::filters::NonFinite;
use super::forced::{ForcedLogprobs, Forcing};
use super::generation::{Generation, ModelLimits};
use super::request::Completion;
use super::sampler::{Found, Sampler, Wanted};
use super::scheduler::{RequestId, Row, Scheduler, Span};
use super::stats::Stats;
use super::submission::{Submission, Submissions};

/// What comes back for one request.
pub(crate) enum Event {
    Text(String),
    End(Result<Ended>),
}

/// What a request became, by what it asked for.
pub(crate) enum Ended {
    Completion(Completion),
    Logprobs(ForcedLogprobs),
}

/// What a request asks for, as far as it has come.
pub(crate) enum Work {
    Generation(Box<Generation>),
    Forcing(Forcing),
}

/// Where a request's events go, under which number.
#[derive(Clone)]
pub(crate) struct Reply {
    pub(crate) index: usize,
    pub(crate) sender: Sender<(usize, Event)>,
    /// Whether text is sent as it is generated.
    pub(crate) streams: bool,
}

impl Reply {
    pub(crate) fn send(&self, event: Event) {
        // Whoever stopped listening has cancelled, and the message that says so is on its way.
        let _ = self.sender.send((self.index, event));
    }

    pub(crate) fn end(&self, outcome: Result<Ended>) {
        self.send(Event::End(outcome));
    }
}

/// A request that has not ended.
struct Open {
    work: Work,
    reply: Reply,
}

/// Everything the engine thread owns.
pub(crate) struct Core {
    pub(crate) decoder: Arc<dyn Decoder>,
    pub(crate) device: Device,
    pub(crate) kv: KvCache,
    pub(crate) scheduler: Scheduler,
    pub(crate) sampler: Sampler,
    pub(crate) eos: Vec<u32>,
    pub(crate) stats: Arc<Mutex<Stats>>,
    pub(crate) buffers: Buffers,
}

/// Memory kept between steps, and the requests in flight.
#[derive(Default)]
pub(crate) struct Buffers {
    batch: PackedBatch,
    scratch: Scratch,
    /// `[tokens whose logits are wanted, vocabulary]`
    logits: Values,
    open: BTreeMap<RequestId, Open>,
    /// Requests that are not queued yet, first call first; no entry is empty.
    submitted: VecDeque<Submissions>,
    counted: Stats,
}

impl Core {
    pub(crate) fn is_idle(&self) -> bool {
        self.scheduler.is_idle() && self.buffers.submitted.is_empty()
    }

    /// Takes in requests that have been checked against the model's and the cache's limits.
    pub(crate) fn submit(&mut self, submissions: Submissions) {
        if submissions.ready.len() > 0 {
            self.buffers.submitted.push_back(submissions);
        }
    }

    /// Queues as many requests as the scheduler looks at.
    fn fill_queue(&mut self) {
        let Buffers { submitted, open, .. } = &mut self.buffers;
        while self.scheduler.wants_requests()
            && let Some(first) = submitted.front_mut()
        {
            if let Some(Submission { id, tokens, outputs, work, reply }) = first.ready.next() {
                self.scheduler.submit(id, tokens, outputs);
                open.insert(id, Open { work, reply });
            }
            if first.ready.len() == 0 {
                submitted.pop_front();
            }
        }
    }

    /// Forgets requests nobody waits for.
    pub(crate) fn cancel(&mut self, ids: std::ops::Range<RequestId>) {
        self.scheduler.cancel(|id| ids.contains(&id));
        self.buffers.submitted.retain(|submissions| submissions.ids != ids);
        self.buffers.open.retain(|id, _| !ids.contains(id));
    }

    /// Ends every request with this error; those not queued yet by hanging up.
    pub(crate) fn fail_all(&mut self, error: &Error) {
        self.buffers.submitted.clear();
        for open in std::mem::take(&mut self.buffers.open).into_values() {
            open.reply.end(Err(error.clone()));
        }
    }

    /// Computes the next tokens of every row that has some.
    pub(crate) fn step(&mut self) {
        self.fill_queue();
        let spans = self.scheduler.schedule();
        self.buffers.batch.pack(&spans, self.scheduler.rows());
        if let Err(error) = self.forward() {
            return self.fail_rows(&spans, &error);
        }
        self.scheduler.commit(&spans);
        match self.sample(&spans) {
            Ok(found) => self.accept(&spans, found),
            Err(error) => self.fail_rows(&spans, &error),
        }
    }

    fn forward(&mut self) -> Result<()> {
        let Buffers { batch, scratch, logits, counted, .. } = &mut self.buffers;
        let started = Instant::now();
        let outcome = self.decoder.forward(&self.device, &batch.view(), &mut self.kv, scratch, logits);
        counted.forward_seconds += started.elapsed().as_secs_f64();
        counted.computed_tokens += batch.tokens() as u64;
        counted.steps += 1;
        outcome.map_err(|error| Error::Forward { reason: error.to_string() })
    }

    /// What each wanted row of logits gives, span by span.
    fn sample(&mut self, spans: &[Span]) -> Result<Vec<Result<Found, NonFinite>>> {
        let Buffers { logits, open, counted, .. } = &mut self.buffers;
        let (started, vocabulary, on_gpu) = (Instant::now(), self.decoder.geometry().vocab, self.device.is_gpu());
        let mut wanted: Vec<Wanted<'_>> = Vec::with_capacity(spans.len());
        let mut plain: Vec<Option<DeviceSampling>> = Vec::new();
        for span in spans.iter().filter(|span| span.outputs > 0) {
            match &open[&self.scheduler.rows()[span.row].id].work {
                Work::Generation(generation) => {
                    wanted.push(Wanted::Draw(generation.row_sampling()));
                    if on_gpu {
                        plain.push(generation.device_sampling());
                    }
                    counted.generated_tokens += 1;
                }
                Work::Forcing(forcing) => {
                    let targets = forcing.targets(span.start + span.len, span.outputs);
                    wanted.extend(targets.iter().map(|target| Wanted::Logprob(*target)));
                    if on_gpu {
                        plain.extend(targets.iter().map(|_| None));
                    }
                }
            }
        }
        let found = if on_gpu {
            device_sampler::sample(&self.device, &self.sampler, logits, vocabulary, &wanted, &plain)
                .map_err(|error| Error::Forward { reason: error.to_string() })?
        } else {
            self.sampler.sample(logits, vocabulary, &wanted)
        };
        counted.sample_seconds += started.elapsed().as_secs_f64();
        Ok(found)
    }

    /// Gives each row what was found for it, and ends the rows it was the last for.
    fn accept(&mut self, spans: &[Span], found: Vec<Result<Found, NonFinite>>) {
        let mut ended: BTreeMap<RequestId, Result<Ended>> = BTreeMap::new();
        let mut found = found.into_iter();
        for span in spans.iter().filter(|span| span.outputs > 0) {
            let own: Vec<Result<Found, NonFinite>> = found.by_ref().take(span.outputs).collect();
            let row = &self.scheduler.rows()[span.row];
            let id = row.id;
            let Some(Open { work, reply }) = self.buffers.open.get_mut(&id) else { continue };
            let outcome = match work {
                Work::Generation(generation) => {
                    let limits = ModelLimits { eos: &self.eos, context: self.decoder.geometry().context };
                    let drawn = own.into_iter().next().expect("a row that draws wants one row of logits");
                    match draw_next(generation, row, reply, drawn, limits) {
                        Next::Token(token) => {
                            self.scheduler.append(span.row, token);
                            None
                        }
                        Next::End(outcome) => Some(outcome),
                    }
                }
                Work::Forcing(forcing) => force_next(forcing, row, span, own),
            };
            ended.extend(outcome.map(|outcome| (id, outcome)));
        }
        self.end(ended);
    }

    fn fail_rows(&mut self, spans: &[Span], error: &Error) {
        let rows = self.scheduler.rows();
        let failed = spans.iter().map(|span| (rows[span.row].id, Err(error.clone()))).collect();
        self.end(failed);
    }

    /// Takes the rows' blocks back and counts them before anyone hears of it, so that a follow-up request finds both.
    fn end(&mut self, ended: BTreeMap<RequestId, Result<Ended>>) {
        self.scheduler.finish(|id| ended.contains_key(&id));
        for outcome in ended.values() {
            let counted = &mut self.buffers.counted;
            counted.finished_requests += 1;
            let usage = match outcome {
                Ok(Ended::Completion(completion)) => completion.usage,
                Ok(Ended::Logprobs(found)) => found.usage,
                Err(_) => continue,
            };
            counted.prompt_tokens += usage.prompt as u64;
            counted.reused_tokens += usage.reused as u64;
        }
        self.publish_stats();
        for (id, outcome) in ended {
            if let Some(open) = self.buffers.open.remove(&id) {
                open.reply.end(outcome);
            }
        }
    }

    fn publish_stats(&mut self) {
        let Buffers { submitted, counted, .. } = &mut self.buffers;
        let unqueued: usize = submitted.iter().map(|submissions| submissions.ready.len()).sum();
        counted.evictions = self.scheduler.cache().evictions();
        counted.preemptions = self.scheduler.preemptions();
        counted.running = self.scheduler.rows().len();
        counted.waiting = self.scheduler.waiting() + unqueued;
        if let Ok(mut stats) = self.stats.lock() {
            *stats = *counted;
        }
    }
}

/// How a generation goes on.
enum Next {
    Token(u32),
    End(Result<Ended>),
}

/// Takes in what was found for a generation.
fn draw_next(
    generation: &mut Generation,
    row: &Row,
    reply: &Reply,
    found: Result<Found, NonFinite>,
    limits: ModelLimits<'_>,
) -> Next {
    let Ok(Found::Draw(draw)) = found else {
        let (request, prompt, position) = (row.id, generation.prompt(), generation.drawn());
        return Next::End(Err(match generation.grammar_fault() {
            Some(reason) => Error::GrammarWork { request, position, reason },
            None => Error::NonFiniteLogits { request, prompt, position },
        }));
    };
    let token = draw.token;
    let progress = generation.accept(draw, limits);
    if reply.streams && !progress.shown.is_empty() {
        reply.send(Event::Text(progress.shown));
    }
    match progress.finish {
        None => Next::Token(token),
        Some(finish) => Next::End(Ok(Ended::Completion(generation.take_completion(finish, row.reused())))),
    }
}

/// Takes in log-probabilities of a forced row; its end with the last of them.
fn force_next(
    forcing: &mut Forcing,
    row: &Row,
    span: &Span,
    found: Vec<Result<Found, NonFinite>>,
) -> Option<Result<Ended>> {
    let mut logprobs = Vec::with_capacity(found.len());
    for (index, found) in found.into_iter().enumerate() {
        let Ok(Found::Logprob(logprob)) = found else {
            let position = span.start + span.len - span.outputs + index + 1 - forcing.prompt();
            return Some(Err(Error::NonFiniteLogits { request: row.id, prompt: forcing.prompt(), position }));
        };
        logprobs.push(logprob);
    }
    forcing.accept(span.start + span.len, &logprobs);
    span.is_last.then(|| Ok(Ended::Logprobs(forcing.take(row.reused()))))
}
