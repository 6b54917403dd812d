//! Berkeley Function-Calling Leaderboard v4 (Patil et al. 2025): the single-turn categories for Python, and scenarios of
//! four of their records as a stand-in for multi-turn tool use where WildToolBench is not at hand.
//!
//! The multi-turn categories are not here: they are graded by the state that calls leave behind in the leaderboard's own
//! Python classes, which are not part of its data.
//!
//! *Scenarios* are ours: each turn is one record, asked with the tools of all four and behind the reference replies of
//! the turns before it. Kinds are drawn in the shares that PATH-Bench gives for its pool (26 % single, 25 % chat, 15 %
//! parallel, 8 % mixed); questions back and sequences have no single-step record, so the four fill their place.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::data_file::{self, DataFile};
use super::tool_task::{TOOL_PROMPT, ToolTask};
use super::{Benchmark, Pool, Selection};
use crate::record::Task;
use crate::record::tool::{AcceptedCall, ExpectedReply, Gold, ToolRules, ToolTurn};
use crate::registry::{Registered, nearest};
use crate::seed::Seed;

const NAME: &str = "bfcl";
const SCORER: &str = "call_match";
const WHERE: &str = "benchmark `bfcl` reads the leaderboard's data folder: set `path` to the folder that holds \
                     BFCL_v4_simple_python.json and possible_answer/ (github.com/ShishirPatil/gorilla, \
                     berkeley-function-call-leaderboard/bfcl_eval/data)";

/// A category, the kind of turn it stands for, and its share of a scenario's turns in percent (0: in none).
const CATEGORIES: [(&str, &str, u32); 9] = [
    ("simple_python", "Single-Tool", 13),
    ("multiple", "Single-Tool", 13),
    ("parallel", "Parallel Multi-Tool", 15),
    ("parallel_multiple", "Mixed Multi-Tool", 8),
    ("irrelevance", "Chat", 25),
    ("live_simple", "Single-Tool", 0),
    ("live_parallel", "Parallel Multi-Tool", 0),
    ("live_parallel_multiple", "Mixed Multi-Tool", 0),
    ("live_relevance", "Single-Tool", 0),
];
const SCENARIO_TURNS: usize = 4;

/// See the [module](self).
pub struct Bfcl;

/// The benchmark's table in a config.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Options {
    /// Categories whose records are tasks of one turn each. With scenarios: the categories to draw from.
    categories: Vec<String>,
    /// How many scenarios to draw instead; 0 draws none.
    scenarios: usize,
    /// The key of the draw of scenarios.
    seed: u64,
    rules: ToolRules,
    /// A file with instructions to use instead of ours.
    prompt: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        let in_scenarios = CATEGORIES.iter().filter(|(_, _, share)| *share > 0);
        Options {
            categories: in_scenarios.map(|(name, ..)| name.to_string()).collect(),
            scenarios: 0,
            seed: 1,
            rules: ToolRules::Official,
            prompt: None,
        }
    }
}

#[derive(Deserialize)]
struct Record {
    id: String,
    question: Vec<Vec<Said>>,
    function: Vec<Value>,
}

#[derive(Deserialize)]
struct Said {
    content: String,
}

#[derive(Deserialize)]
struct Answer {
    id: String,
    ground_truth: Vec<Map<String, Value>>,
}

/// A record as one turn and its tools.
#[derive(Clone)]
struct OneTurn {
    id: String,
    category: &'static str,
    tools: Vec<Value>,
    turn: ToolTurn,
}

impl Registered for Bfcl {
    fn name(&self) -> &str {
        NAME
    }

    fn about(&self) -> &str {
        "function calls from one user message, and scenarios of four: the stand-in for multi-turn tool use"
    }

    fn source(&self) -> &str {
        "Berkeley Function-Calling Leaderboard v4, Apache-2.0; scenarios are own"
    }
}

