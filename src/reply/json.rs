//! The JSON value inside a reply.

use serde_json::Value;

use super::{fence, think};

/// Openings that are tried in one text: each may be read to the text's end before it turns out not to close.
const MAX_STARTS: usize = 4096;

/// What kind of value is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Object,
    Array,
    /// Either of the two; bare strings and numbers are never looked for in prose.
    Container,
}

impl Kind {
    fn opens_with(self, character: char) -> bool {
        match self {
            Kind::Object => character == '{',
            Kind::Array => character == '[',
            Kind::Container => matches!(character, '{' | '['),
        }
    }
}

/// The first complete value of the kind: in blocks tagged `json` first, then anywhere in the reply, thoughts left out.
///
/// Escapes of lone surrogates, which no text can hold, become U+FFFD.
pub fn first_value(reply: &str, kind: Kind) -> Option<Value> {
    let reply = think::strip(reply)?;
    let reply = without_lone_surrogates(reply);
    let blocks = fence::blocks(&reply);
    let tagged = blocks.iter().filter(|block| block.is_tagged("json")).map(|block| block.text.as_str());
    tagged.chain([reply.as_str()]).find_map(|text| first_in(text, kind))
}

fn first_in(text: &str, kind: Kind) -> Option<Value> {
    let starts = text.char_indices().filter(|(_, character)| kind.opens_with(*character)).map(|(start, _)| start);
    starts
        .take(MAX_STARTS)
        .find_map(|start| serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>().next()?.ok())
}

/// A value as Python's `json.dumps(value, ensure_ascii=False)` writes it: one line, a space after every comma and colon.
pub fn spaced(value: &Value) -> String {
    struct Spaced;

    impl serde_json::ser::Formatter for Spaced {
        fn begin_array_value<W: ?Sized + std::io::Write>(&mut self, out: &mut W, first: bool) -> std::io::Result<()> {
            if first { Ok(()) } else { out.write_all(b", ") }
        }

        fn begin_object_key<W: ?Sized + std::io::Write>(&mut self, out: &mut W, first: bool) -> std::io::Result<()> {
            if first { Ok(()) } else { out.write_all(b", ") }
        }

        fn begin_object_value<W: ?Sized + std::io::Write>(&mut self, out: &mut W) -> std::io::Result<()> {
            out.write_all(b": ")
        }
    }

    let mut bytes = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, Spaced);
    let written = serde::Serialize::serialize(value, &mut serializer);
    written.expect("a JSON value is written to memory without fault");
    String::from_utf8(bytes).expect("JSON is UTF-8")
}

/// Replaces `\uD800`…`\uDFFF` that are not half of a pair.
pub(super) fn without_lone_surrogates(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(slash) = rest.find('\\') {
        clean.push_str(&rest[..slash]);
        rest = &rest[slash..];
        let taken = match (surrogate(rest), rest.get(6..).and_then(surrogate)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => {
                clean.push_str(&rest[..12]);
                12
            }
            (Some(_), _) => {
                clean.push_str("\\ufffd");
                6
            }
            (None, _) => {
                let escaped = rest[1..].chars().next().map_or(0, char::len_utf8);
                clean.push_str(&rest[..1 + escaped]);
                1 + escaped
            }
        };
        rest = &rest[taken..];
    }
    clean.push_str(rest);
    clean
}

/// The surrogate that a text starts with, written as an escape.
fn surrogate(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    let unit = u16::from_str_radix(digits, 16).ok()?;
    (0xD800..=0xDFFF).contains(&unit).then_some(unit)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn braces_of_prose_are_passed_over() {
        assert_eq!(first_value("Fill {name} in: {\"a\": [1]} or {\"b\": 2}", Kind::Object), Some(json!({"a": [1]})));
        assert_eq!(first_value("{\"a\": [1, 2]}", Kind::Array), Some(json!([1, 2])));
        assert_eq!(first_value("{\"a\": ", Kind::Object), None);
    }

    #[test]
    fn a_tagged_block_comes_before_prose() {
        let reply = "Not {} but\n```json\n{\"a\": 1}\n```";
        assert_eq!(first_value(reply, Kind::Object), Some(json!({"a": 1})));
    }

    #[test]
    fn pairs_of_surrogates_stay_and_escaped_backslashes_are_no_escapes() {
        assert_eq!(
            first_value(r#"["\ud83d\ude00 \\ud800 \udc00"]"#, Kind::Array),
            Some(json!(["😀 \\ud800 \u{fffd}"]))
        );
    }

    #[test]
    fn openings_that_never_close_end() {
        let reply = "[{\"a\":".repeat(30_000);
        assert_eq!(first_value(&reply, Kind::Container), None);
    }
}
