//! The answer equals one of the right answers.

use anyhow::ensure;
use serde::Deserialize;

use super::normalise::Normalise;
use super::{Grading, Scorer, options};
use crate::record::{Attempt, Reference, Score, Task};
use crate::registry::Registered;

pub struct Exact;

/// What is right; also read by `token_f1`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {
    /// Right answers; the best match counts. Empty when the question has none.
    pub answers: Vec<String>,
    pub normalise: Option<Normalise>,
    /// Words that say there is no answer: right exactly when `answers` is empty.
    #[serde(default)]
    pub no_answer_words: Vec<String>,
}

impl Options {
    pub fn read(scorer: &str, reference: &Reference) -> anyhow::Result<Options> {
        let options: Options = options::read(scorer, reference)?;
        ensure!(
            !options.answers.is_empty() || !options.no_answer_words.is_empty(),
            "scorer `{scorer}`: field `answers`: expected at least one right answer (or `no_answer_words`), found none"
        );
        Ok(options)
    }

    /// The best of `compare` over the right answers; an abstention is compared with having no answer.
    pub fn best(&self, answer: &str, normalise: Normalise, compare: impl Fn(&str, &str) -> f64) -> f64 {
        if self.no_answer_words.iter().any(|word| normalise.is_match(answer, word)) {
            return if self.answers.is_empty() { 1.0 } else { 0.0 };
        }
        self.answers.iter().map(|right| compare(answer, right)).fold(0.0, f64::max)
    }
}

impl Registered for Exact {
    fn name(&self) -> &str {
        "exact"
    }
    fn about(&self) -> &str {
        "the answer equals one of the right answers after normalisation"
    }
    fn source(&self) -> &str {
        "own; normalisations of BrowseComp-Plus, ContinualSkillBench and SQuAD"
    }
}

impl Scorer for Exact {
    fn check(&self, reference: &Reference) -> anyhow::Result<()> {
        Options::read(self.name(), reference).map(drop)
    }

    fn score(&self, task: &Task, attempt: &Attempt, _grading: &Grading) -> anyhow::Result<(Score, String)> {
        let options = Options::read(self.name(), &task.reference)?;
        let Some(answer) = &attempt.answer else {
            return Ok((Score::Graded(0.0), "no answer in the reply".into()));
        };
        let normalise = options.normalise.unwrap_or_default();
        let grade =
            options.best(answer, normalise, |answer, right| f64::from(u8::from(normalise.is_match(answer, right))));
        Ok((Score::Graded(grade), format!("expected {:?}, found {answer:?}", options.answers)))
    }
}
