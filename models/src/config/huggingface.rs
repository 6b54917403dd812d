//! Typed access to a Hugging Face `config.json`.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::problem;
use crate::error::Result;

/// The keys of one `config.json`. Multimodal checkpoints nest the language model's keys in `text_config`: those win,
/// and what they leave out is read from the top.
#[derive(Debug, Clone, Copy)]
pub struct HuggingFace<'a> {
    pub path: &'a Path,
    pub config: &'a Value,
}

impl<'a> HuggingFace<'a> {
    /// The value of a key; `null` counts as absent.
    pub fn raw(&self, key: &str) -> Option<&'a Value> {
        let nested = self.config.get("text_config").and_then(|nested| nested.get(key)).filter(|value| !value.is_null());
        nested.or_else(|| self.config.get(key).filter(|value| !value.is_null()))
    }

    /// Whether a key is there and `null`, which some families tell apart from an absent one.
    pub fn says_null(&self, key: &str) -> bool {
        let nested = self.config.get("text_config").and_then(|nested| nested.get(key));
        nested.or_else(|| self.config.get(key)).is_some_and(Value::is_null)
    }

    /// An optional key.
    ///
    /// # Errors
    /// [`crate::Error::Config`] naming the key when its value is not a `T`.
    pub fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>> {
        let Some(value) = self.raw(key) else { return Ok(None) };
        self.typed(key, value).map(Some)
    }

    /// A key that must be there.
    ///
    /// # Errors
    /// As [`HuggingFace::get`], and when the key is absent.
    pub fn require<T: DeserializeOwned>(&self, key: &str) -> Result<T> {
        self.get(key)?.ok_or_else(|| problem(self.path, key, "the key is missing"))
    }

    /// A key with a documented default, which is noted when it applies.
    pub fn or_default<T>(&self, key: &str, default: T, notes: &mut Vec<String>) -> Result<T>
    where
        T: DeserializeOwned + std::fmt::Debug,
    {
        Ok(self.get(key)?.unwrap_or_else(|| {
            notes.push(format!("`{key}` is absent: {default:?}, the default of its family"));
            default
        }))
    }

    pub(crate) fn typed<T: DeserializeOwned>(&self, key: &str, value: &Value) -> Result<T> {
        serde_json::from_value(value.clone())
            .map_err(|error| problem(self.path, key, format!("{error}, found {value}")))
    }

    /// The class that the checkpoint was saved from: the first of `architectures`, else `model_type`, of the top level.
    pub fn architecture(&self) -> Result<String> {
        let classes = self.config.get("architectures").filter(|value| !value.is_null());
        if let Some(classes) = classes {
            let classes: Vec<String> = self.typed("architectures", classes)?;
            return classes.into_iter().next().ok_or_else(|| problem(self.path, "architectures", "the list is empty"));
        }
        match self.config.get("model_type") {
            Some(kind) => self.typed("model_type", kind),
            None => Err(problem(self.path, "architectures", "the key is missing, and so is `model_type`")),
        }
    }
}
