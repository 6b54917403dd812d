//! WildToolBench (2025): 256 sessions of four user turns with tools, where users ask several things at once, leave out what
//! is needed, or just talk. PATH-Bench's second pool: a session is one task, its score the share of its turns right.
//!
//! Tools and date stand in the session's first message and not, as in the released harness, in a field of their own and the
//! system message: every session then begins with the same instructions, and a demonstration brings its own tools along.
//!
//! Reads the published `wild_tool_bench.jsonl` unchanged. It also reads single turns as a course report quotes them
//! (`session_id`, `turn_idx`, `expected_action_names`, …), which carry neither the graph nor results nor tools: tools come
//! from `tools`, a file of one list a line; neighbouring calls of one tool are taken to be independent of each other, as
//! are all calls of a turn of the parallel kind, and everything else waits for what stands before it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::data_file::{self, DataFile};
use super::tool_task::{TOOL_PROMPT, ToolTask, with_numbers};
use super::{Benchmark, Pool, Selection};
use crate::record::Task;
use crate::record::tool::{ANSWER, ASK_USER, Gold, ToolNode, ToolRules, ToolTurn, graph_fault};
use crate::registry::Registered;

const NAME: &str = "wildtoolbench";
const SCORER: &str = "tool_paths";
const WHERE: &str = "benchmark `wildtoolbench` reads its published file: set `path` to wild_tool_bench.jsonl \
                     (github.com/yupeijei1997/WildToolBench, or its dataset on the hub)";
const KINDS: [&str; 6] =
    ["Single-Tool", "Parallel Multi-Tool", "Sequential Multi-Tool", "Mixed Multi-Tool", "Clarify", "Chat"];

/// See the [module](self).
pub struct WildToolBench;

/// The benchmark's table in a config.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Options {
    rules: ToolRules,
    /// Tool lists, one a line, for single turns: line `n` belongs to `wild_tool_bench_n`.
    tools: Option<PathBuf>,
    /// A file with instructions to use instead of ours.
    prompt: Option<PathBuf>,
}

/// One line of the published file; fields not named here are the same in Chinese.
#[derive(Deserialize)]
struct Session {
    id: String,
    english_env_info: String,
    english_tools: Vec<Value>,
    english_tasks: Vec<String>,
    english_answer_list: Vec<Vec<Node>>,
    english_task_types: Vec<String>,
    english_turn_subtypes: Vec<String>,
}

#[derive(Deserialize)]
struct Node {
    action: Action,
    observation: Value,
    #[serde(default)]
    user_input: Option<String>,
    dependency_list: Vec<usize>,
}

#[derive(Deserialize)]
struct Action {
    name: String,
    arguments: Value,
}

/// One line of quoted single turns.
#[derive(Deserialize)]
struct SingleTurn {
    session_id: String,
    turn_idx: usize,
    task_type: String,
    turn_subtype: String,
    user_message: String,
    expected_action_names: Vec<String>,
    /// JSON texts.
    expected_action_arguments: Vec<String>,
    conversation_context_truncated: Vec<Said>,
}

#[derive(Deserialize)]
struct Said {
    role: String,
    content: String,
}

impl Registered for WildToolBench {
    fn name(&self) -> &str {
        NAME
    }

    fn about(&self) -> &str {
        "256 sessions of four user turns with tools: which calls in which order, when to ask, when to talk"
    }

    fn source(&self) -> &str {
        "PATH-Bench pool; yupeijei1997/WildToolBench, Tencent-Hunyuan/C3-Benchmark (tools CC BY 4.0)"
    }
}