impl Benchmark for Bfcl {
    fn load(&self, selection: &Selection) -> anyhow::Result<Pool> {
        let options: Options = selection.options.clone().try_into().context("options of benchmark `bfcl`")?;
        let folder = selection.path.as_deref().context(WHERE)?;
        let system = data_file::prompt(TOOL_PROMPT, options.prompt.as_deref())?;
        let mut digests = Vec::new();
        let mut turns: Vec<OneTurn> = Vec::new();
        for name in &options.categories {
            let category = category(name)?;
            turns.extend(read_category(folder, category, &mut digests)?);
        }
        ensure!(!turns.is_empty(), "`categories` in [benchmark.options] names none");
        let digest = blake3::hash(digests.join(" ").as_bytes()).to_hex().to_string();
        let tasks = match options.scenarios {
            0 => turns.into_iter().map(|turn| single(turn, &system, options.rules)).collect::<anyhow::Result<_>>()?,
            count => scenarios(turns, count, Seed(options.seed))?
                .into_iter()
                .enumerate()
                .map(|(index, turns)| scenario(index, turns, &system, options.rules))
                .collect::<anyhow::Result<_>>()?,
        };
        Ok(Pool { tasks, digest, ..Pool::default() })
    }
}

fn category(name: &str) -> anyhow::Result<&'static (&'static str, &'static str, u32)> {
    CATEGORIES.iter().find(|(known, ..)| *known == name).with_context(|| {
        let known: Vec<String> = CATEGORIES.iter().map(|(known, ..)| known.to_string()).collect();
        let hint = nearest(name, &known).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
        format!("no category named `{name}`{hint} (known: {})", known.join(", "))
    })
}

fn read_category(
    folder: &Path,
    (category, kind, _): &(&'static str, &'static str, u32),
    digests: &mut Vec<String>,
) -> anyhow::Result<Vec<OneTurn>> {
    let file = DataFile::read(&find(folder, category)?)?;
    digests.push(file.digest());
    let has_answers = !matches!(*category, "irrelevance" | "live_relevance");
    let answers: Vec<Answer> = match has_answers {
        false => Vec::new(),
        true => {
            let file = DataFile::read(&find(&folder.join("possible_answer"), category)?)?;
            digests.push(file.digest());
            file.records()?
        }
    };
    let answers: std::collections::HashMap<String, Vec<Map<String, Value>>> =
        answers.into_iter().map(|answer| (answer.id, answer.ground_truth)).collect();
    file.records::<Record>()?
        .into_iter()
        .map(|record| {
            let place = record.id.clone();
            let said: Vec<String> = record.question.into_iter().flatten().map(|said| said.content).collect();
            ensure!(!said.is_empty() && !record.function.is_empty(), "{place}: expected a question and its functions");
            let expected = match *category {
                "irrelevance" => ExpectedReply::NoCall,
                "live_relevance" => ExpectedReply::SomeCall(record.function[0]["name"].as_str().unwrap_or("").into()),
                _ => {
                    let answer =
                        answers.get(&place).with_context(|| format!("{place}: no answer in possible_answer"))?;
                    ExpectedReply::Calls(answer.iter().map(|call| accepted(&place, call)).collect::<Result<_, _>>()?)
                }
            };
            let tools = record.function.into_iter().map(declaration).collect();
            let turn = ToolTurn {
                user: said.join("\n\n"),
                kind: kind.to_string(),
                transition: None,
                gold: Gold::Reply(expected),
            };
            Ok(OneTurn { id: place, category, tools, turn })
        })
        .collect()
}

/// The file of a category in a folder: as published, or packed.
fn find(folder: &Path, category: &str) -> anyhow::Result<PathBuf> {
    let names = ["json", "jsonl", "json.gz", "jsonl.gz"].map(|end| folder.join(format!("BFCL_v4_{category}.{end}")));
    let found = names.iter().find(|path| path.is_file()).cloned();
    found.with_context(|| format!("expected {} (or .jsonl, or packed), found none; {WHERE}", names[0].display()))
}

