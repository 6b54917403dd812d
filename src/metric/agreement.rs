//! How far two judgements agree: signs with a vote, orders with each other.

use crate::record::plan::Relation;

/// Share of pairs with a decided (not mixed) vote where a model's own sign equals it. `None` when no pair counts.
/// Source: PATH-Bench table 3; pairs where the model has no graded gain do not count.
pub fn agreement(pairs: &[(Option<Relation>, Option<Relation>)]) -> Option<f64> {
    let decided: Vec<bool> = pairs
        .iter()
        .filter_map(|(own, voted)| match (own, voted) {
            (_, Some(Relation::Mixed)) => None,
            (Some(own), Some(voted)) => Some(own == voted),
            _ => None,
        })
        .collect();
    let equal = decided.iter().filter(|is_equal| **is_equal).count();
    (!decided.is_empty()).then(|| equal as f64 / decided.len() as f64)
}

/// Ranks from 1, the highest value first; ties share the smaller rank.
pub fn ranks(values: &[f64]) -> Vec<usize> {
    values.iter().map(|value| 1 + values.iter().filter(|other| *other > value).count()).collect()
}

/// Kendall's tau-b of two lists over the same items (Kendall 1945, "The treatment of ties in ranking problems").
/// `None` below two items or when one list is constant.
///
/// # Panics
/// When the lists have different lengths.
pub fn kendall_tau_b(left: &[f64], right: &[f64]) -> Option<f64> {
    assert_eq!(left.len(), right.len(), "tau compares two lists over the same items");
    let (mut concordance, mut untied_left, mut untied_right) = (0i64, 0i64, 0i64);
    for i in 0..left.len() {
        for j in 0..i {
            let (order_left, order_right) = (order(left[i], left[j]), order(right[i], right[j]));
            concordance += order_left * order_right;
            untied_left += order_left.abs();
            untied_right += order_right.abs();
        }
    }
    if untied_left == 0 || untied_right == 0 {
        return None;
    }
    Some(concordance as f64 / (untied_left as f64 * untied_right as f64).sqrt())
}

/// 1, 0 or −1; both zeros are equal.
fn order(left: f64, right: f64) -> i64 {
    i64::from(left > right) - i64::from(left < right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixed_votes_and_ungraded_models_do_not_count() {
        use Relation::{Mixed, Negative, Neutral, Positive};
        let pairs = [
            (Some(Positive), Some(Positive)),
            (Some(Negative), Some(Positive)),
            (Some(Neutral), Some(Neutral)),
            (Some(Positive), Some(Mixed)),
            (None, Some(Positive)),
            (Some(Positive), None),
        ];
        assert_eq!(agreement(&pairs), Some(2.0 / 3.0));
        assert_eq!(agreement(&pairs[3..]), None);
    }

    #[test]
    fn ties_share_the_smaller_rank() {
        assert_eq!(ranks(&[0.5, 0.9, 0.5, 0.1]), [2, 1, 2, 4]);
    }

    #[test]
    fn a_constant_order_has_no_tau() {
        assert_eq!(kendall_tau_b(&[1.0, 2.0], &[3.0, 3.0]), None);
        assert_eq!(kendall_tau_b(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]), Some(-1.0));
    }
}
