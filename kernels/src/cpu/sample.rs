//! One draw from one row, in plain code: the rules, against which the GPU's kernel is checked.
//!
//! The program's own sampler finds the same cuts without a sort (and knows penalties and grammars); all orders of summation
//! are its.

use std::cmp::Ordering;

use super::philox;
use crate::ops::sample::{Drawn, Sampling};

/// Logits whose weights are summed together.
const CHUNK: usize = 64;
const LANES: usize = 16;
/// Classes of distance from the greatest logit by which weights are summed for top-p, 64 a temperature.
const STEPS: usize = 2048;

#[derive(Clone, Copy)]
struct Candidate {
    token: u32,
    logit: f32,
    weight: f32,
}

impl Candidate {
    /// Likeliest first, ties by lower token.
    fn likelier(&self, other: &Candidate) -> Ordering {
        other.logit.partial_cmp(&self.logit).unwrap_or(Ordering::Equal).then(self.token.cmp(&other.token))
    }
}

pub(crate) fn draw(logits: &[f32], sampling: &Sampling) -> Option<Drawn> {
    let greatest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if !greatest.is_finite() || logits.iter().any(|logit| logit.is_nan()) {
        return None;
    }
    let token = match sampling.temperature {
        0.0 => logits.iter().position(|logit| *logit == greatest)? as u32,
        _ => draw_warm(logits, greatest, sampling)?,
    };
    let total: f64 = weigh(logits, greatest, 1.0).1.iter().copied().map(f64::from).sum();
    let logprob = (f64::from(logits[token as usize] - greatest) - total.ln()) as f32;
    Some(Drawn { token, logprob })
}

fn draw_warm(logits: &[f32], greatest: f32, sampling: &Sampling) -> Option<u32> {
    let Sampling { temperature, top_p, min_p, .. } = *sampling;
    let (weights, sums) = weigh(logits, greatest, temperature);
    let mut total: f64 = sums.iter().copied().map(f64::from).sum();
    let uniform = uniform_at(sampling.key, sampling.position);
    let mut kept: Vec<Candidate> = (0u32..)
        .zip(logits.iter().zip(&weights))
        .filter(|(_, (logit, _))| **logit > f32::NEG_INFINITY)
        .map(|(token, (logit, weight))| Candidate { token, logit: *logit, weight: *weight })
        .collect();
    let top_k = sampling.top_k as usize;
    if top_k > 0 && top_k < logits.len() {
        kept.sort_unstable_by(Candidate::likelier);
        kept.truncate(top_k);
        kept.sort_unstable_by_key(|candidate| candidate.token);
        total = mass(&kept);
    } else {
        // What weighs less than this sums to less than 1 − p of the total, so the p likeliest are all above it.
        let least = ((1.0 - top_p) * total / logits.len() as f64) as f32 * 0.999;
        let least = least.max(if top_p == 1.0 { min_p as f32 } else { 0.0 });
        if least == 0.0 && top_p == 1.0 {
            return draw_from_all(uniform * total, &weights, &sums);
        }
        kept.retain(|candidate| candidate.weight >= least.max(f32::MIN_POSITIVE));
    }
    if top_p < 1.0 {
        let boundary = nucleus_boundary(top_p * total, greatest, temperature, &kept)?;
        kept.retain(|candidate| candidate.likelier(&boundary) != Ordering::Greater);
    }
    if min_p > 0.0 {
        kept.retain(|candidate| f64::from(candidate.weight) >= min_p);
    }
    pass(uniform * mass(&kept), kept.iter().map(|candidate| (candidate.token, candidate.weight)))
}

/// `exp((logit − greatest) / temperature)` of all, and the sums of chunks: 16 lanes, then a tree over them.
fn weigh(logits: &[f32], greatest: f32, temperature: f32) -> (Vec<f32>, Vec<f32>) {
    let weights: Vec<f32> = logits.iter().map(|logit| exp_nonpositive((logit - greatest) / temperature)).collect();
    let sum = |chunk: &[f32]| {
        let mut lanes = [0.0f32; LANES];
        chunk.iter().enumerate().for_each(|(index, weight)| lanes[index % LANES] += weight);
        for half in [8, 4, 2, 1] {
            (0..half).for_each(|lane| lanes[lane] += lanes[lane + half]);
        }
        lanes[0]
    };
    let sums = weights.chunks(CHUNK).map(sum).collect();
    (weights, sums)
}

