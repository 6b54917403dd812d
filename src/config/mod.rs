//! What was said in a run's file, typed. Names are resolved to things later, in [`crate::run::resolve`](mod@crate::run::resolve).
//!
//! Unknown keys are errors: a key that is ignored in silence moves numbers without a trace.

mod base;
mod bytes;
mod device;
mod env;
mod experiments;
mod kv_type;
mod quantize;
mod run;

use std::path::Path;

use anyhow::{Context as _, anyhow};
use serde::de::DeserializeOwned;

pub use bytes::ByteSize;
pub use device::DeviceChoice;
pub use env::{VARIABLES, Variable};
pub use experiments::{MultiTaskConfig, OrdersConfig, TransitionsConfig};
pub use kv_type::KvType;
pub use quantize::Quantize;
pub use run::{
    AgentConfig, AttributionConfig, BenchmarkConfig, EngineConfig, FeedbackKind, Freeze, Headroom, History,
    LogprobConfig, MatrixConfig, ModelsConfig, RunConfig, ScoringConfig, SequenceConfig, TracedProbes, VoteConfig,
};

use crate::registry;

/// Reads and checks a run file, laid over its `base` where it names one.
///
/// # Errors
/// Missing file, TOML syntax, unknown or ill-typed keys (with the nearest known key), values out of range; each names
/// the file.
pub fn load(path: &Path) -> anyhow::Result<RunConfig> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("run file {} could not be read; give the path of a TOML file", path.display()))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let whole = base::whole(&text, folder).with_context(|| format!("run file {}", path.display()))?;
    parse(whole.as_ref().unwrap_or(&text)).with_context(|| format!("run file {}", path.display()))
}

/// Reads and checks a run from TOML text.
pub fn parse(text: &str) -> anyhow::Result<RunConfig> {
    let config: RunConfig = from_toml(text)?;
    config.check()?;
    Ok(config)
}

/// TOML into a type, with the nearest known key in the error of an unknown one.
pub fn from_toml<T: DeserializeOwned>(text: &str) -> anyhow::Result<T> {
    toml::from_str(text).map_err(|error| match nearest_key(error.message()) {
        Some(hint) => anyhow!("{}\nhint: did you mean `{hint}`?", error.to_string().trim_end()),
        None => anyhow!("{}", error.to_string().trim_end()),
    })
}

/// The expected key closest to the unknown one, read from serde's message ``unknown field `x`, expected one of `a`, `b` ``.
fn nearest_key(message: &str) -> Option<String> {
    let rest = message.split_once("unknown field ")?.1;
    let mut quoted = rest.split('`').skip(1).step_by(2);
    let found = quoted.next()?;
    registry::nearest(found, &quoted.map(String::from).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests;
