//! Seconds of repeated runs, and the rates they make.

use lifelong_kernels::limits::Limits;
use lifelong_kernels::{Tally, Work};
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
    /// Calls that a run is the mean of.
    pub calls: usize,
    /// Seconds of each run, in order; at least one.
    pub seconds: Vec<f64>,
    /// `None` where no engine ran.
    pub times: Option<Times>,
    /// What all timed runs made the device do.
    pub work: Work,
    /// Prompt tokens of all timed runs; 0 where no engine ran.
    pub prompt_tokens: u64,
    /// Those of them that a cache held.
    pub reused_tokens: u64,
}

/// What a workload made of what the machine can do at most: 1 is all of it, over the whole wall time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LimitShares {
    /// Of the rate of 8-bit products.
    pub integers: f64,
    /// Of the rate of `f32` arithmetic, attention included; over keys and values in integers that may be more than 1.
    pub floats: f64,
    /// Of the rate of reading, by packed weights alone.
    pub read: f64,
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

    /// Shares of the wall time in products with weights, and in attention: both parts of the forward pass.
    pub fn kernel_shares(&self) -> [f64; 2] {
        let Work { integer_products, float_products, attention } = self.work;
        let share = |tally: Tally| tally.nanoseconds as f64 * 1e-9 / self.timed_seconds();
        [share(integer_products) + share(float_products), share(attention)]
    }

    /// What the runs made of the machine's limits.
    pub fn limit_shares(&self, limits: &Limits) -> LimitShares {
        let Work { integer_products, float_products, attention } = self.work;
        let rate = |count: u64| count as f64 / self.timed_seconds();
        LimitShares {
            integers: rate(integer_products.operations) / limits.integers,
            floats: rate(float_products.operations + attention.operations) / limits.floats,
            read: rate(integer_products.weight_bytes + float_products.weight_bytes) / limits.read,
        }
    }

    pub fn json(&self, limits: &Limits) -> Value {
        let mut value = json!({
            "name": self.name, "about": self.about, "unit": self.unit.name(),
            "median": self.median(), "min": self.min(), "max": self.max(),
            "runs": self.seconds, "count": self.count, "tokens": self.tokens,
        });
        let ([products, attention], of) = (self.kernel_shares(), self.limit_shares(limits));
        value["kernels"] = json!({ "products": products, "attention": attention });
        value["of_limits"] = json!({ "integers": of.integers, "floats": of.floats, "read": of.read });
        if let Some([forward, sample, rest]) = self.shares() {
            value["shares"] = json!({ "forward": forward, "sample": sample, "rest": rest });
        }
        value
    }

    /// Seconds of what `work` counts: all calls of all runs.
    fn timed_seconds(&self) -> f64 {
        self.seconds.iter().sum::<f64>() * self.calls as f64
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
            calls: 1,
            work: Work {
                integer_products: Tally { operations: 90, weight_bytes: 18, nanoseconds: 3_000_000_000 },
                attention: Tally { operations: 45, weight_bytes: 0, nanoseconds: 1_500_000_000 },
                ..Work::default()
            },
            prompt_tokens: 0,
            reused_tokens: 0,
        };
        let limits = Limits { read: 8.0, integers: 20.0, floats: 10.0 };
        assert_eq!(measurement.kernel_shares(), [3.0 / 9.0, 1.5 / 9.0]);
        assert_eq!(measurement.limit_shares(&limits), LimitShares { integers: 0.5, floats: 0.5, read: 0.25 });
        assert_eq!([measurement.min(), measurement.median(), measurement.max()], [3.0, 4.0, 6.0]);
        assert_eq!(measurement.shares().unwrap()[2], 1.0 / 9.0);
        measurement.seconds.pop();
        assert_eq!(measurement.median(), 4.5);
    }
}
