//! The answer's last number equals the right one within a tolerance.

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use super::{Grading, Scorer, options};
use crate::record::{Attempt, Reference, Score, Task};
use crate::registry::Registered;
use crate::reply::answer::last_number;

pub struct Numeric;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    answer: Number,
    /// Largest difference as a share of the right answer.
    #[serde(default = "default_tolerance")]
    relative: f64,
    /// Largest difference in the answer's own unit. Either tolerance suffices.
    #[serde(default = "default_tolerance")]
    absolute: f64,
}

/// A number, or text that is read as replies are (`"$1,200"`).
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Number {
    Value(f64),
    Text(String),
}

fn default_tolerance() -> f64 {
    1e-6
}

struct Expected {
    value: f64,
    relative: f64,
    absolute: f64,
}

impl Expected {
    fn read(scorer: &str, reference: &Reference) -> anyhow::Result<Expected> {
        let options: Options = options::read(scorer, reference)?;
        for (field, tolerance) in [("relative", options.relative), ("absolute", options.absolute)] {
            ensure!(
                tolerance.is_finite() && tolerance >= 0.0,
                "scorer `{scorer}`: field `{field}`: expected a number of at least 0, found {tolerance}"
            );
        }
        let value = match options.answer {
            Number::Value(value) => value,
            Number::Text(text) => last_number(&text)
                .with_context(|| format!("scorer `{scorer}`: field `answer`: expected a number, found {text:?}"))?,
        };
        Ok(Expected { value, relative: options.relative, absolute: options.absolute })
    }

    fn accepts(&self, found: f64) -> bool {
        let difference = (found - self.value).abs();
        difference <= self.absolute || difference <= self.relative * self.value.abs()
    }
}

impl Registered for Numeric {
    fn name(&self) -> &str {
        "numeric"
    }
    fn about(&self) -> &str {
        "the answer's last number equals the right one within a tolerance"
    }
    fn source(&self) -> &str {
        "own; GSM8K's cleaning rules"
    }
}

impl Scorer for Numeric {
    fn check(&self, reference: &Reference) -> anyhow::Result<()> {
        Expected::read(self.name(), reference).map(drop)
    }

    fn score(&self, task: &Task, attempt: &Attempt, _grading: &Grading) -> anyhow::Result<(Score, String)> {
        let expected = Expected::read(self.name(), &task.reference)?;
        let Some(found) = attempt.answer.as_deref().and_then(last_number) else {
            return Ok((Score::Graded(0.0), format!("expected {}, found no number", expected.value)));
        };
        Ok((Score::from_correct(expected.accepts(found)), format!("expected {}, found {found}", expected.value)))
    }
}
