//! The forms of replies: what a call asks for in words, once more as a grammar that the reply cannot leave.
//!
//! The published methods parse free text. With `constrained = true`, the default, the calls whose replies have a known
//! form are held to it: a small backbone otherwise writes little that can be read, and its memory stays empty. Every
//! field that the words name is there, in their order, and short fields have a bound; what a token limit cuts short is read
//! as far as it goes. The replies themselves remain the backbone's. A backbone that reasons first answers such calls without
//! its reasoning; `constrained = false` gives the published behaviour, and parsing is the same under both.

use std::ops::RangeInclusive;

use serde_json::{Map, Value, json};

use crate::engine::grammar::Grammar;

/// JSON of this schema, in one line.
pub(super) fn json(mut schema: Value) -> Grammar {
    if let Some(fields) = schema.as_object_mut() {
        let spaces = json!({"whitespace_flexible": false, "item_separator": ", ", "key_separator": ": "});
        fields.insert("x-guidance".into(), spaces);
    }
    Grammar::JsonSchema(schema)
}

/// An object with these fields and no others, in this order.
pub(super) fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
    let required = json!(names);
    let properties: Map<String, Value> = fields.into_iter().map(|(name, field)| (name.to_string(), field)).collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// So many members of one kind.
pub(super) fn list(member: Value, counts: RangeInclusive<usize>) -> Value {
    json!({"type": "array", "items": member, "minItems": counts.start(), "maxItems": counts.end()})
}

/// One line that is not blank, of at most so many characters.
pub(super) fn line(most: usize) -> Value {
    json!({"type": "string", "pattern": format!(r"^\S.{{0,{}}}$", most.saturating_sub(1))})
}

/// Lower-case letters, digits and hyphens.
pub(super) fn name(most: usize) -> Value {
    json!({"type": "string", "pattern": format!("^[a-z][a-z0-9-]{{0,{}}}$", most.saturating_sub(1))})
}

/// A text of any length that does not begin with white space: a bound on thousands of characters would be dearer than
/// what it saves, and the call's token limit holds.
pub(super) fn text() -> Value {
    json!({"type": "string", "pattern": r"^\S(.|\n)*$"})
}

/// What one of these describes.
pub(super) fn any(forms: Vec<Value>) -> Value {
    json!({ "anyOf": forms })
}

/// This or `null`.
pub(super) fn optional(value: Value) -> Value {
    any(vec![value, json!({"type": "null"})])
}

/// One of these texts.
pub(super) fn choice(texts: &[&str]) -> Value {
    json!({ "enum": texts })
}

/// A whole number of these.
pub(super) fn counted(numbers: RangeInclusive<usize>) -> Value {
    json!({ "enum": numbers.collect::<Vec<usize>>() })
}

pub(super) fn flag() -> Value {
    json!({"type": "boolean"})
}

/// A number from 0 to 1 in tenths: free digits never end where a backbone repeats itself.
pub(super) fn share() -> Value {
    let tenths: Vec<f64> = (0..=10).map(|tenth| f64::from(tenth) / 10.0).collect();
    json!({ "enum": tenths })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_their_order_and_none_is_left_out() {
        let form = object([("b", flag()), ("a", list(line(3), 1..=2))]);
        let names: Vec<&String> = form["properties"].as_object().unwrap().keys().collect();
        assert_eq!(names, ["b", "a"]);
        assert_eq!((&form["required"], &form["additionalProperties"]), (&json!(["b", "a"]), &json!(false)));
        assert_eq!(form["properties"]["a"]["maxItems"], 2);
        assert_eq!(form["properties"]["a"]["items"]["pattern"], r"^\S.{0,2}$");
    }
}
