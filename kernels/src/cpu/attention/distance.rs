//! Attention of whole texts with a bias of every score by head and distance.
//!
//! One query of one head at a time over all keys of its text: texts of encoders with such biases are short (512 tokens),
//! so all scores fit in a few cache lines and the softmax has two plain passes.

use super::super::Cpu;
use super::super::math::{exp, load_part, store_part};
use super::super::vector::{LANES, Vector, kernel};
use crate::ops::attention::{AttentionShape, DistanceBias};
use crate::threads::Parts;

/// Keys of one head of one text by blocks of 16 tokens `[blocks][D][16]`, and values `[tokens][D']`.
struct Text<'a> {
    keys: &'a [[f32; LANES]],
    values: &'a [[f32; LANES]],
    tokens: usize,
    dim: usize,
}

#[allow(clippy::too_many_arguments)]
pub(crate) fn bidirectional_biased(
    cpu: &Cpu,
    out: &mut [f32],
    q: &[f32],
    k: &[f32],
    v: &[f32],
    lengths: &[usize],
    shape: &AttentionShape,
    bias: &DistanceBias,
) {
    let AttentionShape { heads, head_dim: dim, scale, .. } = *shape;
    let out = Parts::new(out);
    cpu.run(lengths.len() * heads, |task| {
        let (text, head) = (task / heads, task % heads);
        let (start, tokens) = (lengths[..text].iter().sum::<usize>(), lengths[text]);
        let at = |token: usize| ((start + token) * heads + head) * dim;
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        pack(&mut keys, &mut values, tokens, dim, |token| (&k[at(token)..][..dim], &v[at(token)..][..dim]));
        let text = Text { keys: &keys, values: &values, tokens, dim };
        let mut weights = vec![[0.0; LANES]; tokens.div_ceil(LANES)];
        let mut scaled = vec![0.0; dim];
        for token in 0..tokens {
            scaled.iter_mut().zip(&q[at(token)..]).for_each(|(scaled, q)| *scaled = q * scale);
            // SAFETY: a (token, head) is one task's.
            let out = unsafe { out.take(at(token)..at(token) + dim) };
            attend(cpu.instruction_set, out, &mut weights, &scaled, &text, bias.row(head, token, tokens));
        }
    });
}

fn pack<'a>(
    keys: &mut Vec<[f32; LANES]>,
    values: &mut Vec<[f32; LANES]>,
    tokens: usize,
    dim: usize,
    token: impl Fn(usize) -> (&'a [f32], &'a [f32]),
) {
    keys.resize(tokens.div_ceil(LANES) * dim, [0.0; LANES]);
    values.resize(tokens * dim.div_ceil(LANES), [0.0; LANES]);
    for index in 0..tokens {
        let (key, value) = token(index);
        let block = &mut keys[index / LANES * dim..][..dim];
        block.iter_mut().zip(key).for_each(|(lanes, key)| lanes[index % LANES] = *key);
        values.as_flattened_mut()[index * dim.next_multiple_of(LANES)..][..dim].copy_from_slice(value);
    }
}

kernel! {
    fn attend<V>(v, out: &mut [f32], weights: &mut [[f32; LANES]], q: &[f32], text: &Text<'_>, bias: &[f32]) {
        const SLOTS: [f32; LANES] =
            [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0];
        let mut largest = f32::NEG_INFINITY;
        for (block, weights) in weights.iter_mut().enumerate() {
            let slots = (text.tokens - block * LANES).min(LANES);
            let scores = scores(v, q, &text.keys[block * text.dim..][..text.dim]);
            let scores = v.add(scores, load_part(v, &bias[block * LANES..][..slots]));
            let scores =
                v.select_less(v.load(&SLOTS), v.splat(slots as f32), scores, v.splat(f32::NEG_INFINITY));
            largest = largest.max(v.largest(scores));
            v.store(weights, scores);
        }
        let mut sums = v.splat(0.0);
        for weights in weights.iter_mut() {
            let weight = exp(v, v.subtract(v.load(weights), v.splat(largest)));
            sums = v.add(sums, weight);
            v.store(weights, weight);
        }
        let sum = v.splat(v.sum(sums));
        let width = text.dim.div_ceil(LANES);
        for (column, out) in out.chunks_mut(LANES).enumerate() {
            let mut total = v.splat(0.0);
            for (token, value) in text.values[column..].iter().step_by(width).enumerate() {
                let weight = weights[token / LANES][token % LANES];
                total = v.multiply_add(v.splat(weight), v.load(value), total);
            }
            store_part(v, out, v.divide(total, sum));
        }
    }
}

/// `q · k` for 16 keys: four chains over the dimensions modulo 4, added as a tree.
#[inline(always)]
fn scores<V: Vector>(v: V, q: &[f32], keys: &[[f32; LANES]]) -> V::Floats {
    let mut chains = [v.splat(0.0); 4];
    for (q, keys) in q.chunks(4).zip(keys.chunks(4)) {
        for (chain, (q, key)) in q.iter().zip(keys).enumerate() {
            chains[chain] = v.multiply_add(v.splat(*q), v.load(key), chains[chain]);
        }
    }
    v.add(v.add(chains[0], chains[1]), v.add(chains[2], chains[3]))
}
