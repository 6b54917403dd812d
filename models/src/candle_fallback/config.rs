//! What a `config.json` says to candle: dimensions checked, newer spellings brought to those that candle's types read, and
//! everything that changes numbers and candle does not know refused.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::Fault;
use crate::architecture::Geometry;
use crate::checkpoint::{Checkpoint, Metadata};
use crate::config::{HuggingFace, MAX_CONTEXT, MAX_LAYERS, MAX_VOCAB, MAX_WIDTH, problem, within};
use crate::error::Result;

/// Angles of all positions are tables: this many numbers at most in one.
const MAX_ANGLES: usize = 1 << 28;

/// A configuration on its way to candle.
pub(super) struct Described {
    path: PathBuf,
    /// In the spelling of candle's types.
    keys: Map<String, Value>,
    pub geometry: Geometry,
    /// Whether the output projection is the table of token vectors.
    pub is_tied: bool,
    pub notes: Vec<String>,
}

impl Described {
    /// # Errors
    /// A dimension that is missing or out of range, angles that are scaled, weights that a Python library quantised.
    pub fn read(family: &str, checkpoint: &Checkpoint) -> Result<Self> {
        let Metadata::HuggingFace { path, config } = checkpoint.metadata()? else {
            return Err(problem(
                checkpoint.path(),
                "general.architecture",
                "runs through candle from safetensors only",
            ));
        };
        let keys = HuggingFace { path, config };
        let dimension = |key: &str, limit| within(path, key, keys.require(key)?, limit);
        let (hidden, heads) = (dimension("hidden_size", MAX_WIDTH)?, dimension("num_attention_heads", MAX_WIDTH)?);
        let kv_heads = within(path, "num_key_value_heads", keys.get("num_key_value_heads")?.unwrap_or(heads), heads)?;
        if !heads.is_multiple_of(kv_heads) {
            let text = format!("found {kv_heads}, expected a number that divides the {heads} heads");
            return Err(problem(path, "num_key_value_heads", text));
        }
        let head_dim = match keys.get("head_dim")? {
            Some(width) => within(path, "head_dim", width, MAX_WIDTH)?,
            None if hidden.is_multiple_of(heads) => hidden / heads,
            None => return Err(problem(path, "hidden_size", format!("{hidden} is no multiple of {heads} heads"))),
        };
        let context = dimension("max_position_embeddings", MAX_CONTEXT)?;
        if head_dim > MAX_ANGLES / context {
            let text = format!("{context} positions of heads of {head_dim} are more than any model has");
            return Err(problem(path, "max_position_embeddings", text));
        }
        let geometry = Geometry {
            architecture: family.to_string(),
            layers: dimension("num_hidden_layers", MAX_LAYERS)?,
            hidden,
            heads,
            kv_heads,
            head_dim,
            key_bias: false,
            feed_forward: dimension("intermediate_size", MAX_WIDTH)?,
            vocab: dimension("vocab_size", MAX_VOCAB)?,
            context,
            state_layers: 0,
            state_values: 0,
            parameters: 0,
            weight_bytes: 0,
        };
        if checkpoint.quantize().is_some() || keys.raw("quantization_config").is_some() {
            let text = "what runs through candle runs in the plain floats that are stored";
            return Err(problem(path, "quantize", text));
        }
        let mut spelled = config.as_object().cloned().unwrap_or_default();
        angles(&keys, &mut spelled)?;
        let said = keys.get("tie_word_embeddings")?;
        let notes = vec![
            "runs through candle: on the processor, in 32-bit floats, one request at a time, no prefix reused"
                .to_string(),
        ];
        let mut described =
            Described { path: path.to_path_buf(), keys: spelled, geometry, is_tied: said.unwrap_or(false), notes };
        described.keys.insert("num_key_value_heads".into(), kv_heads.into());
        Ok(described)
    }

    /// The configuration as one of candle's types.
    pub fn parse<T: DeserializeOwned>(&self) -> std::result::Result<T, Fault> {
        let keys = Value::Object(self.keys.clone());
        Ok(serde_json::from_value(keys).map_err(|error| problem(&self.path, "config.json", error.to_string()))?)
    }

    /// A number of the configuration.
    pub fn number(&self, key: &str) -> Result<Option<f64>> {
        let config = Value::Object(self.keys.clone());
        HuggingFace { path: &self.path, config: &config }.get(key)
    }

    /// Fills in a key that the family's files may leave out, and notes it.
    pub fn default(&mut self, key: &str, value: impl Into<Value>) {
        if self.keys.get(key).is_none_or(Value::is_null) {
            let value = value.into();
            self.notes.push(format!("`{key}` is absent: {value}, the default of its family"));
            self.keys.insert(key.to_string(), value);
        }
    }

    /// Sets a key to what candle is to read in its place.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.keys.insert(key.to_string(), value.into());
    }

    /// A key that must be stated.
    pub fn require(&self, key: &str) -> Result<()> {
        match self.keys.get(key).is_none_or(Value::is_null) {
            true => Err(problem(&self.path, key, "the key is missing")),
            false => Ok(()),
        }
    }

    /// Refuses what candle would leave out of the computation: any value but this one, where the key is there.
    pub fn only(&self, key: &str, value: impl Into<Value>) -> Result<()> {
        let value = value.into();
        match self.keys.get(key).filter(|found| !found.is_null() && **found != value) {
            Some(found) => Err(problem(&self.path, key, format!("found {found}; through candle only {value} is run"))),
            None => Ok(()),
        }
    }

    /// candle keeps no window: up to its width a sequence never meets it, and there the context ends.
    pub fn end_at_window(&mut self) -> Result<()> {
        let window = self.number("sliding_window")?.map(|window| window as usize);
        if let Some(window) = window.filter(|window| *window < self.geometry.context) {
            self.geometry.context = within(&self.path, "sliding_window", window, MAX_CONTEXT)?;
            self.set("max_position_embeddings", window);
            self.notes.push(format!("the context ends at its window of {window} tokens, which candle does not keep"));
        }
        self.set("sliding_window", Value::Null);
        Ok(())
    }
}

/// Brings `rope_parameters` to keys of their own. Any angles but plain ones are refused.
fn angles(keys: &HuggingFace, spelled: &mut Map<String, Value>) -> Result<()> {
    for key in ["rope_parameters", "rope_scaling"] {
        spelled.remove(key);
        let Some(stated) = keys.raw(key) else { continue };
        plain(keys.path, key, stated)?;
        for inner in ["rope_theta", "partial_rotary_factor"] {
            if let Some(value) = stated.get(inner).filter(|value| !value.is_null()) {
                spelled.insert(inner.into(), value.clone());
            }
        }
    }
    Ok(())
}

fn plain(path: &Path, key: &str, stated: &Value) -> Result<()> {
    let kind = stated.get("rope_type").or_else(|| stated.get("type")).unwrap_or(&Value::Null);
    match stated.is_object() && (kind.is_null() || *kind == json!("default")) {
        true => Ok(()),
        false => Err(problem(path, key, format!("found {stated}; through candle only plain angles are run"))),
    }
}
