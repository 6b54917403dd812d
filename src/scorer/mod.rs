//! Whether an attempt was right: pure functions of task and attempt, so that re-scoring needs no device.
//!
//! A new scorer is one file and one line in [`SCORERS`].

use crate::record::{Attempt, Reference, Score, Task};
use crate::registry::Registered;

/// Grades attempts at tasks whose reference names it.
pub trait Scorer: Registered + Sync {
    /// Reads this scorer's options out of a reference, so that bad data is found when it is loaded.
    ///
    /// # Errors
    /// Names the field, what was expected and what was found.
    fn check(&self, reference: &Reference) -> anyhow::Result<()>;

    /// The score and one line for people saying why.
    ///
    /// A wrong or unreadable answer is a score of 0, not an error.
    ///
    /// # Errors
    /// Only when *we* could not do our part (no sandbox, no interpreter); the attempt is then stored as ungraded.
    fn score(&self, task: &Task, attempt: &Attempt) -> anyhow::Result<(Score, String)>;
}

/// Every scorer, by name.
pub static SCORERS: &[&dyn Scorer] = &[];
