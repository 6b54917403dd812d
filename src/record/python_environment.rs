//! A Python that was made for a benchmark, and what of the benchmark works in it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// File name of a [`PythonEnvironment`] in its folder.
pub const ENVIRONMENT_FILE: &str = "environment.json";

/// Written once by `lifelong env python`; a benchmark that is given its folder uses the interpreter and leaves out what
/// cannot pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PythonEnvironment {
    pub benchmark: String,
    /// Digest of the data whose references were checked.
    pub data: String,
    /// The interpreter.
    pub python: PathBuf,
    /// As in `3.10.12`.
    pub version: String,
    /// Installed packages and their versions.
    pub packages: BTreeMap<String, String>,
    /// Packages that could not be had in the pinned version: the pin, and what was installed or why nothing was.
    pub departures: BTreeMap<String, String>,
    /// How many reference solutions were run.
    pub checked: u32,
    /// Tasks whose reference solution does not pass here, and why.
    pub ignored: BTreeMap<String, String>,
}
