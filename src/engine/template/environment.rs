//! The template engine in the settings that `transformers` gives Jinja for chat templates.
//!
//! Source: `_cached_compile_jinja_template` in `utils/chat_template_utils.py` of huggingface/transformers: an immutable
//! sandboxed environment with `trim_blocks` and `lstrip_blocks`, loop controls, a `tojson` that is `json.dumps`,
//! `raise_exception` and `strftime_now`.
//!
//! Known to be missing: the `%` operator on text and `urlencode` (both fail, naming themselves), and comparisons of
//! unlike kinds, which Python refuses, have an answer here.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior};

use super::error::{TemplateFault, fault};
use super::python::{JsonStyle, dumps, float_repr};

/// Work one rendering may do: instructions, and 64-byte parts of data. A conversation of a megabyte takes some tens of
/// thousands; a template written to hang stops within about a second and 320 MB.
pub(super) const FUEL: u64 = 5_000_000;

/// Longest `range`, as in Jinja's sandbox.
const MAX_RANGE: u64 = 100_000;

/// Methods of Python's lists and dictionaries that change them: the sandbox refuses these.
const MUTATING: &[&str] =
    &["append", "clear", "extend", "insert", "pop", "popitem", "remove", "reverse", "setdefault", "sort", "update"];

/// An environment ready to compile chat templates.
pub(super) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.expect("only whitespace settings differ from the default syntax"));
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_fuel(Some(FUEL));
    environment.set_formatter(|out, state, value| match python_float(value) {
        Some(text) => out.write_str(&text).map_err(Error::from),
        None => minijinja::escape_formatter(out, state, value),
    });
    environment.set_unknown_method_callback(unknown_method);
    environment.add_filter("tojson", tojson);
    environment.add_filter("int", int);
    environment.add_filter("float", float);
    environment.add_test("sequence", is_sequence);
    environment.add_test("iterable", is_iterable);
    environment.add_test("callable", |value: &Value| value.kind() == ValueKind::Plain);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("range", range);
    environment.add_function("cycler", |items: Rest<Value>| minijinja_contrib::globals::cycler(items.to_vec()));
    environment.add_function("joiner", minijinja_contrib::globals::joiner);
    environment
}

/// The text of a finite float that is printed by itself.
fn python_float(value: &Value) -> Option<String> {
    if value.kind() != ValueKind::Number || value.is_integer() {
        return None;
    }
    f64::try_from(value.clone()).ok().filter(|float| float.is_finite()).map(float_repr)
}

fn unknown_method(state: &mut State, value: &Value, method: &str, arguments: &[Value]) -> Result<Value, Error> {
    let container = matches!(value.kind(), ValueKind::Seq | ValueKind::Map);
    if container && MUTATING.contains(&method) {
        let reason = format!("`{method}` would change a {} of the conversation", value.kind());
        return Err(fault(TemplateFault::Security, reason));
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, method, arguments)
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(fault(TemplateFault::Raised, message))
}

/// Jinja's: whatever has a length and subscripts, text and mappings included.
fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Undefined | ValueKind::Seq | ValueKind::String | ValueKind::Map)
}

/// Jinja's: whatever Python can iterate over.
fn is_iterable(value: &Value) -> bool {
    is_sequence(value) || value.kind() == ValueKind::Iterable
}

/// `tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
fn tojson(value: &Value, positional: Rest<Value>, keywords: Kwargs) -> Result<Value, Error> {
    let argument = |index: usize, name: &str| -> Result<Option<Value>, Error> {
        let given = match positional.get(index) {
            Some(value) => Some(value.clone()),
            None => keywords.get::<Option<Value>>(name)?,
        };
        Ok(given.filter(|value| !value.is_none() && !value.is_undefined()))
    };
    let flag = |value: Option<Value>| value.is_some_and(|value| value.is_true());
    let mut style = JsonStyle {
        ensure_ascii: flag(argument(0, "ensure_ascii")?),
        sort_keys: flag(argument(3, "sort_keys")?),
        ..JsonStyle::default()
    };
    if let Some(indent) = argument(1, "indent")? {
        style.indent = Some(match indent.as_str() {
            Some(text) => text.to_string(),
            None => " ".repeat(i64::try_from(indent)?.clamp(0, 100) as usize),
        });
        style.item_separator = ",".to_string();
    }
    if let Some(separators) = argument(2, "separators")? {
        let [item, key] = separators.try_iter()?.collect::<Vec<_>>().try_into().map_err(|_| {
            Error::new(ErrorKind::InvalidOperation, "tojson: `separators` must be (item separator, key separator)")
        })?;
        (style.item_separator, style.key_separator) = (item.to_string(), key.to_string());
    }
    keywords.assert_all_used()?;
    dumps(value, &style).map(Value::from)
}

/// Jinja's `int(default=0, base=10)`: text is read as an integer, else as a float cut to one; what is no number gives
/// the default.
fn int(value: &Value, default: Option<Value>, base: Option<u32>) -> Value {
    let number = match value.as_str() {
        Some(text) => {
            let digits = text.trim().replace('_', "");
            let integer = i64::from_str_radix(&digits, base.unwrap_or(10).clamp(2, 36)).ok();
            integer.or_else(|| digits.parse::<f64>().ok().filter(|float| float.is_finite()).map(|float| float as i64))
        }
        None if value.is_integer() => return value.clone(),
        None => number_of(value).filter(|float| float.is_finite()).map(|float| float as i64),
    };
    number.map(Value::from).or(default).unwrap_or_else(|| Value::from(0))
}

/// Jinja's `float(default=0.0)`.
fn float(value: &Value, default: Option<Value>) -> Value {
    let number = match value.as_str() {
        Some(text) => text.trim().replace('_', "").parse::<f64>().ok(),
        None => number_of(value),
    };
    number.map(Value::from).or(default).unwrap_or_else(|| Value::from(0.0))
}

fn number_of(value: &Value) -> Option<f64> {
    match value.kind() {
        ValueKind::Number => f64::try_from(value.clone()).ok(),
        ValueKind::Bool => Some(f64::from(u8::from(value.is_true()))),
        _ => None,
    }
}

/// Python's `range`, at most [`MAX_RANGE`] long.
fn range(first: i64, second: Option<i64>, step: Option<i64>) -> Result<Value, Error> {
    let (start, end) = second.map_or((0, first), |second| (first, second));
    let step = step.unwrap_or(1);
    if step == 0 {
        return Err(Error::new(ErrorKind::InvalidOperation, "range: the step must not be 0"));
    }
    let distance = if step > 0 { i128::from(end) - i128::from(start) } else { i128::from(start) - i128::from(end) };
    let length = distance.max(0) as u128;
    let length = length.div_ceil(u128::from(step.unsigned_abs()));
    if length > u128::from(MAX_RANGE) {
        let reason = format!("a range of {length} numbers, at most {MAX_RANGE} are allowed");
        return Err(fault(TemplateFault::Limit, reason));
    }
    Ok(Value::from_iter((0..length as i64).map(|index| start + index * step)))
}
