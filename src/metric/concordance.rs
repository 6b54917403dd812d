//! How far two ways to measure the same pairs' gains agree: in sign, and in size.
//!
//! Pairs of one target share its baseline and are not independent, so intervals resample targets with all their pairs.

use std::collections::BTreeMap;

use crate::seed::Seed;

use super::bootstrap::{Interval, cluster_interval};

/// One ordered pair, measured twice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TwoGains {
    /// The task whose pairs are resampled together.
    pub target: u32,
    /// The standard: its zeros say nothing of a sign.
    pub standard: f64,
    pub other: f64,
}

/// A share or a correlation with its interval; `None` where nothing is defined.
pub type WithInterval = (Option<f64>, Option<Interval>);

/// What two measurements have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Concordance {
    pub pairs: usize,
    pub targets: usize,
    /// Pairs whose standard gain is not zero.
    pub signed_pairs: usize,
    /// Share of those where the other gain has the same sign.
    pub same_sign: WithInterval,
    /// Pearson's correlation of the gains.
    pub pearson: WithInterval,
    /// Spearman's: Pearson's of the ranks over all pairs, ties sharing their mean rank. Resampling keeps the ranks.
    pub spearman: WithInterval,
}

/// Compares two lists of gains, `seed` being the key of the resamples.
pub fn concordance(gains: &[TwoGains], seed: Seed) -> Concordance {
    let standard: Vec<f64> = gains.iter().map(|gain| gain.standard).collect();
    let other: Vec<f64> = gains.iter().map(|gain| gain.other).collect();
    let targets: Vec<u32> = gains.iter().map(|gain| gain.target).collect();
    let signs = by_target(&targets, gains.iter().map(SignSums::of), SignSums::add);
    let all = signs.iter().copied().fold(SignSums::default(), SignSums::add);
    let share = |sums: SignSums| (sums.signed > 0.0).then(|| sums.same / sums.signed);
    Concordance {
        pairs: gains.len(),
        targets: signs.len(),
        signed_pairs: all.signed as usize,
        same_sign: (share(all), cluster_interval(&signs, SignSums::add, share, seed.derive("signs", &[]))),
        pearson: correlation(&targets, &standard, &other, seed.derive("pearson", &[])),
        spearman: correlation(&targets, &mean_ranks(&standard), &mean_ranks(&other), seed.derive("spearman", &[])),
    }
}

#[derive(Clone, Copy, Default)]
struct SignSums {
    signed: f64,
    same: f64,
}

impl SignSums {
    fn of(gain: &TwoGains) -> SignSums {
        let is_signed = gain.standard != 0.0;
        let is_same = is_signed && gain.standard * gain.other > 0.0;
        SignSums { signed: f64::from(u8::from(is_signed)), same: f64::from(u8::from(is_same)) }
    }

    fn add(self, other: SignSums) -> SignSums {
        SignSums { signed: self.signed + other.signed, same: self.same + other.same }
    }
}

/// What a correlation needs: count, sums, squares and products.
#[derive(Clone, Copy, Default)]
struct Moments([f64; 6]);

impl Moments {
    fn of(x: f64, y: f64) -> Moments {
        Moments([1.0, x, y, x * x, y * y, x * y])
    }

    fn add(self, other: Moments) -> Moments {
        Moments(std::array::from_fn(|index| self.0[index] + other.0[index]))
    }

    /// `None` where one side does not vary.
    fn correlation(self) -> Option<f64> {
        let Moments([n, x, y, xx, yy, xy]) = self;
        let (spread_x, spread_y) = (xx - x * x / n, yy - y * y / n);
        let is_constant = spread_x <= 1e-12 * xx.max(1.0) || spread_y <= 1e-12 * yy.max(1.0);
        (n > 1.0 && !is_constant).then(|| ((xy - x * y / n) / (spread_x * spread_y).sqrt()).clamp(-1.0, 1.0))
    }
}

