//! The answer matches a pattern.

use anyhow::Context as _;
use serde::Deserialize;

use super::{Grading, Scorer, options};
use crate::record::{Attempt, Reference, Score, Task};
use crate::registry::Registered;

pub struct Regex;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// In the syntax of Rust's `regex` crate; found anywhere in the answer unless anchored. Linear time, so a pattern
    /// from a data file cannot hang a run.
    pattern: String,
}

fn pattern(scorer: &str, reference: &Reference) -> anyhow::Result<regex::Regex> {
    let options: Options = options::read(scorer, reference)?;
    regex::Regex::new(&options.pattern)
        .with_context(|| format!("scorer `{scorer}`: field `pattern`: not a regular expression"))
}

impl Registered for Regex {
    fn name(&self) -> &str {
        "regex"
    }
    fn about(&self) -> &str {
        "the answer matches a regular expression"
    }
    fn source(&self) -> &str {
        "own"
    }
}

impl Scorer for Regex {
    fn check(&self, reference: &Reference) -> anyhow::Result<()> {
        pattern(self.name(), reference).map(drop)
    }

    fn score(&self, task: &Task, attempt: &Attempt, _grading: &Grading) -> anyhow::Result<(Score, String)> {
        let pattern = pattern(self.name(), &task.reference)?;
        let Some(answer) = &attempt.answer else {
            return Ok((Score::Graded(0.0), "no answer in the reply".into()));
        };
        Ok((Score::from_correct(pattern.is_match(answer)), format!("expected a match of /{pattern}/ in {answer:?}")))
    }
}
