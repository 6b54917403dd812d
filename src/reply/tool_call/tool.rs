//! What is known of the tools on offer.

use serde_json::{Map, Value};

/// One tool: its name and the JSON schema of each parameter.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tool {
    pub name: String,
    /// In the order of declaration.
    pub parameters: Map<String, Value>,
}

impl Tool {
    /// Reads a declaration as chat templates take it: `{"type": "function", "function": {"name", "parameters"}}`, or the
    /// inner object alone. `None` when it names nothing.
    pub fn from_json(declaration: &Value) -> Option<Tool> {
        let function = declaration.get("function").unwrap_or(declaration);
        let properties = function.get("parameters").and_then(|schema| schema.get("properties"));
        Some(Tool {
            name: function.get("name")?.as_str()?.to_string(),
            parameters: properties.and_then(Value::as_object).cloned().unwrap_or_default(),
        })
    }

    /// Reads an argument that was written as bare text by the declared type of its parameter. Text that does not fit the
    /// type, or whose parameter is not declared, stays text; the second value says whether it fits.
    pub(super) fn typed(&self, parameter: &str, text: &str) -> (Value, bool) {
        let string = || Value::String(text.to_string());
        let Some(schema) = self.parameters.get(parameter) else { return (string(), true) };
        let types = types_of(schema);
        if types.is_empty() {
            return (string(), true);
        }
        let literal = match text.trim() {
            "True" => Some(Value::Bool(true)),
            "False" => Some(Value::Bool(false)),
            "None" => Some(Value::Null),
            trimmed => serde_json::from_str(trimmed).ok(),
        };
        let fitting = literal.filter(|value| types.iter().any(|kind| *kind != "string" && is_a(value, kind)));
        match fitting {
            Some(value) => (value, true),
            None => (string(), types.contains(&"string")),
        }
    }
}

/// The types that a schema allows, through one level of `anyOf` and `oneOf`; empty when it does not say.
fn types_of(schema: &Value) -> Vec<&str> {
    let own = |schema: &'_ Value| -> Vec<String> {
        match schema.get("type") {
            Some(Value::String(name)) => vec![name.clone()],
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).map(String::from).collect(),
            _ => Vec::new(),
        }
    };
    let choices = ["anyOf", "oneOf"].iter().filter_map(|key| schema.get(key)?.as_array()).flatten();
    let named: Vec<String> = own(schema).into_iter().chain(choices.flat_map(own)).collect();
    const KNOWN: [&str; 7] = ["string", "integer", "number", "boolean", "object", "array", "null"];
    KNOWN.into_iter().filter(|known| named.iter().any(|name| name == known)).collect()
}

fn is_a(value: &Value, kind: &str) -> bool {
    match kind {
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        "null" => value.is_null(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bare_text_takes_its_declared_type() {
        let tool = Tool::from_json(&json!({"type": "function", "function": {"name": "f", "parameters": {
            "type": "object",
            "properties": {
                "n": {"type": "integer"}, "x": {"type": ["number", "null"]}, "s": {"type": "string"},
                "list": {"type": "array"}, "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "any": {}
            }
        }}}))
        .unwrap();
        assert_eq!(tool.name, "f");
        for (parameter, text, value, fits) in [
            ("n", "3", json!(3), true),
            ("n", "3.5", json!("3.5"), false),
            ("x", "None", Value::Null, true),
            ("s", "007", json!("007"), true),
            ("s", "true", json!("true"), true),
            ("list", "[1, 2]", json!([1, 2]), true),
            ("either", "4", json!(4), true),
            ("either", "four", json!("four"), true),
            ("any", "4", json!("4"), true),
            ("undeclared", "4", json!("4"), true),
        ] {
            assert_eq!(tool.typed(parameter, text), (value, fits), "{parameter} {text}");
        }
    }

    #[test]
    fn a_declaration_without_a_name_is_no_tool() {
        assert_eq!(Tool::from_json(&json!({"function": {}})), None);
        assert_eq!(Tool::from_json(&json!({"name": "f"})), Some(Tool { name: "f".into(), ..Tool::default() }));
    }
}
