//! How much an attempt is worth, when that could be decided.

use serde::{Deserialize, Serialize};

/// Graded in 0..=1, or not graded with the reason. Ungraded is never 0 and never dropped: every mean reports n of n.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Score {
    Graded(f64),
    Ungraded { why: String },
}

impl Score {
    /// The grade, where there is one.
    pub fn graded(&self) -> Option<f64> {
        match self {
            Score::Graded(value) => Some(*value),
            Score::Ungraded { .. } => None,
        }
    }

    pub fn from_correct(is_correct: bool) -> Score {
        Score::Graded(if is_correct { 1.0 } else { 0.0 })
    }
}
