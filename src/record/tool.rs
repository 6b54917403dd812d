//! Tool use over one or several turns: what the user asks, what is right, what the agent did and how it was judged.
//!
//! The world that plays a dialogue, the scorer that grades it and the benchmark that loads it read the same types; none
//! of them knows the others.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The pseudo action that stands for a question to the user.
pub const ASK_USER: &str = "ask_user_for_required_parameters";
/// The pseudo action that stands for an answer in text.
pub const ANSWER: &str = "prepare_to_answer";

/// A dialogue's turns and what is right in each: the sealed part of a tool task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolDialogue {
    pub rules: ToolRules,
    pub turns: Vec<ToolTurn>,
}

/// Which reading of the rules holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolRules {
    /// As the published evaluator decides, its faults included.
    #[default]
    Official,
    /// Without the faults that make a right reply wrong.
    Strict,
}

/// One turn: a user's message and what should follow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolTurn {
    pub user: String,
    /// The benchmark's own word for the kind of turn, for example `Parallel Multi-Tool` or `Clarify`.
    pub kind: String,
    /// How it hangs on the turns before it; `None` for a first turn.
    pub transition: Option<String>,
    pub gold: Gold,
}

/// What is right in a turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gold {
    /// A graph of actions to be taken in any order that its edges allow, the last of them an answer.
    Actions(Vec<ToolNode>),
    /// One reply, which ends the turn.
    Reply(ExpectedReply),
}

/// One action of a graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolNode {
    /// A tool, [`ASK_USER`] or [`ANSWER`].
    pub name: String,
    pub arguments: Value,
    /// What the tool returns; the question or the answer itself for the two pseudo actions.
    pub observation: Value,
    /// What the user replies to a question.
    pub user_input: Option<String>,
    /// Indices of the actions that must be done before.
    pub waits_for: Vec<usize>,
}

impl ToolNode {
    /// Whether it is something said and no call.
    pub fn is_pseudo(&self) -> bool {
        self.name == ASK_USER || self.name == ANSWER
    }
}

/// Steps of the shortest legal order: the longest chain of actions that wait for each other. (All that is ready may
/// always be done in one step.)
///
/// For graphs without a [`graph_fault`].
pub fn shortest_path(nodes: &[ToolNode]) -> usize {
    let mut depth = vec![0usize; nodes.len()];
    // As many rounds as there are nodes settle every chain.
    for _ in 0..nodes.len() {
        for (index, node) in nodes.iter().enumerate() {
            let before = node.waits_for.iter().filter_map(|waited| depth.get(*waited)).max().copied().unwrap_or(0);
            depth[index] = (before + 1).min(nodes.len());
        }
    }
    depth.into_iter().max().unwrap_or(0)
}

/// Most actions of one turn, and most of them that may be ready at once: steps are found among all subsets of these.
pub const MAX_NODES: usize = 64;
pub const MAX_READY: usize = 18;

/// Why a turn's graph cannot be played, or `None`.
pub fn graph_fault(nodes: &[ToolNode]) -> Option<String> {
    let count = nodes.len();
    if !(1..=MAX_NODES).contains(&count) {
        return Some(format!("expected 1 to {MAX_NODES} actions in a turn, found {count}"));
    }
    for (index, node) in nodes.iter().enumerate() {
        if let Some(stranger) = node.waits_for.iter().find(|waited| **waited >= count) {
            return Some(format!("action {index} waits for action {stranger}, and the turn has {count}"));
        }
    }
    let mut done = vec![false; count];
    while done.contains(&false) {
        let is_ready = |node: &usize| !done[*node] && nodes[*node].waits_for.iter().all(|waited| done[*waited]);
        let ready: Vec<usize> = (0..count).filter(is_ready).collect();
        if ready.is_empty() {
            return Some("actions wait for each other in a circle".into());
        }
        ready.into_iter().for_each(|node| done[node] = true);
    }
    // Of a chain one action at most is ready.
    let most_ready = count + 1 - shortest_path(nodes);
    (most_ready > MAX_READY)
        .then(|| format!("{most_ready} actions of a turn could be taken at once; expected at most {MAX_READY}"))
}

/// The reply that a single-step turn asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpectedReply {
    /// These calls, in any order.
    Calls(Vec<AcceptedCall>),
    /// Any call at all; the name is a tool's, for a demonstration to call.
    SomeCall(String),
    /// No call.
    NoCall,
}

/// A call with the accepted values of every argument; an empty text among them lets the argument be left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcceptedCall {
    pub name: String,
    pub arguments: Map<String, Value>,
}

/// What an agent did in a whole dialogue: the committed answer of a tool task, as JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolTrace {
    pub turns: Vec<TurnTrace>,
}

/// What an agent did in one turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TurnTrace {
    pub steps: Vec<StepTrace>,
    pub end: TurnEnd,
}

