//! Reading structured replies: each step is more forgiving than the one before, and the last gives up.
//!
//! In order: the whole reply, with or without one fence around it; a block tagged `json`; what begins at the first opening
//! bracket, after light repair (raw control characters in strings, single quotes, Python's literals, trailing commas,
//! brackets left open by a token limit); the first balanced value anywhere. What then is still unreadable is `None`, and
//! the method's own fallback applies. Repair comes before the search, which would find a part of a list cut short.

use serde_json::Value;

use crate::reply::fence;
use crate::reply::json::{self, Kind};

/// The JSON value of a reply whose reasoning has been taken off.
pub(super) fn value(reply: &str, kind: Kind) -> Option<Value> {
    let text = unfenced(reply);
    let read = |text: &str| serde_json::from_str(text).ok().filter(|value| is_kind(value, kind));
    let tagged =
        || fence::blocks(reply).iter().filter(|block| block.is_tagged("json")).find_map(|block| read(&block.text));
    let repaired = || read(&repaired(&text[text.find(|letter| opens(letter, kind))?..])?);
    read(&text).or_else(tagged).or_else(repaired).or_else(|| json::first_value(reply, kind))
}

/// The reply without one fence around all of it.
pub(super) fn unfenced(reply: &str) -> String {
    let text = reply.trim();
    let is_fenced = text.starts_with("```") || text.starts_with("~~~");
    match fence::blocks(text).into_iter().next() {
        Some(block) if is_fenced => block.text,
        _ => text.to_string(),
    }
}

/// A text field of an object, trimmed; `None` when it is missing, empty or no text.
pub(super) fn text<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get(key)?.as_str().map(str::trim).filter(|text| !text.is_empty())
}

/// The texts of a list field; members of other types are left out, and a missing field is an empty list.
pub(super) fn texts(object: &Value, key: &str) -> Vec<String> {
    let members = object.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let texts = members.iter().filter_map(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
    texts.map(String::from).collect()
}

fn is_kind(value: &Value, kind: Kind) -> bool {
    match kind {
        Kind::Object => value.is_object(),
        Kind::Array => value.is_array(),
        Kind::Container => value.is_object() || value.is_array(),
    }
}

fn opens(letter: char, kind: Kind) -> bool {
    match kind {
        Kind::Object => letter == '{',
        Kind::Array => letter == '[',
        Kind::Container => matches!(letter, '{' | '['),
    }
}

/// The first value of a text that starts with a bracket, in strict JSON.
fn repaired(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len() + 8);
    let mut open: Vec<char> = Vec::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' | '\'' => copy_string(letter, &mut letters, &mut out),
            '{' | '[' => {
                open.push(if letter == '{' { '}' } else { ']' });
                out.push(letter);
            }
            '}' | ']' => {
                if open.pop()? != letter {
                    return None;
                }
                without_comma(&mut out);
                out.push(letter);
                if open.is_empty() {
                    return Some(out);
                }
            }
            _ if letter.is_alphabetic() => {
                let mut word = String::from(letter);
                while let Some(next) = letters.next_if(|next| next.is_alphanumeric()) {
                    word.push(next);
                }
                out.push_str(match word.as_str() {
                    "True" => "true",
                    "False" => "false",
                    "None" => "null",
                    other => other,
                });
            }
            _ => out.push(letter),
        }
    }
    without_comma(&mut out);
    if out.ends_with(':') {
        out.push_str("null");
    }
    out.extend(open.into_iter().rev());
    Some(out)
}

fn without_comma(out: &mut String) {
    let end = out.trim_end().len();
    out.truncate(end);
    if out.ends_with(',') {
        out.pop();
    }
}

fn copy_string(quote: char, letters: &mut std::iter::Peekable<std::str::Chars<'_>>, out: &mut String) {
    out.push('"');
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some('\'') => out.push('\''),
                Some(escaped) => out.extend(['\\', escaped]),
                None => {}
            },
            _ if letter == quote => break,
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            _ if letter.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(letter))),
            _ => out.push(letter),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn each_step_reads_what_the_one_before_cannot() {
        let expected = json!({"a": ["x", null], "b": true});
        for reply in [
            r#"{"a": ["x", null], "b": true}"#,
            "```json\n{\"a\": [\"x\", null], \"b\": true}\n```",
            r#"Sure! Here: {"a": ["x", null], "b": true} Done."#,
            "{'a': ['x', None,], 'b': True,}",
        ] {
            assert_eq!(value(reply, Kind::Object), Some(expected.clone()), "{reply}");
        }
        assert_eq!(value("{\"a\": \"two\nlines\"}", Kind::Object), Some(json!({"a": "two\nlines"})));
        assert_eq!(value(r#"[["s", "p", "o"], ["s2", "p"#, Kind::Array), Some(json!([["s", "p", "o"], ["s2", "p"]])));
        assert_eq!(value("no value here", Kind::Object), None);
        assert_eq!(value("[1]", Kind::Object), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "([{}\\[\\]'\":,\\\\ \n]|[a-c]|é|True|None){0,60}") {
            let _ = value(&text, Kind::Container);
        }
    }
}