fn accepted(place: &str, call: &Map<String, Value>) -> anyhow::Result<AcceptedCall> {
    let (name, arguments) = call.iter().next().with_context(|| format!("{place}: an answer without a function"))?;
    let arguments = arguments.as_object().cloned();
    let arguments = arguments.with_context(|| format!("{place}: expected the arguments of `{name}` as an object"))?;
    Ok(AcceptedCall { name: name.clone(), arguments })
}

/// The declaration as chat templates and JSON schema have it: Python's type names become JSON's.
fn declaration(mut function: Value) -> Value {
    if let Some(parameters) = function.get_mut("parameters") {
        with_json_types(parameters);
    }
    serde_json::json!({ "type": "function", "function": function })
}

fn with_json_types(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    let renamed = match fields.get("type").and_then(Value::as_str) {
        Some("dict") => Some("object"),
        Some("float") => Some("number"),
        Some("tuple") => Some("array"),
        Some("any") => Some("string"),
        _ => None,
    };
    if let Some(name) = renamed {
        fields.insert("type".into(), name.into());
    }
    if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(with_json_types);
    }
    if let Some(items) = fields.get_mut("items") {
        with_json_types(items);
    }
}

fn single(one: OneTurn, system: &str, rules: ToolRules) -> anyhow::Result<Task> {
    ToolTask {
        id: format!("{NAME}/{}", one.id),
        system,
        tools: one.tools,
        setting: String::new(),
        rules,
        turns: vec![one.turn],
        scorer: SCORER,
        family: Some(one.category.into()),
    }
    .into_task()
}

/// Draws scenarios: a kind by its share, then a record of it that was not drawn yet (all over again when none is left)
/// and whose tools do not clash by name with those of the scenario so far.
fn scenarios(turns: Vec<OneTurn>, count: usize, seed: Seed) -> anyhow::Result<Vec<Vec<OneTurn>>> {
    let mut stream = seed.derive("bfcl scenarios", &[]).stream();
    let mut decks: Vec<(u32, Vec<OneTurn>, Vec<usize>)> = Vec::new();
    for (name, _, share) in CATEGORIES.iter().filter(|(_, _, share)| *share > 0) {
        let records: Vec<OneTurn> = turns.iter().filter(|turn| turn.category == *name).cloned().collect();
        if !records.is_empty() {
            decks.push((*share, records, Vec::new()));
        }
    }
    let total: u32 = decks.iter().map(|(share, ..)| share).sum();
    ensure!(total > 0, "scenarios draw from {}; `categories` names none of them", drawn_categories());
    let mut drawn = Vec::new();
    for _ in 0..count {
        let mut scenario: Vec<OneTurn> = Vec::new();
        while scenario.len() < SCENARIO_TURNS {
            let mut place = stream.below(u64::from(total)) as u32;
            let deck = decks.iter_mut().find(|(share, ..)| {
                let is_here = place < *share;
                place = place.saturating_sub(*share);
                is_here
            });
            let (_, records, order) = deck.context("shares add up to their total")?;
            if order.is_empty() {
                order.extend(0..records.len());
                stream.shuffle(order);
            }
            let record = &records[order.pop().context("the deck was filled above")?];
            if !clashes(&scenario, record) {
                scenario.push(record.clone());
            }
        }
        drawn.push(scenario);
    }
    Ok(drawn)
}

fn drawn_categories() -> String {
    let drawn: Vec<&str> = CATEGORIES.iter().filter(|(_, _, share)| *share > 0).map(|(name, ..)| *name).collect();
    drawn.join(", ")
}

/// Whether a tool's name is there already with another declaration.
fn clashes(scenario: &[OneTurn], record: &OneTurn) -> bool {
    let name = |tool: &Value| tool["function"]["name"].clone();
    let mut known = scenario.iter().flat_map(|turn| &turn.tools);
    known.any(|known| record.tools.iter().any(|tool| name(tool) == name(known) && tool != known))
}

