//! Where a JSON value ends in a text, and calls written as JSON objects.
//!
//! A value's end cannot be found by its closing mark, which may stand inside a string; so it is walked, by a loop and not
//! by recursion, and only then read.

use std::ops::Range;

use serde_json::{Map, Value};

use super::super::json::without_lone_surrogates;

/// Deepest nesting that is read; below that of the JSON reader (128).
pub const MAX_DEPTH: usize = 100;

/// Why no value was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub at: usize,
    pub expected: &'static str,
    /// The text ended before the value did.
    pub is_cut: bool,
}

fn fault(text: &str, at: usize, expected: &'static str) -> Fault {
    Fault { at, expected, is_cut: at >= text.len() }
}

/// The first byte from `at` on that is no white space.
pub(super) fn skip_space(text: &str, at: usize) -> usize {
    let rest = &text.as_bytes()[at..];
    at + rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count()
}

/// One after the last byte of the value that starts at `at`.
pub(super) fn value_end(text: &str, at: usize) -> Result<usize, Fault> {
    let bytes = text.as_bytes();
    let mut open: Vec<u8> = Vec::new();
    let mut at = at;
    loop {
        // A value, or the end of an empty container.
        at = skip_space(text, at);
        match bytes.get(at) {
            Some(&bracket @ (b'{' | b'[')) => {
                if open.len() == MAX_DEPTH {
                    return Err(Fault { at, expected: "at most 100 levels of nesting", is_cut: false });
                }
                open.push(bracket);
                at = skip_space(text, at + 1);
                match (bracket, bytes.get(at)) {
                    (b'{', Some(b'}')) | (b'[', Some(b']')) => {}
                    (b'{', _) => {
                        at = key_end(text, at)?;
                        continue;
                    }
                    _ => continue,
                }
            }
            Some(b'"') => at = string_end(text, at)?,
            Some(_) => at = scalar_end(text, at)?,
            None => return Err(fault(text, at, "a JSON value")),
        }
        // What follows a value: its container's end, or the next one.
        loop {
            let Some(&container) = open.last() else { return Ok(at) };
            at = skip_space(text, at);
            match (container, bytes.get(at)) {
                (b'{', Some(b'}')) | (b'[', Some(b']')) => {
                    open.pop();
                    at += 1;
                }
                (b'{', Some(b',')) => {
                    at = key_end(text, skip_space(text, at + 1))?;
                    break;
                }
                (_, Some(b',')) => {
                    at += 1;
                    break;
                }
                (b'{', _) => return Err(fault(text, at, "`,` or `}`")),
                _ => return Err(fault(text, at, "`,` or `]`")),
            }
        }
    }
}

/// One after the colon that follows the key at `at`.
fn key_end(text: &str, at: usize) -> Result<usize, Fault> {
    if text.as_bytes().get(at) != Some(&b'"') {
        return Err(fault(text, at, "a key in double quotes"));
    }
    let at = skip_space(text, string_end(text, at)?);
    if text.as_bytes().get(at) == Some(&b':') { Ok(at + 1) } else { Err(fault(text, at, "`:`")) }
}

/// One after the quote that closes the string opened at `at`.
fn string_end(text: &str, at: usize) -> Result<usize, Fault> {
    let bytes = text.as_bytes();
    let mut at = at + 1;
    loop {
        match bytes.get(at) {
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') => at += 2,
            Some(_) => at += 1,
            None => return Err(fault(text, text.len(), "a closing `\"`")),
        }
    }
}

fn scalar_end(text: &str, at: usize) -> Result<usize, Fault> {
    let length = text.as_bytes()[at..]
        .iter()
        .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.'))
        .count();
    let word = &text[at..at + length];
    let is_whole = matches!(word, "true" | "false" | "null")
        || (word.starts_with(|first: char| first == '-' || first.is_ascii_digit())
            && serde_json::from_str::<serde_json::Number>(word).is_ok());
    match is_whole {
        true => Ok(at + length),
        // A word that the text's end may have cut.
        false if length > 0 && at + length == text.len() => Err(fault(text, text.len(), "a JSON value")),
        false => Err(fault(text, at, "a JSON value")),
    }
}

