//! How calls and results stand in the messages of a dialogue: Hermes's form, which Qwen's templates write too.
//!
//! It is text, so that one form serves every backbone, those whose chat template knows no tools among them, and a
//! demonstration or a memory can carry calls. A template's own form was not taken: half of the small models have none,
//! and prompts of one run would differ from model to model in more than the model.

use serde_json::Value;

use crate::record::tool::ToolCall;
use crate::reply::tool_call::{self, Reading, Tool};

/// A reply, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    Calls(Vec<ToolCall>),
    /// What was said to the user, thoughts left out; may be empty.
    Text(String),
    /// Something meant as a call that is none, or was cut.
    Unreadable(String),
}

/// Reads calls or text out of a reply. Broken or cut calls make the whole reply unreadable: neither a call nor a decision
/// not to call.
pub fn read(reply: &str, tools: &[Value]) -> Said {
    let tools: Vec<Tool> = tools.iter().filter_map(Tool::from_json).collect();
    let dialect = tool_call::find("hermes").expect("Hermes's form is registered");
    let read = dialect.read(reply, &Reading { tools: &tools, ..Reading::default() });
    if read.has_faults() {
        let finding =
            read.findings.first().map(|finding| format!("expected {}, found {}", finding.expected, finding.found));
        return Said::Unreadable(finding.unwrap_or_default());
    }
    if read.calls.is_empty() {
        return Said::Text(read.text.trim().to_string());
    }
    let calls = read.calls.into_iter().map(|call| ToolCall { name: call.name, arguments: call.arguments_raw });
    Said::Calls(calls.collect())
}

/// An assistant's message that makes these calls.
pub fn calls<'a>(calls: impl Iterator<Item = (&'a str, &'a Value)>) -> String {
    calls.map(|(name, arguments)| tool_call::hermes_call(name, arguments)).collect::<Vec<_>>().join("\n")
}

/// The user turn that brings results.
pub fn results(results: impl Iterator<Item = String>) -> String {
    let blocks = results.map(|result| format!("<tool_response>\n{result}\n</tool_response>"));
    blocks.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::reply::json;

    #[test]
    fn what_is_written_is_read_back() {
        let arguments = json!({ "city": "Oslo", "days": [1, 2.0] });
        let text = calls([("forecast", &arguments), ("now", &json!({}))].into_iter());
        assert_eq!(
            text,
            "<tool_call>\n{\"name\": \"forecast\", \"arguments\": {\"city\": \"Oslo\", \"days\": [1, 2.0]}}\n</tool_call>\n\
             <tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"
        );
        let Said::Calls(read) = read(&text, &[]) else { panic!("{text}") };
        assert_eq!(read[0], ToolCall { name: "forecast".into(), arguments: json::spaced(&arguments) });
        assert_eq!(read[1].name, "now");
    }

    #[test]
    fn text_is_text_and_a_broken_call_is_neither() {
        assert_eq!(read("<think>should I?</think> Which city?", &[]), Said::Text("Which city?".into()));
        assert_eq!(read("  ", &[]), Said::Text(String::new()));
        assert!(matches!(read("<tool_call>\n{\"name\": \"f\", \"arguments\": {", &[]), Said::Unreadable(_)));
        let half = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call><tool_call>{\"name\": }</tool_call>";
        assert!(matches!(read(half, &[]), Said::Unreadable(_)), "whole calls beside a broken one do not count");
    }

    #[test]
    fn results_stand_in_blocks_of_their_own() {
        let text = results(["1".to_string(), "\"two\"".to_string()].into_iter());
        assert_eq!(text, "<tool_response>\n1\n</tool_response>\n<tool_response>\n\"two\"\n</tool_response>");
    }
}
