//! The run folder: what a run wrote, kept so that nothing acknowledged is ever lost.
//!
//! ```text
//! RUN_DIR/
//!   manifest.json     what makes this run this run; another config can never continue it
//!   pool.json …       plan files, written once
//!   attempts.jsonl    one checked line an attempt, appended and flushed before it counts
//!   timing.jsonl      everything that may differ between two equal runs
//!   run.lock          one writer (kernel lock; ends with the process)
//! ```
//!
//! A log of lines was taken over a database: one flush an attempt costs the same in both, the log opens in pandas,
//! polars and DuckDB with no library, and an attempt is small enough for all coordinates to be indexed in memory.
//! Uniqueness, torn tails and checksums are ours to keep, in `line.rs`, `log.rs` and `run.rs`.

mod error;
mod files;
mod line;
mod lock;
mod log;
mod manifest;
mod reader;
mod run;
mod timing;
mod writer;

pub use error::{Error, Result};
pub use files::write_atomic;
pub use log::{Damage, Findings};
pub use manifest::{Difference, FORMAT, Identity, MANIFEST_FILE, Manifest, RunId};
pub use reader::RunReader;
pub use run::{ATTEMPTS_FILE, RunStore};
pub use timing::{Machine, StageTime, TIMING_FILE, TimingRecord, Totals, UnitTiming, stage_times, totals};
