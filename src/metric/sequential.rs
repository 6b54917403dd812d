//! When the sign of a pair's gain is settled before all of its seeds are drawn.
//!
//! Two rules, each looked at after every seed:
//!
//! - *certain*: the baseline's scores b_s of all seeds are known and no score leaves 0..=1, so a seed still to come adds
//!   between −b_s and 1 − b_s to the sum of differences. Once that cannot change the sign, the mean over all seeds is known
//!   to have it: stopping is free.
//! - *tested*: the differences d_1, d_2, … of a pair are independent draws in −1..=1. If their mean is not above 0, then
//!   K_t(λ) = Π (1 + λ d_s) is a non-negative supermartingale for every bet λ in 0..=1, and so is a mixture of them; by
//!   Ville's inequality it ever reaches 2/α with chance α/2 at most. The mirror image tests the other sign. Looking after
//!   every seed is thus paid for, unlike with a test of fixed size. (Ville 1939; Waudby-Smith and Ramdas 2024, "Estimating
//!   means of bounded random variables by betting", §3–4, with fixed bets instead of predictable ones.)
//!
//! Half of the stake is on λ = 1, which doubles with every seed that goes from wrong to right; the other half is spread
//! evenly over 1/8 … 7/8, for gains that are not that clear. Since log(1 + λd) ≤ λd, a mixture above 1 has a positive sum:
//! the sign that is named is the sign of the mean so far.

use crate::record::plan::{Relation, Stopping};

use super::gain::mean_gain;
use super::vote::sign;

/// Bets beside λ = 1, evenly spaced.
const SMALL_BETS: u32 = 7;

/// Sums of scores within this of zero are rounding.
const ROUNDING: f64 = 1e-9;

/// Why a pair stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// No outcome of the other seeds changes the sign of the mean.
    Certain,
    /// The test names the sign of the expected gain.
    Tested,
}

/// Where a pair stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// Seeds drawn.
    pub seeds: usize,
    pub settled: Settled,
    pub sign: Relation,
}

/// The first seed after which the sign of a pair's gain is settled, when it is among those drawn. `with` holds the scores
/// so far, `without` the baseline's of all seeds; `None` where a score could not be graded, which settles nothing.
///
/// # Panics
/// When more seeds are drawn than there are.
pub fn stop(with: &[Option<f64>], without: &[Option<f64>], rule: Stopping) -> Option<Stop> {
    assert!(with.len() <= without.len(), "a pair has as many seeds as its baseline");
    let (mut up, mut down) = (Wealth::new(), Wealth::new());
    let mut total = 0.0;
    for (drawn, (score, baseline)) in (1..).zip(with.iter().zip(without)) {
        if let (Some(score), Some(baseline)) = (score, baseline) {
            total += score - baseline;
            up.bet(score - baseline);
            down.bet(baseline - score);
        }
        let is_last = drawn == without.len();
        if drawn < rule.least_seeds as usize || is_last {
            continue;
        }
        let found = certain(total, &without[drawn..])
            .map(|sign| (Settled::Certain, sign))
            .or_else(|| tested(&up, &down, rule.error_rate).map(|sign| (Settled::Tested, sign)));
        if let Some((settled, sign)) = found {
            return Some(Stop { seeds: drawn, settled, sign });
        }
    }
    None
}

/// The sign of a mean whose other seeds have these baselines, when all of their outcomes agree on it.
fn certain(total: f64, others: &[Option<f64>]) -> Option<Relation> {
    let (mut lowest, mut highest) = (total, total);
    for baseline in others.iter().flatten() {
        lowest -= baseline;
        highest += 1.0 - baseline;
    }
    if lowest > ROUNDING {
        Some(Relation::Positive)
    } else if highest < -ROUNDING {
        Some(Relation::Negative)
    } else {
        None
    }
}

fn tested(up: &Wealth, down: &Wealth, error_rate: f64) -> Option<Relation> {
    if error_rate <= 0.0 {
        return None;
    }
    let enough = 2.0 / error_rate;
    if up.total() >= enough {
        Some(Relation::Positive)
    } else if down.total() >= enough {
        Some(Relation::Negative)
    } else {
        None
    }
}

/// What a unit of stake has become under each bet.
struct Wealth([f64; SMALL_BETS as usize + 1]);

impl Wealth {
    fn new() -> Wealth {
        let mut stakes = [0.5 / f64::from(SMALL_BETS); SMALL_BETS as usize + 1];
        stakes[SMALL_BETS as usize] = 0.5;
        Wealth(stakes)
    }

    fn bet(&mut self, difference: f64) {
        for (stake, eighths) in self.0.iter_mut().zip(1u32..) {
            *stake *= 1.0 + f64::from(eighths) / f64::from(SMALL_BETS + 1) * difference;
        }
    }

