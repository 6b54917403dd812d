//! From a row of logits to the next token.
//!
//! The vocabulary is never sorted. Top-k finds a logit that at least k others reach from the chunk maxima, top-p a
//! weight below which everything together is less than 1 − p; the few candidates above are then cut exactly, by
//! selection. Whatever is kept, the draw walks it in order of token id: the algorithm that found the set cannot be
//! told from the token that was drawn.

use std::cmp::Ordering;

use rayon::prelude::*;

use super::penalty::History;
use super::request::{Logprobs, TokenLogprob};
use super::sampling::Sampling;
use super::softmax::{CHUNK, exp_nonpositive, survey, weigh};

/// The logits are NaN, infinite, or all masked: nothing may be drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NonFinite;

/// What one row needs to be drawn, its logits aside.
#[derive(Clone, Copy)]
pub(crate) struct RowSampling<'a> {
    pub(crate) sampling: &'a Sampling,
    pub(crate) history: &'a History,
    /// In [0, 1): the row's own number, decided by its seed and position.
    pub(crate) uniform: f64,
}

/// A drawn token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Draw {
    pub(crate) token: u32,
    pub(crate) logprobs: Option<Logprobs>,
}

/// Draws for many rows at once.
pub(crate) struct Sampler {
    pool: Option<rayon::ThreadPool>,
    /// One a thread.
    scratches: Vec<Scratch>,
}

impl Sampler {
    /// A sampler on `threads` threads (at least 1).
    pub(crate) fn new(threads: usize) -> Result<Self, rayon::ThreadPoolBuildError> {
        let pool = match threads {
            0 | 1 => None,
            _ => Some(
                rayon::ThreadPoolBuilder::new()
                    .num_threads(threads)
                    .thread_name(|index| format!("sampler-{index}"))
                    .build()?,
            ),
        };
        Ok(Sampler { pool, scratches: vec![Scratch::default(); threads.max(1)] })
    }

    /// One draw a row, in order. A row's result is a function of its own logits and [`RowSampling`].
    ///
    /// # Shapes
    /// `logits`: `[rows.len(), vocabulary]`; changed by the penalties.
    pub(crate) fn sample(
        &mut self,
        logits: &mut [f32],
        vocabulary: usize,
        rows: &[RowSampling<'_>],
    ) -> Vec<Result<Draw, NonFinite>> {
        debug_assert_eq!(logits.len(), rows.len() * vocabulary);
        let rows_each = rows.len().div_ceil(self.scratches.len()).max(1);
        let sample_group = |(scratch, (rows, logits)): (&mut Scratch, (&[RowSampling<'_>], &mut [f32]))| {
            rows.iter()
                .zip(logits.chunks_exact_mut(vocabulary))
                .map(|(row, logits)| draw(logits, row, scratch))
                .collect::<Vec<_>>()
        };
        match &self.pool {
            Some(pool) if rows.len() > 1 => pool.install(|| {
                self.scratches
                    .par_iter_mut()
                    .zip(rows.par_chunks(rows_each).zip(logits.par_chunks_mut(rows_each * vocabulary)))
                    .map(sample_group)
                    .collect::<Vec<_>>()
                    .concat()
            }),
            _ => sample_group((&mut self.scratches[0], (rows, logits))),
        }
    }
}

/// Buffers of one thread, kept between rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch {
    maxima: Vec<f32>,
    weights: Vec<f32>,
    sums: Vec<f32>,
    before: Vec<(u32, f32)>,
    ids: Vec<u32>,
    kept: Vec<Candidate>,
    selection: Vec<Candidate>,
    order: Vec<f32>,
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
        other.logit.total_cmp(&self.logit).then(self.token.cmp(&other.token))
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
    let mut total;
    if let Some(k) = sampling.top_k_of(logits.len()) {
        keep_top_k(k, logits, scratch);
        for candidate in &mut scratch.kept {
            candidate.weight = exp_nonpositive((candidate.logit - greatest) / temperature);
        }
        total = mass(&scratch.kept);
    } else {
        total = weigh(&mut scratch.weights, &mut scratch.sums, logits, greatest, temperature);
        // What weighs less than this sums to less than 1 − p of the total, so the p likeliest are all above it.
        let least = ((1.0 - sampling.top_p) * total / logits.len() as f64) as f32 * 0.999;
        let least = least.max(if sampling.top_p == 1.0 { sampling.min_p as f32 } else { 0.0 });
        if least == 0.0 && sampling.top_p == 1.0 {
            return Ok(Kept::All(total));
        }
        keep_heavier(least, logits, scratch);
    }
    if sampling.top_p < 1.0 {
        let boundary = nucleus_boundary(sampling.top_p * total, &scratch.kept, &mut scratch.selection);
        scratch.kept.retain(|candidate| candidate.likelier(&boundary).is_le());
    }
    if sampling.min_p > 0.0 {
        // The greatest weight is 1.
        scratch.kept.retain(|candidate| f64::from(candidate.weight) >= sampling.min_p);
    }
    total = mass(&scratch.kept);
    Ok(Kept::Some(total))
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
        kept.retain(|candidate| candidate.likelier(&boundary).is_le());
    }
}

/// Puts every token that weighs at least `least`, and something, into `scratch.kept`.
fn keep_heavier(least: f32, logits: &[f32], scratch: &mut Scratch) {
    let Scratch { weights, ids, kept, .. } = scratch;
    ids.resize(weights.len() + 1, 0);
    // Branchless, since which tokens pass is unpredictable: the write is repeated until a token passes.
    let mut count = 0;
    for (token, &weight) in weights.iter().enumerate() {
        ids[count] = token as u32;
        count += usize::from(weight >= least && weight > 0.0);
    }
    kept.clear();
    kept.extend(ids[..count].iter().map(|&token| Candidate {
        token,
        logit: logits[token as usize],
        weight: weights[token as usize],
    }));
}

/// The token that crosses the limit: likeliest first, the first whose weight brings the sum to `target`.
///
/// Halves the candidates by selection and follows the half in which the sum crosses: linear time, no sort.
fn nucleus_boundary(target: f64, kept: &[Candidate], selection: &mut Vec<Candidate>) -> Candidate {
    const FEW: usize = 32;
    selection.clear();
    selection.extend_from_slice(kept);
    let mut undecided = selection.as_mut_slice();
    let mut before = 0.0;
    while undecided.len() > FEW {
        let middle = undecided.len() / 2;
        undecided.select_nth_unstable_by(middle, Candidate::likelier);
        let (likelier, rest) = undecided.split_at_mut(middle);
        let sum = before + mass(likelier);
        if sum >= target {
            undecided = likelier;
        } else {
            before = sum;
            undecided = rest;
        }
    }
    undecided.sort_unstable_by(Candidate::likelier);
    for candidate in undecided.iter() {
        before += f64::from(candidate.weight);
        if before >= target {
            return *candidate;
        }
    }
    *undecided.last().expect("the likeliest token is always a candidate")
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
        keep_top_k(count.min(logits.len()), logits, scratch);
        scratch.kept.sort_unstable_by(Candidate::likelier);
        let mut logprobs = TopLogprobs { greatest, log_total, top: Vec::new() };
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