/// The members of an object whose end is known: key, and where the value stands. Of equal keys the last one is to be taken.
pub(super) fn members(text: &str, object: Range<usize>) -> Vec<(String, Range<usize>)> {
    let bytes = text.as_bytes();
    let mut members = Vec::new();
    let mut at = skip_space(text, object.start + 1);
    while at < object.end && bytes[at] == b'"' {
        let Ok(end) = string_end(text, at) else { break };
        let key = read(&text[at..end]).and_then(|(key, _)| key.as_str().map(String::from)).unwrap_or_default();
        let Ok(colon) = key_end(text, at) else { break };
        let start = skip_space(text, colon);
        let Ok(end) = value_end(text, start) else { break };
        members.push((key, start..end));
        at = skip_space(text, end);
        if bytes.get(at) == Some(&b',') {
            at = skip_space(text, at + 1);
        }
    }
    members
}

/// Reads a value whose end is known; `true` when it had to be mended: line breaks and other control characters inside
/// strings, halves of surrogate pairs.
pub(super) fn read(text: &str) -> Option<(Value, bool)> {
    if let Ok(value) = serde_json::from_str(text) {
        return Some((value, false));
    }
    let escaped = with_control_characters_escaped(&without_lone_surrogates(text));
    serde_json::from_str(&escaped).ok().map(|value| (value, true))
}

fn with_control_characters_escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut in_string, mut is_escaped) = (false, false);
    for character in text.chars() {
        match character {
            control if in_string && control < ' ' => out.push_str(&format!("\\u{:04x}", control as u32)),
            other => out.push(other),
        }
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' if in_string => is_escaped = true,
            '"' => in_string = !in_string,
            _ => {}
        }
    }
    out
}

/// A call read from one object.
#[derive(Debug, PartialEq)]
pub(super) struct ObjectCall {
    pub name: String,
    pub arguments: Map<String, Value>,
    pub arguments_raw: String,
    pub is_repaired: bool,
}

/// Reads the call that an object whose end is known describes: `name`, and `arguments` or `parameters`, which may be
/// absent, or (a repair) JSON inside a string. The object may also stand under `function`, beside `type`.
pub(super) fn call_of(text: &str, object: Range<usize>) -> Result<ObjectCall, Fault> {
    if text[object.clone()].starts_with('{') {
        let members = members(text, object.clone());
        let is_named = members.iter().any(|(key, _)| key == "name");
        let inner =
            members.into_iter().rev().find(|(key, span)| key == "function" && text[span.clone()].starts_with('{'));
        if let Some((_, inner)) = inner.filter(|_| !is_named) {
            return named_call_of(text, inner);
        }
    }
    named_call_of(text, object)
}

fn named_call_of(text: &str, object: Range<usize>) -> Result<ObjectCall, Fault> {
    let broken = |at: usize, expected: &'static str| Fault { at, expected, is_cut: false };
    if !text[object.clone()].starts_with('{') {
        return Err(broken(object.start, "a JSON object"));
    }
    let members = members(text, object.clone());
    let member = |key: &str| members.iter().rev().find(|(name, _)| name == key).map(|(_, span)| span.clone());
    let name_at = member("name").ok_or(broken(object.start, "an object with the key `name`"))?;
    let name = read(&text[name_at.clone()]).and_then(|(name, _)| name.as_str().map(String::from));
    let name = name.filter(|name| !name.is_empty()).ok_or(broken(name_at.start, "the name of a tool"))?;
    let Some(span) = member("arguments").or_else(|| member("parameters")) else {
        let (arguments, arguments_raw) = (Map::new(), "{}".to_string());
        return Ok(ObjectCall { name, arguments, arguments_raw, is_repaired: false });
    };
    let (arguments, arguments_raw, is_repaired) =
        arguments_of(&text[span.clone()]).ok_or(broken(span.start, "an object of arguments"))?;
    Ok(ObjectCall { name, arguments, arguments_raw, is_repaired })
}

