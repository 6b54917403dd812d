//! Qwen3-Coder: `<tool_call><function=NAME><parameter=KEY>value</parameter></function></tool_call>`, values as bare
//! text, typed by the declared schema. Source: the chat template of Qwen/Qwen3-Coder-30B-A3B-Instruct.

use serde_json::{Map, Value};

use super::builder::Builder;
use super::hermes;
use super::json_text::skip_space;
use super::scan::{Marks, first_of, scan};
use super::{Dialect, Reading, Reply, Tool};
use crate::registry::Registered;

#[derive(Debug)]
pub(super) struct QwenCoder;

pub(super) static QWEN3_CODER: QwenCoder = QwenCoder;

const FUNCTION: &str = "<function=";
const FUNCTION_CLOSE: &str = "</function>";
const PARAMETER: &str = "<parameter=";
const PARAMETER_CLOSE: &str = "</parameter>";

const MARKS: Marks = Marks {
    opens: &[hermes::OPEN, FUNCTION],
    strays: &[hermes::CLOSE, FUNCTION_CLOSE, PARAMETER_CLOSE],
    is_open,
    read,
    read_bare: None,
};

impl Registered for QwenCoder {
    fn name(&self) -> &str {
        "qwen3_coder"
    }

    fn about(&self) -> &str {
        "<function=…> with <parameter=…> values as bare text (Qwen3-Coder)"
    }

    fn source(&self) -> &str {
        "chat template of Qwen/Qwen3-Coder-30B-A3B-Instruct"
    }
}

impl Dialect for QwenCoder {
    fn is_of(&self, template: &str) -> bool {
        template.contains(FUNCTION) && template.contains(PARAMETER)
    }

    fn read(&self, reply: &str, reading: &Reading<'_>) -> Reply {
        scan(reply, reading, &MARKS)
    }
}

/// A function whose block was never opened is a call when it names a declared tool; else it is text.
fn is_open(builder: &Builder<'_>, start: usize, inside: usize) -> bool {
    builder.raw[start..].starts_with(hermes::OPEN) || builder.names_tool(inside, &['>', '\n'])
}

fn read(builder: &mut Builder<'_>, start: usize, inside: usize) -> usize {
    let raw = builder.raw;
    if raw[start..].starts_with(FUNCTION) {
        return match function(raw, start) {
            Ok(found) => {
                builder.repair(start, "`<tool_call>`");
                found.add_to(builder, start)
            }
            Err(fault) => fault.report(builder),
        };
    }
    let mut at = skip_space(raw, inside);
    if raw[at..].starts_with('{') {
        builder.repair(at, "`<function=`");
        return hermes::block(builder, start, inside);
    }
    let mut is_empty = true;
    loop {
        at = skip_space(raw, at);
        let rest = &raw[at..];
        if rest.starts_with(hermes::CLOSE) {
            if is_empty {
                builder.broken(at, "`<function=`");
            }
            return at + hermes::CLOSE.len();
        }
        if !rest.starts_with(FUNCTION) {
            if !is_empty {
                builder.repair(at, "`</tool_call>`");
                return at;
            }
            if rest.is_empty() || FUNCTION.starts_with(rest) {
                builder.cut("`<function=`");
                return raw.len();
            }
            builder.broken(at, "`<function=`");
            return rest.find(hermes::CLOSE).map_or(raw.len(), |close| at + close + hermes::CLOSE.len());
        }
        match function(raw, at) {
            Ok(found) => at = found.add_to(builder, at),
            Err(fault) => return fault.report(builder),
        }
        is_empty = false;
    }
}

/// One function, read as far as its end.
struct Function<'a> {
    name: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    end: usize,
    /// Where a closing tag is missing.
    repairs: Vec<(usize, &'static str)>,
}

struct FunctionFault {
    at: usize,
    expected: &'static str,
    is_cut: bool,
}

impl FunctionFault {
    fn report(self, builder: &mut Builder<'_>) -> usize {
        let raw = builder.raw;
        if self.is_cut {
            builder.cut(self.expected);
            return raw.len();
        }
        builder.broken(self.at, self.expected);
        let closes = [FUNCTION_CLOSE, hermes::CLOSE];
        first_of(raw, self.at, &closes).map_or(raw.len(), |(at, mark)| at + closes[mark].len())
    }
}

