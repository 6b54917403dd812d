//! From a row of logits to the next token.
//!
//! Whatever [`super::filters`] keep of the vocabulary, the draw walks it in order of token id: the algorithm that found the
//! set cannot be told from the token that was drawn.

use std::cell::RefCell;
use std::sync::Mutex;

use lifelong_kernels::Device;

use super::filters::{Candidate, Kept, NonFinite, Scratch, keep, keep_top_k};
use super::grammar::Constraint;
use super::penalty::History;
use super::request::{Logprobs, TokenLogprob};
use super::sampling::Sampling;
use super::softmax::{CHUNK, survey, weigh};

/// What one row needs to be drawn, its logits aside.
#[derive(Clone, Copy)]
pub(crate) struct RowSampling<'a> {
    pub(crate) sampling: &'a Sampling,
    pub(crate) history: &'a History,
    /// The walk through the request's grammar; each is in one row only, so nobody ever waits for it.
    pub(crate) constraint: Option<Held<'a>>,
    /// In [0, 1): the row's own number, decided by its seed and position.
    pub(crate) uniform: f64,
}

/// The form that the next token is held to.
#[derive(Clone, Copy)]
pub(crate) struct Held<'a> {
    pub(crate) walk: &'a Mutex<Constraint>,
    /// A token that may come instead of the form's: the one that opens a thought in front of it.
    pub(crate) beside: Option<u32>,
}

/// What is wanted of one row of logits.
#[derive(Clone, Copy)]
pub(crate) enum Wanted<'a> {
    Draw(RowSampling<'a>),
    /// The log-probability of this token.
    Logprob(u32),
}

/// What a row of logits gave.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Found {
    Draw(Draw),
    Logprob(f32),
}

/// A drawn token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Draw {
    pub(crate) token: u32,
    pub(crate) logprobs: Option<Logprobs>,
}

