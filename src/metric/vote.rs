//! From gains to relations: each voter's sign, and what the voters agree on.

use std::ops::Range;

use super::mean::median;
use crate::record::plan::{Relation, VoteMeasure};

/// The sign of a gain as a relation: only an exact 0 is neutral.
pub fn sign(gain: f64) -> Relation {
    if gain > 0.0 {
        Relation::Positive
    } else if gain < 0.0 {
        Relation::Negative
    } else {
        Relation::Neutral
    }
}

/// The voted relation of one ordered pair, from one gain a voter (`None`: nothing was graded).
///
/// One voter: its sign. Several: the sign that at least two share and no other sign reaches, otherwise mixed
/// (PATH-Bench, voting matrix: with three voters, two equal votes decide and three different ones are mixed). No graded
/// voter: undecided.
pub fn vote(gains: &[Option<f64>]) -> Option<Relation> {
    let signs: Vec<Relation> = gains.iter().copied().flatten().map(sign).collect();
    if signs.is_empty() {
        return None;
    }
    if gains.len() == 1 {
        return Some(signs[0]);
    }
    let count = |relation| signs.iter().filter(|sign| **sign == relation).count();
    let mut counted = [Relation::Positive, Relation::Neutral, Relation::Negative].map(|sign| (count(sign), sign));
    counted.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let [(most, winner), (second, _), _] = counted;
    Some(if most >= 2 && most > second { winner } else { Relation::Mixed })
}

/// Gains of one target by the mean log-probabilities of its reference: alone, and behind each source in turn. `None` where
/// one of the two is not known. By [`VoteMeasure::Score`] there are none.
pub fn logprob_gains(by: VoteMeasure, alone: Option<f64>, behind: &[Option<f64>]) -> Vec<Option<f64>> {
    let reference = match by {
        VoteMeasure::Score => None,
        VoteMeasure::LogProbability => alone,
        VoteMeasure::LogProbabilityOverMedian => median(&behind.iter().copied().flatten().collect::<Vec<_>>()),
    };
    behind.iter().map(|with| Some((*with)? - reference?)).collect()
}

/// Splits the seeds of one model into `groups` voters of equal size, in order; seeds that are left over join the last
/// groups. A stand-in for several models that a report must name.
///
/// # Panics
/// When there are no groups or fewer seeds than groups.
pub fn seed_groups(seeds: usize, groups: usize) -> Vec<Range<usize>> {
    assert!(groups > 0 && seeds >= groups, "{seeds} seeds cannot make {groups} groups");
    (0..groups).map(|group| group * seeds / groups..(group + 1) * seeds / groups).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_of_three_decide() {
        assert_eq!(vote(&[Some(0.2), Some(0.4), Some(-0.2)]), Some(Relation::Positive));
        assert_eq!(vote(&[Some(0.0), Some(-0.4), Some(0.0)]), Some(Relation::Neutral));
        assert_eq!(vote(&[Some(-0.2), Some(-0.4), Some(0.0)]), Some(Relation::Negative));
        assert_eq!(vote(&[Some(0.2), Some(0.0), Some(-0.2)]), Some(Relation::Mixed));
    }

    #[test]
    fn one_voter_is_its_sign_and_two_must_agree() {
        assert_eq!(vote(&[Some(-0.2)]), Some(Relation::Negative));
        assert_eq!(vote(&[Some(0.2), Some(0.6)]), Some(Relation::Positive));
        assert_eq!(vote(&[Some(0.2), Some(0.0)]), Some(Relation::Mixed));
    }

    #[test]
    fn a_tie_of_pairs_is_mixed_and_absent_voters_do_not_lower_the_bar() {
        assert_eq!(vote(&[Some(0.2), Some(0.2), Some(-0.2), Some(-0.2)]), Some(Relation::Mixed));
        assert_eq!(vote(&[Some(0.2), None, None]), Some(Relation::Mixed));
        assert_eq!(vote(&[None, None]), None);
        assert_eq!(vote(&[None]), None);
    }

    #[test]
    fn gains_by_log_probability_are_over_nothing_or_over_what_demonstrations_usually_do() {
        let behind = [Some(-1.0), Some(-3.0), None, Some(-1.5)];
        let gains = |by| logprob_gains(by, Some(-4.0), &behind);
        assert_eq!(gains(VoteMeasure::LogProbability), [Some(3.0), Some(1.0), None, Some(2.5)]);
        assert_eq!(gains(VoteMeasure::LogProbabilityOverMedian), [Some(0.5), Some(-1.5), None, Some(0.0)]);
        assert_eq!(gains(VoteMeasure::Score), [None; 4]);
        let even = logprob_gains(VoteMeasure::LogProbabilityOverMedian, None, &behind[..2]);
        assert_eq!(even, [Some(1.0), Some(-1.0)], "the target alone is not needed");
        assert_eq!(logprob_gains(VoteMeasure::LogProbability, None, &behind), [None; 4]);
        assert_eq!(logprob_gains(VoteMeasure::LogProbabilityOverMedian, None, &[None]), [None]);
    }

    #[test]
    fn groups_cover_every_seed_once() {
        assert_eq!(seed_groups(15, 3), [0..5, 5..10, 10..15]);
        assert_eq!(seed_groups(5, 3), [0..1, 1..3, 3..5]);
    }
}
