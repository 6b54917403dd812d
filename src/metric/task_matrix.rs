//! The classic continual-learning metrics from a matrix of scores (Lopez-Paz and Ranzato 2017, "Gradient episodic
//! memory for continual learning", §2; forgetting after Chaudhry et al. 2018, "Riemannian walk for incremental
//! learning", §3). Not the probe metrics of the same names in `continual`: never under one heading.

use super::sum::mean;

/// Metrics of a matrix `a[i][j]`: score on task j after learning tasks 0..=i.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TaskMatrix {
    /// Mean over j of `a[T−1][j]`.
    pub final_accuracy: Option<f64>,
    /// Mean over j ≥ 1 of `a[j−1][j]` − `b[j]`; with no baseline b, of `a[j−1][j]`.
    pub forward: Option<f64>,
    /// Mean over j < T−1 of `a[T−1][j]` − `a[j][j]`.
    pub backward: Option<f64>,
    /// Mean over j < T−1 of max over l in j..T−1 of `a[l][j]`, minus `a[T−1][j]`.
    pub forgetting: Option<f64>,
    /// Mean over j of `a[j][j]`.
    pub learning_accuracy: Option<f64>,
}

/// # Panics
/// When the matrix is not square, or the baseline has another length.
pub fn task_matrix(scores: &[Vec<f64>], baseline: Option<&[f64]>) -> TaskMatrix {
    let tasks = scores.len();
    assert!(scores.iter().all(|row| row.len() == tasks), "a task matrix is square");
    assert!(baseline.is_none_or(|baseline| baseline.len() == tasks), "one baseline score a task");
    let Some(last) = scores.last() else { return TaskMatrix::default() };
    let over = |range: std::ops::Range<usize>, term: &dyn Fn(usize) -> f64| mean(&range.map(term).collect::<Vec<_>>());
    let best_before_last = |j: usize| scores[j..tasks - 1].iter().map(|row| row[j]).fold(f64::NEG_INFINITY, f64::max);
    TaskMatrix {
        final_accuracy: mean(last),
        forward: over(1..tasks, &|j| scores[j - 1][j] - baseline.map_or(0.0, |baseline| baseline[j])),
        backward: over(0..tasks - 1, &|j| last[j] - scores[j][j]),
        forgetting: over(0..tasks - 1, &|j| best_before_last(j) - last[j]),
        learning_accuracy: over(0..tasks, &|j| scores[j][j]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_task_has_no_transfer() {
        let metrics = task_matrix(&[vec![0.5]], Some(&[0.25]));
        assert_eq!(metrics.final_accuracy, Some(0.5));
        assert_eq!((metrics.forward, metrics.backward, metrics.forgetting), (None, None, None));
        assert_eq!(task_matrix(&[], None), TaskMatrix::default());
    }

    #[test]
    fn a_baseline_is_taken_off_forward_transfer_only() {
        let scores = [vec![1.0, 0.5], vec![0.5, 1.0]];
        let (with, without) = (task_matrix(&scores, Some(&[0.0, 0.25])), task_matrix(&scores, None));
        assert_eq!((with.forward, without.forward), (Some(0.25), Some(0.5)));
        assert_eq!((with.backward, with.forgetting), (without.backward, without.forgetting));
        assert_eq!(with.learning_accuracy, Some(1.0));
    }
}
