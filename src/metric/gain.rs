//! Transfer gain: what one demonstration does to another task.

use crate::seed::Seed;

use super::bootstrap::{Interval, mean_interval};
use super::sum::mean;

/// `M[i][j] = S(j | i) − S(j | nothing)`, from paired seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gain {
    /// Mean difference over the seeds where both sides are graded; exactly 0 means neutral.
    pub value: Option<f64>,
    pub interval: Option<Interval>,
    /// Seeds where both sides are graded.
    pub graded: usize,
    /// Seeds the run planned.
    pub of: usize,
}

/// The gain of one ordered pair. Both sides hold one score a seed, `None` where it is ungraded or not there yet.
///
/// With and without the demonstration a seed draws the same random numbers, so the difference is taken seed by seed
/// first (PATH-Bench, transfer gain; common random numbers). When all are graded this is the difference of the two
/// means. Differences below 1e-12 are rounding and count as 0, so that a neutral pair is exactly neutral.
///
/// # Panics
/// When the sides have different lengths.
pub fn transfer_gain(with: &[Option<f64>], without: &[Option<f64>], seed: Seed) -> Gain {
    let differences = paired_differences(with, without);
    Gain {
        value: mean_difference(&differences),
        interval: mean_interval(&differences, seed),
        graded: differences.len(),
        of: with.len(),
    }
}

/// The value of [`transfer_gain`] alone: what votes need.
///
/// # Panics
/// When the sides have different lengths.
pub fn mean_gain(with: &[Option<f64>], without: &[Option<f64>]) -> Option<f64> {
    mean_difference(&paired_differences(with, without))
}

fn paired_differences(with: &[Option<f64>], without: &[Option<f64>]) -> Vec<f64> {
    assert_eq!(with.len(), without.len(), "a gain pairs its seeds");
    with.iter().zip(without).filter_map(|(with, without)| Some((*with)? - (*without)?)).collect()
}

fn mean_difference(differences: &[f64]) -> Option<f64> {
    mean(differences).map(|value| if value.abs() < 1e-12 { 0.0 } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_is_the_difference_of_means_when_all_is_graded() {
        let gain = transfer_gain(&[Some(1.0), Some(1.0), Some(0.0)], &[Some(0.0), Some(1.0), Some(0.0)], Seed(1));
        assert_eq!(gain.value, Some(1.0 / 3.0));
        assert_eq!((gain.graded, gain.of), (3, 3));
        assert_eq!(gain.interval, Some(Interval { low: 0.0, high: 1.0 }));
    }

    #[test]
    fn an_ungraded_side_takes_its_seed_out_and_is_counted() {
        let gain = transfer_gain(&[Some(1.0), None, Some(1.0)], &[Some(0.0), Some(1.0), None], Seed(1));
        assert_eq!((gain.value, gain.graded, gain.of, gain.interval), (Some(1.0), 1, 3, None));
        assert_eq!(transfer_gain(&[None], &[Some(1.0)], Seed(1)).value, None);
    }

    #[test]
    fn rounding_does_not_make_a_neutral_pair_positive() {
        let gain = transfer_gain(&[Some(0.1), Some(0.2), Some(0.0)], &[Some(0.0), Some(0.0), Some(0.3)], Seed(1));
        assert_eq!(gain.value, Some(0.0));
    }
}
