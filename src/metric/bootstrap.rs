//! Percentile bootstrap of a mean over independent units (seeds, tasks, sequences).
//!
//! The bootstrap distribution of a mean over few or repetitive values is small enough to be written down whole: its
//! points are the ways to draw n times from the distinct values, each with a multinomial weight. When there are at most
//! [`RESAMPLES`] such points the interval is exact; otherwise it comes from [`RESAMPLES`] seeded resamples. The exact
//! form is what random resampling converges to, needs no seed, and for five seeds costs 126 points.

use crate::seed::Seed;

use super::sum::{mean, sum};

/// Resamples when the distribution is too large to be enumerated.
pub const RESAMPLES: usize = 10_000;

/// Fewer units than this have no interval: with two, the percentile interval is just the two values.
pub const MINIMUM_UNITS: usize = 3;

/// One sentence for reports.
pub const INTERVAL_METHOD: &str = "95 % percentile bootstrap of the mean (2.5 / 97.5), resampling the named unit with \
     replacement; exact when at most 10 000 distinct resamples exist, otherwise 10 000 resamples seeded by run seed, \
     table and row; not given below 3 units";

/// A 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
}

impl Interval {
    /// Whether zero lies outside.
    pub fn excludes_zero(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }
}

/// The interval of the mean of `values`, one a unit; `None` below three.
pub fn mean_interval(values: &[f64], seed: Seed) -> Option<Interval> {
    if values.len() < MINIMUM_UNITS {
        return None;
    }
    Some(Distribution::exact(values).unwrap_or_else(|| Distribution::resampled(values, seed, RESAMPLES)).interval())
}

/// The interval of mean(left) − mean(right) of two independent groups of units, each resampled by itself; `None` when a
/// group has fewer than three. For paired units take the interval of their differences instead.
pub fn difference_interval(left: &[f64], right: &[f64], seed: Seed) -> Option<Interval> {
    if left.len().min(right.len()) < MINIMUM_UNITS {
        return None;
    }
    let mut stream = seed.stream();
    let mut drawn_mean = |values: &[f64]| {
        let drawn: Vec<f64> = values.iter().map(|_| values[stream.below(values.len() as u64) as usize]).collect();
        sum(&drawn) / drawn.len() as f64
    };
    let points = (0..RESAMPLES).map(|_| (drawn_mean(left) - drawn_mean(right), 1)).collect();
    Some(Distribution::of(points, RESAMPLES as u128).interval())
}

/// The interval of a share that is pooled over units, `sum of parts / sum of wholes` with one (part, whole) a unit: units
/// are resampled with all they hold. `None` below three units that hold anything.
pub fn ratio_interval(units: &[(f64, f64)], seed: Seed) -> Option<Interval> {
    let units: Vec<(f64, f64)> = units.iter().copied().filter(|(_, whole)| *whole > 0.0).collect();
    if units.len() < MINIMUM_UNITS {
        return None;
    }
    let mut stream = seed.stream();
    let points = (0..RESAMPLES)
        .map(|_| {
            let (mut part, mut whole) = (0.0, 0.0);
            for _ in &units {
                let (drawn_part, drawn_whole) = units[stream.below(units.len() as u64) as usize];
                part += drawn_part;
                whole += drawn_whole;
            }
            (part / whole, 1)
        })
        .collect();
    Some(Distribution::of(points, RESAMPLES as u128).interval())
}

/// The interval of a statistic of sums over clusters (all pairs of one target, all draws of one probe), which are resampled
/// whole; `None` below three clusters, or when more than half of the resamples have no value.
pub fn cluster_interval<T: Copy>(
    clusters: &[T],
    add: impl Fn(T, T) -> T,
    statistic: impl Fn(T) -> Option<f64>,
    seed: Seed,
) -> Option<Interval> {
    if clusters.len() < MINIMUM_UNITS {
        return None;
    }
    let mut stream = seed.stream();
    let mut draw = || clusters[stream.below(clusters.len() as u64) as usize];
    let resample = |_| {
        let first = draw();
        statistic((1..clusters.len()).fold(first, |sum, _| add(sum, draw())))
    };
    let points: Vec<(f64, u128)> = (0..RESAMPLES).filter_map(resample).map(|value| (value, 1)).collect();
    let total = points.len() as u128;
    (points.len() * 2 > RESAMPLES).then(|| Distribution::of(points, total).interval())
}

/// A distribution of means: distinct or repeated points with integer weights, ascending.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    points: Vec<(f64, u128)>,
    total: u128,
}

