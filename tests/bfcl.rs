//! Our verdicts on the leaderboard's single-turn records are its own AST checker's, for expected and for changed calls;
//! `tests/golden/bfcl/make.py` made the other side. Scenarios of four records are played to their end.

use std::path::PathBuf;

use lifelong::benchmark::{self, Selection};
use lifelong::environment::{self, Outcome};
use lifelong::record::tool::ToolVerdict;
use lifelong::record::{Attempt, Ending, Message, Role, Score, Task, Usage};
use lifelong::scorer::{self, Grading};
use serde_json::{Map, Value, json};

/// The leaderboard's data folder, or one line saying it is absent.
fn data() -> Option<PathBuf> {
    let root = std::env::var_os("LIFELONG_SHARED")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    let path = root.join("data/bfcl");
    if !path.exists() {
        println!("skipped: {} is absent; set LIFELONG_SHARED to the folder that holds it", path.display());
        return None;
    }
    Some(path)
}

fn load(options: &str) -> Option<Vec<Task>> {
    let selection = Selection { path: Some(data()?), options: options.parse().unwrap() };
    Some(benchmark::find("bfcl").unwrap().load(&selection).unwrap().tasks)
}

/// Plays a task with these replies, one a turn.
fn play(task: &Task, replies: &[String]) -> (Score, ToolVerdict) {
    let environment = environment::of(&task.view);
    let mut world = environment.open(task).unwrap();
    let mut replies = replies.iter();
    let answer = loop {
        let reply = replies.next().expect("as many replies as turns");
        match world.act(environment.action(&task.view, reply)).unwrap() {
            Outcome::Done { answer, .. } => break answer,
            Outcome::NewTurn(history) => assert_eq!(history.last().unwrap().role, Role::User),
            Outcome::Observation(text) => panic!("one reply ends a turn, the world went on with {text}"),
        }
    };
    assert_eq!(replies.next(), None);
    let attempt = Attempt {
        turns: vec![Message::new(Role::Assistant, "last")],
        answer,
        ending: Ending::Finished,
        usage: Usage::default(),
        recalled: Vec::new(),
        dropped_memories: 0,
        votes: Vec::new(),
    };
    let scorer = scorer::find("call_match").unwrap();
    scorer.check(&task.reference).unwrap();
    let (score, detail) = scorer.score(task, &attempt, &Grading::default()).unwrap();
    (score, ToolVerdict::from_detail(&detail).unwrap())
}

/// What the reference dialogue's assistant says, in order.
fn reference(task: &Task) -> Vec<String> {
    let messages = environment::of(&task.view).demonstration(task).unwrap();
    messages.into_iter().filter(|message| message.role == Role::Assistant).map(|message| message.content).collect()
}

type Call = (String, Map<String, Value>);

/// The calls of a reply in the form we ask for.
fn calls_of(reply: &str) -> Vec<Call> {
    let blocks = reply.split("<tool_call>").skip(1).map(|block| block.split("</tool_call>").next().unwrap());
    let parsed = blocks.map(|block| serde_json::from_str::<Value>(block).unwrap());
    parsed.map(|call| (call["name"].as_str().unwrap().into(), call["arguments"].as_object().unwrap().clone())).collect()
}

fn reply_of(calls: &[Call]) -> String {
    let block = |(name, arguments): &Call| {
        format!("<tool_call>\n{}\n</tool_call>", json!({ "name": name, "arguments": arguments }))
    };
    match calls {
        [] => "I will not call anything.".into(),
        calls => calls.iter().map(block).collect::<Vec<_>>().join("\n"),
    }
}

/// Twins of the script's functions of the same names.
fn other(value: &Value) -> Value {
    match value {
        Value::Bool(value) => json!(!value),
        Value::String(text) => json!(format!("{text}x")),
        Value::Number(number) => {
            number.as_i64().map_or_else(|| json!(number.as_f64().unwrap() + 1.0), |n| json!(n + 1))
        }
        Value::Array(items) => items.iter().cloned().chain([json!(1)]).collect(),
        _ => json!({}),
    }
}

fn loud(value: &Value) -> Value {
    match value {
        Value::String(text) => json!(format!("{} .", text.to_uppercase())),
        Value::Array(items) => items.iter().map(loud).collect(),
        other => other.clone(),
    }
}

