//! What can go wrong with a run folder, with the operands a person needs.

use std::io;
use std::path::{Path, PathBuf};

use crate::record::Coord;

use super::manifest::Difference;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("could not {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },

    #[error("the run in {} is locked by process {holder}; wait for it, or give this run another folder", dir.display())]
    Locked { dir: PathBuf, holder: String },

    #[error(
        "{} holds another run; it can only be continued with the same settings. Differing fields:\n{}\n\
         Use another folder, or restore these settings.", dir.display(), list(differences)
    )]
    ManifestDiffers { dir: PathBuf, differences: Vec<Difference> },

    #[error(
        "{} is not empty and has no manifest.json (found `{found}`): not a run folder; choose a new one", dir.display()
    )]
    NotARun { dir: PathBuf, found: String },

    #[error("{} has no manifest.json: no run was started there", dir.display())]
    NoRun { dir: PathBuf },

    #[error("{} cannot be read: {reason}", path.display())]
    Malformed { path: PathBuf, reason: String },

    #[error(
        "two different results for {coord} in {}: the first is {first}, the other {second}. \
         Keep the right one and remove the other line", path.display()
    )]
    DuplicateResult { path: PathBuf, coord: Coord, first: String, second: String },

    #[error(
        "{} was written differently when this run started (first difference at byte {at}: expected {expected}, \
         found {found}); the plan of a run never changes: continue with the program that started it, or use a new \
         folder", path.display()
    )]
    PlanDiffers { path: PathBuf, at: usize, expected: String, found: String },

    #[error("the record of {coord} cannot be stored: {reason}")]
    Unstorable { coord: Coord, reason: String },

    #[error("`{name}` is not a plain file name for a plan file")]
    BadPlanName { name: String },

    #[error(
        "the store in {} stopped after an earlier failure ({reason}); nothing after it was kept. Run the same command \
         again to continue", path.display()
    )]
    Stopped { path: PathBuf, reason: String },
}

impl Error {
    /// An I/O error that names what was being done to which path.
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Error {
        Error::Io { action, path: path.to_path_buf(), source }
    }
}

fn list(differences: &[Difference]) -> String {
    differences.iter().map(|difference| format!("  {difference}")).collect::<Vec<_>>().join("\n")
}
