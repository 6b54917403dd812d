//! Whether the turns of a tool dialogue were right: the actions as the world followed them, then the arguments.
//!
//! The score is right turns over turns (PATH-Bench's scenario score; partial credit exists nowhere else). In a turn whose
//! actions are right the calls are judged step by step: first against the tool's declaration, then against the
//! reference. The first step with a fault makes the turn wrong, and the fault's kind is the turn's.
//!
//! *Strict* rules differ where the released ones make a right reply wrong: calls of one step are paired so that most fit
//! instead of by sorting their text; where the reference breaks its own declaration, it or the value read as the declared
//! type is accepted; and the step that failed is no progress.

mod compare;
mod rouge;
mod schema;

use anyhow::{Context as _, ensure};
use serde_json::{Map, Value};

use super::{Grading, Scorer};
use crate::record::tool::{
    Gold, StepTrace, ToolCall, ToolDialogue, ToolNode, ToolRules, ToolTrace, ToolTurn, ToolVerdict, TurnTrace,
    TurnVerdict, shortest_path,
};
use crate::record::{Attempt, Reference, ReplyFormat, Score, Task};
use crate::registry::Registered;
use crate::reply::json;

/// See the [module](self).
pub struct ToolPaths;

impl Registered for ToolPaths {
    fn name(&self) -> &str {
        "tool_paths"
    }
    fn about(&self) -> &str {
        "right turns of a tool dialogue: a legal order of actions, then their arguments"
    }
    fn source(&self) -> &str {
        "WildToolBench's released checker; `strict` is own"
    }
}

impl Scorer for ToolPaths {
    fn check(&self, reference: &Reference) -> anyhow::Result<()> {
        let dialogue = read(reference)?;
        for (index, turn) in dialogue.turns.iter().enumerate() {
            let nodes = nodes(turn).with_context(|| format!("turn {}", index + 1))?;
            ensure!(!nodes.is_empty(), "scorer `tool_paths`: turn {} has no actions", index + 1);
        }
        Ok(())
    }

    fn score(&self, task: &Task, attempt: &Attempt, _grading: &Grading) -> anyhow::Result<(Score, String)> {
        let dialogue = read(&task.reference)?;
        let tools = Tools::of(task)?;
        let trace = trace(attempt)?;
        let verdict = ToolVerdict {
            turns: dialogue
                .turns
                .iter()
                .enumerate()
                .map(|(index, turn)| Ok(judge(&tools, dialogue.rules, turn, nodes(turn)?, trace.turns.get(index))))
                .collect::<anyhow::Result<_>>()?,
        };
        Ok((Score::Graded(verdict.score()), verdict.to_string()))
    }
}

fn read(reference: &Reference) -> anyhow::Result<ToolDialogue> {
    super::options::read("tool_paths", reference)
}

fn nodes(turn: &ToolTurn) -> anyhow::Result<&[ToolNode]> {
    match &turn.gold {
        Gold::Actions(nodes) => Ok(nodes),
        Gold::Reply(_) => anyhow::bail!("scorer `tool_paths` judges graphs of actions, found a single expected reply"),
    }
}

/// What the attempt committed; an attempt that ended before its world did has done nothing.
pub(super) fn trace(attempt: &Attempt) -> anyhow::Result<ToolTrace> {
    match &attempt.answer {
        None => Ok(ToolTrace::default()),
        Some(text) => serde_json::from_str(text).context("the stored answer of a tool dialogue is no trace"),
    }
}

/// Declared parameters by tool.
struct Tools(Map<String, Value>);

impl Tools {
    fn of(task: &Task) -> anyhow::Result<Tools> {
        let ReplyFormat::ToolCalls { tools } = &task.view.reply_format else {
            anyhow::bail!("task {} offers no tools", task.id());
        };
        let named = tools.iter().filter_map(|tool| {
            let function = tool.get("function").unwrap_or(tool);
            Some((function.get("name")?.as_str()?.to_string(), function.get("parameters").cloned().unwrap_or_default()))
        });
        Ok(Tools(named.collect()))
    }

