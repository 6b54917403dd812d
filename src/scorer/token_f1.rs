//! How far the answer's words overlap with a right answer's.

use super::exact::Options;
use super::normalise::Normalise;
use super::{Grading, Scorer};
use crate::record::{Attempt, Reference, Score, Task};
use crate::registry::Registered;

pub struct TokenF1;

impl Registered for TokenF1 {
    fn name(&self) -> &str {
        "token_f1"
    }
    fn about(&self) -> &str {
        "F1 of the answer's words against the best right answer"
    }
    fn source(&self) -> &str {
        "SQuAD evaluation rule; ContinualSkillBench F1"
    }
}

impl Scorer for TokenF1 {
    fn check(&self, reference: &Reference) -> anyhow::Result<()> {
        Options::read(self.name(), reference).map(drop)
    }

    fn score(&self, task: &Task, attempt: &Attempt, _grading: &Grading) -> anyhow::Result<(Score, String)> {
        let options = Options::read(self.name(), &task.reference)?;
        let Some(answer) = &attempt.answer else {
            return Ok((Score::Graded(0.0), "no answer in the reply".into()));
        };
        let normalise = options.normalise.unwrap_or(Normalise::Squad);
        let grade = options.best(answer, normalise, |answer, right| normalise.token_f1(answer, right));
        Ok((Score::Graded(grade), format!("F1 {grade:.3} of {answer:?} against {:?}", options.answers)))
    }
}