impl Distribution {
    /// Every way to draw n of the n values with replacement; `None` when there are more than [`RESAMPLES`], or none.
    pub fn exact(values: &[f64]) -> Option<Distribution> {
        let n = values.len();
        let total = (n as u128).checked_pow(u32::try_from(n).ok()?).filter(|_| n > 0)?;
        let distinct = distinct(values);
        if compositions(n, distinct.len())? > RESAMPLES as u128 {
            return None;
        }
        let mut points = Vec::new();
        let mut counts = vec![0usize; distinct.len()];
        enumerate(&distinct, n, 0, n, 1, &mut counts, &mut points);
        Some(Distribution::of(points, total))
    }

    /// `resamples` means of n draws with replacement.
    ///
    /// # Panics
    /// When `values` is empty or `resamples` is 0.
    pub fn resampled(values: &[f64], seed: Seed, resamples: usize) -> Distribution {
        assert!(!values.is_empty() && resamples > 0, "a bootstrap needs values and resamples");
        let mut stream = seed.stream();
        let mut drawn = vec![0.0; values.len()];
        let points = (0..resamples)
            .map(|_| {
                drawn.fill_with(|| values[stream.below(values.len() as u64) as usize]);
                (mean(&drawn).expect("values are not empty"), 1)
            })
            .collect();
        Distribution::of(points, resamples as u128)
    }

    fn of(mut points: Vec<(f64, u128)>, total: u128) -> Distribution {
        points.sort_by(|left, right| left.0.total_cmp(&right.0));
        Distribution { points, total }
    }

    /// Lower bound: the smallest point with at least 2.5 % at or below it; upper bound: its mirror image.
    pub fn interval(&self) -> Interval {
        let reaches = |points: &mut dyn Iterator<Item = &(f64, u128)>| {
            let mut mass = 0u128;
            for (value, weight) in points {
                mass += weight;
                if mass >= self.total.div_ceil(40) {
                    return *value;
                }
            }
            unreachable!("the weights add up to the total")
        };
        Interval { low: reaches(&mut self.points.iter()), high: reaches(&mut self.points.iter().rev()) }
    }

    /// Standard deviation of the distribution: the bootstrap standard error of the mean.
    pub fn standard_deviation(&self) -> f64 {
        let share = |weight: u128| weight as f64 / self.total as f64;
        let center = sum(&self.points.iter().map(|(value, weight)| value * share(*weight)).collect::<Vec<_>>());
        let squares: Vec<f64> =
            self.points.iter().map(|(value, weight)| (value - center).powi(2) * share(*weight)).collect();
        sum(&squares).sqrt()
    }
}

/// Distinct values ascending, with how often each occurs.
fn distinct(values: &[f64]) -> Vec<(f64, u128)> {
    let mut sorted: Vec<f64> = values.iter().map(|value| value + 0.0).collect();
    sorted.sort_by(f64::total_cmp);
    let mut out: Vec<(f64, u128)> = Vec::new();
    for value in sorted {
        match out.last_mut() {
            Some((last, count)) if *last == value => *count += 1,
            _ => out.push((value, 1)),
        }
    }
    out
}

/// How many ways there are to write n as an ordered sum of `parts` counts: C(n + parts − 1, parts − 1). `None` when the
/// number is beyond what anyone would enumerate.
fn compositions(n: usize, parts: usize) -> Option<u128> {
    let mut count = 1u128;
    for k in 1..parts as u128 {
        count = count.checked_mul(n as u128 + k)? / k;
        if count > 1 << 64 {
            return None;
        }
    }
    Some(count)
}

