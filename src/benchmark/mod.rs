//! Sets of tasks. A new benchmark is one file and one line in [`BENCHMARKS`].

mod bfcl;
mod bigcodebench;
mod data_file;
mod humaneval;
mod jsonl;
mod kata;
mod tool_task;
mod wildtoolbench;

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::record::Task;
use crate::registry::{self, Registered};

/// What a run's config says about a benchmark.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// The data file, for benchmarks that read one.
    pub path: Option<PathBuf>,
    /// The benchmark's own table of the config.
    pub options: toml::Table,
}

/// A loaded set of tasks and the digest of what it was loaded from.
#[derive(Default)]
pub struct Pool {
    pub tasks: Vec<Task>,
    /// BLAKE3 of the source data (file bytes, or generator version and seed): part of a run's identity.
    pub digest: String,
    /// Tasks left out because nothing can pass them here, and why: reported, never counted.
    pub ignored: BTreeMap<String, String>,
}

pub trait Benchmark: Registered + Sync {
    /// Loads the tasks in a fixed order.
    ///
    /// # Errors
    /// Missing file, malformed record (with file and line), unknown options.
    fn load(&self, selection: &Selection) -> anyhow::Result<Pool>;
}

/// Every benchmark, by name.
pub static BENCHMARKS: &[&dyn Benchmark] = &[
    &bfcl::Bfcl,
    &bigcodebench::BigCodeBench,
    &humaneval::HumanEval,
    &jsonl::Jsonl,
    &kata::Kata,
    &wildtoolbench::WildToolBench,
];

/// The benchmark with this name.
///
/// # Errors
/// Lists the known names and the nearest one.
pub fn find(name: &str) -> Result<&'static dyn Benchmark, registry::UnknownName> {
    registry::find("benchmark", BENCHMARKS, name)
}
