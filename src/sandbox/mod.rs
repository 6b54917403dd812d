//! Runs one hostile program: no network, nothing of the machine in reach, bounded in every resource, nothing left over.
//!
//! ```text
//! this program ──spawn──▶ launcher ──namespaces──▶ first process ──fork, seal, exec──▶ the program
//!   reads output,          control group,            private root, watches, names        and whatever
//!   bounds it              cleans up                 the ending, kills what is left       it starts
//! ```
//!
//! Isolation is made of named layers ([`Layer`]). Each is tried once by doing what it must refuse; one that does not
//! hold stops the sandbox unless the user allows it by name, and the record of a result says which ones held. No
//! Python-level guard is relied on. A container engine was not taken: it needs a service and rights that a researcher
//! on a shared machine does not have, and costs a hundred times the start of a process.

mod allow;
mod bare;
mod descriptor;
mod filter;
mod group;
mod init;
mod job;
mod launcher;
mod layer;
mod probe;
mod process;
mod protocol;
pub mod python;
mod root;
mod run;
mod seal;

pub use job::{Clock, Collected, Ending, Job, Limits, Outcome, ProgramFile, Spent};
pub use launcher::main as launcher_main;
pub use layer::{Layer, Layers};
pub use run::{Launcher, SUBCOMMAND, Sandbox, SandboxOptions};

/// The sandbox could not do its part. Says nothing about the program that was to run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SandboxError {
    #[error(
        "isolation layer `{layer}` does not hold: {why} (code is not run without it; `allow_missing_isolation = \
         [\"{layer}\"]` under [scoring] takes that risk)"
    )]
    LayerMissing { layer: Layer, why: String },
    #[error("the sandbox failed: {0}")]
    Failed(String),
}