impl Benchmark for WildToolBench {
    fn load(&self, selection: &Selection) -> anyhow::Result<Pool> {
        let options: Options = selection.options.clone().try_into().context("options of benchmark `wildtoolbench`")?;
        let file = DataFile::read(selection.path.as_deref().context(WHERE)?)?;
        let system = data_file::prompt(TOOL_PROMPT, options.prompt.as_deref())?;
        let lines = file.records::<Value>()?;
        let mut digest = file.digest();
        let tasks = if lines[0].get("session_id").is_some() {
            let path = options.tools.as_deref().context(
                "single turns name no tools: set `tools` in [benchmark.options] to the file of tool lists (tools_en.jsonl)",
            )?;
            let lists = DataFile::read(path)?;
            digest = blake3::hash(format!("{digest} {}", lists.digest()).as_bytes()).to_hex().to_string();
            let lists = lists.records::<Vec<Value>>()?;
            lines
                .into_iter()
                .map(|line| turn_task(line, &lists, path, &system, options.rules))
                .collect::<Result<_, _>>()
        } else {
            lines.into_iter().map(|line| session_task(line, &system, options.rules)).collect::<Result<_, _>>()
        };
        let tasks: Vec<Task> =
            tasks.with_context(|| selection.path.as_deref().unwrap_or(Path::new("")).display().to_string())?;
        Ok(Pool { tasks, digest, ..Pool::default() })
    }
}

fn session_task(line: Value, system: &str, rules: ToolRules) -> anyhow::Result<Task> {
    let id = line.get("id").and_then(Value::as_str).unwrap_or("a line without `id`").to_string();
    let session: Session = serde_json::from_value(line).with_context(|| id.clone())?;
    let turns = session.english_tasks.len();
    ensure!(
        session.english_answer_list.len() == turns
            && session.english_task_types.len() == turns
            && session.english_turn_subtypes.len() + 1 == turns,
        "{id}: expected as many `english_answer_list` and `english_task_types` as `english_tasks` ({turns}), and one \
         `english_turn_subtypes` fewer; found {}, {} and {}",
        session.english_answer_list.len(),
        session.english_task_types.len(),
        session.english_turn_subtypes.len()
    );
    let mut tools = session.english_tools;
    tools.iter_mut().for_each(with_numbers);
    let answers = session.english_answer_list.into_iter().zip(session.english_task_types);
    let turns = session
        .english_tasks
        .into_iter()
        .zip(answers)
        .enumerate()
        .map(|(index, (user, (nodes, kind)))| {
            let nodes: Vec<ToolNode> = nodes.into_iter().map(node).collect();
            let transition = index.checked_sub(1).map(|before| session.english_turn_subtypes[before].clone());
            checked(&id, index, &tools, ToolTurn { user, kind, transition, gold: Gold::Actions(nodes) })
        })
        .collect::<anyhow::Result<_>>()?;
    ToolTask {
        id: format!("{NAME}/{}", number(&session.id).unwrap_or(&session.id)),
        system,
        tools,
        setting: format!("Current Date: {}", session.english_env_info),
        rules,
        turns,
        scorer: SCORER,
        family: None,
    }
    .into_task()
}

fn node(node: Node) -> ToolNode {
    ToolNode {
        name: node.action.name,
        arguments: node.action.arguments,
        observation: node.observation,
        user_input: node.user_input,
        waits_for: node.dependency_list,
    }
}

fn number(id: &str) -> Option<&str> {
    id.strip_prefix("wild_tool_bench_")
}

/// A turn whose kind, tools, edges and user replies are as they must be.
fn checked(id: &str, index: usize, tools: &[Value], turn: ToolTurn) -> anyhow::Result<ToolTurn> {
    let place = format!("{id}, turn {}", index + 1);
    ensure!(
        KINDS.contains(&turn.kind.as_str()),
        "{place}: expected a task type of {}, found `{}`",
        KINDS.join(", "),
        turn.kind
    );
    let Gold::Actions(nodes) = &turn.gold else { return Ok(turn) };
    let declared: Vec<&str> = tools.iter().filter_map(|tool| tool["function"]["name"].as_str()).collect();
    for (position, node) in nodes.iter().enumerate() {
        ensure!(
            node.is_pseudo() || declared.contains(&node.name.as_str()),
            "{place}, action {position}: `{}` is none of the session's tools ({})",
            node.name,
            declared.join(", ")
        );
        ensure!(
            node.name != ASK_USER || node.user_input.is_some(),
            "{place}, action {position}: a question to the user without `user_input`"
        );
    }
    if let Some(fault) = graph_fault(nodes) {
        bail!("{place}: {fault}");
    }
    ensure!(
        nodes.iter().any(|node| node.name == ANSWER),
        "{place}: expected an action `{ANSWER}`, which ends every turn; found none"
    );
    Ok(turn)
}

