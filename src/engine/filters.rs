//! Which tokens of a row may be drawn: temperature, top-k, top-p and min-p.
//!
//! The vocabulary is never sorted. Top-k finds a logit that at least k others reach from the chunk maxima, top-p a
//! weight below which everything together is less than 1 − p; the few candidates above are then cut exactly, by
//! selection.

use std::cmp::Ordering;

use super::sampling::Sampling;
use super::softmax::{CHUNK, exp_nonpositive, reaching, survey, weigh};

/// The logits are NaN, infinite, or all masked: nothing may be drawn. Also when the row's grammar failed, which then
/// says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NonFinite;

/// Buffers of one thread, kept between rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch {
    pub(super) maxima: Vec<f32>,
    pub(super) weights: Vec<f32>,
    pub(super) sums: Vec<f32>,
    pub(super) before: Vec<(u32, f32)>,
    pub(super) kept: Vec<Candidate>,
    selection: Vec<Candidate>,
    order: Vec<f32>,
    masses: Vec<f64>,
}

/// A token that may survive the filters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(super) token: u32,
    pub(super) logit: f32,
    pub(super) weight: f32,
}

impl Candidate {
    /// Likeliest first, ties by lowest id. Compares logits: weights may tie by rounding where logits do not.
    pub(super) fn likelier(&self, other: &Candidate) -> Ordering {
        let by_logit = other.logit.partial_cmp(&self.logit).expect("a surveyed logit is a number");
        by_logit.then(self.token.cmp(&other.token))
    }

    /// The same order as a truth value, without a branch.
    fn is_at_least(&self, boundary: &Candidate) -> bool {
        self.logit > boundary.logit || (self.logit == boundary.logit) & (self.token <= boundary.token)
    }
}

/// What the filters left of a row.
pub(super) enum Kept {
    /// Temperature 0.
    One(u32),
    /// No filter is on: `Scratch::weights`, whose sum this is.
    All(f64),
    /// `Scratch::kept`, in order of token id, and the sum of its weights.
    Some(f64),
}

/// Temperature and filters on penalised logits.
pub(super) fn keep(logits: &[f32], sampling: &Sampling, scratch: &mut Scratch) -> Result<Kept, NonFinite> {
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
pub(super) fn keep_top_k(k: usize, logits: &[f32], scratch: &mut Scratch) {
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
