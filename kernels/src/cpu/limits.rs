//! Loops that do nothing but what a limit is about.

use std::hint::black_box;

use super::vector::{LANES, kernel};

/// Sums kept at once: more than the latency of a product times the products a cycle.
pub(crate) const CHAINS: usize = 12;
/// Values that [`read`] takes a step.
pub(crate) const READ_VALUES: usize = 8 * LANES;

kernel! {
    /// `rounds · CHAINS` products of 64 bytes with four; their sum, so that none is left out.
    pub(crate) fn integer_products<V>(v, rounds: usize) -> f32 {
        // Activations differ from round to round: an emulated product must not be computed once for all.
        let activations: [[i8; 4]; 16] = black_box([[1, -2, 3, -4]; 16]);
        let weights = v.load_bytes(black_box(&[3; 64]));
        // Sums differ, or the compiler would make one of them.
        let mut sums = [v.splat_integers(0); CHAINS];
        for (start, sum) in sums.iter_mut().enumerate() {
            *sum = v.splat_integers(black_box(start as i32));
        }
        for round in 0..rounds {
            let activations = activations[round % 16];
            for sum in &mut sums {
                *sum = v.dot(*sum, weights, activations);
            }
        }
        let mut total = v.splat(0.0);
        for sum in sums {
            total = v.add(total, v.to_floats(sum));
        }
        v.sum(total)
    }
}

kernel! {
    /// `rounds · CHAINS` fused multiply-adds of 16 lanes; their sum.
    pub(crate) fn float_products<V>(v, rounds: usize) -> f32 {
        let (a, b) = (v.splat(black_box(0.5)), v.splat(black_box(0.25)));
        let mut sums = [v.splat(0.0); CHAINS];
        for (start, sum) in sums.iter_mut().enumerate() {
            *sum = v.splat(black_box(start as f32));
        }
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = v.multiply_add(a, b, *sum);
            }
        }
        let mut total = v.splat(0.0);
        for sum in sums {
            total = v.add(total, sum);
        }
        v.sum(total)
    }
}

kernel! {
    /// The sum of all values, [`READ_VALUES`] at a time.
    pub(crate) fn read<V>(v, values: &[f32]) -> f32 {
        let mut sums = [v.splat(0.0); 8];
        for vectors in values.as_chunks::<LANES>().0.as_chunks::<8>().0 {
            for (sum, vector) in sums.iter_mut().zip(vectors) {
                *sum = v.add(*sum, v.load(vector));
            }
        }
        let mut total = v.splat(0.0);
        for sum in sums {
            total = v.add(total, sum);
        }
        v.sum(total)
    }
}
