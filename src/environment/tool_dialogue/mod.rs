//! A user, tools and an agent over several turns. Tools are replayed: a call that is in place gets its recorded result.
//!
//! Every turn is asked behind the *reference* history of the turns before it, so a wrong turn harms no later one. A turn
//! ends with the agent's answer, or where no legal order of the reference's actions goes on with what the agent did.
//! Arguments are not looked at here: the evaluator judges them afterwards (scorers `tool_paths` and `call_match`), and
//! an agent with a right name and wrong arguments still gets the recorded result.

mod form;
mod paths;

use anyhow::Context as _;

use self::form::Said;
use self::paths::{Graph, Survivors};
use super::{Action, Environment, Outcome, World};
use crate::record::tool::{
    ANSWER, ASK_USER, ExpectedReply, Gold, StepTrace, ToolCall, ToolDialogue, ToolNode, ToolRules, ToolTrace, ToolTurn,
    TurnEnd, TurnTrace,
};
use crate::record::{Ending, Message, ReplyFormat, Role, Task, TaskView};
use crate::registry::Registered;
use crate::reply::{json, similarity};

/// Replies of one turn; the published evaluator has no limit.
const MAX_STEPS: usize = 20;

/// See the [module](self).
pub(super) struct ToolUse;

pub(super) static TOOL_DIALOGUE: ToolUse = ToolUse;

impl Registered for ToolUse {
    fn name(&self) -> &str {
        "tool_dialogue"
    }
    fn about(&self) -> &str {
        "a user, replayed tools and an agent over several turns"
    }
    fn source(&self) -> &str {
        "WildToolBench's released evaluator; step limit and call form are own"
    }
}

impl Environment for ToolUse {
    fn open(&self, task: &Task) -> anyhow::Result<Box<dyn World>> {
        let dialogue = read(task)?;
        let replay =
            Replay { survivors: start(&dialogue, 0)?, dialogue, steps: Vec::new(), trace: ToolTrace::default() };
        Ok(Box::new(replay))
    }

    fn action(&self, task: &TaskView, reply: &str) -> Action {
        let ReplyFormat::ToolCalls { tools } = &task.reply_format else {
            return Action::Invalid { why: "the task offers no tools".into() };
        };
        match form::read(reply, tools) {
            Said::Calls(calls) => Action::Call(calls),
            Said::Text(text) => Action::Answer(text),
            Said::Unreadable(why) => Action::Invalid { why },
        }
    }

    fn canonical(&self, task: &TaskView, reply: &str) -> Option<String> {
        match self.action(task, reply) {
            Action::Call(calls) => {
                let mut calls: Vec<String> =
                    calls.into_iter().map(|call| format!("{} {}", call.name, call.arguments)).collect();
                calls.sort_unstable();
                Some(calls.join("\n"))
            }
            // What is said to the user is not judged, so any two texts are one proposal.
            Action::Answer(text) => (!text.is_empty()).then(|| "text".to_string()),
            Action::Invalid { .. } | Action::OutOfContext => None,
        }
    }

    fn most_replies(&self, task: &Task) -> anyhow::Result<u32> {
        Ok((read(task)?.turns.len() * MAX_STEPS) as u32)
    }

    fn demonstration(&self, task: &Task) -> anyhow::Result<Vec<Message>> {
        let dialogue = read(task)?;
        let mut messages = vec![Message::new(Role::User, task.view.question.as_str())];
        for (index, turn) in dialogue.turns.iter().enumerate() {
            if index > 0 {
                messages.push(Message::new(Role::User, turn.user.as_str()));
            }
            messages.extend(reference(turn)?);
        }
        Ok(messages)
    }
}

fn read(task: &Task) -> anyhow::Result<ToolDialogue> {
    let dialogue: ToolDialogue = serde_json::from_value(task.reference.options.clone())
        .with_context(|| format!("task {}: the sealed part of a tool dialogue", task.id()))?;
    anyhow::ensure!(!dialogue.turns.is_empty(), "task {}: a tool dialogue without turns", task.id());
    Ok(dialogue)
}