fn correlation(targets: &[u32], x: &[f64], y: &[f64], seed: Seed) -> WithInterval {
    // Around the means, so that the sums of squares keep their digits.
    let center = |values: &[f64]| super::sum::mean(values).unwrap_or(0.0);
    let (x_mean, y_mean) = (center(x), center(y));
    let pairs = x.iter().zip(y).map(|(x, y)| Moments::of(x - x_mean, y - y_mean));
    let clusters = by_target(targets, pairs, Moments::add);
    let all = clusters.iter().copied().fold(Moments::default(), Moments::add);
    (all.correlation(), cluster_interval(&clusters, Moments::add, Moments::correlation, seed))
}

/// Sums of one target each, by target.
fn by_target<T: Copy + Default>(targets: &[u32], items: impl Iterator<Item = T>, add: impl Fn(T, T) -> T) -> Vec<T> {
    let mut sums: BTreeMap<u32, T> = BTreeMap::new();
    for (target, item) in targets.iter().zip(items) {
        let sum = sums.entry(*target).or_default();
        *sum = add(*sum, item);
    }
    sums.into_values().collect()
}

/// Ranks from 1, the lowest value first; ties share the mean of their ranks.
fn mean_ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|left, right| values[*left].total_cmp(&values[*right]));
    let mut ranks = vec![0.0; values.len()];
    let mut before = 0;
    for tied in order.chunk_by(|left, right| values[*left] == values[*right]) {
        let rank = before as f64 + (tied.len() as f64 + 1.0) / 2.0;
        tied.iter().for_each(|index| ranks[*index] = rank);
        before += tied.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gains(pairs: &[(u32, f64, f64)]) -> Vec<TwoGains> {
        pairs
            .iter()
            .map(|(target, standard, other)| TwoGains { target: *target, standard: *standard, other: *other })
            .collect()
    }

    #[test]
    fn neutral_pairs_have_no_sign_to_agree_with() {
        let found = concordance(&gains(&[(0, 0.2, 1.0), (0, 0.0, 5.0), (1, -0.4, 0.5), (1, -0.2, -2.0)]), Seed(1));
        assert_eq!((found.pairs, found.signed_pairs, found.targets), (4, 3, 2));
        assert_eq!(found.same_sign, (Some(2.0 / 3.0), None));
        assert_eq!(concordance(&[], Seed(1)), Concordance::default());
    }

    #[test]
    fn correlations_are_those_of_the_textbook() {
        // numpy.corrcoef and scipy.stats.spearmanr of these lists.
        let x = [0.0, 0.2, 0.2, -0.4, 0.6, 1.0];
        let y = [0.1, 0.5, -0.3, -1.0, 0.4, 0.2];
        let pairs: Vec<(u32, f64, f64)> = (0..).zip(x).zip(y).map(|((target, x), y)| (target, x, y)).collect();
        let found = concordance(&gains(&pairs), Seed(1));
        assert!((found.pearson.0.unwrap() - 0.672_674_110_5).abs() < 1e-9, "{:?}", found.pearson);
        assert!((found.spearman.0.unwrap() - 0.608_759_587_4).abs() < 1e-9, "{:?}", found.spearman);
        let interval = found.pearson.1.unwrap();
        assert!(interval.low < 0.67 && interval.high > 0.67, "{interval:?}");
        assert_eq!(
            concordance(&gains(&[(0, 0.0, 1.0), (1, 0.0, 2.0)]), Seed(1)).pearson.0,
            None,
            "one side is constant"
        );
    }

    #[test]
    fn pairs_of_one_target_count_as_one_unit() {
        // Ten targets of fifty equal pairs each: five agree, five do not.
        let pairs: Vec<(u32, f64, f64)> =
            (0..500u32).map(|pair| (pair / 50, 0.2, if pair / 50 < 5 { 1.0 } else { -1.0 })).collect();
        let (share, interval) = concordance(&gains(&pairs), Seed(4)).same_sign;
        let interval = interval.unwrap();
        assert_eq!(share, Some(0.5));
        // 500 independent pairs would give 0.46..0.54.
        assert!(interval.low <= 0.2 && interval.high >= 0.8, "{interval:?}");
    }
}
