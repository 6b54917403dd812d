//! Hermes and Qwen 2.5 / 3: JSON objects between `<tool_call>` and `</tool_call>`, several blocks or several objects in
//! one. Source: the chat templates of NousResearch/Hermes-3 and Qwen/Qwen2.5, which show the model this form.

use serde_json::{Value, json};

use super::builder::Builder;
use super::json_text::{call_of, skip_space, value_end};
use super::scan::{Marks, scan};
use super::{Dialect, Reading, Reply};
use crate::registry::Registered;
use crate::reply::json::spaced;

pub(super) const OPEN: &str = "<tool_call>";
pub(super) const CLOSE: &str = "</tool_call>";

/// One call as this family writes it, JSON as in its templates.
pub fn hermes_call(name: &str, arguments: &Value) -> String {
    format!("{OPEN}\n{}\n{CLOSE}", spaced(&json!({ "name": name, "arguments": arguments })))
}

#[derive(Debug)]
pub(super) struct Hermes {
    name: &'static str,
    about: &'static str,
    /// What stands in the family's templates beside the mark of calls.
    mark: &'static str,
}

pub(super) static HERMES: Hermes =
    Hermes { name: "hermes", about: "JSON objects in <tool_call> tags (Hermes, SmolLM3)", mark: "" };
pub(super) static QWEN25: Hermes =
    Hermes { name: "qwen25", about: "JSON objects in <tool_call> tags (Qwen 2.5, Qwen 3)", mark: "<|im_start|>" };

const MARKS: Marks = Marks { opens: &[OPEN], strays: &[CLOSE], is_open: |_, _, _| true, read: block, read_bare: None };

impl Registered for Hermes {
    fn name(&self) -> &str {
        self.name
    }

    fn about(&self) -> &str {
        self.about
    }

    fn source(&self) -> &str {
        "chat templates of NousResearch/Hermes-3 and Qwen/Qwen2.5"
    }
}

impl Dialect for Hermes {
    fn is_of(&self, template: &str) -> bool {
        template.contains(OPEN) && template.contains(self.mark)
    }

    fn read(&self, reply: &str, reading: &Reading<'_>) -> Reply {
        scan(reply, reading, &MARKS)
    }
}

/// Reads the objects of one block. The values decide where it ends, since a closing tag may stand inside a string.
pub(super) fn block(builder: &mut Builder<'_>, _: usize, inside: usize) -> usize {
    let raw = builder.raw;
    let mut at = inside;
    let mut is_empty = true;
    loop {
        at = skip_space(raw, at);
        if raw[at..].starts_with(',') && !is_empty {
            at = skip_space(raw, at + 1);
        }
        let rest = &raw[at..];
        if rest.starts_with(CLOSE) {
            if is_empty {
                builder.broken(at, "a JSON object");
            }
            return at + CLOSE.len();
        }
        if !is_empty && !rest.starts_with('{') {
            builder.repair(at, "`</tool_call>`");
            return at;
        }
        match value_end(raw, at) {
            Ok(end) => {
                builder.object_call(at..end, call_of(raw, at..end));
                (at, is_empty) = (end, false);
            }
            Err(fault) => {
                return match builder.after_broken(at, fault.at, CLOSE) {
                    Some(after) => {
                        builder.broken(fault.at.min(raw.len()), fault.expected);
                        after
                    }
                    None => {
                        builder.fault(fault);
                        raw.len()
                    }
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FindingKind, Status};
    use super::*;

    fn read(reply: &str) -> Reply {
        HERMES.read(reply, &Reading::default())
    }

    fn names(reply: &Reply) -> Vec<&str> {
        reply.calls.iter().map(|call| call.name.as_str()).collect()
    }

    #[test]
    fn a_block_that_never_closes_its_string_does_not_take_the_next_one() {
        let reply = read("<tool_call>{\"name\": \"a}</tool_call><tool_call>{\"name\": \"b\"}</tool_call>");
        assert_eq!((names(&reply), reply.status), (vec!["b"], Status::Partial));
    }

    #[test]
    fn a_block_without_its_end_is_whole_when_its_object_is() {
        let reply = read("I look.\n<tool_call>\n{\"name\": \"a\"}\nDone.");
        assert_eq!((names(&reply), reply.text.as_str()), (vec!["a"], "I look.\nDone."));
        assert_eq!((reply.status, reply.count(FindingKind::Repaired)), (Status::Ok, 1));
    }

    #[test]
    fn a_cut_argument_is_cut_and_an_empty_block_is_broken() {
        assert_eq!(read("<tool_call>{\"name\": \"a\", \"arguments\": {\"x\": \"y").status, Status::Truncated);
        assert_eq!(read("<tool_call>\n</tool_call>").status, Status::Broken);
    }
}