/// The paths of a turn; `None` where one reply is all there is.
fn start(dialogue: &ToolDialogue, index: usize) -> anyhow::Result<Option<Survivors>> {
    match &dialogue.turns[index].gold {
        Gold::Actions(nodes) => Ok(Some(graph(nodes, index)?.start())),
        Gold::Reply(_) => Ok(None),
    }
}

fn graph(nodes: &[ToolNode], index: usize) -> anyhow::Result<Graph<'_>> {
    Graph::new(nodes).with_context(|| format!("turn {}", index + 1))
}

/// What follows a turn's user message in the reference dialogue: its first shortest path, or the expected reply.
fn reference(turn: &ToolTurn) -> anyhow::Result<Vec<Message>> {
    let nodes = match &turn.gold {
        Gold::Actions(nodes) => nodes,
        Gold::Reply(expected) => return Ok(vec![Message::new(Role::Assistant, expected_text(expected))]),
    };
    let mut messages = Vec::new();
    for step in graph(nodes, 0)?.shortest() {
        let step: Vec<&ToolNode> = step.iter().map(|node| &nodes[*node]).collect();
        for said in step.iter().filter(|node| node.is_pseudo()) {
            messages.push(Message::new(Role::Assistant, plain(&said.observation)));
            if said.name == ASK_USER {
                messages.push(Message::new(Role::User, said.user_input.as_deref().unwrap_or_default()));
            }
        }
        let called: Vec<&&ToolNode> = step.iter().filter(|node| !node.is_pseudo()).collect();
        if !called.is_empty() {
            let calls = form::calls(called.iter().map(|node| (node.name.as_str(), &node.arguments)));
            messages.push(Message::new(Role::Assistant, calls));
            // In the history a result is written as JSON even where it is a text.
            let results = form::results(called.iter().map(|node| json::spaced(&node.observation)));
            messages.push(Message::new(Role::User, results));
        }
    }
    Ok(messages)
}

fn expected_text(expected: &ExpectedReply) -> String {
    const NO_TOOL_HELPS: &str = "None of the tools on offer can do that.";
    let first = |value: &serde_json::Value| -> Option<serde_json::Value> {
        value.as_array()?.iter().find(|value| value.as_str() != Some("")).cloned()
    };
    match expected {
        ExpectedReply::Calls(calls) => {
            let calls: Vec<(&str, serde_json::Value)> = calls
                .iter()
                .map(|call| {
                    let given =
                        call.arguments.iter().filter_map(|(name, values)| Some((name.clone(), shown(&first(values)?))));
                    (call.name.as_str(), serde_json::Value::Object(given.collect()))
                })
                .collect();
            form::calls(calls.iter().map(|(name, arguments)| (*name, arguments)))
        }
        ExpectedReply::SomeCall(tool) => form::calls([(tool.as_str(), &serde_json::json!({}))].into_iter()),
        ExpectedReply::NoCall => NO_TOOL_HELPS.to_string(),
    }
}

/// An accepted value as an argument: the fields of an accepted object are themselves lists of accepted values.
fn shown(value: &serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::Object(fields) => {
            let first = |values: &Value| {
                values.as_array().and_then(|values| values.iter().find(|v| v.as_str() != Some("")).map(shown))
            };
            Value::Object(fields.iter().filter_map(|(name, values)| Some((name.clone(), first(values)?))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(shown).collect()),
        other => other.clone(),
    }
}

/// A text as it is, anything else as JSON.
fn plain(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| json::spaced(value), String::from)
}

/// One attempt at a dialogue.
struct Replay {
    dialogue: ToolDialogue,
    /// Of the turn that is being played.
    survivors: Option<Survivors>,
    steps: Vec<StepTrace>,
    /// Turns that are over.
    trace: ToolTrace,
}