/// Adds a point for each way to give the remaining draws to the values from `at` on. `weight` counts the draw orders
/// so far: each value's share is C(left, k) · multiplicity^k, so no step needs a factorial of n.
fn enumerate(
    distinct: &[(f64, u128)],
    n: usize,
    at: usize,
    left: usize,
    weight: u128,
    counts: &mut [usize],
    points: &mut Vec<(f64, u128)>,
) {
    let (_, multiplicity) = distinct[at];
    if at + 1 == distinct.len() {
        counts[at] = left;
        let weighted: Vec<f64> = distinct.iter().zip(counts.iter()).map(|((value, _), k)| value * *k as f64).collect();
        points.push((sum(&weighted) / n as f64, weight * multiplicity.pow(left as u32)));
        return;
    }
    let mut orders = 1u128;
    for k in 0..=left {
        counts[at] = k;
        enumerate(distinct, n, at + 1, left - k, weight * orders * multiplicity.pow(k as u32), counts, points);
        orders = orders * (left - k) as u128 / (k as u128 + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_weights_add_up_to_every_draw() {
        for values in [vec![1.0, 0.0, 0.0], vec![0.0, 1.0, 2.0, 3.0, 4.0], vec![0.5; 20], vec![-1.0, 1.0, 1.0, 0.0]] {
            let exact = Distribution::exact(&values).unwrap();
            assert_eq!(exact.points.iter().map(|(_, weight)| weight).sum::<u128>(), exact.total);
        }
        assert_eq!(Distribution::exact(&[]), None);
    }

    #[test]
    fn five_distinct_seeds_have_126_resamples_and_nine_too_many() {
        let values: Vec<f64> = (0..9).map(|value| f64::from(value) * 0.1).collect();
        assert_eq!(Distribution::exact(&values[..5]).unwrap().points.len(), 126);
        assert!(Distribution::exact(&values).is_none());
    }

    #[test]
    fn three_units_span_their_range_and_two_have_none() {
        assert_eq!(mean_interval(&[0.0, 1.0], Seed(1)), None);
        assert_eq!(mean_interval(&[1.0, 0.0, 1.0], Seed(1)), Some(Interval { low: 0.0, high: 1.0 }));
    }

    #[test]
    fn negating_the_values_mirrors_the_interval() {
        let values: Vec<f64> = (0..12).map(|value| f64::from(value * value % 7) * 0.25).collect();
        let negated: Vec<f64> = values.iter().map(|value| -value).collect();
        let (plain, mirror) = (mean_interval(&values, Seed(5)).unwrap(), mean_interval(&negated, Seed(5)).unwrap());
        assert_eq!((plain.low, plain.high), (-mirror.high, -mirror.low));
    }

    #[test]
    fn clusters_of_one_value_have_the_interval_of_their_mean() {
        let values: Vec<f64> = (0..40).map(|value| f64::from(value * value % 11)).collect();
        let clusters: Vec<(f64, f64)> = values.iter().map(|value| (*value, 1.0)).collect();
        let add = |left: (f64, f64), right: (f64, f64)| (left.0 + right.0, left.1 + right.1);
        let of_clusters = cluster_interval(&clusters, add, |(sum, count)| Some(sum / count), Seed(9)).unwrap();
        let of_means = mean_interval(&values, Seed(10)).unwrap();
        assert!((of_clusters.low - of_means.low).abs() < 0.1 && (of_clusters.high - of_means.high).abs() < 0.1);
        assert_eq!(cluster_interval(&clusters[..2], add, |(sum, count)| Some(sum / count), Seed(9)), None);
        assert_eq!(cluster_interval(&clusters, add, |_| None, Seed(9)), None);
    }

    #[test]
    fn independent_groups_have_the_width_of_both() {
        let (left, right) = ([1.0, 1.0, 0.0, 1.0, 0.5], [0.0, 0.5, 0.0, 0.0, 0.25]);
        let found = difference_interval(&left, &right, Seed(2)).unwrap();
        assert!(found.low > 0.0 && found.high < 1.0 && found.low < 0.55 && found.high > 0.55, "{found:?}");
        assert_eq!(difference_interval(&left, &right[..2], Seed(2)), None);
    }

    #[test]
    fn a_share_moves_with_the_units_that_hold_much() {
        let same = [(3.0, 4.0); 6];
        assert_eq!(ratio_interval(&same, Seed(1)), Some(Interval { low: 0.75, high: 0.75 }));
        let large_is_right = [(0.0, 1.0), (0.0, 1.0), (0.0, 1.0), (97.0, 97.0)];
        let found = ratio_interval(&large_is_right, Seed(1)).unwrap();
        assert!(found.low == 0.0 && found.high > 0.99, "{found:?}");
        assert_eq!(ratio_interval(&[(1.0, 1.0), (1.0, 2.0), (0.0, 0.0)], Seed(1)), None);
    }

    #[test]
    fn random_resamples_repeat_with_their_seed_and_approach_the_exact_form() {
        let values: Vec<f64> = (0..8).map(|value| f64::from(value % 5)).collect();
        let exact = Distribution::exact(&values).unwrap();
        let first = Distribution::resampled(&values, Seed(3), RESAMPLES);
        assert_eq!(first, Distribution::resampled(&values, Seed(3), RESAMPLES));
        assert_ne!(first, Distribution::resampled(&values, Seed(4), RESAMPLES));
        assert!((first.standard_deviation() - exact.standard_deviation()).abs() < 0.01);
        assert!((first.interval().low - exact.interval().low).abs() <= 0.126);
    }
}