/// One reply of a turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepTrace {
    /// Its calls, in the order written; empty for a reply in text.
    pub calls: Vec<ToolCall>,
    /// The actions of the graph that it was taken for, in the graph's order; empty where it was none of them.
    pub gold: Vec<usize>,
}

/// A call as the agent wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolCall {
    pub name: String,
    /// JSON text.
    pub arguments: String,
}

/// Why a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnEnd {
    /// Every action was taken, the answer included; or, where one reply is asked for, it came.
    Answered,
    /// No legal order goes on with what the agent did.
    ActionName,
    EmptyReply,
    /// Something meant as a call that is none.
    UnreadableCalls,
    StepLimit,
    /// The dialogue and a reply no longer fit the model's context.
    ContextLimit,
}

impl TurnEnd {
    /// The kind of error it is, in words; `None` for a turn that came to its end.
    pub fn fault(self) -> Option<&'static str> {
        Some(match self {
            TurnEnd::Answered => return None,
            TurnEnd::ActionName => "action name",
            TurnEnd::EmptyReply => "empty reply",
            TurnEnd::UnreadableCalls => "unreadable calls",
            TurnEnd::StepLimit => "step limit",
            TurnEnd::ContextLimit => "context limit",
        })
    }
}

/// How the turns of a dialogue were judged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolVerdict {
    pub turns: Vec<TurnVerdict>,
}

/// How one turn was judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TurnVerdict {
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transition: Option<String>,
    /// The kind of error; `None` for a right turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Right, and in as few steps as the shortest order.
    pub is_optimal: bool,
    /// Steps that count as progress under the rules in force, out of `nodes` actions.
    pub steps: u32,
    pub nodes: u32,
    /// Whether any reply could be right under the published rules.
    pub is_winnable: bool,
    /// Whether the turn is right under one reading of the rules and wrong under the other.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub differs: bool,
}

impl ToolRules {
    /// The other reading.
    pub fn other(self) -> ToolRules {
        match self {
            ToolRules::Official => ToolRules::Strict,
            ToolRules::Strict => ToolRules::Official,
        }
    }
}

impl TurnVerdict {
    pub fn is_right(&self) -> bool {
        self.fault.is_none()
    }
}

impl ToolVerdict {
    /// Right turns over turns.
    pub fn score(&self) -> f64 {
        let right = self.turns.iter().filter(|turn| turn.is_right()).count();
        right as f64 / self.turns.len().max(1) as f64
    }

    /// Reads a verdict back out of the line that its `Display` wrote; `None` for any other line.
    pub fn from_detail(detail: &str) -> Option<ToolVerdict> {
        let (_, json) = detail.split_once(" | ")?;
        serde_json::from_str(json).ok()
    }
}

impl fmt::Display for ToolVerdict {
    /// A sentence for people, ` | `, and the verdict as JSON.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let right = self.turns.iter().filter(|turn| turn.is_right()).count();
        write!(formatter, "{right} of {} turns right", self.turns.len())?;
        for (index, turn) in self.turns.iter().enumerate() {
            if let Some(fault) = &turn.fault {
                write!(formatter, "; turn {} ({}): {fault}", index + 1, turn.kind)?;
            }
        }
        write!(formatter, " | {}", serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(waits_for: &[usize]) -> ToolNode {
        ToolNode {
            name: "f".into(),
            arguments: Value::Null,
            observation: Value::Null,
            user_input: None,
            waits_for: waits_for.to_vec(),
        }
    }

    #[test]
    fn the_shortest_order_is_the_longest_chain() {
        assert_eq!(shortest_path(&[]), 0);
        assert_eq!(shortest_path(&[node(&[]), node(&[]), node(&[0, 1])]), 2);
        assert_eq!(shortest_path(&[node(&[]), node(&[]), node(&[0]), node(&[1, 2])]), 3);
        // A chain whose edges point forward in the list.
        assert_eq!(shortest_path(&[node(&[1]), node(&[2]), node(&[])]), 3);
    }

    #[test]
    fn a_verdict_survives_its_own_line() {
        let turn = |fault: Option<&str>| TurnVerdict {
            kind: "Chat".into(),
            transition: None,
            fault: fault.map(String::from),
            is_optimal: fault.is_none(),
            steps: 1,
            nodes: 1,
            is_winnable: true,
            differs: false,
        };
        let verdict = ToolVerdict { turns: vec![turn(None), turn(Some("action name")), turn(None), turn(None)] };
        let line = verdict.to_string();
        assert!(line.starts_with("3 of 4 turns right; turn 2 (Chat): action name | {"), "{line}");
        assert_eq!(ToolVerdict::from_detail(&line), Some(verdict.clone()));
        assert_eq!(verdict.score(), 0.75);
        assert_eq!(ToolVerdict::from_detail("pass, 5 tests; python 3.11 | x"), None);
    }
}
