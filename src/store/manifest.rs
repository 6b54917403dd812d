//! What makes a run this run: its resolved config and the digests of everything its numbers depend on.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// File name of the manifest in a run folder.
pub const MANIFEST_FILE: &str = "manifest.json";

/// Version of the layout of a run folder.
pub const FORMAT: u32 = 1;

/// First file of a run folder. Two runs with the same [`Identity`] have the same results, so one may continue the
/// other; everything else here is for people.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub run_id: RunId,
    pub identity: Identity,
    /// Vector instructions the run was started with. Not part of the identity: kernels give the same bits on each.
    pub instruction_set: String,
}

/// All that results depend on. Another value in any field is another run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// [`FORMAT`].
    pub format: u32,
    /// Version of the program that numbers depend on.
    pub code: String,
    /// The resolved config: every default filled in.
    pub config: Value,
    /// Digest of the tasks of each benchmark, by name.
    pub data: BTreeMap<String, String>,
    /// Digest of the weights of each model, by name.
    pub models: BTreeMap<String, String>,
    /// Kind of device, `cpu` or `cuda`, and in how many parts a model is that is split: results are bitwise per device and
    /// number of parts.
    pub device: String,
}

/// BLAKE3 of an [`Identity`], in hex.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(pub String);

impl fmt::Display for RunId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A field of two identities that is not the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Dotted path, for example `config.sampling.temperature`.
    pub field: String,
    /// What the run folder says.
    pub expected: String,
    /// What this command says.
    pub found: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {} -> {}", self.field, self.expected, self.found)
    }
}

impl Manifest {
    pub fn new(identity: Identity, instruction_set: impl Into<String>) -> Self {
        Manifest { run_id: identity.run_id(), identity, instruction_set: instruction_set.into() }
    }

    /// The run's seed, where the config has one under `seed`: what resampled intervals are derived from.
    pub fn seed(&self) -> u64 {
        self.identity.config.get("seed").and_then(Value::as_u64).unwrap_or(0)
    }
}

impl Identity {
    /// BLAKE3 over the canonical JSON (object keys sorted at every level).
    pub fn run_id(&self) -> RunId {
        RunId(blake3::hash(canonical(&self.as_value()).to_string().as_bytes()).to_hex().to_string())
    }

    /// Fields that differ, `self` being the expected side, in the order of their paths.
    pub fn differences(&self, found: &Identity) -> Vec<Difference> {
        let mut differences = Vec::new();
        compare("", Some(&self.as_value()), Some(&found.as_value()), &mut differences);
        differences
    }

    fn as_value(&self) -> Value {
        serde_json::to_value(self).expect("an identity holds only JSON values and text keys")
    }
}

fn canonical(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let sorted: BTreeMap<&String, Value> = map.iter().map(|(key, value)| (key, canonical(value))).collect();
            Value::Object(sorted.into_iter().map(|(key, value)| (key.clone(), value)).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(canonical).collect()),
        scalar => scalar.clone(),
    }
}

fn compare(path: &str, expected: Option<&Value>, found: Option<&Value>, out: &mut Vec<Difference>) {
    if let (Some(Value::Object(left)), Some(Value::Object(right))) = (expected, found) {
        let keys: std::collections::BTreeSet<&String> = left.keys().chain(right.keys()).collect();
        for key in keys {
            let field = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            compare(&field, left.get(key), right.get(key), out);
        }
        return;
    }
    if let (Some(Value::Array(left)), Some(Value::Array(right))) = (expected, found)
        && left.len() == right.len()
    {
        for (index, (left, right)) in left.iter().zip(right).enumerate() {
            compare(&format!("{path}[{index}]"), Some(left), Some(right), out);
        }
        return;
    }
    if expected != found {
        let show = |value: Option<&Value>| value.map_or_else(|| "(absent)".to_string(), Value::to_string);
        out.push(Difference { field: path.to_string(), expected: show(expected), found: show(found) });
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    pub(crate) fn identity(config: Value) -> Identity {
        Identity {
            format: FORMAT,
            code: "0.1.0".into(),
            config,
            data: BTreeMap::from([("kata".into(), "d1".into())]),
            models: BTreeMap::from([("tiny".into(), "m1".into())]),
            device: "cpu".into(),
        }
    }

    #[test]
    fn key_order_is_not_identity() {
        let left = identity(json!({"a": 1, "b": {"c": 2, "d": [3]}}));
        let right = identity(json!({"b": {"d": [3], "c": 2}, "a": 1}));
        assert_eq!(left.run_id(), right.run_id());
        assert!(left.differences(&right).is_empty());
    }

    #[test]
    fn every_field_is_identity_and_named() {
        let base = identity(json!({"sampling": {"temperature": 0, "stop": ["a", "b"]}}));
        let mut other = identity(json!({"sampling": {"temperature": 0.7, "stop": ["a", "c"], "top_p": 1}}));
        other.models.insert("tiny".into(), "m2".into());
        other.device = "cuda".into();
        let shown: Vec<String> = base.differences(&other).iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                r#"config.sampling.stop[1]: "b" -> "c""#,
                "config.sampling.temperature: 0 -> 0.7",
                "config.sampling.top_p: (absent) -> 1",
                r#"device: "cpu" -> "cuda""#,
                r#"models.tiny: "m1" -> "m2""#,
            ]
        );
        assert_ne!(base.run_id(), other.run_id());
    }
}
