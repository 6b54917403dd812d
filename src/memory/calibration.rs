//! What a cosine means: the similarities of random pairs of a run's tasks under its own embedding model.
//!
//! Thresholds of published methods were set for other embedders and are not portable: a threshold may be given as a
//! value or as a percentile of these pairs.

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use super::vector::cosine;
use super::{Embed, Handles};
use crate::seed::Seed;

/// Pairs drawn, at most.
pub const PAIRS: usize = 500;

/// Cosines of random pairs of different tasks, ascending.
#[derive(Clone, Debug, PartialEq)]
pub struct Similarities {
    sorted: Vec<f64>,
}

impl Similarities {
    /// Embeds the questions and draws up to [`PAIRS`] pairs.
    ///
    /// # Errors
    /// When the embedder fails, or there are fewer than two questions.
    pub fn measure(questions: &[String], embedder: &dyn Embed, seed: Seed) -> anyhow::Result<Similarities> {
        ensure!(questions.len() > 1, "similarities need at least 2 tasks, found {}", questions.len());
        let vectors = embedder.embed(questions)?;
        let mut sorted: Vec<f64> = random_pairs(questions.len(), seed)
            .into_iter()
            .map(|(left, right)| cosine(&vectors[left], &vectors[right]))
            .collect();
        sorted.sort_by(f64::total_cmp);
        Ok(Similarities { sorted })
    }

    /// How many pairs were drawn.
    pub fn pairs(&self) -> usize {
        self.sorted.len()
    }

    /// The similarity below which `percent` of the pairs lie, between neighbours in proportion.
    pub fn percentile(&self, percent: f64) -> f64 {
        let place = percent / 100.0 * (self.sorted.len() - 1) as f64;
        let (below, above) = (self.sorted[place.floor() as usize], self.sorted[place.ceil() as usize]);
        below + (above - below) * place.fract()
    }

    pub fn mean(&self) -> f64 {
        self.sorted.iter().sum::<f64>() / self.sorted.len() as f64
    }

    /// Standard deviation of the pairs.
    pub fn deviation(&self) -> f64 {
        let mean = self.mean();
        (self.sorted.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / self.sorted.len() as f64).sqrt()
    }
}

/// Up to [`PAIRS`] different pairs of `count` things, the greater first.
fn random_pairs(count: usize, seed: Seed) -> Vec<(usize, usize)> {
    let mut stream = seed.derive("calibration", &[]).stream();
    if count * (count - 1) / 2 <= 100 * PAIRS {
        let mut pairs: Vec<(usize, usize)> =
            (0..count).flat_map(|left| (0..left).map(move |right| (left, right))).collect();
        stream.shuffle(&mut pairs);
        pairs.truncate(PAIRS);
        return pairs;
    }
    // Of so many pairs few are drawn twice.
    let mut drawn = std::collections::BTreeSet::new();
    let mut pairs = Vec::with_capacity(PAIRS);
    while pairs.len() < PAIRS {
        let mut draw = || ((stream.next_f64() * count as f64) as usize).min(count - 1);
        let (one, other) = (draw(), draw());
        let pair = (one.max(other), one.min(other));
        if one != other && drawn.insert(pair) {
            pairs.push(pair);
        }
    }
    pairs
}

/// A least similarity: `0.4`, or `{ percentile = 95 }` of the run's random pairs.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
pub(super) enum Threshold {
    Value(f64),
    Percentile { percentile: f64 },
}

impl Threshold {
    /// The option is in range.
    ///
    /// # Errors
    /// Names the key.
    pub fn check(self, method: &str, key: &str) -> anyhow::Result<()> {
        let is_valid = match self {
            Threshold::Value(value) => (-1.0..=1.0).contains(&value),
            Threshold::Percentile { percentile } => (0.0..=100.0).contains(&percentile),
        };
        ensure!(
            is_valid,
            "memory `{method}`: `{key}` must be a similarity in -1..=1 or {{ percentile = 0..=100 }}, found {self:?}"
        );
        Ok(())
    }

    /// # Errors
    /// A percentile where the run measured no similarities.
    pub fn value(self, handles: &Handles<'_>) -> anyhow::Result<f64> {
        Ok(match self {
            Threshold::Value(value) => value,
            Threshold::Percentile { percentile } => handles
                .similarities
                .context("a percentile needs the run's similarities: this is a bug in lifelong")?
                .percentile(percentile),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_mean_and_deviation_are_those_of_the_pairs() {
        let similarities = Similarities { sorted: vec![0.0, 0.2, 0.4, 1.0] };
        assert_eq!(similarities.percentile(0.0), 0.0);
        assert_eq!(similarities.percentile(100.0), 1.0);
        assert!((similarities.percentile(50.0) - 0.3).abs() < 1e-12);
        assert!((similarities.mean() - 0.4).abs() < 1e-12);
        assert!((similarities.deviation() - 0.14f64.sqrt()).abs() < 1e-12);
    }

    /// All pairs of a few things, and as many of a crowd without listing its pairs.
    #[test]
    fn pairs_are_different_and_within_reach() {
        for (count, expected) in [(2, 1), (10, 45), (40, PAIRS), (100_000, PAIRS)] {
            let pairs = random_pairs(count, Seed(3));
            assert!(pairs.iter().all(|(one, other)| other < one && *one < count), "{count}");
            assert_eq!(pairs.iter().collect::<std::collections::BTreeSet<_>>().len(), expected, "{count}");
            assert_eq!(pairs, random_pairs(count, Seed(3)));
        }
    }

    #[test]
    fn a_threshold_is_a_number_or_a_percentile() {
        #[derive(Deserialize)]
        struct Options {
            least: Threshold,
        }
        let read = |text: &str| toml::from_str::<Options>(text).unwrap().least;
        assert_eq!(read("least = 0.4"), Threshold::Value(0.4));
        assert_eq!(read("least = { percentile = 95.0 }"), Threshold::Percentile { percentile: 95.0 });
        assert!(Threshold::Value(1.5).check("m", "least").unwrap_err().to_string().contains("`least`"));
        let similarities = Similarities { sorted: vec![0.1, 0.3] };
        let handles = Handles { similarities: Some(&similarities), ..Handles::none() };
        assert_eq!(Threshold::Percentile { percentile: 100.0 }.value(&handles).unwrap(), 0.3);
        assert!(Threshold::Percentile { percentile: 50.0 }.value(&Handles::none()).is_err());
    }
}
