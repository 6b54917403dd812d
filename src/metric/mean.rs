//! Means that say of how many.

use crate::record::Score;

use super::sum::{mean, sum};

/// A mean over the graded scores among `of` results.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    pub value: Option<f64>,
    /// Standard error of the mean from the sample standard deviation (n − 1); `None` below two scores.
    pub stderr: Option<f64>,
    pub graded: usize,
    pub of: usize,
}

/// The mean of those that are graded, and how many that are.
pub fn mean_of(scores: &[Option<f64>]) -> Mean {
    let graded: Vec<f64> = scores.iter().copied().flatten().collect();
    Mean { value: mean(&graded), stderr: stderr(&graded), graded: graded.len(), of: scores.len() }
}

fn stderr(values: &[f64]) -> Option<f64> {
    let center = mean(values)?;
    if values.len() < 2 {
        return None;
    }
    let squares: Vec<f64> = values.iter().map(|value| (value - center) * (value - center)).collect();
    let n = values.len() as f64;
    Some((sum(&squares) / (n - 1.0) / n).sqrt())
}

/// Middle value; of an even count the mean of the middle two.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// A part of a group of benchmarks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    pub mean: f64,
    pub stderr: Option<f64>,
    pub n: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// Every part counts the same.
    Equal,
    /// Every result counts the same.
    Size,
}

/// The mean over independent parts and the standard error of that same estimator. One part without a standard error
/// leaves the whole without one.
pub fn group(parts: &[Part], weights: Weights) -> Mean {
    let n: usize = parts.iter().map(|part| part.n).sum();
    let weight = |part: &Part| match weights {
        Weights::Equal => 1.0 / parts.len() as f64,
        Weights::Size => part.n as f64 / n as f64,
    };
    if parts.is_empty() || n == 0 {
        return Mean { of: n, ..Mean::default() };
    }
    let value = sum(&parts.iter().map(|part| weight(part) * part.mean).collect::<Vec<_>>());
    let squares: Option<Vec<f64>> =
        parts.iter().map(|part| part.stderr.map(|stderr| (weight(part) * stderr).powi(2))).collect();
    Mean { value: Some(value), stderr: squares.map(|squares| sum(&squares).sqrt()), graded: n, of: n }
}

/// Accuracy over a fixed list of items.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Accuracy {
    /// A missing result counts as wrong. `None` while a result could not be graded: it is neither right nor wrong, and
    /// the headline waits until that is settled.
    pub value: Option<f64>,
    /// Over the items that are not grading errors.
    pub excluding_errors: Option<f64>,
    pub n: usize,
    /// Items without a result.
    pub missing: usize,
    /// Items whose result could not be graded.
    pub errors: usize,
}

/// Accuracy of results, one an item; `None` where there is no result.
pub fn accuracy(results: &[Option<&Score>]) -> Accuracy {
    let missing = results.iter().filter(|result| result.is_none()).count();
    let errors = results.iter().filter(|result| matches!(result, Some(Score::Ungraded { .. }))).count();
    let settled: Vec<f64> = results
        .iter()
        .filter_map(|result| match result {
            None => Some(0.0),
            Some(Score::Graded(value)) => Some(*value),
            Some(Score::Ungraded { .. }) => None,
        })
        .collect();
    let excluding_errors = mean(&settled);
    let value = if errors == 0 { excluding_errors } else { None };
    Accuracy { value, excluding_errors, n: results.len(), missing, errors }
}
