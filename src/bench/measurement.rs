//! Seconds of repeated runs, and the rates they make.

use serde_json::{Value, json};

/// What a rate counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Tokens,
    Sentences,
}

impl Unit {
    pub fn name(self) -> &'static str {
        match self {
            Unit::Tokens => "tok/s",
            Unit::Sentences => "sentences/s",
        }
    }
}

/// Seconds of the engine thread over all timed runs, by what it did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    pub forward: f64,
    pub sample: f64,
}

/// The timed runs of one workload, each of the same work.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    pub name: &'static str,
    pub about: String,
    pub unit: Unit,
    /// What one run made of the unit.
    pub count: usize,
    /// The tokens of one run that the rate is about: of the prompt, generated, or of the sentences.
    pub tokens: usize,
    /// Seconds of each run, in order; at least one.
    pub seconds: Vec<f64>,
    /// `None` where no engine ran.
    pub times: Option<Times>,
}

impl Measurement {
    /// The slowest run's rate.
    pub fn min(&self) -> f64 {
        self.rates()[0]
    }

    /// The fastest run's rate.
    pub fn max(&self) -> f64 {
        self.rates()[self.seconds.len() - 1]
    }

    /// The middle rate; of an even number of runs the mean of the two middle ones.
    pub fn median(&self) -> f64 {
        let (rates, middle) = (self.rates(), self.seconds.len() / 2);
        if rates.len() % 2 == 1 { rates[middle] } else { f64::midpoint(rates[middle - 1], rates[middle]) }
    }

    /// Shares of the wall time in forward passes, in sampling, and in everything else.
    pub fn shares(&self) -> Option<[f64; 3]> {
        let wall: f64 = self.seconds.iter().sum();
        let Times { forward, sample } = self.times?;
        Some([forward / wall, sample / wall, ((wall - forward - sample) / wall).max(0.0)])
    }

    pub fn json(&self) -> Value {
        let mut value = json!({
            "name": self.name, "about": self.about, "unit": self.unit.name(),
            "median": self.median(), "min": self.min(), "max": self.max(),
            "runs": self.seconds, "count": self.count, "tokens": self.tokens,
        });
        if let Some([forward, sample, rest]) = self.shares() {
            value["shares"] = json!({ "forward": forward, "sample": sample, "rest": rest });
        }
        value
    }

    fn rates(&self) -> Vec<f64> {
        let mut rates: Vec<f64> = self.seconds.iter().map(|seconds| self.count as f64 / seconds).collect();
        rates.sort_by(f64::total_cmp);
        rates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_in_order_whatever_the_order_of_the_runs() {
        let mut measurement = Measurement {
            name: "some",
            about: String::new(),
            unit: Unit::Tokens,
            count: 12,
            tokens: 12,
            seconds: vec![4.0, 2.0, 3.0],
            times: Some(Times { forward: 6.0, sample: 2.0 }),
        };
        assert_eq!([measurement.min(), measurement.median(), measurement.max()], [3.0, 4.0, 6.0]);
        assert_eq!(measurement.shares().unwrap()[2], 1.0 / 9.0);
        measurement.seconds.pop();
        assert_eq!(measurement.median(), 4.5);
    }
}
