//! What is run, under which limits, and how it ended.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Layers;

/// Bounds of one job. All of them are for the job as a whole unless the field says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// CPU seconds, all processes and threads together.
    pub cpu_s: f64,
    /// Seconds on the wall clock.
    pub wall_s: f64,
    pub memory_bytes: u64,
    /// Processes and threads alive at once.
    pub processes: u32,
    /// Captured bytes of standard output, and again of standard error.
    pub output_bytes: u64,
    /// Bytes of all files alive at once, and of any one file.
    pub files_bytes: u64,
}

impl Default for Limits {
    /// 60 s of CPU and of wall clock, 4 GiB of memory, 64 processes, 1 MiB a stream, 64 MiB of files.
    fn default() -> Self {
        Limits {
            cpu_s: 60.0,
            wall_s: 60.0,
            memory_bytes: 4 << 30,
            processes: 64,
            output_bytes: 1 << 20,
            files_bytes: 64 << 20,
        }
    }
}

/// A file the job finds, read-only, beside its work folder: `../program/NAME` seen from where it starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramFile {
    /// A plain file name.
    pub name: String,
    pub text: String,
}

/// A program to run once, as hostile as it likes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Absolute path of the program, then its arguments.
    pub argv: Vec<String>,
    pub files: Vec<ProgramFile>,
    /// Folders of this machine the job may read, besides the system's own (`/usr`, `/lib`, …).
    pub readable: Vec<PathBuf>,
    /// Folders for the job's `PATH`, before the system's.
    pub search_path: Vec<PathBuf>,
    pub limits: Limits,
    /// First content of the report: the file behind descriptor 3 of the job. `None` when it gets no such descriptor.
    pub report: Option<String>,
    /// Names of files of the work folder to bring back; only regular files are.
    pub collect: Vec<String>,
}

/// Which clock ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    Cpu,
    Wall,
}

/// How a job ended, as seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// By itself, with this exit code.
    Exited(i32),
    /// By a signal that no limit sent.
    Killed(i32),
    Timeout(Clock),
    Memory,
    /// A stream went past its limit.
    Output,
    /// The writable space or the largest allowed file was filled.
    Files,
    /// It failed or stalled at the limit on processes.
    Processes,
}

impl fmt::Display for Ending {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Exited(code) => write!(formatter, "exit {code}"),
            Ending::Killed(signal) => write!(formatter, "killed by signal {signal}"),
            Ending::Timeout(Clock::Cpu) => formatter.write_str("CPU time limit"),
            Ending::Timeout(Clock::Wall) => formatter.write_str("wall time limit"),
            Ending::Memory => formatter.write_str("memory limit"),
            Ending::Output => formatter.write_str("output limit"),
            Ending::Files => formatter.write_str("file space limit"),
            Ending::Processes => formatter.write_str("process limit"),
        }
    }
}

/// What a job spent. Differs from run to run: for logs and tests, never for stored results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spent {
    pub cpu_s: f64,
    pub wall_s: f64,
    /// Highest total memory seen; exact with a control group, sampled without.
    pub peak_memory_bytes: u64,
}

/// A file asked for by [`Job::collect`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Collected {
    Text(String),
    /// Why it was not taken: absent, not a regular file, too large, not UTF-8.
    Refused(String),
}

/// Everything known about a job that ran.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub ending: Ending,
    /// At most [`Limits::output_bytes`].
    pub stdout: Vec<u8>,
    /// At most [`Limits::output_bytes`].
    pub stderr: Vec<u8>,
    /// What the job left in its report (the file behind descriptor 3), where it had one.
    pub report: Option<String>,
    /// In the order of [`Job::collect`].
    pub collected: Vec<(String, Collected)>,
    pub layers: Layers,
    pub spent: Spent,
}
