//! Scores an attempt by the scorer that its task names, and says of it what the run lets a memory know.

use crate::config::FeedbackKind;
use crate::record::{Attempt, Feedback, Score, Task};
use crate::scorer::{self, Grading};

/// The score and a line for people. Where our own part fails the attempt is ungraded, with the reason: never 0.
pub fn grade(task: &Task, attempt: &Attempt, grading: &Grading) -> (Score, String) {
    let scored = scorer::find(&task.reference.scorer)
        .map_err(Into::into)
        .and_then(|scorer| scorer.score(task, attempt, grading));
    match scored {
        Ok(graded) => graded,
        Err(error) => {
            let why = format!("{error:#}");
            tracing::warn!(task = %task.id(), why, "attempt not graded");
            (Score::Ungraded { why }, String::new())
        }
    }
}

/// What a memory is told. An attempt that could not be graded tells nothing.
pub fn feedback(kind: FeedbackKind, task: &Task, score: &Score) -> Feedback {
    let Some(grade) = score.graded() else {
        return Feedback::Withheld;
    };
    let is_correct = grade >= 1.0;
    match kind {
        FeedbackKind::Withheld => Feedback::Withheld,
        FeedbackKind::Correct => Feedback::Correct(is_correct),
        FeedbackKind::Graded => Feedback::Graded(grade),
        FeedbackKind::Revealed => Feedback::Revealed { is_correct, solution: task.reference.solution.clone() },
    }
}
