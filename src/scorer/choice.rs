//! The chosen option is the right one.

use anyhow::ensure;
use serde::Deserialize;

use super::{Grading, Scorer, options};
use crate::record::{Attempt, Reference, Score, Task};
use crate::registry::Registered;

pub struct Choice;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// Letter of the right option.
    answer: String,
}

impl Registered for Choice {
    fn name(&self) -> &str {
        "choice"
    }
    fn about(&self) -> &str {
        "the chosen option letter is the right one"
    }
    fn source(&self) -> &str {
        "own; MMLU-Pro and LEXam letter rule"
    }
}

impl Scorer for Choice {
    fn check(&self, reference: &Reference) -> anyhow::Result<()> {
        let options: Options = options::read(self.name(), reference)?;
        ensure!(
            !options.answer.trim().is_empty(),
            "scorer `choice`: field `answer`: expected an option letter, found an empty text"
        );
        Ok(())
    }

    fn score(&self, task: &Task, attempt: &Attempt, _grading: &Grading) -> anyhow::Result<(Score, String)> {
        let options: Options = options::read(self.name(), &task.reference)?;
        let Some(answer) = &attempt.answer else {
            return Ok((Score::Graded(0.0), format!("expected {}, found no option", options.answer)));
        };
        let is_right = answer.trim().eq_ignore_ascii_case(options.answer.trim());
        Ok((Score::from_correct(is_right), format!("expected {}, found {answer}", options.answer)))
    }
}