    fn total(&self) -> f64 {
        self.0.iter().sum()
    }
}

/// The sign that all seeds together give: what stopping by certainty never changes.
pub fn full_sign(with: &[Option<f64>], without: &[Option<f64>]) -> Option<Relation> {
    mean_gain(with, without).map(sign)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::seed::Seed;

    const RULE: Stopping = Stopping { error_rate: 0.05, least_seeds: 1 };
    const CERTAIN: Stopping = Stopping { error_rate: 0.0, least_seeds: 1 };

    fn some(values: &[f64]) -> Vec<Option<f64>> {
        values.iter().copied().map(Some).collect()
    }

    #[test]
    fn a_solved_baseline_is_settled_by_its_first_failure_and_a_hopeless_one_by_its_first_success() {
        let at = |with: &[f64], baseline: f64| stop(&some(with), &[Some(baseline); 5], CERTAIN);
        let negative = Stop { seeds: 2, settled: Settled::Certain, sign: Relation::Negative };
        assert_eq!(at(&[1.0, 0.0], 1.0), Some(negative));
        assert_eq!(at(&[1.0, 1.0, 1.0, 1.0], 1.0), None, "it may still be neutral");
        let positive = Stop { seeds: 1, settled: Settled::Certain, sign: Relation::Positive };
        assert_eq!(at(&[1.0, 0.0], 0.0), Some(positive));
        // Half-solved: three of five right where two are left that may both fail against a right baseline.
        let baseline = some(&[0.0, 0.0, 0.0, 1.0, 1.0]);
        assert_eq!(stop(&some(&[1.0, 1.0]), &baseline, CERTAIN), None);
        assert_eq!(stop(&some(&[1.0, 1.0, 1.0]), &baseline, CERTAIN).unwrap().seeds, 3);
    }

    #[test]
    fn the_test_needs_six_clear_seeds_at_five_percent_and_waits_for_the_least_number() {
        // Twenty right baselines at the end, which may all be lost, leave certainty out.
        let (with, without) = (vec![Some(1.0); 40], vec![Some(0.0); 20]);
        let mut baseline = without.clone();
        baseline.extend(vec![Some(1.0); 20]);
        let found = stop(&with[..30], &baseline, RULE).unwrap();
        assert_eq!(found, Stop { seeds: 6, settled: Settled::Tested, sign: Relation::Positive });
        let later = stop(&with[..30], &baseline, Stopping { least_seeds: 9, ..RULE }).unwrap();
        assert_eq!(later.seeds, 9);
        assert_eq!(stop(&with[..20], &baseline, CERTAIN), None, "twenty failures may still follow");
    }

    #[test]
    fn ungraded_scores_settle_nothing_and_all_seeds_need_no_rule() {
        assert_eq!(stop(&[None; 4], &[Some(0.0); 5], RULE), None);
        assert_eq!(stop(&some(&[1.0]), &[None; 5], RULE), None);
        assert_eq!(stop(&some(&[1.0; 5]), &some(&[1.0; 5]), RULE), None);
    }

    proptest! {
        /// What certainty names is what all seeds give, whatever the scores.
        #[test]
        fn certainty_never_changes_a_sign(
            scores in prop::collection::vec((0u32..5, 0u32..5, 0u32..12, 0u32..12), 1..12)
        ) {
            let side = |value: u32, is_missing: u32| (is_missing > 0).then(|| f64::from(value) / 4.0);
            let with: Vec<_> = scores.iter().map(|(value, _, missing, _)| side(*value, *missing)).collect();
            let without: Vec<_> = scores.iter().map(|(_, value, _, missing)| side(*value, *missing)).collect();
            if let Some(found) = stop(&with, &without, CERTAIN) {
                prop_assert_eq!(Some(found.sign), full_sign(&with, &without));
                // And the seeds drawn up to there have it too, so that a vote over them is the same.
                prop_assert_eq!(Some(found.sign), full_sign(&with[..found.seeds], &without[..found.seeds]));
                // Later seeds change nothing of the stop.
                prop_assert_eq!(stop(&with[..found.seeds], &without, CERTAIN), Some(found));
            }
        }

        /// A test names the sign of the mean so far.
        #[test]
        fn the_test_agrees_with_the_mean(differences in prop::collection::vec((0u32..5, 0u32..5), 1..40)) {
            let with: Vec<_> = differences.iter().map(|(value, _)| Some(f64::from(*value) / 4.0)).collect();
            let mut without: Vec<_> = differences.iter().map(|(_, value)| Some(f64::from(*value) / 4.0)).collect();
            without.extend([Some(0.5); 60]);
            let rule = Stopping { error_rate: 0.3, least_seeds: 1 };
            if let Some(found) = stop(&with, &without, rule) {
                prop_assert_eq!(Some(found.sign), full_sign(&with[..found.seeds], &without[..found.seeds]));
            }
        }
    }

    /// How pairs of which the truth is known end: shares that the test calls positive, negative, and mean seeds drawn.
    /// `draw` gives the scores with and without from two uniform numbers. Certainty is kept out by a baseline of all
    /// seeds that never settles it.
    fn simulate(rule: Stopping, seeds: usize, draw: Draw<'_>) -> (f64, f64, f64) {
        const PAIRS: u32 = 20_000;
        let (mut positive, mut negative, mut drawn) = (0.0, 0.0, 0.0);
        for pair in 0..PAIRS {
            let mut stream = Seed(77).derive("pair", &[pair]).stream();
            let (mut up, mut down) = (Wealth::new(), Wealth::new());
            let mut at = seeds;
            for seed in 1..=seeds {
                let (with, without) = draw(stream.next_f64(), stream.next_f64());
                up.bet(with - without);
                down.bet(without - with);
                if let Some(sign) = tested(&up, &down, rule.error_rate) {
                    *if sign == Relation::Positive { &mut positive } else { &mut negative } += 1.0;
                    at = seed;
                    break;
                }
            }
            drawn += at as f64;
        }
        let pairs = f64::from(PAIRS);
        (positive / pairs, negative / pairs, drawn / pairs)
    }

    fn bernoulli(chance: f64) -> impl Fn(f64) -> f64 {
        move |uniform| if uniform < chance { 1.0 } else { 0.0 }
    }

    /// Scores with and without from two uniform numbers.
    type Draw<'a> = &'a dyn Fn(f64, f64) -> (f64, f64);

    /// The promise: whatever the scores look like, a test that is looked at after each of 300 seeds names a sign that is
    /// not there at most as often as it says.
    #[test]
    fn the_error_rate_holds_under_no_gain_of_any_kind() {
        for error_rate in [0.05, 0.2] {
            let rule = Stopping { error_rate, least_seeds: 1 };
            let at_most = error_rate + 3.0 * (error_rate / 20_000f64).sqrt();
            let graded = |uniform: f64| (uniform * 4.0).floor() / 4.0;
            let draws: [(&str, Draw<'_>); 5] = [
                ("fair coins", &|a, b| (bernoulli(0.5)(a), bernoulli(0.5)(b))),
                ("rare successes", &|a, b| (bernoulli(0.1)(a), bernoulli(0.1)(b))),
                ("frequent successes", &|a, b| (bernoulli(0.9)(a), bernoulli(0.9)(b))),
                ("grades", &|a, b| (graded(a), graded(b))),
                // Mean 0, skewed: a large loss against many small wins.
                ("skewed", &|a, _| if a < 0.1 { (0.1, 1.0) } else { (0.6, 0.5) }),
            ];
            for (name, draw) in draws {
                let (positive, negative, _) = simulate(rule, 300, draw);
                assert!(positive + negative <= at_most, "{name} at {error_rate}: {positive} + {negative}");
                assert!(
                    positive <= at_most / 2.0 * 1.2 && negative <= at_most / 2.0 * 1.2,
                    "{name}: {positive} {negative}"
                );
            }
        }
    }

    /// With a true gain only the other sign is an error, and half the rate bounds it.
    #[test]
    fn the_wrong_sign_is_rarer_than_half_the_rate_and_the_right_one_comes_early() {
        let small = simulate(RULE, 300, &|a, b| (bernoulli(0.55)(a), bernoulli(0.5)(b)));
        assert!(small.1 <= 0.025 + 3.0 * (0.025 / 20_000f64).sqrt(), "{small:?}");
        let large = simulate(RULE, 300, &|a, b| (bernoulli(0.9)(a), bernoulli(0.3)(b)));
        assert!(large.0 > 0.99 && large.2 < 20.0, "{large:?}");
        println!("gain of 5 points: {small:?}; gain of 60 points: {large:?} (positive, negative, mean seeds of 300)");
    }

    /// The control: a test of fixed size that is looked at after every seed breaks its promise, so the simulation would
    /// see it.
    #[test]
    fn a_fixed_size_test_looked_at_again_and_again_would_fail() {
        let mut named = 0;
        for pair in 0..2_000 {
            let mut stream = Seed(78).derive("pair", &[pair]).stream();
            let (mut sum, mut squares) = (0.0f64, 0.0f64);
            named += usize::from((1..=300).any(|seed| {
                let difference = bernoulli(0.5)(stream.next_f64()) - bernoulli(0.5)(stream.next_f64());
                sum += difference;
                squares += difference * difference;
                seed >= 10 && sum.abs() > 1.96 * squares.sqrt()
            }));
        }
        assert!(named as f64 / 2_000.0 > 0.2, "{named} of 2000");
    }
}
