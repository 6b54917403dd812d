//! The engine's loop body: schedule → pack → forward → sample → commit.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use lifelong_kernels::{Device, KvCache, Values};
use lifelong_models::architecture::{Decoder, Scratch};

use super::batch::PackedBatch;
use super::device_sampler;
use super::error::{Error, Result};
use super::generation::{Generation, ModelLimits};
use super::request::Completion;
use super::sampler::{Draw, NonFinite, RowSampling, Sampler};
use super::scheduler::{RequestId, Scheduler, Span};
use super::stats::Stats;
use super::submission::{Submission, Submissions};

/// What comes back for one request.
pub(crate) enum Event {
    Text(String),
    End(Result<Completion>),
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
}

/// A request that has not ended.
struct Open {
    generation: Generation,
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
    /// `[rows that reach their last token, vocabulary]`
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
            if let Some(Submission { id, tokens, generation, reply }) = first.ready.next() {
                self.scheduler.submit(id, tokens);
                open.insert(id, Open { generation, reply });
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
            open.reply.send(Event::End(Err(error.clone())));
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
            Ok(draws) => self.accept(&spans, draws),
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

    /// One draw for each span that reached its row's last token.
    fn sample(&mut self, spans: &[Span]) -> Result<Vec<Result<Draw, NonFinite>>> {
        let Buffers { logits, open, counted, .. } = &mut self.buffers;
        let (started, vocabulary) = (Instant::now(), self.decoder.geometry().vocab);
        let generations: Vec<&Generation> = spans
            .iter()
            .filter(|span| span.is_last)
            .map(|span| &open[&self.scheduler.rows()[span.row].id].generation)
            .collect();
        let draws = if self.device.is_gpu() {
            device_sampler::sample(&self.device, &mut self.sampler, logits, vocabulary, &generations)
                .map_err(|error| Error::Forward { reason: error.to_string() })?
        } else {
            let rows: Vec<RowSampling<'_>> = generations.iter().map(|generation| generation.row_sampling()).collect();
            self.sampler.sample(logits, vocabulary, &rows)
        };
        counted.sample_seconds += started.elapsed().as_secs_f64();
        counted.generated_tokens += draws.len() as u64;
        Ok(draws)
    }

    /// Gives each row its token, and ends the rows it was the last for.
    fn accept(&mut self, spans: &[Span], draws: Vec<Result<Draw, NonFinite>>) {
        let mut ended: BTreeMap<RequestId, Result<Completion>> = BTreeMap::new();
        for (span, draw) in spans.iter().filter(|span| span.is_last).zip(draws) {
            let row = &self.scheduler.rows()[span.row];
            let (id, reused) = (row.id, row.reused());
            let Some(Open { generation, reply }) = self.buffers.open.get_mut(&id) else { continue };
            let Ok(draw) = draw else {
                let (prompt, position) = (generation.prompt(), generation.drawn());
                let error = match generation.grammar_fault() {
                    Some(reason) => Error::GrammarWork { request: id, position, reason },
                    None => Error::NonFiniteLogits { request: id, prompt, position },
                };
                ended.insert(id, Err(error));
                continue;
            };
            let token = draw.token;
            let limits = ModelLimits { eos: &self.eos, context: self.decoder.geometry().context };
            let progress = generation.accept(draw, limits);
            if reply.streams && !progress.shown.is_empty() {
                reply.send(Event::Text(progress.shown));
            }
            match progress.finish {
                None => self.scheduler.append(span.row, token),
                Some(finish) => {
                    ended.insert(id, Ok(generation.take_completion(finish, reused)));
                }
            }
        }
        self.end(ended);
    }

    fn fail_rows(&mut self, spans: &[Span], error: &Error) {
        let rows = self.scheduler.rows();
        let failed = spans.iter().map(|span| (rows[span.row].id, Err(error.clone()))).collect();
        self.end(failed);
    }

    /// Takes the rows' blocks back and counts them before anyone hears of it, so that a follow-up request finds both.
    fn end(&mut self, ended: BTreeMap<RequestId, Result<Completion>>) {
        self.scheduler.finish(|id| ended.contains_key(&id));
        for outcome in ended.values() {
            let counted = &mut self.buffers.counted;
            counted.finished_requests += 1;
            if let Ok(completion) = outcome {
                counted.prompt_tokens += completion.usage.prompt as u64;
                counted.reused_tokens += completion.usage.reused as u64;
            }
        }
        self.publish_stats();
        for (id, outcome) in ended {
            if let Some(open) = self.buffers.open.remove(&id) {
                open.reply.send(Event::End(outcome));
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
