//! Values written as Python writes them: `json.dumps` for the `tojson` filter, and `repr` of a float.
//!
//! Templates were tested under Python, and models trained on what it printed: `1.0` and not `1`, `1e-05` and not
//! `0.00001`, blanks after commas and colons, no HTML escapes.

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// The arguments of `json.dumps` that chat templates may give.
#[derive(Debug, Clone)]
pub(super) struct JsonStyle {
    pub ensure_ascii: bool,
    /// What one level of nesting is indented by; `None` writes all on one line.
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
    pub sort_keys: bool,
}

impl Default for JsonStyle {
    fn default() -> Self {
        JsonStyle {
            ensure_ascii: false,
            indent: None,
            item_separator: ", ".to_string(),
            key_separator: ": ".to_string(),
            sort_keys: false,
        }
    }
}

/// `json.dumps(value)`.
///
/// # Errors
/// For values that have no JSON: undefined ones, functions, bytes.
pub(super) fn dumps(value: &Value, style: &JsonStyle) -> Result<String, Error> {
    let mut out = String::new();
    write_value(value, style, 0, &mut out)?;
    Ok(out)
}

/// Deepest nesting written; Python's own limit is about a thousand.
const MAX_DEPTH: usize = 200;

fn write_value(value: &Value, style: &JsonStyle, depth: usize, out: &mut String) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(Error::new(ErrorKind::BadSerialization, "tojson: the value is nested too deeply"));
    }
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&number(value)),
        ValueKind::String => write_string(value.as_str().unwrap_or_default(), style, out),
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter()?.collect();
            write_nested('[', ']', items.len(), style, depth, out, |index, out| {
                write_value(&items[index], style, depth + 1, out)
            })?;
        }
        ValueKind::Map => {
            let mut keys: Vec<Value> = value.try_iter()?.collect();
            if style.sort_keys {
                keys.sort();
            }
            write_nested('{', '}', keys.len(), style, depth, out, |index, out| {
                write_key(&keys[index], style, out)?;
                out.push_str(&style.key_separator);
                write_value(&value.get_item(&keys[index])?, style, depth + 1, out)
            })?;
        }
        kind => {
            let reason = format!("tojson: a value of kind {kind} has no JSON");
            return Err(Error::new(ErrorKind::BadSerialization, reason));
        }
    }
    Ok(())
}

fn write_nested(
    open: char,
    close: char,
    items: usize,
    style: &JsonStyle,
    depth: usize,
    out: &mut String,
    mut write_item: impl FnMut(usize, &mut String) -> Result<(), Error>,
) -> Result<(), Error> {
    let break_line = |depth: usize, out: &mut String| {
        if let Some(indent) = &style.indent {
            out.push('\n');
            out.push_str(&indent.repeat(depth));
        }
    };
    out.push(open);
    for index in 0..items {
        if index > 0 {
            out.push_str(&style.item_separator);
        }
        break_line(depth + 1, out);
        write_item(index, out)?;
    }
    if items > 0 {
        break_line(depth, out);
    }
    out.push(close);
    Ok(())
}

/// Keys are strings in JSON: numbers, booleans and none are written out inside quotes.
fn write_key(key: &Value, style: &JsonStyle, out: &mut String) -> Result<(), Error> {
    match key.kind() {
        ValueKind::String => write_string(key.as_str().unwrap_or_default(), style, out),
        ValueKind::None | ValueKind::Bool | ValueKind::Number => {
            out.push('"');
            write_value(key, style, 0, out)?;
            out.push('"');
        }
        kind => {
            let reason = format!("tojson: a key of kind {kind} has no JSON");
            return Err(Error::new(ErrorKind::BadSerialization, reason));
        }
    }
    Ok(())
}

fn write_string(text: &str, style: &JsonStyle, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\0'..='\u{1f}' => out.push_str(&format!("\\u{:04x}", character as u32)),
            '\u{7f}'.. if style.ensure_ascii => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            _ => out.push(character),
        }
    }
    out.push('"');
}

fn number(value: &Value) -> String {
    match f64::try_from(value.clone()) {
        Ok(float) if !value.is_integer() => match float {
            _ if float.is_nan() => "NaN".to_string(),
            f64::INFINITY => "Infinity".to_string(),
            f64::NEG_INFINITY => "-Infinity".to_string(),
            _ => float_repr(float),
        },
        _ => value.to_string(),
    }
}

/// `repr` of a finite Python float: the shortest digits that read back the same, positional for exponents -4 to 15,
/// always with a point or an exponent.
pub(super) fn float_repr(value: f64) -> String {
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').expect("`{:e}` writes an exponent");
    let exponent: i32 = exponent.parse().expect("`{:e}` writes a decimal exponent");
    if (-4..16).contains(&exponent) {
        let positional = format!("{value}");
        return if positional.contains('.') { positional } else { positional + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_print_as_python_prints_them() {
        let cases = [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (-0.0, "-0.0"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (123456789012345.6, "123456789012345.6"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.7976931348623157e308, "1.7976931348623157e+308"),
        ];
        for (value, expected) in cases {
            assert_eq!(float_repr(value), expected);
        }
    }

    #[test]
    fn ascii_json_writes_surrogate_pairs() {
        let style = JsonStyle { ensure_ascii: true, ..JsonStyle::default() };
        assert_eq!(dumps(&Value::from("é😀\u{7f}\n"), &style).unwrap(), r#""\u00e9\ud83d\ude00\u007f\n""#);
    }

    #[test]
    fn what_has_no_json_is_an_error() {
        assert!(dumps(&Value::UNDEFINED, &JsonStyle::default()).is_err());
    }
}