    fn parameters(&self, name: &str) -> &Value {
        self.0.get(name).unwrap_or(&Value::Null)
    }
}

fn judge(
    tools: &Tools,
    rules: ToolRules,
    turn: &ToolTurn,
    nodes: &[ToolNode],
    trace: Option<&TurnTrace>,
) -> TurnVerdict {
    let steps = trace.map_or(&[][..], |trace| &trace.steps);
    let actions = trace.map_or(Some("not attempted"), |trace| trace.end.fault());
    let (arguments, right_steps) = arguments_fault(tools, rules, nodes, steps);
    let (otherwise, _) = arguments_fault(tools, rules.other(), nodes, steps);
    let logged = match (rules, arguments) {
        (ToolRules::Strict, _) => right_steps,
        // As released: the step that failed counts, the one after a wrong argument does not, those after that do.
        (ToolRules::Official, Some(_)) if right_steps + 1 < steps.len() => steps.len() - 1,
        (ToolRules::Official, _) => steps.len(),
    };
    let fault = arguments.or(actions);
    let mut calls = nodes.iter().filter(|node| !node.is_pseudo());
    TurnVerdict {
        kind: turn.kind.clone(),
        transition: turn.transition.clone(),
        fault: fault.map(String::from),
        is_optimal: fault.is_none() && steps.len() == shortest_path(nodes),
        steps: logged as u32,
        nodes: nodes.len() as u32,
        is_winnable: calls.all(|node| gold_passes(tools, node)),
        differs: fault.is_none() != otherwise.or(actions).is_none(),
    }
}

/// The first step with a fault in its arguments, and how many right ones stand before it. Steps are judged while the
/// actions are right.
fn arguments_fault(
    tools: &Tools,
    rules: ToolRules,
    nodes: &[ToolNode],
    steps: &[StepTrace],
) -> (Option<&'static str>, usize) {
    let mut right = 0;
    for step in steps.iter().take_while(|step| !step.gold.is_empty()) {
        match step_fault(tools, rules, nodes, step) {
            Some(fault) => return (Some(fault), right),
            None => right += 1,
        }
    }
    (None, right)
}

/// Whether the reference's own call would be judged right by the released checker.
fn gold_passes(tools: &Tools, node: &ToolNode) -> bool {
    let call = ToolCall { name: node.name.clone(), arguments: json::spaced(&node.arguments) };
    call_fault(tools, ToolRules::Official, &call, node).is_none()
}

fn step_fault(tools: &Tools, rules: ToolRules, nodes: &[ToolNode], step: &StepTrace) -> Option<&'static str> {
    let mut gold: Vec<(&ToolNode, String)> = step
        .gold
        .iter()
        .filter_map(|node| nodes.get(*node))
        .filter(|node| !node.is_pseudo())
        .map(|node| (node, json::spaced(&node.arguments)))
        .collect();
    gold.sort_by(|(one, text), (other, other_text)| (&one.name, text).cmp(&(&other.name, other_text)));
    let mut calls: Vec<&ToolCall> = step.calls.iter().collect();
    calls.sort_by(|one, other| (&one.name, &one.arguments).cmp(&(&other.name, &other.arguments)));
    match rules {
        ToolRules::Official => {
            calls.iter().zip(&gold).find_map(|(call, (node, _))| call_fault(tools, rules, call, node))
        }
        ToolRules::Strict => {
            let fits = |call: usize, node: usize| call_fault(tools, rules, calls[call], gold[node].0).is_none();
            let unmatched = first_unmatched(calls.len(), gold.len(), &fits)?;
            let of_its_name = gold.iter().find(|(node, _)| node.name == calls[unmatched].name);
            of_its_name.and_then(|(node, _)| call_fault(tools, rules, calls[unmatched], node)).or(Some("match: value"))
        }
    }
}

