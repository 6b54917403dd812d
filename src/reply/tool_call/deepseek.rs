//! DeepSeek V3, R1 and their distillations: calls between marks of their own; in V3 and R1 `function`, the name, and
//! arguments in a fenced block, from V3.1 on the name and bare JSON. Source: the chat templates of
//! deepseek-ai/DeepSeek-V3, -R1 and -V3.1.

use super::builder::Builder;
use super::json_text::{arguments_of, skip_space, value_end};
use super::scan::{Marks, first_of, scan};
use super::{Dialect, Reading, Reply};
use crate::registry::Registered;

#[derive(Debug)]
pub(super) struct DeepSeek;

pub(super) static DEEPSEEK: DeepSeek = DeepSeek;

const CALLS: &str = "<｜tool▁calls▁begin｜>";
const CALLS_END: &str = "<｜tool▁calls▁end｜>";
const CALL: &str = "<｜tool▁call▁begin｜>";
const CALL_END: &str = "<｜tool▁call▁end｜>";
const SEPARATOR: &str = "<｜tool▁sep｜>";

const MARKS: Marks = Marks {
    opens: &[CALLS, CALL],
    strays: &[CALLS_END, CALL_END, SEPARATOR, "<｜end▁of▁sentence｜>"],
    is_open: |_, _, _| true,
    read,
    read_bare: None,
};

impl Registered for DeepSeek {
    fn name(&self) -> &str {
        "deepseek"
    }

    fn about(&self) -> &str {
        "calls between tool▁call marks (DeepSeek V3, R1 and its distillations)"
    }

    fn source(&self) -> &str {
        "chat templates of deepseek-ai/DeepSeek-V3, -R1 and -V3.1"
    }
}

impl Dialect for DeepSeek {
    fn is_of(&self, template: &str) -> bool {
        template.contains("<｜tool▁call")
    }

    fn read(&self, reply: &str, reading: &Reading<'_>) -> Reply {
        scan(reply, reading, &MARKS)
    }
}

fn read(builder: &mut Builder<'_>, start: usize, inside: usize) -> usize {
    let raw = builder.raw;
    let mut at = if raw[start..].starts_with(CALL) { start } else { inside };
    let mut is_empty = true;
    loop {
        at = skip_space(raw, at);
        let rest = &raw[at..];
        if rest.starts_with(CALLS_END) {
            if is_empty {
                builder.broken(at, "`<｜tool▁call▁begin｜>`");
            }
            return at + CALLS_END.len();
        }
        if !rest.starts_with(CALL) {
            match (is_empty, rest.is_empty()) {
                (true, true) => builder.cut("`<｜tool▁call▁begin｜>`"),
                (true, false) => builder.broken(at, "`<｜tool▁call▁begin｜>`"),
                (false, _) => {}
            }
            return if is_empty {
                rest.find(CALLS_END).map_or(raw.len(), |end| at + end + CALLS_END.len())
            } else {
                at
            };
        }
        is_empty = false;
        at = match call(builder, at, at + CALL.len()) {
            Some(after) => after,
            None => return raw.len(),
        };
    }
}

/// One call; returns where the next thing stands, `None` at the reply's end.
fn call(builder: &mut Builder<'_>, start: usize, inside: usize) -> Option<usize> {
    let raw = builder.raw;
    let separator = match first_of(raw, inside, &[SEPARATOR, CALL_END]) {
        Some((at, 0)) => at,
        Some((end, _)) => {
            builder.broken(inside, "`<｜tool▁sep｜>`");
            return Some(end + CALL_END.len());
        }
        None => {
            builder.cut("`<｜tool▁sep｜>`");
            return None;
        }
    };
    let head = raw[inside..separator].trim();
    let mut at = separator + SEPARATOR.len();
    let mut name = head;
    if head == "function" || head.is_empty() {
        let line = raw[at..].lines().next().unwrap_or_default();
        name = line.trim();
        at += line.len();
    }
    at = skip_space(raw, at);
    if raw[at..].starts_with("```") {
        at += raw[at..].find(['{', '\n']).unwrap_or(raw.len() - at);
        at = skip_space(raw, at);
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
            let mut after = skip_space(raw, end);
            if raw[after..].starts_with("```") {
                after = skip_space(raw, after + 3);
            }
            match raw[after..].strip_prefix(CALL_END) {
                Some(_) => Some(after + CALL_END.len()),
                None => {
                    builder.repair(after, "`<｜tool▁call▁end｜>`");
                    Some(after)
                }
            }
        }
        Err(fault) => match builder.after_broken(at, fault.at, CALL_END) {
            Some(after) => {
                builder.broken(fault.at, fault.expected);
                Some(after)
            }
            None => {
                builder.fault(fault);
                None
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::Status;
    use super::*;

    fn read(reply: &str) -> Reply {
        DEEPSEEK.read(reply, &Reading::default())
    }

    #[test]
    fn both_forms_are_read() {
        let fenced = "<think>a</think>I look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get\n```json\n\
                      {\"x\": \"```\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n\
                      ```<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>";
        let bare = "<think>a</think>I look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get<｜tool▁sep｜>{\"x\": \"```\"}\
                    <｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
        for reply in [fenced, bare] {
            let reply = read(reply);
            let calls: Vec<(&str, Value)> =
                reply.calls.iter().map(|call| (call.name.as_str(), Value::Object(call.arguments.clone()))).collect();
            assert_eq!(calls, [("get", json!({"x": "```"})), ("now", json!({}))]);
            assert_eq!((reply.status, reply.text.as_str()), (Status::Ok, "I look."));
        }
    }

    #[test]
    fn faults_are_told_apart() {
        let call = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>";
        assert_eq!(read(call).status, Status::Truncated);
        assert_eq!(read(&format!("{call}get<｜tool▁sep｜>{{\"x\": ")).status, Status::Truncated);
        assert_eq!(read(&format!("{call}get<｜tool▁call▁end｜>")).status, Status::Broken);
        let next = "<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
        let reply = read(&format!("{call}get<｜tool▁sep｜>{{\"x\": }}{next}"));
        assert_eq!((reply.calls.len(), reply.status), (1, Status::Partial));
    }
}
