//! Typed access to the keys of one architecture in a GGUF header.

use crate::error::{Error, Result};
use crate::gguf::{FromValue, Header};

/// Keys that start with the architecture's name: `get("block_count")` reads `llama.block_count`.
#[derive(Clone, Copy)]
pub(crate) struct GgufKeys<'a> {
    pub header: &'a Header,
    pub architecture: &'a str,
}

impl<'a> GgufKeys<'a> {
    /// As [`Header::get`].
    pub fn get<T: FromValue<'a>>(&self, key: &str) -> Result<Option<T>> {
        self.header.get(&self.full(key))
    }

    /// As [`Header::require`].
    pub fn require<T: FromValue<'a>>(&self, key: &str) -> Result<T> {
        self.header.require(&self.full(key))
    }

    /// Passes a dimension in `1..=limit`.
    pub fn within(&self, key: &str, value: usize, limit: usize) -> Result<usize> {
        super::in_range(value, limit).map_err(|text| self.problem(key, text))
    }

    pub fn problem(&self, key: &str, problem: impl Into<String>) -> Error {
        self.header.problem(&self.full(key), problem.into())
    }

    pub fn full(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }
}
