//! Typed dimensions of a model from what its checkpoint says: GGUF metadata or a Hugging Face `config.json`.
//!
//! Nothing that changes numbers is guessed: a key is read, or takes the documented default of its family and is noted,
//! or is an error that names it.

mod bert;
mod decoder;
pub(crate) mod gguf;
mod huggingface;
mod mixture;
mod recurrence;
mod rope;
pub(crate) mod window;

use std::path::Path;

pub use bert::{BertConfig, Gelu};
pub use decoder::{Biases, DecoderConfig, Family, Gate, Norm, Tying};
pub use huggingface::HuggingFace;
pub use mixture::{ExpertGate, Mixture};
pub use recurrence::Recurrence;
pub use rope::{Rope, RopeScaling};

use crate::error::{Error, Result};

/// Upper bounds of dimensions, far above any published model. A hostile header cannot ask for a table beyond them.
pub(crate) const MAX_LAYERS: usize = 4096;
pub(crate) const MAX_WIDTH: usize = 1 << 20;
pub(crate) const MAX_VOCAB: usize = 1 << 24;
pub(crate) const MAX_CONTEXT: usize = 1 << 20;

pub(crate) fn problem(path: &Path, key: &str, problem: impl Into<String>) -> Error {
    Error::Config { path: path.to_path_buf(), key: key.to_string(), problem: problem.into() }
}

/// Passes a dimension in `1..=limit`.
pub(crate) fn within(path: &Path, key: &str, value: usize, limit: usize) -> Result<usize> {
    in_range(value, limit).map_err(|text| problem(path, key, text))
}

fn in_range(value: usize, limit: usize) -> std::result::Result<usize, String> {
    if (1..=limit).contains(&value) { Ok(value) } else { Err(format!("found {value}, expected 1 to {limit}")) }
}
