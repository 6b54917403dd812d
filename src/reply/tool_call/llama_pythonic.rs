//! Llama 3.2 and 4, pythonic form: one list of calls, `[f(a=1, b="x"), g()]`, at the start of the reply or between
//! `<|python_start|>` and `<|python_end|>`. Source: the model cards of meta-llama/Llama-3.2 and Llama-4 (tool calling).
//!
//! Arguments are Python literals, read here by a small reader of our own with a limit on nesting: a whole Python parser
//! would accept programs.

use serde_json::{Map, Number, Value};

use super::builder::Builder;
use super::json_text::{Fault, MAX_DEPTH, skip_space};
use super::scan::{Marks, scan};
use super::{Dialect, Reading, Reply};
use crate::registry::Registered;

#[derive(Debug)]
pub(super) struct LlamaPythonic;

pub(super) static LLAMA_PYTHONIC: LlamaPythonic = LlamaPythonic;

const MARKS: Marks = Marks {
    opens: &["<|python_start|>", "<|python_tag|>"],
    strays: &["<|python_end|>", "<|eom_id|>", "<|eot_id|>", "<|eom|>", "<|eot|>"],
    is_open: |_, _, _| true,
    read: |builder, _, inside| calls(builder, inside, true),
    read_bare: Some(|builder, at| calls(builder, at, false)),
};

impl Registered for LlamaPythonic {
    fn name(&self) -> &str {
        "llama3_pythonic"
    }

    fn about(&self) -> &str {
        "a list of Python calls (Llama 3.2 small models, Llama 4)"
    }

    fn source(&self) -> &str {
        "model cards of meta-llama/Llama-3.2-3B-Instruct and Llama-4"
    }
}

impl Dialect for LlamaPythonic {
    fn is_of(&self, template: &str) -> bool {
        template.contains("<|python_start|>")
    }

    fn read(&self, reply: &str, reading: &Reading<'_>) -> Reply {
        scan(reply, reading, &MARKS)
    }
}

/// Reads the list of calls. Without a tag, a list is one of calls only when its first element is a call of a tool on
/// offer; else it is text.
fn calls(builder: &mut Builder<'_>, from: usize, is_tagged: bool) -> usize {
    let raw = builder.raw;
    let mut at = skip_space(raw, from);
    if !raw[at..].starts_with('[') {
        if is_tagged {
            let is_at_end = at == raw.len();
            if is_at_end {
                builder.cut("a list of calls")
            } else {
                builder.broken(at, "a list of calls")
            }
            return raw.len();
        }
        return from;
    }
    at = skip_space(raw, at + 1);
    let begins_call = name_at(raw, at)
        .is_some_and(|end| raw[skip_space(raw, end)..].starts_with('(') && builder.may_call(&raw[at..end]));
    if !is_tagged && !begins_call {
        return from;
    }
    loop {
        let start = at;
        let mut reader = Literals { text: raw, at, depth: 0 };
        match reader.call() {
            Ok((name, arguments)) => {
                at = skip_space(raw, reader.at);
                let arguments_raw = Value::Object(arguments.clone()).to_string();
                builder.call(start..reader.at, name, arguments, arguments_raw);
            }
            Err(fault) => {
                builder.fault(fault);
                return raw.len();
            }
        }
        match raw.as_bytes().get(at) {
            Some(b',') => at = skip_space(raw, at + 1),
            Some(b']') => return at + 1,
            Some(_) => {
                builder.broken(at, "`,` or `]`");
                return raw.len();
            }
            None => {
                builder.repair(at, "`]`");
                return at;
            }
        }
    }
}

/// One after a (dotted) name that starts at `at`.
fn name_at(text: &str, at: usize) -> Option<usize> {
    let rest = &text[at..];
    let length = rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.')).unwrap_or(rest.len());
    let name = &rest[..length];
    let is_name = name.starts_with(|first: char| first.is_alphabetic() || first == '_') && !name.ends_with('.');
    is_name.then_some(at + length)
}