fn scenario(index: usize, turns: Vec<OneTurn>, system: &str, rules: ToolRules) -> anyhow::Result<Task> {
    let mut tools: Vec<Value> = Vec::new();
    for tool in turns.iter().flat_map(|turn| &turn.tools) {
        if !tools.contains(tool) {
            tools.push(tool.clone());
        }
    }
    ToolTask {
        id: format!("{NAME}/scenario-{index}"),
        system,
        tools,
        setting: String::new(),
        rules,
        turns: turns.into_iter().map(|turn| turn.turn).collect(),
        scorer: SCORER,
        family: None,
    }
    .into_task()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A data folder with three records of some categories.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("possible_answer")).unwrap();
        for (category, ..) in CATEGORIES.iter().filter(|(_, _, share)| *share > 0) {
            let lines = |line: &dyn Fn(usize) -> Value| {
                (0..3).map(|index| line(index).to_string()).collect::<Vec<_>>().join("\n")
            };
            let function = |index: usize| {
                json!({
                    "name": format!("{category}.f{index}"), "description": "d",
                    "parameters": {"type": "dict", "required": ["x"], "properties": {
                        "x": {"type": "float"}, "type": {"type": "tuple", "items": {"type": "any"}}
                    }},
                })
            };
            let record = |index: usize| {
                json!({
                    "id": format!("{category}_{index}"),
                    "question": [[{"role": "user", "content": format!("question {index} of {category}")}]],
                    "function": [function(index)],
                })
            };
            let name = format!("BFCL_v4_{category}.json");
            std::fs::write(folder.path().join(&name), lines(&record)).unwrap();
            let answer = |index: usize| {
                json!({
                    "id": format!("{category}_{index}"),
                    "ground_truth": [{format!("{category}.f{index}"): {"x": [1.5], "type": ["", ["a"]]}}],
                })
            };
            std::fs::write(folder.path().join("possible_answer").join(&name), lines(&answer)).unwrap();
        }
        folder
    }

    fn load(folder: &Path, options: &str) -> anyhow::Result<Pool> {
        Bfcl.load(&Selection { path: Some(folder.into()), options: options.parse().unwrap() })
    }

    #[test]
    fn records_become_tasks_of_one_turn_with_json_types() {
        let folder = folder();
        let pool = load(folder.path(), "categories = [\"simple_python\", \"irrelevance\"]").unwrap();
        assert_eq!(pool.tasks.len(), 6);
        let task = &pool.tasks[0];
        assert_eq!(
            (task.id().0.as_str(), task.view.family.as_deref()),
            ("bfcl/simple_python_0", Some("simple_python"))
        );
        assert_eq!(
            task.view.question,
            "Tools:\n{\"type\": \"function\", \"function\": {\"name\": \"simple_python.f0\", \"description\": \"d\", \
             \"parameters\": {\"type\": \"object\", \"required\": [\"x\"], \"properties\": {\"x\": {\"type\": \"number\"}, \
             \"type\": {\"type\": \"array\", \"items\": {\"type\": \"string\"}}}}}}\n\nquestion 0 of simple_python"
        );
        assert_eq!(task.reference.options["turns"][0]["gold"]["reply"]["calls"][0]["arguments"]["x"], json!([1.5]));
        assert_eq!(pool.tasks[3].reference.options["turns"][0]["gold"]["reply"], "no_call");
    }

    #[test]
    fn scenarios_are_drawn_by_their_seed() {
        let folder = folder();
        let draw = |seed: u64| load(folder.path(), &format!("scenarios = 8\nseed = {seed}")).unwrap().tasks;
        let scenarios = draw(1);
        assert_eq!(scenarios.len(), 8);
        assert_eq!(scenarios, draw(1));
        assert_ne!(scenarios, draw(2));
        for task in &scenarios {
            assert_eq!(task.reference.options["turns"].as_array().unwrap().len(), 4);
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let folder = folder();
        let message = |options: &str| format!("{:#}", load(folder.path(), options).err().unwrap());
        assert!(message("categories = [\"paralel\"]").contains("did you mean `parallel`"));
        assert!(message("categories = [\"live_simple\"]").contains("BFCL_v4_live_simple.json"));
        assert!(format!("{:#}", Bfcl.load(&Selection::default()).err().unwrap()).contains("possible_answer"));
    }
}
