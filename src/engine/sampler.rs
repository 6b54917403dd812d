//! From a row of logits to the next token.
//!
//! The vocabulary is never sorted. Top-k finds a logit that at least k others reach from the chunk maxima, top-p a
//! weight below which everything together is less than 1 − p; the few candidates above are then cut exactly, by
//! selection. Whatever is kept, the draw walks it in order of token id: the algorithm that found the set cannot be
//! told from the token that was drawn.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::sync::Mutex;

use lifelong_kernels::Device;

use super::grammar::Constraint;
use super::penalty::History;
use super::request::{Logprobs, TokenLogprob};
use super::sampling::Sampling;
use super::softmax::{CHUNK, exp_nonpositive, reaching, survey, weigh};

/// The logits are NaN, infinite, or all masked: nothing may be drawn. Also when the row's grammar failed, which then
/// says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NonFinite;

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

/// Buffers of one thread, kept between rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch {
    maxima: Vec<f32>,
    weights: Vec<f32>,
    sums: Vec<f32>,
    before: Vec<(u32, f32)>,
    kept: Vec<Candidate>,
    selection: Vec<Candidate>,
    order: Vec<f32>,
    masses: Vec<f64>,
}

/// A token that may survive the filters.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    token: u32,
    logit: f32,
    weight: f32,
}

impl Candidate {
    /// Likeliest first, ties by lowest id. Compares logits: weights may tie by rounding where logits do not.
    fn likelier(&self, other: &Candidate) -> Ordering {
        let by_logit = other.logit.partial_cmp(&self.logit).expect("a surveyed logit is a number");
        by_logit.then(self.token.cmp(&other.token))
    }

    /// The same order as a truth value, without a branch.
    fn is_at_least(&self, boundary: &Candidate) -> bool {
        self.logit > boundary.logit || (self.logit == boundary.logit) & (self.token <= boundary.token)
    }
}

/// What the filters left of a row.
enum Kept {
    /// Temperature 0.
    One(u32),
    /// No filter is on: `Scratch::weights`, whose sum this is.
    All(f64),
    /// `Scratch::kept`, in order of token id, and the sum of its weights.
    Some(f64),
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

/// Temperature and filters on penalised logits.
fn keep(logits: &[f32], sampling: &Sampling, scratch: &mut Scratch) -> Result<Kept, NonFinite> {
    let greatest = survey(&mut scratch.maxima, logits).ok_or(NonFinite)?;
    if sampling.is_greedy() {
        return Ok(Kept::One(first_of(greatest, logits, &scratch.maxima)));
    }
    let temperature = sampling.temperature as f32;
    if let Some(k) = sampling.top_k_of(logits.len()) {
        keep_top_k(k, logits, scratch);
        for candidate in &mut scratch.kept {
            candidate.weight = exp_nonpositive((candidate.logit - greatest) / temperature);
        }
        if sampling.top_p < 1.0 {
            let target = sampling.top_p * mass(&scratch.kept);
            keep_until(nucleus_boundary(target, greatest, temperature, STEPS, scratch), &mut scratch.kept);
        }
    } else {
        let total = weigh(&mut scratch.weights, &mut scratch.sums, logits, greatest, temperature);
        if sampling.top_p < 1.0 {
            let boundary = keep_nucleus(sampling.top_p, total, greatest, temperature, logits, scratch);
            keep_until(boundary, &mut scratch.kept);
        } else if sampling.min_p > 0.0 {
            keep_heavier(sampling.min_p as f32, logits, scratch);
        } else {
            return Ok(Kept::All(total));
        }
    }
    if sampling.min_p > 0.0 {
        // The greatest weight is 1.
        keep_only(&mut scratch.kept, |candidate| f64::from(candidate.weight) >= sampling.min_p);
    }
    Ok(Kept::Some(mass(&scratch.kept)))
}

/// The lowest id whose logit is the greatest.
fn first_of(greatest: f32, logits: &[f32], maxima: &[f32]) -> u32 {
    let chunk = maxima.iter().position(|&maximum| maximum == greatest).expect("the greatest is a maximum of a chunk");
    let within = logits[chunk * CHUNK..].iter().position(|&logit| logit == greatest);
    (chunk * CHUNK + within.expect("the chunk holds its maximum")) as u32
}

/// Puts the `k` likeliest tokens into `scratch.kept`, without their weights. Masked tokens are never among them.
fn keep_top_k(k: usize, logits: &[f32], scratch: &mut Scratch) {
    let Scratch { maxima, kept, selection, order, .. } = scratch;
    // k chunks have a maximum of at least the k-th greatest maximum, so k logits do.
    let mut least = f32::NEG_INFINITY;
    if k <= maxima.len() {
        order.clone_from(maxima);
        least = *order.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a)).1;
    }
    kept.clear();
    for (index, chunk) in logits.chunks(CHUNK).enumerate() {
        if maxima[index] >= least {
            let tokens = (index * CHUNK) as u32..;
            let reaching = tokens.zip(chunk).filter(|(_, logit)| **logit >= least && **logit > f32::NEG_INFINITY);
            kept.extend(reaching.map(|(token, &logit)| Candidate { token, logit, weight: 0.0 }));
        }
    }
    if k < kept.len() {
        selection.clone_from(kept);
        let boundary = *selection.select_nth_unstable_by(k - 1, Candidate::likelier).1;
        keep_only(kept, |candidate| candidate.is_at_least(&boundary));
    }
}

