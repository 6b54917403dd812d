//! Permutation p-values and their correction for many tests.

use crate::seed::Seed;

use super::sum::sum;

/// Random sign patterns of a permutation test.
pub const PERMUTATIONS: usize = 10_000;

/// Two-sided p of paired differences under random signs: (1 + hits) / (B + 1), never 0 (Phipson and Smyth 2010,
/// "Permutation p-values should never be zero"). A hit is a sum at least as far from 0 as the observed one, within a
/// relative 1e-12 that covers rounding. `None` of nothing.
pub fn paired_permutation_p(differences: &[f64], seed: Seed, permutations: usize) -> Option<f64> {
    if differences.is_empty() {
        return None;
    }
    let observed = sum(differences).abs();
    let slack = 1e-12 * sum(&differences.iter().map(|value| value.abs()).collect::<Vec<_>>());
    let mut stream = seed.stream();
    let mut flipped = vec![0.0; differences.len()];
    let mut hits = 0usize;
    for _ in 0..permutations {
        for (slot, chunk) in flipped.chunks_mut(32).zip(differences.chunks(32)) {
            let signs = stream.next_u32();
            for (bit, (slot, value)) in slot.iter_mut().zip(chunk).enumerate() {
                *slot = if signs >> bit & 1 == 1 { -value } else { *value };
            }
        }
        hits += usize::from(sum(&flipped).abs() >= observed - slack);
    }
    Some((1 + hits) as f64 / (permutations + 1) as f64)
}

/// Holm's step-down adjustment (Holm 1979), in the order given: ascending p, the k-th (from 1) times m − k + 1,
/// running maximum, at most 1.
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|left, right| p_values[*left].total_cmp(&p_values[*right]));
    let mut adjusted = vec![0.0; p_values.len()];
    let mut highest = 0.0f64;
    for (k, index) in order.into_iter().enumerate() {
        highest = highest.max(p_values[index] * (p_values.len() - k) as f64).min(1.0);
        adjusted[index] = highest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holm_by_hand() {
        assert_eq!(holm(&[0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02]);
        assert_eq!(holm(&[0.6, 0.9]), [1.0, 1.0]);
    }

    #[test]
    fn all_zero_differences_have_p_one_and_the_smallest_is_not_zero() {
        assert_eq!(paired_permutation_p(&[0.0; 4], Seed(1), 99), Some(1.0));
        assert_eq!(paired_permutation_p(&[1.0; 40], Seed(1), 99), Some(0.01));
        assert_eq!(paired_permutation_p(&[], Seed(1), 99), None);
    }
}