fn function(raw: &str, start: usize) -> Result<Function<'_>, FunctionFault> {
    let fault = |at: usize, expected| Err(FunctionFault { at, expected, is_cut: at >= raw.len() });
    let Some((name, mut at)) = named(raw, start + FUNCTION.len()) else {
        let is_cut = !raw[start..].contains(['>', '\n']);
        return Err(FunctionFault { at: start, expected: "`<function=NAME>`", is_cut });
    };
    let mut found = Function { name, parameters: Vec::new(), end: at, repairs: Vec::new() };
    loop {
        at = skip_space(raw, at);
        let rest = &raw[at..];
        if rest.starts_with(FUNCTION_CLOSE) {
            found.end = at + FUNCTION_CLOSE.len();
            return Ok(found);
        }
        if rest.starts_with(hermes::CLOSE) {
            found.repairs.push((at, "`</function>`"));
            found.end = at;
            return Ok(found);
        }
        if !rest.starts_with(PARAMETER) {
            return fault(
                if PARAMETER.starts_with(rest) { raw.len() } else { at },
                "`<parameter=KEY>` or `</function>`",
            );
        }
        let Some((key, value)) = named(raw, at + PARAMETER.len()) else {
            let is_cut = !rest.contains(['>', '\n']);
            return Err(FunctionFault { at, expected: "`<parameter=KEY>`", is_cut });
        };
        let Some((length, close)) = value_length(&raw[value..]) else { return fault(raw.len(), "`</parameter>`") };
        found.parameters.push((key, without_framing_lines(&raw[value..value + length])));
        at = value + length + close;
        if close == 0 {
            found.repairs.push((at, "`</parameter>`"));
        }
    }
}

/// The name that ends at `>` on the same line, and what follows it.
fn named(raw: &str, at: usize) -> Option<(&str, usize)> {
    let length = raw[at..].find(['>', '\n'])?;
    let name = raw[at..at + length].trim();
    (raw.as_bytes()[at + length] == b'>' && !name.is_empty()).then_some((name, at + length + 1))
}

/// How long a value is, and its closing tag: 0 when that is missing and the next tag stands at a line's start.
fn value_length(rest: &str) -> Option<(usize, usize)> {
    let (at, mark) = first_of(rest, 0, &[PARAMETER_CLOSE, "\n<parameter=", "\n</function>"])?;
    Some(if mark == 0 { (at, PARAMETER_CLOSE.len()) } else { (at + 1, 0) })
}

/// The template puts a line break after the opening and before the closing tag.
fn without_framing_lines(value: &str) -> &str {
    let value = value.strip_prefix("\r\n").or_else(|| value.strip_prefix('\n')).unwrap_or(value);
    value.strip_suffix("\r\n").or_else(|| value.strip_suffix('\n')).unwrap_or(value)
}

impl Function<'_> {
    fn add_to(self, builder: &mut Builder<'_>, start: usize) -> usize {
        self.repairs.iter().for_each(|(at, expected)| builder.repair(*at, expected));
        let undeclared = Tool::default();
        let tool = builder.tool(self.name).unwrap_or(&undeclared);
        let mut arguments = Map::new();
        for (key, text) in self.parameters {
            let (value, fits) = tool.typed(key, text);
            if !fits {
                builder.ignore(start, "a value of the parameter's declared type");
            }
            arguments.insert(key.to_string(), value);
        }
        let raw = Value::Object(arguments.clone()).to_string();
        builder.call(start..self.end, self.name.to_string(), arguments, raw);
        self.end
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{FindingKind, Status};
    use super::*;

    fn read(reply: &str, tools: &[Tool]) -> Reply {
        QWEN3_CODER.read(reply, &Reading { tools, ..Reading::default() })
    }

    #[test]
    fn values_keep_their_lines_and_markup() {
        let reply = read(
            "<tool_call>\n<function=write>\n<parameter=text>\n  a\n\n<b>c</b> {\"x\"\n</parameter>\n</function>\n</tool_call>",
            &[],
        );
        assert_eq!(reply.calls[0].arguments["text"], json!("  a\n\n<b>c</b> {\"x\""));
        assert_eq!(reply.status, Status::Ok);
    }

    #[test]
    fn missing_closing_tags_are_repaired() {
        let reply = read("<tool_call>\n<function=f>\n<parameter=a>\n1\n<parameter=b>\n2\n</function>\n", &[]);
        assert_eq!(Value::Object(reply.calls[0].arguments.clone()), json!({"a": "1", "b": "2"}));
        assert_eq!((reply.status, reply.count(FindingKind::Repaired)), (Status::Ok, 3));
    }

    #[test]
    fn a_cut_value_is_cut_and_a_nameless_function_is_broken() {
        assert_eq!(read("<tool_call><function=f><parameter=a>1", &[]).status, Status::Truncated);
        assert_eq!(read("<tool_call><function=f", &[]).status, Status::Truncated);
        assert_eq!(read("<tool_call><func", &[]).status, Status::Truncated);
        assert_eq!(read("<tool_call><function=></function></tool_call>", &[]).status, Status::Broken);
        assert_eq!(read("<tool_call>f(1)</tool_call> ok", &[]).text, "ok");
    }

    #[test]
    fn a_function_outside_of_a_block_is_text_unless_it_is_a_tool() {
        let reply = read("The form is <function=f></function>.", &[Tool { name: "g".into(), ..Tool::default() }]);
        assert!(reply.calls.is_empty());
        assert_eq!(reply.text, "The form is <function=f>\n.");
    }
}
