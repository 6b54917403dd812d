//! What the benchmarks of tool dialogues share: how a task is asked, and its sealed part.

use anyhow::Context as _;
use serde_json::Value;

use crate::record::tool::{ExpectedReply, Gold, ToolDialogue, ToolRules, ToolTurn};
use crate::record::{Reference, ReplyFormat, Task, TaskId, TaskView};
use crate::reply::json;
use crate::reply::tool_call::hermes_call;

/// How calls are asked for; every benchmark of tool dialogues shows it.
pub(super) const TOOL_PROMPT: &str = include_str!("../../configs/prompts/tool_calls.txt");

/// Everything one task is made of.
pub(super) struct ToolTask<'a> {
    pub id: String,
    pub system: &'a str,
    pub tools: Vec<Value>,
    /// What stands between tools and the first message, for example the date.
    pub setting: String,
    pub rules: ToolRules,
    pub turns: Vec<ToolTurn>,
    pub scorer: &'static str,
    pub family: Option<String>,
}

impl ToolTask<'_> {
    /// The task: tools, setting and first message are its question.
    ///
    /// # Errors
    /// A dialogue without turns.
    pub fn into_task(self) -> anyhow::Result<Task> {
        let first =
            self.turns.first().with_context(|| format!("{}: expected at least one turn, found none", self.id))?;
        let declared: Vec<String> = self.tools.iter().map(json::spaced).collect();
        let parts = [format!("Tools:\n{}", declared.join("\n")), self.setting, first.user.clone()];
        let question = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n");
        let solution = self.turns.iter().map(solution).collect::<Vec<_>>().join("\n\n");
        let dialogue = ToolDialogue { rules: self.rules, turns: self.turns };
        Ok(Task {
            view: TaskView {
                id: TaskId(self.id),
                family: self.family,
                system: Some(self.system.to_string()),
                question,
                reply_format: ReplyFormat::ToolCalls { tools: self.tools },
            },
            reference: Reference {
                solution,
                scorer: self.scorer.into(),
                options: serde_json::to_value(&dialogue).context("a tool dialogue as JSON")?,
            },
        })
    }
}

/// What is right in a turn as one text: for a memory that is told the solution. Demonstrations show the dialogue itself.
fn solution(turn: &ToolTurn) -> String {
    let lines: Vec<String> = match &turn.gold {
        Gold::Actions(nodes) => nodes
            .iter()
            .map(|node| match (node.is_pseudo(), node.observation.as_str()) {
                (false, _) => hermes_call(&node.name, &node.arguments),
                (true, Some(said)) => said.to_string(),
                (true, None) => json::spaced(&node.observation),
            })
            .collect(),
        Gold::Reply(ExpectedReply::Calls(calls)) => {
            calls.iter().map(|call| hermes_call(&call.name, &Value::Object(call.arguments.clone()))).collect()
        }
        Gold::Reply(ExpectedReply::SomeCall(_)) => vec!["(any call)".into()],
        Gold::Reply(ExpectedReply::NoCall) => vec!["(no call)".into()],
    };
    lines.join("\n")
}

/// Every `"type": "float"` of a declaration becomes `number`, as the released harness does.
pub(super) fn with_numbers(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if name == "type" && value == "float" {
                    *value = "number".into();
                } else {
                    with_numbers(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(with_numbers),
        _ => {}
    }
}