/// The first call that a largest one-to-one pairing leaves out; `None` when every call has its partner.
pub(super) fn first_unmatched(calls: usize, golds: usize, fits: &dyn Fn(usize, usize) -> bool) -> Option<usize> {
    let mut partner: Vec<Option<usize>> = vec![None; golds];
    (0..calls).find(|call| !augment(*call, golds, fits, &mut vec![false; golds], &mut partner))
}

/// Finds a partner for a call, moving others where that makes room.
fn augment(
    call: usize,
    golds: usize,
    fits: &dyn Fn(usize, usize) -> bool,
    tried: &mut [bool],
    partner: &mut [Option<usize>],
) -> bool {
    for gold in 0..golds {
        if tried[gold] || !fits(call, gold) {
            continue;
        }
        tried[gold] = true;
        if partner[gold].is_none_or(|other| augment(other, golds, fits, tried, partner)) {
            partner[gold] = Some(call);
            return true;
        }
    }
    false
}

fn call_fault(tools: &Tools, rules: ToolRules, call: &ToolCall, gold: &ToolNode) -> Option<&'static str> {
    if call.name != gold.name {
        return Some("match: value");
    }
    let Ok(predicted) = serde_json::from_str::<Value>(&call.arguments) else {
        return Some("arguments: no JSON");
    };
    let parameters = tools.parameters(&call.name);
    match rules {
        ToolRules::Official => {
            schema::fault(&predicted, parameters).or_else(|| compare::fault(&predicted, &gold.arguments))
        }
        ToolRules::Strict => strict_fault(predicted, gold.arguments.clone(), parameters.clone()),
    }
}

/// Parameters whose reference breaks the declaration are judged apart and taken out; the rest is judged as released.
fn strict_fault(mut predicted: Value, mut gold: Value, mut parameters: Value) -> Option<&'static str> {
    let schemas = parameters.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    let broken: Vec<(String, Value)> = gold
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, value)| {
            schemas.get(*name).is_some_and(|schema| schema::parameter_fault(value, schema).is_some())
        })
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    for (name, value) in broken {
        let Some(said) = predicted.as_object_mut().and_then(|fields| fields.shift_remove(&name)) else {
            return Some("match: keys");
        };
        let is_gold = compare::fault(&said, &value).is_none();
        let is_gold_as_declared =
            as_declared(&value, &schemas[&name]).is_some_and(|value| compare::fault(&said, &value).is_none());
        if !is_gold && !is_gold_as_declared {
            return Some("match: value");
        }
        gold.as_object_mut().and_then(|fields| fields.shift_remove(&name));
        if let Some(required) = parameters.get_mut("required").and_then(Value::as_array_mut) {
            required.retain(|required| required.as_str() != Some(&name));
        }
    }
    schema::fault(&predicted, &parameters).or_else(|| compare::fault(&predicted, &gold))
}

/// A reference value read as the type its parameter declares.
fn as_declared(value: &Value, schema: &Value) -> Option<Value> {
    match (value, schema.get("type")?.as_str()?) {
        (Value::String(text), "integer") => text.trim().parse::<i64>().ok().map(Value::from),
        (Value::String(text), "number") => {
            serde_json::from_str::<serde_json::Number>(text.trim()).ok().map(Value::from)
        }
        (Value::String(text), "boolean") => text.trim().to_lowercase().parse::<bool>().ok().map(Value::from),
        (Value::String(text), "array" | "object") => serde_json::from_str(text).ok(),
        (Value::Number(number), "string") => Some(number.to_string().into()),
        (Value::Number(number), "integer") => {
            number.as_f64().filter(|n| n.fract() == 0.0).map(|n| Value::from(n as i64))
        }
        (Value::Bool(value), "string") => Some(value.to_string().into()),
        (single, "array") => Some(Value::Array(vec![single.clone()])),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