fn turn_task(line: Value, lists: &[Vec<Value>], path: &Path, system: &str, rules: ToolRules) -> anyhow::Result<Task> {
    let id = line.get("session_id").and_then(Value::as_str).unwrap_or("a line without `session_id`").to_string();
    let turn: SingleTurn = serde_json::from_value(line).with_context(|| id.clone())?;
    let session = number(&turn.session_id).unwrap_or(&turn.session_id).to_string();
    let list = session.parse::<usize>().ok().and_then(|index| lists.get(index));
    let mut tools = list
        .with_context(|| {
            format!(
                "{id}: expected its tools in line {session} (from 0) of {}, found {} lines",
                path.display(),
                lists.len()
            )
        })?
        .clone();
    tools.iter_mut().for_each(with_numbers);
    let names = turn.expected_action_names.into_iter().zip(&turn.expected_action_arguments);
    let mut nodes = Vec::new();
    for (name, arguments) in names {
        let arguments: Value = serde_json::from_str(arguments)
            .with_context(|| format!("{id}, turn {}: `expected_action_arguments` of `{name}`", turn.turn_idx + 1))?;
        nodes.push((name, arguments));
    }
    let is_parallel = turn.task_type.starts_with("Parallel");
    let gold = Gold::Actions(ordered(nodes, is_parallel));
    let earlier = turn.conversation_context_truncated.split_last().map_or(&[][..], |(_, earlier)| earlier);
    let said = earlier.iter().filter(|said| !said.content.trim().is_empty());
    let said: Vec<String> = said.map(|said| format!("{}: {}", said.role, said.content)).collect();
    let setting = if said.is_empty() { String::new() } else { format!("Conversation so far:\n{}", said.join("\n")) };
    let transition = Some(turn.turn_subtype).filter(|_| turn.turn_idx > 0);
    let turn_of_one = checked(
        &id,
        turn.turn_idx,
        &tools,
        ToolTurn { user: turn.user_message, kind: turn.task_type, transition, gold },
    )?;
    ToolTask {
        id: format!("{NAME}/{session}/{}", turn.turn_idx),
        system,
        tools,
        setting,
        rules,
        turns: vec![turn_of_one],
        scorer: SCORER,
        family: None,
    }
    .into_task()
}

/// Edges for actions of which only the order is known.
fn ordered(actions: Vec<(String, Value)>, is_parallel: bool) -> Vec<ToolNode> {
    let is_call = |name: &str| name != ASK_USER && name != ANSWER;
    let mut nodes: Vec<ToolNode> = Vec::new();
    // Start of the group of independent actions that the current one may belong to.
    let mut group = 0;
    for (name, arguments) in actions {
        let joins = nodes
            .last()
            .is_some_and(|last| is_call(&name) && is_call(&last.name) && (is_parallel || last.name == name));
        if !joins {
            group = nodes.len();
        }
        let user_input = (name == ASK_USER).then(|| "(the user's reply is not in the file)".to_string());
        let observation = Value::String(match is_call(&name) {
            true => "(the result is not in the file)".into(),
            false => "(the text is not in the file)".into(),
        });
        nodes.push(ToolNode { name, arguments, observation, user_input, waits_for: (0..group).collect() });
    }
    nodes
}