/// `eˣ` for x ≤ 0, operation for operation that of the program's sampler; 0 below −87.
fn exp_nonpositive(x: f32) -> f32 {
    const ROUNDER: f32 = 12_582_912.0;
    const LEAST: f32 = -87.0;
    let clamped = if x > LEAST { x } else { LEAST };
    let rounded = clamped * std::f32::consts::LOG2_E + ROUNDER;
    let n = rounded - ROUNDER;
    let r = clamped - n * 0.693_359_4 - n * -2.121_944_4e-4;
    let mut polynomial = 1.987_569_1e-4;
    for coefficient in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 5e-1] {
        polynomial = polynomial * r + coefficient;
    }
    let value = polynomial * (r * r) + r + 1.0;
    let power_of_two = f32::from_bits((rounded.to_bits() << 23).wrapping_add(1.0f32.to_bits()));
    if x < LEAST { 0.0 } else { value * power_of_two }
}

/// The token that crosses the limit: likeliest first, the first whose weight brings the sum to `target`, sums by steps of
/// 1/64 of the temperature below the greatest logit.
fn nucleus_boundary(target: f64, greatest: f32, temperature: f32, kept: &[Candidate]) -> Option<Candidate> {
    let steps_each = 64.0 / temperature;
    let step_of = |candidate: &Candidate| (((greatest - candidate.logit) * steps_each) as usize).min(STEPS - 1);
    let mut masses = vec![0.0f64; STEPS];
    kept.iter().for_each(|candidate| masses[step_of(candidate)] += f64::from(candidate.weight));
    let (mut before, mut crossing) = (0.0, 0);
    for (step, mass) in masses.iter().enumerate().filter(|(_, mass)| **mass > 0.0) {
        crossing = step;
        if before + mass >= target {
            break;
        }
        before += mass;
    }
    let mut of_step: Vec<Candidate> = kept.iter().filter(|candidate| step_of(candidate) == crossing).copied().collect();
    of_step.sort_unstable_by(Candidate::likelier);
    let crosses = of_step.iter().position(|candidate| {
        before += f64::from(candidate.weight);
        before >= target
    });
    crosses.map_or(of_step.last(), |index| of_step.get(index)).copied()
}

fn mass(kept: &[Candidate]) -> f64 {
    kept.iter().map(|candidate| f64::from(candidate.weight)).sum()
}

/// The token at which the running sum of all weights passes `target`, found by its chunk first.
fn draw_from_all(target: f64, weights: &[f32], sums: &[f32]) -> Option<u32> {
    let (mut before, mut heavy) = (0.0, 0);
    for (chunk, sum) in sums.iter().enumerate().filter(|(_, sum)| **sum > 0.0) {
        heavy = chunk;
        if before + f64::from(*sum) > target {
            break;
        }
        before += f64::from(*sum);
    }
    let first = heavy * CHUNK;
    pass(target - before, (first as u32..).zip(weights[first..].iter().take(CHUNK).copied()))
}

/// The token at which the running sum passes `target`; the last with any weight when rounding keeps it below.
fn pass(target: f64, weights: impl Iterator<Item = (u32, f32)>) -> Option<u32> {
    let (mut sum, mut last) = (0.0, None);
    for (token, weight) in weights.filter(|(_, weight)| *weight > 0.0) {
        last = Some(token);
        sum += f64::from(weight);
        if sum > target {
            break;
        }
    }
    last
}

/// A number in [0, 1) with 53 random bits.
fn uniform_at(key: u64, position: u64) -> f64 {
    let words = philox::words(key, position);
    let bits = u64::from(words[0]) | u64::from(words[1]) << 32;
    (bits >> 11) as f64 / (1u64 << 53) as f64
}
