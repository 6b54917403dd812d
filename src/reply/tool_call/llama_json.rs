//! Llama 3.1 and later, JSON form: `{"name": …, "parameters": {…}}`, bare at the start of the reply or behind
//! `<|python_tag|>`; several are separated by `;`, a comma or white space. Source: the chat template of
//! meta-llama/Llama-3.1-8B-Instruct and its model card (tool calling).

use super::builder::Builder;
use super::json_text::{call_of, members, skip_space, value_end};
use super::scan::{Marks, scan};
use super::{Dialect, Reading, Reply};
use crate::registry::Registered;

#[derive(Debug)]
pub(super) struct LlamaJson;

pub(super) static LLAMA3_JSON: LlamaJson = LlamaJson;

const PYTHON: &str = "<|python_tag|>";

const MARKS: Marks = Marks {
    opens: &[PYTHON],
    strays: &["<|eom_id|>", "<|eot_id|>"],
    is_open: |_, _, _| true,
    read: |builder, _, inside| objects(builder, inside, true),
    read_bare: Some(|builder, at| objects(builder, at, false)),
};

impl Registered for LlamaJson {
    fn name(&self) -> &str {
        "llama3_json"
    }

    fn about(&self) -> &str {
        "bare JSON objects with name and parameters (Llama 3.1 to 3.3)"
    }

    fn source(&self) -> &str {
        "chat template and model card of meta-llama/Llama-3.1-8B-Instruct"
    }
}

impl Dialect for LlamaJson {
    fn is_of(&self, template: &str) -> bool {
        template.contains("<|start_header_id|>") && template.contains("\"parameters\"")
    }

    fn read(&self, reply: &str, reading: &Reading<'_>) -> Reply {
        scan(reply, reading, &MARKS)
    }
}

/// Reads objects, also in a list. Behind the tag the first one must be a call; without it, an object is one only when it
/// has a name and parameters and the tool is on offer, and else the reply's text goes on.
fn objects(builder: &mut Builder<'_>, from: usize, is_tagged: bool) -> usize {
    let raw = builder.raw;
    let mut at = skip_space(raw, from);
    let is_list = raw[at..].starts_with('[') && raw[skip_space(raw, at + 1)..].starts_with('{');
    if is_list {
        at = skip_space(raw, at + 1);
    }
    let mut is_first = true;
    loop {
        if !raw[at..].starts_with('{') {
            if is_first && is_tagged {
                let is_at_end = at == raw.len();
                if is_at_end {
                    builder.cut("a JSON object")
                } else {
                    builder.broken(at, "a JSON object")
                }
                return raw.len();
            }
            return if is_first { from } else { at };
        }
        match value_end(raw, at) {
            Ok(end) => {
                let call = call_of(raw, at..end);
                let is_call = is_tagged
                    || (looks_like_call(raw, at, end) && call.as_ref().is_ok_and(|call| builder.may_call(&call.name)));
                if !is_call {
                    return if is_first { from } else { at };
                }
                builder.object_call(at..end, call);
                at = end;
            }
            Err(_) if !is_tagged && !begins_like_call(&raw[at..]) => return if is_first { from } else { at },
            Err(fault) => {
                builder.fault(fault);
                return raw.len();
            }
        }
        is_first = false;
        at = skip_space(raw, at);
        if is_list && raw[at..].starts_with(']') {
            return at + 1;
        }
        if raw[at..].starts_with([';', ',']) {
            at = skip_space(raw, at + 1);
        }
    }
}

fn looks_like_call(raw: &str, start: usize, end: usize) -> bool {
    let keys = members(raw, start..end);
    let has = |key: &str| keys.iter().any(|(name, _)| name == key);
    has("function") || (has("name") && (has("parameters") || has("arguments")))
}

/// Whether an object that is not whole began as calls begin.
fn begins_like_call(rest: &str) -> bool {
    let inside = rest[1..].trim_start();
    ["\"name\"", "\"type\"", "\"function\""].iter().any(|key| inside.starts_with(key))
}

#[cfg(test)]
mod tests {
    use super::super::{Status, Tool};
    use super::*;

    fn read(reply: &str, tools: &[Tool]) -> Reply {
        LLAMA3_JSON.read(reply, &Reading { tools, ..Reading::default() })
    }

    #[test]
    fn an_answer_in_json_is_text() {
        for answer in ["{\"city\": \"Rome\"}", "{\"name\": \"Rome\"}", "[1, 2]", "[{\"a\": 1}]", "{x} is a set"] {
            let reply = read(answer, &[]);
            assert_eq!((reply.text.as_str(), reply.status), (answer, Status::None));
        }
        let tools = [Tool { name: "f".into(), ..Tool::default() }];
        let other = "{\"name\": \"g\", \"parameters\": {}}";
        assert_eq!(read(other, &tools).text, other, "not on offer");
        assert_eq!(read(&format!("<|python_tag|>{other}"), &tools).calls[0].known, Some(false), "but tagged");
    }

    #[test]
    fn lists_and_commas_separate_calls() {
        let reply = read("[{\"name\": \"a\", \"parameters\": {}}, {\"name\": \"b\", \"parameters\": {}}] so", &[]);
        assert_eq!((reply.calls.len(), reply.text.as_str(), reply.status), (2, "so", Status::Ok));
    }

    #[test]
    fn cut_and_broken_calls_are_told_from_text() {
        assert_eq!(read("{\"name\": \"a\", \"parameters\": {\"x\": \"", &[]).status, Status::Truncated);
        assert_eq!(read("{\"name\": \"a\", \"parameters\": {\"x\": }}", &[]).status, Status::Broken);
        assert_eq!(read("<|python_tag|>print(1)", &[]).status, Status::Broken);
        assert_eq!(read("I run it. <|python_tag|>", &[]).status, Status::Truncated);
    }
}
