//! The messages of a conversation, as templates see them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::RenderOptions;
use crate::reply::think;

/// One message. Roles are open: templates know `system`, `user`, `assistant`, `tool` and more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChatMessage {
    pub role: String,
    /// Text; or a list of typed parts, or null beside tool calls, where the template takes these.
    #[serde(default)]
    pub content: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<Vec<Value>>,
    /// Any further field a template reads (`name`, `tool_call_id`, `reasoning_content`).
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl ChatMessage {
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        ChatMessage { role: role.into(), content: Value::String(content.into()), tool_calls: None, extra: Map::new() }
    }

    pub fn system(content: impl Into<String>) -> Self {
        ChatMessage::new("system", content)
    }

    pub fn user(content: impl Into<String>) -> Self {
        ChatMessage::new("user", content)
    }

    pub fn assistant(content: impl Into<String>) -> Self {
        ChatMessage::new("assistant", content)
    }

    /// The message with the thought in front of its text in a field of its own, `thinking`: templates of channels put it on
    /// one, or leave it out, and would show tags as words of the answer.
    pub(in crate::engine) fn with_thought_apart(&self) -> ChatMessage {
        let mut message = self.clone();
        let Some(text) = self.content.as_str().filter(|text| self.role == "assistant" && text.contains(think::CLOSE))
        else {
            return message;
        };
        let (thought, said) = text.split_once(think::CLOSE).unwrap_or_default();
        let thought = thought.trim_start().trim_start_matches(think::OPEN).trim();
        if !thought.is_empty() {
            message.extra.entry("thinking").or_insert_with(|| thought.into());
        }
        message.content = Value::String(said.trim_start().to_string());
        message
    }

    /// Visits every text of the message but its role.
    pub(super) fn visit_text(&mut self, visit: &mut impl FnMut(&mut String)) {
        visit_strings(&mut self.content, visit);
        self.tool_calls.iter_mut().flatten().for_each(|call| visit_strings(call, visit));
        self.extra.values_mut().for_each(|value| visit_strings(value, visit));
    }
}

/// Visits every string inside a JSON value, keys apart.
pub(super) fn visit_strings(value: &mut Value, visit: &mut impl FnMut(&mut String)) {
    match value {
        Value::String(text) => visit(text),
        Value::Array(items) => items.iter_mut().for_each(|item| visit_strings(item, visit)),
        Value::Object(fields) => fields.values_mut().for_each(|field| visit_strings(field, visit)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A character that occurs nowhere in the conversation, to break up control tokens written in it: one of those that
/// Unicode sets aside for a program's own use. `None` when a conversation holds all 65 566 of them.
pub(super) fn guard_for(messages: &[ChatMessage], options: &RenderOptions) -> Option<char> {
    let candidates = || ('\u{fdd0}'..='\u{fdef}').chain('\u{f0000}'..='\u{ffffd}');
    let mut used = BTreeSet::new();
    let mut visit = |text: &mut String| {
        used.extend(text.chars().filter(|c| matches!(c, '\u{fdd0}'..='\u{fdef}' | '\u{f0000}'..='\u{ffffd}')));
    };
    messages.to_vec().iter_mut().for_each(|message| message.visit_text(&mut visit));
    options.tools.clone().iter_mut().flatten().for_each(|tool| visit_strings(tool, &mut visit));
    candidates().find(|candidate| !used.contains(candidate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thought_is_a_field_of_its_own() {
        let apart = |text: &str| ChatMessage::assistant(text).with_thought_apart();
        let message = apart("<think>a b</think>\n\nc");
        assert_eq!((message.content.as_str(), message.extra["thinking"].as_str()), (Some("c"), Some("a b")));
        let message = apart("a</think>c");
        assert_eq!(
            (message.content.as_str(), message.extra["thinking"].as_str()),
            (Some("c"), Some("a")),
            "opened before"
        );
        assert_eq!(apart("c"), ChatMessage::assistant("c"));
        let user = ChatMessage::user("</think>");
        assert_eq!(user.with_thought_apart(), user, "what others write is their text");
    }
}