/// Reads a call's arguments: an object; null, which is none; or a string that holds an object.
pub(super) fn arguments_of(text: &str) -> Option<(Map<String, Value>, String, bool)> {
    let (value, is_mended) = read(text)?;
    match value {
        Value::Object(arguments) => Some((arguments, text.to_string(), is_mended)),
        Value::Null => Some((Map::new(), "{}".to_string(), false)),
        Value::String(inner) => {
            let start = skip_space(&inner, 0);
            let end = value_end(&inner, start).ok()?;
            let is_whole = skip_space(&inner, end) == inner.len();
            let (Value::Object(arguments), _) = read(&inner[start..end]).filter(|_| is_whole)? else { return None };
            Some((arguments, inner[start..end].to_string(), true))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn ends_are_found_and_faults_have_a_place() {
        assert_eq!(value_end(r#" {"a": [1, {"b": "}"}, -2.5e3], "c": null} x"#, 0), Ok(42));
        assert_eq!(value_end("[] 1", 0), Ok(2));
        let at = |text: &str| value_end(text, 0).unwrap_err();
        assert_eq!(at(r#"{"i":}"#), Fault { at: 5, expected: "a JSON value", is_cut: false });
        assert_eq!(at(r#"{"i""#), Fault { at: 4, expected: "`:`", is_cut: true });
        assert!(at(r#"{"a": "b"#).is_cut);
        assert!(at("[tru").is_cut);
        assert_eq!(at("[tru]"), Fault { at: 1, expected: "a JSON value", is_cut: false });
        assert_eq!(at("{a: 1}"), Fault { at: 1, expected: "a key in double quotes", is_cut: false });
        assert_eq!(at("[1 2]"), Fault { at: 3, expected: "`,` or `]`", is_cut: false });
        assert_eq!(at(&"[".repeat(200)), Fault { at: 100, expected: "at most 100 levels of nesting", is_cut: false });
    }

    #[test]
    fn line_breaks_in_strings_are_mended() {
        assert_eq!(read("{\"a\": \"x\ny\"}"), Some((json!({"a": "x\ny"}), true)));
        assert_eq!(read(r#"["\ud800"]"#), Some((json!(["\u{fffd}"]), true)));
    }

    #[test]
    fn a_call_says_what_is_missing() {
        let call = |text: &str| call_of(text, 0..text.len());
        assert_eq!(call(r#"{"type": "function", "function": {"name": "f"}}"#).unwrap().name, "f");
        assert_eq!(call(r#"{"a": 1}"#).unwrap_err().expected, "an object with the key `name`");
        assert_eq!(call(r#"{"name": ""}"#).unwrap_err().expected, "the name of a tool");
        assert_eq!(call(r#"{"name": "f", "arguments": [1]}"#).unwrap_err().expected, "an object of arguments");
        assert_eq!(call(r#"{"name": "f", "arguments": "{\"a\""}"#).unwrap_err().at, 27);
        let raw = r#"{"name": "f", "arguments": {"id": 123456789012345678901234567890}}"#;
        assert_eq!(call(raw).unwrap().arguments_raw, r#"{"id": 123456789012345678901234567890}"#);
    }

    proptest! {
        /// Any JSON, written in any style, ends where it ends, and its every prefix is cut or a shorter value.
        #[test]
        fn ends_agree_with_the_json_reader(value in any_json(), rest in "[ ,}\\]a-z]{0,4}") {
            for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
                prop_assume!(!value.is_number() || !rest.starts_with(|c: char| c.is_ascii_alphanumeric()));
                prop_assert_eq!(value_end(&format!("{text} {rest}"), 0), Ok(text.len()));
                if value.is_object() {
                    let spans = members(&text, 0..text.len());
                    prop_assert_eq!(spans.len(), value.as_object().unwrap().len());
                    for (key, span) in spans {
                        prop_assert_eq!(&serde_json::from_str::<Value>(&text[span]).unwrap(), &value[&key]);
                    }
                    for cut in (1..text.len()).filter(|cut| text.is_char_boundary(*cut)) {
                        prop_assert!(value_end(&text[..cut], 0).unwrap_err().is_cut, "{}", &text[..cut]);
                    }
                }
            }
        }

        #[test]
        fn no_text_breaks_it(text in "[\\[\\]{}\":,\\\\a-z0-9 é-]{0,60}") {
            if let Ok(end) = value_end(&text, 0) {
                prop_assert!(text.is_char_boundary(end));
                if text[..end].trim_start().starts_with('{') {
                    let start = skip_space(&text, 0);
                    let _ = call_of(&text, start..end);
                }
            }
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(|number| json!(number)),
            (-1e9f64..1e9).prop_map(|number| json!(number)),
            ".{0,6}".prop_map(Value::String),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
                prop::collection::btree_map("[a-z\"\\\\é]{0,3}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }
}