/// Draws for many rows at once.
pub(crate) struct Sampler {
    /// The threads of the forward pass, which have nothing to do meanwhile; beside a GPU threads of its own.
    processor: Device,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Sampler {
    pub(crate) fn new(device: &Device) -> Self {
        Sampler { processor: if device.is_gpu() { Device::cpu(device.threads()) } else { device.clone() } }
    }

    /// One result a row, in order: a function of its own logits and what is wanted of them.
    ///
    /// # Shapes
    /// `logits`: `[rows.len(), vocabulary]`; changed by the penalties.
    pub(crate) fn sample(
        &self,
        logits: &mut [f32],
        vocabulary: usize,
        rows: &[Wanted<'_>],
    ) -> Vec<Result<Found, NonFinite>> {
        debug_assert_eq!(logits.len(), rows.len() * vocabulary);
        let mut draws = vec![Err(NonFinite); rows.len()];
        // Each task has its row's lock for itself.
        let tasks: Vec<_> = draws.iter_mut().zip(logits.chunks_exact_mut(vocabulary)).map(Mutex::new).collect();
        self.processor.run(rows.len(), |row| {
            if let Ok(mut task) = tasks[row].lock() {
                let (slot, logits) = &mut *task;
                **slot = SCRATCH.with_borrow_mut(|scratch| match &rows[row] {
                    Wanted::Draw(sampling) => draw(logits, sampling, scratch).map(Found::Draw),
                    Wanted::Logprob(token) => logprob(logits, *token, scratch).map(Found::Logprob),
                });
            }
        });
        drop(tasks);
        draws
    }
}

/// Draws one token from one row.
pub(crate) fn draw(logits: &mut [f32], row: &RowSampling<'_>, scratch: &mut Scratch) -> Result<Draw, NonFinite> {
    let before_penalties = match row.sampling.logprobs {
        0 => None,
        count => Some(TopLogprobs::of(logits, count, scratch)?),
    };
    scratch.before.clear();
    if row.sampling.has_penalties() {
        row.history.penalise(logits, &mut scratch.before, row.sampling);
    }
    if let Some(Held { walk, beside }) = row.constraint {
        let is_masked = walk.lock().is_ok_and(|mut walk| walk.mask(logits, beside));
        if !is_masked {
            return Err(NonFinite);
        }
    }
    let token = match keep(logits, row.sampling, scratch)? {
        Kept::One(token) => token,
        Kept::All(total) => draw_from_all(row.uniform * total, scratch),
        Kept::Some(total) => draw_from_kept(row.uniform * total, &scratch.kept),
    };
    let logprobs = before_penalties.map(|top| {
        let unpenalised = scratch.before.iter().find(|(seen, _)| *seen == token).map(|(_, logit)| *logit);
        top.with_chosen(token, unpenalised.unwrap_or(logits[token as usize]))
    });
    Ok(Draw { token, logprobs })
}

/// Natural logarithm of a token's probability at temperature 1; −∞ for one that is masked.
fn logprob(logits: &[f32], token: u32, scratch: &mut Scratch) -> Result<f32, NonFinite> {
    let row = TopLogprobs::of(logits, 0, scratch)?;
    Ok(row.logprob(token, logits[token as usize]).logprob)
}

/// The tokens that can be drawn from a row after penalties, in order of id, and their probabilities.
#[cfg(test)]
pub(crate) fn distribution(
    logits: &mut [f32],
    sampling: &Sampling,
    history: &History,
) -> Result<Vec<(u32, f64)>, NonFinite> {
    let mut scratch = Scratch::default();
    let mut before = Vec::new();
    history.penalise(logits, &mut before, sampling);
    Ok(match keep(logits, sampling, &mut scratch)? {
        Kept::One(token) => vec![(token, 1.0)],
        Kept::All(total) => (0u32..)
            .zip(&scratch.weights)
            .filter(|(token, _)| logits[*token as usize] > f32::NEG_INFINITY)
            .map(|(token, &weight)| (token, f64::from(weight) / total))
            .collect(),
        Kept::Some(total) => scratch.kept.iter().map(|c| (c.token, f64::from(c.weight) / total)).collect(),
    })
}

/// The token at which the running sum of weights passes `target`, found by its chunk first.
fn draw_from_all(target: f64, scratch: &Scratch) -> u32 {
    let mut before = 0.0;
    let mut heavy_chunk = 0;
    for (chunk, &sum) in scratch.sums.iter().enumerate() {
        if sum > 0.0 {
            heavy_chunk = chunk;
            if before + f64::from(sum) > target {
                break;
            }
            before += f64::from(sum);
        }
    }
    let first = heavy_chunk * CHUNK;
    let weights = &scratch.weights[first..scratch.weights.len().min(first + CHUNK)];
    pass(target - before, weights.iter().copied().enumerate()).map_or(0, |within| (first + within) as u32)
}

fn draw_from_kept(target: f64, kept: &[Candidate]) -> u32 {
    pass(target, kept.iter().map(|candidate| candidate.weight).enumerate()).map_or(0, |index| kept[index].token)
}

/// The index at which the running sum passes `target`; the last with any weight when rounding keeps it below.
fn pass(target: f64, weights: impl Iterator<Item = (usize, f32)>) -> Option<usize> {
    let mut sum = 0.0;
    let mut last = None;
    for (index, weight) in weights.filter(|(_, weight)| *weight > 0.0) {
        last = Some(index);
        sum += f64::from(weight);
        if sum > target {
            break;
        }
    }
    last
}

/// Log-probabilities of a row before penalties.
struct TopLogprobs {
    greatest: f32,
    log_total: f64,
    top: Vec<TokenLogprob>,
}

impl TopLogprobs {
    fn of(logits: &[f32], count: usize, scratch: &mut Scratch) -> Result<Self, NonFinite> {
        let greatest = survey(&mut scratch.maxima, logits).ok_or(NonFinite)?;
        let log_total = weigh(&mut scratch.weights, &mut scratch.sums, logits, greatest, 1.0).ln();
        let mut logprobs = TopLogprobs { greatest, log_total, top: Vec::new() };
        if count == 0 {
            return Ok(logprobs);
        }
        keep_top_k(count.min(logits.len()), logits, scratch);
        scratch.kept.sort_unstable_by(Candidate::likelier);
        logprobs.top = scratch.kept.iter().map(|c| logprobs.logprob(c.token, c.logit)).collect();
        Ok(logprobs)
    }

    fn logprob(&self, token: u32, logit: f32) -> TokenLogprob {
        TokenLogprob { token, logprob: (f64::from(logit - self.greatest) - self.log_total) as f32 }
    }

    fn with_chosen(self, token: u32, logit: f32) -> Logprobs {
        Logprobs { chosen: self.logprob(token, logit), top: self.top }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::seed::Seed;

    /// The same rules over a full sort in 64 bits: kept ids with their probabilities, and how close a cut was to
    /// going the other way.
    fn naive(logits: &[f32], sampling: &Sampling) -> (Vec<(u32, f64)>, f64) {
        let greatest = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        let mut sorted: Vec<(u32, f64, f64)> = (0u32..)
            .zip(logits)
            .filter(|(_, logit)| **logit > f32::NEG_INFINITY)
            .map(|(id, &logit)| (id, f64::from(logit), ((f64::from(logit) - greatest) / sampling.temperature).exp()))
            .collect();
        sorted.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        if sampling.top_k > 0 {
            sorted.truncate(sampling.top_k as usize);
        }
        let mut margin = f64::INFINITY;
        if sampling.top_p < 1.0 {
            let total: f64 = sorted.iter().map(|entry| entry.2).sum();
            let mut sum = 0.0;
            let crosses = sorted.iter().position(|entry| {
                sum += entry.2 / total;
                margin = margin.min((sum - sampling.top_p).abs());
                sum >= sampling.top_p
            });
            sorted.truncate(crosses.map_or(sorted.len(), |index| index + 1));
        }
        margin = sorted.iter().map(|entry| (entry.2 - sampling.min_p).abs()).fold(margin, f64::min);
        sorted.retain(|entry| entry.2 >= sampling.min_p);
        let total: f64 = sorted.iter().map(|entry| entry.2).sum();
        sorted.sort_by_key(|entry| entry.0);
        (sorted.into_iter().map(|(id, _, weight)| (id, weight / total)).collect(), margin)
    }

    fn filters() -> impl Strategy<Value = Sampling> {
        let top_k = prop_oneof![Just(0i64), 1i64..5, 1i64..400];
        let top_p = prop_oneof![Just(1.0f64), 0.01f64..0.999];
        let min_p = prop_oneof![Just(0.0f64), 0.0001f64..0.9];
        (0.1f64..3.0, top_k, top_p, min_p).prop_map(|(temperature, top_k, top_p, min_p)| Sampling {
            // The sampler divides in 32 bits.
            temperature: f64::from(temperature as f32),
            top_k,
            top_p,
            min_p,
            ..Sampling::default()
        })
    }

    /// Rows with ties and masks, from one chunk to several.
    fn rows() -> impl Strategy<Value = Vec<f32>> {
        let logit = prop_oneof![1 => Just(f32::NEG_INFINITY), 9 => (-40i32..40).prop_map(|step| step as f32 * 0.25)];
        prop::collection::vec(logit, 1..400)
            .prop_filter("one token must be possible", |row| row.iter().any(|logit| *logit > f32::NEG_INFINITY))
    }

    proptest! {
        #[test]
        fn filters_keep_what_a_full_sort_keeps(row in rows(), sampling in filters()) {
            let (expected, margin) = naive(&row, &sampling);
            let found = distribution(&mut row.clone(), &sampling, &History::default()).unwrap();
            // A cut decided by less than 32-bit rounding may fall either way.
            if margin > 1e-5 {
                prop_assert_eq!(found.iter().map(|e| e.0).collect::<Vec<_>>(), expected.iter().map(|e| e.0).collect::<Vec<_>>());
                for (found, expected) in found.iter().zip(&expected) {
                    prop_assert!((found.1 - expected.1).abs() < 1e-5);
                }
            }
        }

        #[test]
        fn draw_is_the_inverse_of_the_cumulative_distribution(row in rows(), sampling in filters(), uniform in 0.0f64..1.0) {
            let history = History::default();
            let kept = distribution(&mut row.clone(), &sampling, &history).unwrap();
            let row_sampling = RowSampling { sampling: &sampling, history: &history, constraint: None, uniform };
            let token = draw(&mut row.clone(), &row_sampling, &mut Scratch::default()).unwrap().token;
            let before: f64 = kept.iter().take_while(|(id, _)| *id < token).map(|entry| entry.1).sum();
            let own = kept.iter().find(|(id, _)| *id == token).expect("only kept tokens are drawn").1;
            prop_assert!(before - 1e-6 <= uniform && uniform <= before + own + 1e-6);
        }
    }

    proptest! {
        /// The operation that draws where the logits are: the same token and log-probability, bit for bit.
        #[test]
        fn the_operation_draws_what_the_sampler_draws(row in rows(), sampling in filters(), greedy in any::<bool>(), key: u64, position: u64) {
            use lifelong_kernels::ops::sample;

            let temperature = if greedy { 0.0 } else { sampling.temperature };
            let sampling = Sampling { temperature, logprobs: 1, ..sampling };
            let history = History::default();
            let uniform = Seed(key).uniform_at(position);
            let row_sampling = RowSampling { sampling: &sampling, history: &history, constraint: None, uniform };
            let expected = draw(&mut row.clone(), &row_sampling, &mut Scratch::default()).unwrap();
            let asked = sample::Sampling {
                temperature: sampling.temperature as f32,
                top_k: sampling.top_k as u32,
                top_p: sampling.top_p,
                min_p: sampling.min_p,
                key,
                position,
            };
            let device = lifelong_kernels::Device::cpu(1);
            let found = sample::draw(&device, &row, row.len(), &[asked]).unwrap()[0].unwrap();
            prop_assert_eq!(found.token, expected.token);
            prop_assert_eq!(found.logprob.to_bits(), expected.logprobs.unwrap().chosen.logprob.to_bits());
        }
    }

    #[test]
    fn rows_do_not_see_threads_or_each_other() {
        const VOCABULARY: usize = 1000;
        let mut stream = Seed(1).stream();
        let logits: Vec<f32> = (0..13 * VOCABULARY).map(|_| (stream.next_f64() * 20.0) as f32).collect();
        let sampling =
            Sampling { temperature: 0.8, top_p: 0.9, logprobs: 3, presence_penalty: 0.5, ..Sampling::default() };
        let mut history = History::of_prompt(&[1, 2]);
        history.push(3);
        let rows: Vec<Wanted<'_>> = (0..13)
            .map(|row| match row % 3 {
                0 => Wanted::Logprob(row as u32),
                _ => Wanted::Draw(RowSampling {
                    sampling: &sampling,
                    history: &history,
                    constraint: None,
                    uniform: Seed(row).uniform_at(0),
                }),
            })
            .collect();
        let alone: Vec<_> = rows
            .iter()
            .zip(logits.chunks(VOCABULARY))
            .map(|(row, logits)| match row {
                Wanted::Draw(row) => draw(&mut logits.to_vec(), row, &mut Scratch::default()).map(Found::Draw),
                Wanted::Logprob(token) => logprob(logits, *token, &mut Scratch::default()).map(Found::Logprob),
            })
            .collect();
        for threads in [1, 2, 3, 16] {
            let sampler = Sampler::new(&Device::cpu(threads));
            assert_eq!(sampler.sample(&mut logits.clone(), VOCABULARY, &rows), alone);
            assert_eq!(sampler.sample(&mut logits[..VOCABULARY].to_vec(), VOCABULARY, &rows[..1]), alone[..1]);
        }
    }

    #[test]
    fn logprobs_are_the_models_own() {
        let mut logits = vec![1.0f32, 3.0, 2.0, f32::NEG_INFINITY];
        let sampling =
            Sampling { temperature: 0.5, repetition_penalty: 10.0, top_p: 0.5, logprobs: 2, ..Sampling::default() };
        let history = History::of_prompt(&[1, 0]);
        let row = RowSampling { sampling: &sampling, history: &history, constraint: None, uniform: 0.3 };
        let drawn = draw(&mut logits, &row, &mut Scratch::default()).unwrap();
        assert_eq!(drawn.token, 2, "the penalty pushes token 1 down");
        let total = 1f64.exp() + 2f64.exp() + 3f64.exp();
        let logprobs = drawn.logprobs.unwrap();
        assert_eq!(logprobs.top.iter().map(|entry| entry.token).collect::<Vec<_>>(), [1, 2]);
        for entry in logprobs.top.iter().chain([&logprobs.chosen]) {
            let logit = [1.0, 3.0, 2.0][entry.token as usize];
            assert!((f64::from(entry.logprob) - (logit - total.ln())).abs() < 1e-6);
        }
    }

    #[test]
    fn a_given_tokens_logprob_is_the_one_it_would_have_shown_when_drawn() {
        let logits: Vec<f32> = (0..200).map(|index| (index * 37 % 101) as f32 * 0.1).collect();
        let history = History::default();
        let sampling = Sampling { temperature: 1.5, logprobs: 1, ..Sampling::default() };
        for uniform in [0.0, 0.3, 0.9, 0.999] {
            let row = RowSampling { sampling: &sampling, history: &history, constraint: None, uniform };
            let chosen = draw(&mut logits.clone(), &row, &mut Scratch::default()).unwrap().logprobs.unwrap().chosen;
            let given = logprob(&logits, chosen.token, &mut Scratch::default()).unwrap();
            assert_eq!(given.to_bits(), chosen.logprob.to_bits());
        }
        assert_eq!(logprob(&[0.0, f32::NEG_INFINITY], 1, &mut Scratch::default()), Ok(f32::NEG_INFINITY));
        assert_eq!(logprob(&[0.0, f32::NAN], 0, &mut Scratch::default()), Err(NonFinite));
    }

    #[test]
    fn chosen_logprob_of_a_penalised_token_is_the_one_before_the_penalty() {
        let sampling = Sampling { repetition_penalty: 2.0, logprobs: 1, ..Sampling::default() };
        let history = History::of_prompt(&[0]);
        let row = RowSampling { sampling: &sampling, history: &history, constraint: None, uniform: 0.0 };
        let drawn = draw(&mut [8.0, 1.0], &row, &mut Scratch::default()).unwrap();
        let logprobs = drawn.logprobs.unwrap();
        assert_eq!(logprobs.chosen, logprobs.top[0]);
    }
}