impl World for Replay {
    fn act(&mut self, action: Action) -> anyhow::Result<Outcome> {
        let index = self.trace.turns.len();
        let said = match action {
            Action::Invalid { .. } => {
                self.steps.push(StepTrace::default());
                return self.end(TurnEnd::UnreadableCalls);
            }
            Action::OutOfContext => return self.end(TurnEnd::ContextLimit),
            Action::Answer(text) if text.is_empty() => {
                self.steps.push(StepTrace::default());
                return self.end(TurnEnd::EmptyReply);
            }
            Action::Answer(_) => None,
            Action::Call(calls) => Some(calls),
        };
        match &self.dialogue.turns[index].gold {
            Gold::Reply(_) => {
                self.steps.push(StepTrace { calls: said.unwrap_or_default(), gold: Vec::new() });
                self.end(TurnEnd::Answered)
            }
            Gold::Actions(nodes) => {
                let nodes = nodes.clone();
                let graph = graph(&nodes, index)?;
                match said {
                    None => self.say(&graph, &nodes),
                    Some(calls) => self.call(&graph, &nodes, calls),
                }
            }
        }
    }
}

impl Replay {
    fn say(&mut self, graph: &Graph<'_>, nodes: &[ToolNode]) -> anyhow::Result<Outcome> {
        let survivors = self.survivors.as_mut().context("a graph's turn has its paths")?;
        let said = graph.say(survivors);
        self.steps.push(StepTrace { calls: Vec::new(), gold: said.into_iter().collect() });
        match said.map(|node| &nodes[node]) {
            None => self.end(TurnEnd::ActionName),
            Some(node) if node.name == ANSWER => self.end(TurnEnd::Answered),
            Some(node) => self.go_on(node.user_input.clone().unwrap_or_default()),
        }
    }

    fn call(&mut self, graph: &Graph<'_>, nodes: &[ToolNode], calls: Vec<ToolCall>) -> anyhow::Result<Outcome> {
        let survivors = self.survivors.as_mut().context("a graph's turn has its paths")?;
        let names: Vec<&str> = calls.iter().map(|call| call.name.as_str()).collect();
        let Some(step) = graph.call(survivors, &names) else {
            self.steps.push(StepTrace { calls, gold: Vec::new() });
            return self.end(TurnEnd::ActionName);
        };
        let answered = match self.dialogue.rules {
            ToolRules::Official => step.clone(),
            ToolRules::Strict => in_order_of_calls(&calls, nodes, &step),
        };
        let results = form::results(answered.iter().map(|node| plain(&nodes[*node].observation)));
        self.steps.push(StepTrace { calls, gold: step });
        self.go_on(results)
    }

    fn go_on(&mut self, text: String) -> anyhow::Result<Outcome> {
        if self.steps.len() >= MAX_STEPS {
            return self.end(TurnEnd::StepLimit);
        }
        Ok(Outcome::Observation(text))
    }

    /// Closes the turn and opens the next behind the reference history, or commits what was done.
    fn end(&mut self, end: TurnEnd) -> anyhow::Result<Outcome> {
        self.trace.turns.push(TurnTrace { steps: std::mem::take(&mut self.steps), end });
        let next = self.trace.turns.len();
        if next == self.dialogue.turns.len() {
            let answer = serde_json::to_string(&self.trace).context("a trace as JSON")?;
            return Ok(Outcome::Done { answer: Some(answer), ending: Ending::Finished });
        }
        self.survivors = start(&self.dialogue, next)?;
        let mut messages = Vec::new();
        for index in 0..next {
            messages.extend(reference(&self.dialogue.turns[index])?);
            messages.push(Message::new(Role::User, self.dialogue.turns[index + 1].user.as_str()));
        }
        Ok(Outcome::NewTurn(messages))
    }
}

/// The actions of a step in the order of the calls they answer. The released evaluator hands results back in the order
/// of names, whatever the agent wrote first; among calls of one name the most alike arguments belong together.
fn in_order_of_calls(calls: &[ToolCall], nodes: &[ToolNode], step: &[usize]) -> Vec<usize> {
    let mut left = step.to_vec();
    let mut ordered = Vec::new();
    for call in calls {
        let likeness = |node: usize| similarity::ratio(&call.arguments, &json::spaced(&nodes[node].arguments));
        let fitting = left.iter().enumerate().rev().filter(|(_, node)| nodes[**node].name == call.name);
        // Backwards, because `max_by` takes the last of equals.
        let best = fitting.max_by(|(_, one), (_, other)| likeness(**one).total_cmp(&likeness(**other)));
        if let Some((position, _)) = best {
            ordered.push(left.remove(position));
        }
    }
    ordered
}
