//! Quality of a ranked list of recalled items. A repeated hit is credited once, at its first place; so is a relevant
//! item that is listed twice.

use std::collections::BTreeSet;

/// All in 0..=1; `None` when nothing is relevant.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Retrieval {
    pub recall: Option<f64>,
    /// Normalised discounted cumulative gain with binary relevance.
    pub ndcg: Option<f64>,
    /// One over the rank of the first hit; 0 without one.
    pub reciprocal_rank: Option<f64>,
}

/// Looks at the first `k` of `retrieved`.
pub fn retrieval<T: Ord>(retrieved: &[T], relevant: &[T], k: usize) -> Retrieval {
    let relevant: BTreeSet<&T> = relevant.iter().collect();
    if relevant.is_empty() || k == 0 {
        return Retrieval::default();
    }
    let mut found = BTreeSet::new();
    let hits: Vec<usize> = retrieved
        .iter()
        .take(k)
        .enumerate()
        .filter(|(_, item)| relevant.contains(item) && found.insert(*item))
        .map(|(rank, _)| rank)
        .collect();
    let discount = |rank: usize| 1.0 / (rank as f64 + 2.0).log2();
    let gained: f64 = hits.iter().map(|rank| discount(*rank)).sum();
    let ideal: f64 = (0..relevant.len().min(k)).map(discount).sum();
    Retrieval {
        recall: Some(hits.len() as f64 / relevant.len() as f64),
        ndcg: Some(gained / ideal),
        reciprocal_rank: Some(hits.first().map_or(0.0, |rank| 1.0 / (*rank as f64 + 1.0))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_relevant_is_undefined_and_no_hit_is_zero() {
        assert_eq!(retrieval(&["a"], &[], 3), Retrieval::default());
        let none = retrieval(&["x", "y"], &["a"], 2);
        assert_eq!((none.recall, none.ndcg, none.reciprocal_rank), (Some(0.0), Some(0.0), Some(0.0)));
        assert_eq!(retrieval(&["x", "a"], &["a"], 1).recall, Some(0.0));
    }
}
