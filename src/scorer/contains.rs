//! The answer names one of the right answers and none of the wrong ones.
//!
//! Made for models that answer in sentences. Whole words are compared, case aside, so `he` is not found in `the`; the
//! forbidden words keep a reply that lists every option from being right, and `min_words` asks for more than a word.

use anyhow::ensure;
use serde::Deserialize;

use super::normalise::words;
use super::{Grading, Scorer, options};
use crate::record::{Attempt, Reference, Score, Task};
use crate::registry::Registered;

pub struct Contains;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// Words or phrases of which one must occur.
    answers: Vec<String>,
    /// Words or phrases none of which may occur.
    #[serde(default)]
    forbidden: Vec<String>,
    /// Fewest words of the answer.
    #[serde(default)]
    min_words: usize,
}

impl Options {
    fn read(scorer: &str, reference: &Reference) -> anyhow::Result<Options> {
        let options: Options = options::read(scorer, reference)?;
        ensure!(
            !options.answers.is_empty(),
            "scorer `{scorer}`: field `answers`: expected at least one right answer, found none"
        );
        for phrase in options.answers.iter().chain(&options.forbidden) {
            ensure!(
                !words(phrase).is_empty(),
                "scorer `{scorer}`: fields `answers` and `forbidden`: expected letters or digits, found {phrase:?}"
            );
        }
        Ok(options)
    }
}

impl Registered for Contains {
    fn name(&self) -> &str {
        "contains"
    }
    fn about(&self) -> &str {
        "the answer holds one of the right words or phrases and no forbidden one"
    }
    fn source(&self) -> &str {
        "own"
    }
}

impl Scorer for Contains {
    fn check(&self, reference: &Reference) -> anyhow::Result<()> {
        Options::read(self.name(), reference).map(drop)
    }

    fn score(&self, task: &Task, attempt: &Attempt, _grading: &Grading) -> anyhow::Result<(Score, String)> {
        let options = Options::read(self.name(), &task.reference)?;
        let Some(answer) = &attempt.answer else {
            return Ok((Score::Graded(0.0), "no answer in the reply".into()));
        };
        let said = words(answer);
        if let Some(phrase) = options.forbidden.iter().find(|phrase| holds(&said, phrase)) {
            return Ok((Score::Graded(0.0), format!("names {phrase:?}, which is forbidden, in {answer:?}")));
        }
        if said.len() < options.min_words {
            return Ok((
                Score::Graded(0.0),
                format!("expected at least {} words, found {answer:?}", options.min_words),
            ));
        }
        let is_right = options.answers.iter().any(|phrase| holds(&said, phrase));
        Ok((Score::from_correct(is_right), format!("expected one of {:?} in {answer:?}", options.answers)))
    }
}

fn holds(said: &[String], phrase: &str) -> bool {
    let phrase = words(phrase);
    said.windows(phrase.len()).any(|window| window == phrase)
}

#[cfg(test)]
mod tests {
    use super::{holds, words};

    #[test]
    fn whole_words_in_order_are_found() {
        let said = words("The capital is New York, of course.");
        assert!(holds(&said, "new york"));
        assert!(!holds(&said, "york new"));
        assert!(!holds(&said, "cap"));
        assert!(!holds(&words(""), "x"));
    }
}
