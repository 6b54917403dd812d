//! Mistral: `[TOOL_CALLS]` and then a JSON list of calls (tokenizers v1 to v7), or `NAME[ARGS]{…}` a call (v11 and
//! later), a `[CALL_ID]` in between. Source: mistral-common's chat formats and the templates of mistralai's models.

use serde_json::Map;

use super::builder::Builder;
use super::json_text::{arguments_of, call_of, skip_space, value_end};
use super::scan::{Marks, scan};
use super::{Dialect, Reading, Reply};
use crate::registry::Registered;

#[derive(Debug)]
pub(super) struct Mistral;

pub(super) static MISTRAL: Mistral = Mistral;

const CALLS: &str = "[TOOL_CALLS]";
const ARGUMENTS: &str = "[ARGS]";
const CALL_ID: &str = "[CALL_ID]";

const MARKS: Marks =
    Marks { opens: &[CALLS], strays: &[ARGUMENTS, CALL_ID, "</s>"], is_open: |_, _, _| true, read, read_bare: None };

impl Registered for Mistral {
    fn name(&self) -> &str {
        "mistral"
    }

    fn about(&self) -> &str {
        "[TOOL_CALLS] and a JSON list, or a name and its arguments (Mistral, Magistral)"
    }

    fn source(&self) -> &str {
        "mistralai/mistral-common and the chat templates of mistralai's models"
    }
}

impl Dialect for Mistral {
    fn is_of(&self, template: &str) -> bool {
        template.contains(CALLS) || template.contains("[AVAILABLE_TOOLS]")
    }

    fn read(&self, reply: &str, reading: &Reading<'_>) -> Reply {
        scan(reply, reading, &MARKS)
    }
}

fn read(builder: &mut Builder<'_>, _: usize, inside: usize) -> usize {
    let raw = builder.raw;
    let at = skip_space(raw, inside);
    match raw.as_bytes().get(at) {
        None => {
            builder.cut("a list of calls or the name of a tool");
            at
        }
        Some(b'[') => list(builder, at),
        Some(b'{') => match value_end(raw, at) {
            Ok(end) => {
                builder.repair(at, "a list of calls");
                builder.object_call(at..end, call_of(raw, at..end));
                end
            }
            Err(fault) => resume(builder, at, fault),
        },
        Some(_) => named(builder, at),
    }
}

/// A list of objects; those before a broken one are kept.
fn list(builder: &mut Builder<'_>, start: usize) -> usize {
    let raw = builder.raw;
    let mut at = skip_space(raw, start + 1);
    loop {
        match raw.as_bytes().get(at) {
            Some(b']') => return at + 1,
            Some(b',') => at = skip_space(raw, at + 1),
            None => {
                builder.cut("`]`");
                return at;
            }
            Some(_) => match value_end(raw, at) {
                Ok(end) => {
                    builder.object_call(at..end, call_of(raw, at..end));
                    at = skip_space(raw, end);
                }
                Err(fault) => return resume(builder, at, fault),
            },
        }
    }
}

/// `NAME`, `[CALL_ID]ID`, `[ARGS]`, and an object.
fn named(builder: &mut Builder<'_>, start: usize) -> usize {
    let raw = builder.raw;
    let rest = &raw[start..];
    let length = rest.find(|c: char| c.is_whitespace() || matches!(c, '[' | '{')).unwrap_or(rest.len());
    let name = &rest[..length];
    let mut at = skip_space(raw, start + length);
    if raw[at..].starts_with(CALL_ID) {
        at += CALL_ID.len();
        at += raw[at..].find(['[', '{']).unwrap_or(raw.len() - at);
    }
    if raw[at..].starts_with(ARGUMENTS) {
        at = skip_space(raw, at + ARGUMENTS.len());
    }
    match value_end(raw, at) {
        Ok(end) => {
            match arguments_of(&raw[at..end]) {
                _ if name.is_empty() => builder.broken(start, "the name of a tool"),
                Some((arguments, arguments_raw, is_repaired)) => {
                    if is_repaired {
                        builder.repair(at, "arguments as a JSON object");
                    }
                    builder.call(start..end, name.to_string(), arguments, arguments_raw);
                }
                None => builder.broken(at, "an object of arguments"),
            }
            end
        }
        // A tool without parameters may be named alone.
        Err(fault)
            if fault.is_cut && fault.at == at && builder.tool(name).is_some_and(|tool| tool.parameters.is_empty()) =>
        {
            builder.repair(at, "an object of arguments");
            builder.call(start..at, name.to_string(), Map::new(), "{}".to_string());
            at
        }
        Err(fault) => resume(builder, at, fault),
    }
}

/// Reports a fault; the next `[TOOL_CALLS]` begins anew.
fn resume(builder: &mut Builder<'_>, start: usize, fault: super::json_text::Fault) -> usize {
    match builder.after_broken(start, fault.at, CALLS) {
        Some(after) => {
            builder.broken(fault.at, fault.expected);
            after - CALLS.len()
        }
        None => {
            builder.fault(fault);
            builder.raw.len()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::Status;
    use super::*;

    fn read(reply: &str) -> Reply {
        MISTRAL.read(reply, &Reading::default())
    }

    fn calls(reply: &Reply) -> Vec<(String, Value)> {
        reply.calls.iter().map(|call| (call.name.clone(), Value::Object(call.arguments.clone()))).collect()
    }

    #[test]
    fn both_forms_are_read() {
        let expected = vec![("a".to_string(), json!({"x": "]"})), ("b".to_string(), json!({}))];
        for reply in [
            "I look. [TOOL_CALLS] [{\"name\": \"a\", \"arguments\": {\"x\": \"]\"}, \"id\": \"1\"}, {\"name\": \"b\", \"arguments\": {}}]</s>",
            "I look.[TOOL_CALLS]a[ARGS]{\"x\": \"]\"}[TOOL_CALLS]b[CALL_ID]abc123[ARGS]{}",
            "I look.[TOOL_CALLS]a{\"x\": \"]\"}[TOOL_CALLS]b{}",
        ] {
            let reply = read(reply);
            assert_eq!((calls(&reply), reply.status, reply.text.as_str()), (expected.clone(), Status::Ok, "I look."));
        }
    }

    #[test]
    fn whole_calls_before_a_fault_are_kept() {
        assert_eq!(read("[TOOL_CALLS][{\"name\": \"a\"}, {\"name\": }]").status, Status::Partial);
        assert_eq!(read("[TOOL_CALLS]a[ARGS]{\"x\": }[TOOL_CALLS]b[ARGS]{}").calls.len(), 1);
        assert_eq!(read("[TOOL_CALLS]a[ARGS]{\"x\": ").status, Status::Truncated);
        assert_eq!(read("[TOOL_CALLS]").status, Status::Truncated);
        assert_eq!(read("[TOOL_CALLS]Paris is nice.").status, Status::Broken);
    }

    #[test]
    fn thoughts_have_brackets() {
        let reply = read("[THINK]so[/THINK][TOOL_CALLS]a[ARGS]{}");
        assert_eq!((reply.thought.as_deref(), reply.calls.len()), (Some("so"), 1));
    }
}
