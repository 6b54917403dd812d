//! Reading a scorer's options out of a reference, with errors that name scorer and field.

use anyhow::Context as _;
use serde::de::DeserializeOwned;

use crate::record::Reference;

/// The options as the scorer's own type.
///
/// # Errors
/// Names the scorer; serde's message names the field, what was expected and what was found.
pub fn read<T: DeserializeOwned>(scorer: &str, reference: &Reference) -> anyhow::Result<T> {
    T::deserialize(&reference.options)
        .with_context(|| format!("scorer `{scorer}`: its options do not fit: {}", reference.options))
}
