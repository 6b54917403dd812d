//! Routing rows to experts, their products, and summing what comes back.

use super::Cpu;
use super::math::{exp, load_part, sigmoid, store_part};
use super::matmul::{self, Product};
use super::vector::{LANES, kernel};
use crate::matrix::ExpertWeights;
use crate::ops::experts::Shares;
use crate::ops::matmul::Precision;
use crate::routes::Routes;
use crate::threads::Parts;

pub(crate) fn route(cpu: &Cpu, chosen: &mut [u32], share: &mut [f32], logits: &[f32], experts: usize, shares: Shares) {
    let tokens = logits.len() / experts;
    let count = chosen.len() / tokens;
    let (chosen, share) = (Parts::new(chosen), Parts::new(share));
    // Every expert is looked at once for each that is chosen.
    cpu.run_rows(tokens, experts * count, |rows| {
        for row in rows {
            let range = row * count..(row + 1) * count;
            // SAFETY: each row is one task's.
            let (chosen, share) = unsafe { (chosen.take(range.clone()), share.take(range)) };
            let logits = &logits[row * experts..(row + 1) * experts];
            choose(chosen, logits);
            for (share, expert) in share.iter_mut().zip(&*chosen) {
                *share = logits[*expert as usize];
            }
            let largest = share[0];
            let sum = match shares {
                Shares::OfAll => sum_of_powers(cpu.instruction_set, logits, largest),
                Shares::OfChosen => sum_of_powers(cpu.instruction_set, share, largest),
            };
            parts_of(cpu.instruction_set, share, largest, sum);
        }
    });
}

/// The numbers of the largest logits, best first, the lower number first among equals. Logits that are not numbers come
/// last.
fn choose(chosen: &mut [u32], logits: &[f32]) {
    for place in 0..chosen.len() {
        let (before, rest) = chosen.split_at_mut(place);
        let mut best: Option<usize> = None;
        for (expert, logit) in logits.iter().enumerate().filter(|(expert, _)| !before.contains(&(*expert as u32))) {
            if best.is_none_or(|best| *logit > logits[best] || (logits[best].is_nan() && !logit.is_nan())) {
                best = Some(expert);
            }
        }
        rest[0] = best.expect("no more are chosen than there are") as u32;
    }
}

kernel! {
    /// `Σ exp(x − largest)`: lanes modulo 16, added as a tree.
    fn sum_of_powers<V>(v, x: &[f32], largest: f32) -> f32 {
        let (whole, rest) = x.as_chunks::<LANES>();
        let mut sum = v.splat(0.0);
        for x in whole {
            sum = v.add(sum, exp(v, v.subtract(v.load(x), v.splat(largest))));
        }
        if !rest.is_empty() {
            let mut lanes = [f32::NEG_INFINITY; LANES];
            lanes[..rest.len()].copy_from_slice(rest);
            sum = v.add(sum, exp(v, v.subtract(v.load(&lanes), v.splat(largest))));
        }
        v.sum(sum)
    }
}

kernel! {
    /// `x = exp(x − largest) / sum`.
    fn parts_of<V>(v, x: &mut [f32], largest: f32, sum: f32) {
        for x in x.chunks_mut(LANES) {
            let power = exp(v, v.subtract(load_part(v, x), v.splat(largest)));
            store_part(v, x, v.divide(power, v.splat(sum)));
        }
    }
}

pub(crate) fn gather(cpu: &Cpu, out: &mut [f32], x: &[f32], rows: &[u32], hidden: usize) {
    let out = Parts::new(out);
    cpu.run_rows(rows.len(), hidden, |range| {
        for index in range {
            let from = rows[index] as usize * hidden;
            // SAFETY: each row is one task's.
            let out = unsafe { out.take(index * hidden..(index + 1) * hidden) };
            out.copy_from_slice(&x[from..from + hidden]);
        }
    });
}

/// One expert after the other, those that nobody goes to left out.
pub(crate) fn linear_each(cpu: &Cpu, products: &mut [(&mut [f32], &ExpertWeights)], x: &[f32], routes: &Routes) {
    for (expert, bounds) in routes.starts.windows(2).enumerate().filter(|(_, bounds)| bounds[0] < bounds[1]) {
        let places = bounds[0]..bounds[1];
        let mut each: Vec<Product<'_>> = products
            .iter_mut()
            .map(|(out, weights)| {
                let n = weights.rows();
                let out = &mut out[places.start * n..places.end * n];
                Product { out, w: weights.matrix(expert), bias: weights.bias(expert) }
            })
            .collect();
        let Some(first) = each.first() else { return };
        let k = first.w.columns();
        matmul::linear(cpu, &mut each, &x[places.start * k..places.end * k], Precision::Bits8);
    }
}

pub(crate) fn combine(cpu: &Cpu, out: &mut [f32], y: &[f32], places: &[u32], share: &[f32], hidden: usize) {
    let tokens = out.len() / hidden;
    let count = places.len() / tokens;
    let out = Parts::new(out);
    cpu.run_rows(tokens, hidden * count, |rows| {
        for row in rows {
            // SAFETY: each row is one task's.
            let out = unsafe { out.take(row * hidden..(row + 1) * hidden) };
            let range = row * count..(row + 1) * count;
            weighted_sum(cpu.instruction_set, out, y, &places[range.clone()], &share[range]);
        }
    });
}

kernel! {
    /// `out = Σ_j share[j] · y[places[j]]`, in order of `j`.
    fn weighted_sum<V>(v, out: &mut [f32], y: &[f32], places: &[u32], share: &[f32]) {
        let hidden = out.len();
        for (chunk, out) in out.chunks_mut(LANES).enumerate() {
            let mut sum = v.splat(0.0);
            for (place, share) in places.iter().zip(share) {
                let start = *place as usize * hidden + chunk * LANES;
                let value = match y[start..].first_chunk::<LANES>() {
                    Some(value) if out.len() == LANES => v.load(value),
                    _ => load_part(v, &y[start..start + out.len()]),
                };
                sum = v.multiply_add(v.splat(*share), value, sum);
            }
            match out.first_chunk_mut::<LANES>() {
                Some(out) => v.store(out, sum),
                None => store_part(v, out, sum),
            }
        }
    }
}

pub(crate) fn add_shared(cpu: &Cpu, out: &mut [f32], y: &[f32], gate: &[f32], hidden: usize) {
    let out = Parts::new(out);
    cpu.run_rows(gate.len(), hidden, |rows| {
        for row in rows {
            let range = row * hidden..(row + 1) * hidden;
            // SAFETY: each row is one task's.
            let out = unsafe { out.take(range.clone()) };
            add_gated(cpu.instruction_set, out, &y[range], gate[row]);
        }
    });
}

kernel! {
    /// `out += sigmoid(gate) · y`
    fn add_gated<V>(v, out: &mut [f32], y: &[f32], gate: f32) {
        let share = sigmoid(v, v.splat(gate));
        for (out, y) in out.chunks_mut(LANES).zip(y.chunks(LANES)) {
            let value = v.multiply_add(share, load_part(v, y), load_part(v, out));
            store_part(v, out, value);
        }
    }
}