/// Python literals in a text.
struct Literals<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Literals<'_> {
    fn call(&mut self) -> Result<(String, Map<String, Value>), Fault> {
        let name = self.name("a call")?;
        self.expect('(', "`(`")?;
        let mut arguments = Map::new();
        while !self.takes(')') {
            let key = self.name("`KEY=value` or `)`")?;
            self.expect('=', "`=`")?;
            let value = self.value()?;
            arguments.insert(key, value);
            if !self.takes(',') {
                self.expect(')', "`,` or `)`")?;
                break;
            }
        }
        Ok((name, arguments))
    }

    fn value(&mut self) -> Result<Value, Fault> {
        self.skip();
        let Some(first) = self.peek() else { return self.fault("a value") };
        match first {
            '"' | '\'' => self.strings().map(Value::String),
            '[' | '(' | '{' if self.depth == MAX_DEPTH => self.fault("at most 100 levels of nesting"),
            '[' | '(' => {
                self.depth += 1;
                let items = self.items(if first == '[' { ']' } else { ')' })?;
                self.depth -= 1;
                Ok(items)
            }
            '{' => {
                self.depth += 1;
                let dictionary = self.dictionary()?;
                self.depth -= 1;
                Ok(dictionary)
            }
            '-' | '+' | '.' | '0'..='9' => self.number(),
            _ => self.word(),
        }
    }

    /// A list; a tuple; or, `(x)`, the value inside.
    fn items(&mut self, close: char) -> Result<Value, Fault> {
        self.at += 1;
        let mut items = Vec::new();
        let mut has_comma = false;
        while !self.takes(close) {
            items.push(self.value()?);
            if !self.takes(',') {
                self.expect(close, "`,` or the end of the list")?;
                break;
            }
            has_comma = true;
        }
        match items.len() {
            1 if close == ')' && !has_comma => Ok(items.swap_remove(0)),
            _ => Ok(Value::Array(items)),
        }
    }

    fn dictionary(&mut self) -> Result<Value, Fault> {
        self.at += 1;
        let mut map = Map::new();
        while !self.takes('}') {
            self.skip();
            let at = self.at;
            let key = match self.value()? {
                Value::String(key) => key,
                key @ (Value::Number(_) | Value::Bool(_) | Value::Null) => key.to_string(),
                _ => return Err(Fault { at, expected: "a key", is_cut: false }),
            };
            self.expect(':', "`:`")?;
            let value = self.value()?;
            map.insert(key, value);
            if !self.takes(',') {
                self.expect('}', "`,` or `}`")?;
                break;
            }
        }
        Ok(Value::Object(map))
    }

    /// A string, and those written right behind it, which belong to it.
    fn strings(&mut self) -> Result<String, Fault> {
        let mut text = String::new();
        while let Some(quote @ ('"' | '\'')) = self.peek() {
            let triple: String = std::iter::repeat_n(quote, 3).collect();
            let is_triple = self.rest().starts_with(&triple);
            self.at += if is_triple { 3 } else { 1 };
            loop {
                let Some(character) = self.peek() else { return self.fault("the end of the string") };
                if is_triple && self.rest().starts_with(&triple) {
                    self.at += 3;
                    break;
                }
                self.at += character.len_utf8();
                match character {
                    '\\' => self.escape(&mut text)?,
                    _ if character == quote && !is_triple => break,
                    _ => text.push(character),
                }
            }
            self.skip();
        }
        Ok(text)
    }

    fn escape(&mut self, text: &mut String) -> Result<(), Fault> {
        let Some(kind) = self.peek() else { return self.fault("the end of the string") };
        self.at += kind.len_utf8();
        let digits = match kind {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => {
                let plain = match kind {
                    'n' => "\n",
                    't' => "\t",
                    'r' => "\r",
                    '0' => "\0",
                    '\n' => "",
                    '\\' => "\\",
                    '\'' => "'",
                    '"' => "\"",
                    // As Python does: an unknown escape stays as it is written.
                    _ => {
                        text.push('\\');
                        &self.text[self.at - kind.len_utf8()..self.at]
                    }
                };
                text.push_str(plain);
                return Ok(());
            }
        };
        let code = self.rest().get(..digits).and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let Some(code) = code else { return self.fault("the digits of an escape") };
        self.at += digits;
        text.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
        Ok(())
    }

    fn number(&mut self) -> Result<Value, Fault> {
        let start = self.at;
        let length = self
            .rest()
            .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+' | '_')))
            .unwrap_or(self.rest().len());
        let digits = self.rest()[..length].replace('_', "");
        let plain = digits.strip_prefix('+').unwrap_or(&digits);
        let number = plain.parse::<i64>().ok().map(Number::from);
        let number = number.or_else(|| plain.parse::<u64>().ok().map(Number::from));
        let is_float = plain.contains(|c: char| c.is_ascii_digit())
            && !plain.contains(|c: char| c.is_ascii_alphabetic() && c != 'e' && c != 'E');
        let number = number.or_else(|| plain.parse::<f64>().ok().filter(|_| is_float).and_then(Number::from_f64));
        match number {
            Some(number) => {
                self.at += length;
                Ok(Value::Number(number))
            }
            None => Err(Fault { at: start, expected: "a number", is_cut: start + length == self.text.len() }),
        }
    }

    fn word(&mut self) -> Result<Value, Fault> {
        for (word, value) in [
            ("True", Value::Bool(true)),
            ("true", Value::Bool(true)),
            ("False", Value::Bool(false)),
            ("false", Value::Bool(false)),
            ("None", Value::Null),
            ("null", Value::Null),
        ] {
            if self.rest().starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        self.fault("a literal value")
    }

    fn name(&mut self, expected: &'static str) -> Result<String, Fault> {
        self.skip();
        let Some(end) = name_at(self.text, self.at) else { return self.fault(expected) };
        let name = self.text[self.at..end].to_string();
        self.at = end;
        Ok(name)
    }

    fn expect(&mut self, character: char, expected: &'static str) -> Result<(), Fault> {
        if self.takes(character) { Ok(()) } else { self.fault(expected) }
    }

    fn takes(&mut self, character: char) -> bool {
        self.skip();
        let is_next = self.peek() == Some(character);
        if is_next {
            self.at += character.len_utf8();
        }
        is_next
    }

    fn fault<T>(&self, expected: &'static str) -> Result<T, Fault> {
        Err(Fault { at: self.at, expected, is_cut: self.at >= self.text.len() })
    }

    fn skip(&mut self) {
        self.at = skip_space(self.text, self.at);
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Status, Tool};
    use super::*;

    fn read(reply: &str) -> Reply {
        LLAMA_PYTHONIC.read(reply, &Reading::default())
    }

    #[test]
    fn literals_are_pythons() {
        let reply = read(
            r#"[a.b(s='it''s \'x\' \u00e9\n', n=-1_000, f=.5e1, t=(1,), p=(2), l=[True, None,], d={"k": {1: 'v'}}), g()] ok"#,
        );
        assert_eq!(reply.status, Status::Ok, "{:?}", reply.findings);
        assert_eq!(reply.calls[0].name, "a.b");
        assert_eq!(
            Value::Object(reply.calls[0].arguments.clone()),
            json!({"s": "its 'x' é\n", "n": -1000, "f": 5.0, "t": [1], "p": 2, "l": [true, null], "d": {"k": {"1": "v"}}})
        );
        assert_eq!((reply.calls[1].name.as_str(), reply.text.as_str()), ("g", "ok"));
    }

    #[test]
    fn lists_that_are_no_calls_are_text() {
        for text in ["[1, 2, 3]", "[x]", "[]", "[link](http://a)", "f(1)"] {
            assert_eq!((read(text).text.as_str(), read(text).status), (text, Status::None));
        }
        let tools = [Tool { name: "f".into(), ..Tool::default() }];
        let reading = Reading { tools: &tools, ..Reading::default() };
        assert_eq!(LLAMA_PYTHONIC.read("[g(x=1)]", &reading).text, "[g(x=1)]");
    }

    #[test]
    fn faults_are_told_apart() {
        assert_eq!(read("[f(x=\"a").status, Status::Truncated);
        assert_eq!(read("[f(x=tru").status, Status::Broken);
        assert_eq!(read("[f(1)]").status, Status::Broken, "positional");
        assert_eq!(read("[f(x=open('a'))]").status, Status::Broken, "no literal");
        assert_eq!(read("[f(x=1), g(").status, Status::Partial);
        let deep = format!("[f(x={}", "[".repeat(100_000));
        assert_eq!(read(&deep).findings[0].expected, "at most 100 levels of nesting");
    }
}