/// Puts every token that weighs at least `least`, and something, into `scratch.kept`.
fn keep_heavier(least: f32, logits: &[f32], scratch: &mut Scratch) {
    let least = least.max(f32::MIN_POSITIVE);
    let Scratch { weights, sums, kept, .. } = scratch;
    kept.clear();
    for (chunk, chunk_weights) in weights.chunks(CHUNK).enumerate() {
        // No weight is negative, so none is above the sum.
        if sums[chunk] < least {
            continue;
        }
        let mut passing = reaching(chunk_weights, least);
        while passing != 0 {
            let token = chunk * CHUNK + passing.trailing_zeros() as usize;
            passing &= passing - 1;
            kept.push(Candidate { token: token as u32, logit: logits[token], weight: weights[token] });
        }
    }
}

/// Puts at least the likeliest tokens that weigh `top_p` of `total` together into `scratch.kept`; gives the one that crosses
/// this limit.
///
/// A few hundred tokens mostly hold all of it, so those are tried first that weigh more than e⁻ᵈ of the likeliest. They
/// are all tokens of the first 64 d steps, whose sums are then the sums over the whole vocabulary.
fn keep_nucleus(
    top_p: f64,
    total: f64,
    greatest: f32,
    temperature: f32,
    logits: &[f32],
    scratch: &mut Scratch,
) -> Option<Candidate> {
    const DEPTHS: [usize; 2] = [5, 9];
    /// Steps that rounding might have cut.
    const MARGIN: usize = 2;
    // What weighs less than this sums to less than 1 − p of the total, so the p likeliest are all above it.
    let least = ((1.0 - top_p) * total / logits.len() as f64) as f32 * 0.999;
    for depth in DEPTHS {
        let shallow = exp_nonpositive(-(depth as f32));
        if shallow <= least {
            break;
        }
        keep_heavier(shallow, logits, scratch);
        let steps = depth * STEPS_A_TEMPERATURE - MARGIN;
        if let Some(boundary) = nucleus_boundary(top_p * total, greatest, temperature, steps, scratch) {
            return Some(boundary);
        }
    }
    keep_heavier(least, logits, scratch);
    nucleus_boundary(top_p * total, greatest, temperature, STEPS, scratch)
}

/// Steps of the distance to the greatest logit by which weights are summed; what is farther belongs to the last.
const STEPS: usize = 2048;
const STEPS_A_TEMPERATURE: usize = 64;

/// The token that crosses the limit: likeliest first, the first whose weight brings the sum to `target`; in the last
/// step where rounding keeps the sum below. `None` where fewer steps than all do not hold so much.
///
/// Sums weights by how far a logit is below the greatest, in steps of 1/64 of the temperature, and sorts only the step
/// in which the sum crosses.
fn nucleus_boundary(
    target: f64,
    greatest: f32,
    temperature: f32,
    steps: usize,
    scratch: &mut Scratch,
) -> Option<Candidate> {
    let Scratch { kept, selection, masses, .. } = scratch;
    // Subtraction, scaling and truncation keep order, so a likelier token is never in a later step.
    let steps_each = STEPS_A_TEMPERATURE as f32 / temperature;
    let step_of = |candidate: &Candidate| (((greatest - candidate.logit) * steps_each) as usize).min(STEPS - 1);
    masses.clear();
    masses.resize(STEPS, 0.0);
    for candidate in kept.iter() {
        masses[step_of(candidate)] += f64::from(candidate.weight);
    }
    let mut before = 0.0;
    let mut crossing = None;
    for (step, &mass) in masses[..steps].iter().enumerate().filter(|(_, mass)| **mass > 0.0) {
        if before + mass >= target {
            crossing = Some(step);
            break;
        }
        before += mass;
    }
    if crossing.is_none() && steps == STEPS {
        crossing = masses.iter().rposition(|mass| *mass > 0.0);
    }
    let crossing = crossing?;
    selection.clear();
    selection.extend(kept.iter().filter(|candidate| step_of(candidate) == crossing));
    selection.sort_unstable_by(Candidate::likelier);
    let crosses = selection.iter().position(|candidate| {
        before += f64::from(candidate.weight);
        before >= target
    });
    crosses.map_or(selection.last(), |index| selection.get(index)).copied()
}

/// Keeps the candidates down to the boundary, if there is one.
fn keep_until(boundary: Option<Candidate>, kept: &mut Vec<Candidate>) {
    if let Some(boundary) = boundary {
        keep_only(kept, |candidate| candidate.is_at_least(&boundary));
    }
}

/// `Vec::retain` without a branch on the outcome: which candidates stay is unpredictable in a flat distribution.
fn keep_only(candidates: &mut Vec<Candidate>, is_kept: impl Fn(&Candidate) -> bool) {
    let mut count = 0;
    for index in 0..candidates.len() {
        let candidate = candidates[index];
        candidates[count] = candidate;
        count += usize::from(is_kept(&candidate));
    }
    candidates.truncate(count);
}

fn mass(candidates: &[Candidate]) -> f64 {
    candidates.iter().map(|candidate| f64::from(candidate.weight)).sum()
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