fn changed(place: usize, mut calls: Vec<Call>) -> Vec<Call> {
    let arguments = &mut calls[0].1;
    let first = arguments.keys().next().cloned();
    match (place % 6, first) {
        (0, Some(first)) => drop(arguments.shift_remove(&first)),
        (1, _) => drop(arguments.insert("extra".into(), json!(1))),
        (3, _) => {
            calls.reverse();
            calls.iter_mut().flat_map(|(_, arguments)| arguments.values_mut()).for_each(|value| *value = loud(value));
        }
        (4, Some(first)) if arguments[&first].is_i64() => {
            arguments[&first] = json!(arguments[&first].as_i64().unwrap() as f64);
        }
        (5, _) => drop(calls.pop()),
        (_, Some(first)) => arguments[&first] = other(&arguments[&first]),
        (_, None) => {}
    }
    calls
}

#[test]
fn verdicts_are_those_of_the_leaderboards_checker() {
    let golden: Map<String, Value> = serde_json::from_str(include_str!("golden/bfcl/verdicts.json")).unwrap();
    let mut compared = 0;
    let mut differences = Vec::new();
    for (category, letters) in &golden {
        let Some(tasks) = load(&format!("categories = [\"{category}\"]")) else { return };
        let letters: Vec<Vec<char>> =
            letters.as_array().unwrap().iter().map(|text| text.as_str().unwrap().chars().collect()).collect();
        assert_eq!((tasks.len(), tasks.len()), (letters[0].len(), letters[1].len()), "{category}");
        for (place, task) in tasks.iter().enumerate() {
            let expected = calls_of(&reference(task)[0]);
            for (calls, official) in
                [(expected.clone(), letters[0][place]), (changed(place, expected), letters[1][place])]
            {
                let (score, verdict) = play(task, &[reply_of(&calls)]);
                compared += 1;
                if (score == Score::Graded(1.0)) != (official == 'p') {
                    differences.push(format!("{} {official}: {verdict}", task.id()));
                }
            }
        }
    }
    assert_eq!(compared, 2 * 1298);
    assert!(differences.is_empty(), "{} of {compared} differ:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn no_call_is_right_where_none_helps_and_any_where_one_does() {
    let Some(tasks) = load("categories = [\"irrelevance\", \"live_relevance\"]") else { return };
    assert_eq!(tasks.len(), 240 + 16);
    let (talk, call) = ("I cannot do that.".to_string(), reply_of(&[("anything".into(), Map::new())]));
    let broken = "<tool_call>\n{\"name\": \"f\", \"argu".to_string();
    for task in &tasks {
        let helps = task.view.family.as_deref() == Some("live_relevance");
        for (reply, is_right) in [(&talk, !helps), (&call, helps), (&broken, false), (&String::new(), false)] {
            assert_eq!(
                play(task, std::slice::from_ref(reply)).0 == Score::Graded(1.0),
                is_right,
                "{} {reply}",
                task.id()
            );
        }
        assert_eq!(play(task, &reference(task)).0, Score::Graded(1.0), "{}", task.id());
    }
}

#[test]
fn scenarios_of_four_are_right_by_their_references_and_graded_turn_by_turn() {
    let Some(tasks) = load("scenarios = 60") else { return };
    assert_eq!(tasks.len(), 60);
    let mut kinds = std::collections::BTreeMap::new();
    for task in &tasks {
        let replies = reference(task);
        assert_eq!(replies.len(), 4);
        let (_, verdict) = play(task, &replies);
        // The published answers of two `parallel_multiple` records fail the published checker.
        let wrong: Vec<_> = verdict.turns.iter().filter(|turn| !turn.is_right()).collect();
        assert!(wrong.iter().all(|turn| turn.kind == "Mixed Multi-Tool"), "{}: {verdict}", task.id());
        verdict.turns.iter().for_each(|turn| *kinds.entry(turn.kind.clone()).or_insert(0) += 1);
        let mut replies = replies;
        replies[1] = String::new();
        let (score, verdict) = play(task, &replies);
        assert!(score.graded().unwrap() <= 0.75);
        assert_eq!(verdict.turns[1].fault.as_deref(), Some("empty reply"));
    }
    // Shares 26, 25, 15 and 8 of 74, of 240 turns.
    for (kind, share) in
        [("Single-Tool", 26.0), ("Chat", 25.0), ("Parallel Multi-Tool", 15.0), ("Mixed Multi-Tool", 8.0)]
    {
        let expected = 240.0 * share / 74.0;
        assert!((f64::from(kinds[kind]) - expected).abs() < 3.5 * expected.sqrt(), "{kinds:?}");
    }
}
