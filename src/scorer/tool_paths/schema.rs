//! Whether arguments are what a tool's declaration allows (WildToolBench, released checker: first of its two checks).
//!
//! Python's view of types, as released: `true` is an integer too, an integer is a number, 1.0 is no integer. The fault's
//! words say whether it is in the arguments themselves or further in; a parameter's own type counts as further in.

use serde_json::{Map, Value};

/// The first fault, or `None`.
///
/// `parameters` is the declaration's `{"type": "object", "properties", "required"}`.
pub fn fault(arguments: &Value, parameters: &Value) -> Option<&'static str> {
    let mut own = Map::new();
    own.insert("type".into(), "object".into());
    for key in ["properties", "required"] {
        if let Some(value) = parameters.get(key) {
            own.insert(key.into(), value.clone());
        }
    }
    check(arguments, &Value::Object(own), Depth::Arguments)
}

/// The fault of one parameter's value alone.
pub fn parameter_fault(value: &Value, schema: &Value) -> Option<&'static str> {
    check(value, schema, Depth::Nested)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    Arguments,
    Nested,
}

impl Depth {
    fn words(self, own: &'static str, nested: &'static str) -> Option<&'static str> {
        Some(if self == Depth::Arguments { own } else { nested })
    }
}

fn check(value: &Value, schema: &Value, depth: Depth) -> Option<&'static str> {
    if let Some(branches) = schema.get("anyOf").and_then(Value::as_array) {
        let faults: Vec<Option<&'static str>> = branches.iter().map(|branch| check(value, branch, depth)).collect();
        return if faults.contains(&None) { None } else { faults.first().copied().flatten() };
    }
    if !is_typed(value, schema) {
        return depth.words("schema: type", "schema: nested type");
    }
    if let Some(allowed) = schema.get("enum").and_then(Value::as_array)
        && !allowed.iter().any(|allowed| equal(allowed, value))
    {
        return depth.words("schema: enum", "schema: nested enum");
    }
    match value {
        Value::Object(fields) => object(fields, schema, depth),
        Value::Array(items) => {
            let schema = schema.get("items")?;
            items.iter().find_map(|item| check(item, schema, Depth::Nested))
        }
        _ => None,
    }
}

fn object(fields: &Map<String, Value>, schema: &Value, depth: Depth) -> Option<&'static str> {
    let mut required = schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    if required.any(|name| !fields.contains_key(name)) {
        return depth.words("schema: missing", "schema: nested missing");
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    let is_open = schema.get("additionalProperties") == Some(&Value::Bool(true));
    for (name, value) in fields {
        match properties.and_then(|properties| properties.get(name)) {
            Some(schema) => {
                if let Some(fault) = check(value, schema, Depth::Nested) {
                    return Some(fault);
                }
            }
            None if is_open => {}
            None => return depth.words("schema: undefined", "schema: nested undefined"),
        }
    }
    None
}

/// Types the schema names; text when it names none, anything when it names an unknown one. A list of types allows each.
fn is_typed(value: &Value, schema: &Value) -> bool {
    match schema.get("type") {
        None => value.is_string(),
        Some(Value::String(name)) => is_a(value, name),
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).any(|name| is_a(value, name)),
        Some(_) => true,
    }
}

fn is_a(value: &Value, name: &str) -> bool {
    let is_integer = value.is_boolean() || value.is_i64() || value.is_u64();
    match name {
        "string" => value.is_string(),
        "integer" => is_integer,
        "number" | "float" => is_integer || value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        _ => true,
    }
}

/// Python's equality: 1, 1.0 and true are one.
fn equal(one: &Value, other: &Value) -> bool {
    let number = |value: &Value| match value {
        Value::Bool(value) => Some(f64::from(u8::from(*value))),
        Value::Number(value) => value.as_f64(),
        _ => None,
    };
    match (number(one), number(other)) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(arguments: Value) -> Option<&'static str> {
        let parameters = json!({
            "type": "object", "required": ["city"],
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer", "enum": [1, 3]},
                "scale": {"type": "number"},
                "tags": {"type": "array", "items": {"type": "string"}},
                "place": {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]},
                "either": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]},
                "free": {"type": "object", "additionalProperties": true},
                "bare": {"description": "no type"},
            },
        });
        fault(&arguments, &parameters)
    }

    #[test]
    fn what_the_declaration_allows_has_no_fault() {
        for arguments in [
            json!({"city": "Oslo"}),
            json!({"city": "", "days": 1, "scale": 2, "tags": [], "either": [1], "free": {"x": 1}, "bare": "t"}),
            json!({"city": "x", "days": true, "scale": true, "either": 4, "place": {"lat": 1.5}}),
            json!({"city": "x", "scale": 1.0, "days": 3}),
        ] {
            assert_eq!(of(arguments.clone()), None, "{arguments}");
        }
    }

    #[test]
    fn every_kind_of_fault_has_its_words() {
        for (arguments, words) in [
            (json!([]), "schema: type"),
            (json!({}), "schema: missing"),
            (json!({"city": "x", "sync": true}), "schema: undefined"),
            (json!({"city": 5}), "schema: nested type"),
            (json!({"city": "x", "days": 1.0}), "schema: nested type"),
            (json!({"city": "x", "days": 2}), "schema: nested enum"),
            (json!({"city": "x", "tags": [1]}), "schema: nested type"),
            (json!({"city": "x", "place": {}}), "schema: nested missing"),
            (json!({"city": "x", "place": {"lat": 1, "lon": 2}}), "schema: nested undefined"),
            (json!({"city": "x", "either": "4"}), "schema: nested type"),
            (json!({"city": "x", "bare": 1}), "schema: nested type"),
        ] {
            assert_eq!(of(arguments.clone()), Some(words), "{arguments}");
        }
    }
}
