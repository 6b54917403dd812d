//! Whether an attempt was right: pure functions of task and attempt, so that re-scoring needs no device.
//!
//! A new scorer is one file and one line in [`SCORERS`].

mod call_match;
mod choice;
mod contains;
mod exact;
pub mod normalise;
mod numeric;
mod options;
mod regex;
mod token_f1;
mod tool_paths;
mod unit_tests;

use crate::record::{Attempt, Reference, Score, Task};
use crate::registry::{self, Registered};

/// How the run lets attempts be graded.
#[derive(Clone, Debug, Default)]
pub struct Grading {
    /// Isolation layers that may be missing when generated code is run.
    pub allow_missing_isolation: Vec<String>,
}

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
    fn score(&self, task: &Task, attempt: &Attempt, grading: &Grading) -> anyhow::Result<(Score, String)>;

    /// Finds out before the first attempt whether grading can work here (interpreter, isolation).
    ///
    /// # Errors
    /// Names what is missing and what to do.
    fn ready(&self, _grading: &Grading) -> anyhow::Result<()> {
        Ok(())
    }
}

/// Every scorer, by name.
pub static SCORERS: &[&dyn Scorer] = &[
    &call_match::CallMatch,
    &choice::Choice,
    &contains::Contains,
    &exact::Exact,
    &numeric::Numeric,
    &regex::Regex,
    &token_f1::TokenF1,
    &tool_paths::ToolPaths,
    &unit_tests::UnitTests,
];

/// The scorer with this name.
///
/// # Errors
/// Lists the known names and the nearest one.
pub fn find(name: &str) -> Result<&'static dyn Scorer, registry::UnknownName> {
    registry::find("scorer", SCORERS, name)
}
