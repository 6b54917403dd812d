//! WildToolBench: the published form is read, played and graded; the turns quoted in a public report are graded as there.

use std::path::PathBuf;

use lifelong::benchmark::{self, Selection};
use lifelong::environment::{self, Outcome};
use lifelong::record::tool::{ToolVerdict, TurnVerdict};
use lifelong::record::{Attempt, Ending, Message, Role, Score, Task, Usage};
use lifelong::scorer::{self, Grading};
use serde_json::{Value, json};

fn shared(path: &str) -> Option<PathBuf> {
    let root = std::env::var_os("LIFELONG_SHARED")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    let path = root.join(path);
    if !path.exists() {
        println!("skipped: {} is absent; set LIFELONG_SHARED to the folder that holds it", path.display());
        return None;
    }
    Some(path)
}

fn load(path: PathBuf, options: &str) -> anyhow::Result<Vec<Task>> {
    let selection = Selection { path: Some(path), options: options.parse().unwrap() };
    Ok(benchmark::find("wildtoolbench").unwrap().load(&selection)?.tasks)
}

/// Plays a dialogue with replies that depend on how often the agent was asked, and what it was told last; returns what
/// the agent was told as well.
fn play(task: &Task, mut reply: impl FnMut(usize) -> String) -> (Score, Vec<TurnVerdict>, Vec<Outcome>) {
    let environment = environment::of(&task.view);
    let mut world = environment.open(task).unwrap();
    let mut told = Vec::new();
    let answer = loop {
        let said = reply(told.len());
        let outcome = world.act(environment.action(&task.view, &said)).unwrap();
        assert!(told.len() < environment.most_replies(task).unwrap() as usize, "a dialogue without end");
        match outcome {
            Outcome::Done { answer, .. } => break answer,
            other => told.push(other),
        }
    };
    let attempt = Attempt {
        turns: vec![Message::new(Role::Assistant, "last")],
        answer,
        ending: Ending::Finished,
        usage: Usage::default(),
        recalled: Vec::new(),
        dropped_memories: 0,
        votes: Vec::new(),
    };
    let scorer = scorer::find(&task.reference.scorer).unwrap();
    scorer.check(&task.reference).unwrap();
    let (score, detail) = scorer.score(task, &attempt, &Grading::default()).unwrap();
    (score, ToolVerdict::from_detail(&detail).unwrap_or_else(|| panic!("{detail}")).turns, told)
}

/// What the reference dialogue's assistant says, in order.
fn reference(task: &Task) -> Vec<String> {
    let messages = environment::of(&task.view).demonstration(task).unwrap();
    messages.into_iter().filter(|message| message.role == Role::Assistant).map(|message| message.content).collect()
}

fn call(name: &str, arguments: Value) -> String {
    format!("<tool_call>\n{}\n</tool_call>", json!({ "name": name, "arguments": arguments }))
}

fn node(name: &str, arguments: Value, observation: Value, waits_for: &[usize]) -> Value {
    json!({ "action": {"name": name, "arguments": arguments}, "observation": observation, "dependency_list": waits_for })
}

/// A session in the published form: a single call, two parallel calls, a question first, and talk.
fn session() -> Value {
    let tool = |name: &str, properties: Value, required: Value| {
        json!({"type": "function", "function": {"name": name, "description": name, "parameters": {
            "type": "object", "properties": properties, "required": required
        }}})
    };
    let mut ask = node("ask_user_for_required_parameters", json!({"tool_list": []}), json!("Which city?"), &[]);
    ask["user_input"] = "In Bergen.".into();
    json!({
        "id": "wild_tool_bench_7",
        "english_env_info": "2024-07-26 Friday",
        "english_tools": [
            tool("now", json!({"city": {"type": "string"}, "scale": {"type": "float"}}), json!(["city"])),
            tool("clock", json!({"city": {"type": "string"}}), json!(["city"])),
        ],
        "english_tasks": ["Weather in Oslo?", "And the time, and the weather in Rome?", "And over there?", "Thanks!"],
        "english_answer_list": [
            [node("now", json!({"city": "Oslo"}), json!({"sky": "clear"}), &[]),
             node("prepare_to_answer", json!({}), json!("Clear."), &[0])],
            [node("now", json!({"city": "Rome"}), json!("rain"), &[]),
             node("clock", json!({"city": "Oslo"}), json!("12:00"), &[]),
             node("prepare_to_answer", json!({}), json!("Noon, and rain."), &[0, 1])],
            [ask, node("now", json!({"city": "Bergen"}), json!("wet"), &[0]),
             node("prepare_to_answer", json!({}), json!("Wet."), &[1])],
            [node("prepare_to_answer", json!({}), json!("You are welcome."), &[])],
        ],
        "english_task_types": ["Single-Tool", "Parallel Multi-Tool", "Clarify", "Chat"],
        "english_turn_subtypes": ["Long-Range Dependency", "Coreferential Reference", "Partial Information"],
        "chinese_tasks": ["…"],
    })
}

fn hand_made(options: &str) -> Task {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("{}\n", session())).unwrap();
    load(file.path().into(), options).unwrap().remove(0)
}

#[test]
fn a_published_session_is_asked_as_pinned() {
    let task = hand_made("");
    assert_eq!(task.id().0, "wildtoolbench/7");
    assert_eq!(
        task.view.question,
        "Tools:\n{\"type\": \"function\", \"function\": {\"name\": \"now\", \"description\": \"now\", \"parameters\": {\"type\": \
         \"object\", \"properties\": {\"city\": {\"type\": \"string\"}, \"scale\": {\"type\": \"number\"}}, \"required\": \
         [\"city\"]}}}\n{\"type\": \"function\", \"function\": {\"name\": \"clock\", \"description\": \"clock\", \"parameters\": \
         {\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}}, \"required\": [\"city\"]}}}\n\nCurrent Date: \
         2024-07-26 Friday\n\nWeather in Oslo?"
    );
    // The instructions' wording: one moved space moves results.
    let system = task.view.system.as_deref().unwrap();
    assert!(system.starts_with("You help a user who may ask several things in turn."), "{system}");
    assert_eq!(&blake3::hash(system.as_bytes()).to_hex()[..8], "77777850");
    let shown = environment::of(&task.view).demonstration(&task).unwrap();
    let said: Vec<(Role, &str)> = shown[1..].iter().map(|message| (message.role, message.content.as_str())).collect();
    assert_eq!(
        said,
        [
            (Role::Assistant, "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>"),
            (Role::User, "<tool_response>\n{\"sky\": \"clear\"}\n</tool_response>"),
            (Role::Assistant, "Clear."),
            (Role::User, "And the time, and the weather in Rome?"),
            (
                Role::Assistant,
                "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>\n<tool_call>\n{\"name\": \
                 \"clock\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>"
            ),
            (Role::User, "<tool_response>\n\"rain\"\n</tool_response>\n<tool_response>\n\"12:00\"\n</tool_response>"),
            (Role::Assistant, "Noon, and rain."),
            (Role::User, "And over there?"),
            (Role::Assistant, "Which city?"),
            (Role::User, "In Bergen."),
            (Role::Assistant, "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"city\": \"Bergen\"}}\n</tool_call>"),
            (Role::User, "<tool_response>\n\"wet\"\n</tool_response>"),
            (Role::Assistant, "Wet."),
            (Role::User, "Thanks!"),
            (Role::Assistant, "You are welcome."),
        ]
    );
}

#[test]
fn the_reference_dialogue_is_right_in_every_turn() {
    for rules in ["official", "strict"] {
        let task = hand_made(&format!("rules = \"{rules}\""));
        let replies = reference(&task);
        let (score, turns, told) = play(&task, |asked| replies[asked].clone());
        assert_eq!(score, Score::Graded(1.0), "{turns:?}");
        assert!(turns.iter().all(|turn| turn.is_optimal));
        let kinds: Vec<&str> = turns.iter().map(|turn| turn.kind.as_str()).collect();
        assert_eq!(kinds, ["Single-Tool", "Parallel Multi-Tool", "Clarify", "Chat"]);
        assert_eq!(turns[1].transition.as_deref(), Some("Long-Range Dependency"));
        // A result in the live turn: a text as it is, anything else as JSON.
        assert_eq!(told[0], Outcome::Observation("<tool_response>\n{\"sky\": \"clear\"}\n</tool_response>".into()));
        let live = "<tool_response>\n12:00\n</tool_response>\n<tool_response>\nrain\n</tool_response>";
        let other = "<tool_response>\nrain\n</tool_response>\n<tool_response>\n12:00\n</tool_response>";
        // Results come by name officially, whatever was called first; strictly each call gets its own.
        assert_eq!(told[2], Outcome::Observation(if rules == "official" { live } else { other }.into()));
    }
}

#[test]
fn a_wrong_turn_harms_no_later_one() {
    let task = hand_made("");
    let replies = reference(&task);
    // The first turn is answered without its call; the others go on as in the reference.
    let (score, turns, told) =
        play(&task, |asked| if asked == 0 { "It is sunny.".into() } else { replies[asked + 1].clone() });
    assert_eq!(score, Score::Graded(0.75));
    assert_eq!(turns[0].fault.as_deref(), Some("action name"));
    let Outcome::NewTurn(history) = &told[0] else { panic!("{told:?}") };
    let said: Vec<&str> = history.iter().map(|message| message.content.as_str()).collect();
    assert_eq!(said.len(), 4, "the reference's turn and the next question");
    assert_eq!((said[2], said[3]), ("Clear.", "And the time, and the weather in Rome?"));
}

#[test]
fn every_way_to_go_wrong_has_its_name() {
    let task = hand_made("");
    let replies = reference(&task);
    let first =
        |reply: String| play(&task, |asked| if asked == 0 { reply.clone() } else { "text".into() }).1[0].clone();
    assert_eq!(first(String::new()).fault.as_deref(), Some("empty reply"));
    assert_eq!(first("<tool_call>\n{\"name\": \"now\", \"argu".into()).fault.as_deref(), Some("unreadable calls"));
    assert_eq!(first(call("clock", json!({"city": "Oslo"}))).fault.as_deref(), Some("action name"));
    assert_eq!(first(call("no_such_tool", json!({}))).fault.as_deref(), Some("action name"));
    assert_eq!(first(call("now", json!({"city": "Roma"}))).fault.as_deref(), Some("match: text similarity"));
    assert_eq!(first(call("now", json!({"city": "Oslo", "days": 1}))).fault.as_deref(), Some("schema: undefined"));
    assert_eq!(first(call("now", json!({}))).fault.as_deref(), Some("schema: missing"));
    assert_eq!(first(call("now", json!({"city": "oslo "}))).fault, None);
    // A call where the user should be asked.
    let (_, turns, _) = play(&task, |asked| match asked {
        0..4 => replies[asked].clone(),
        4 => call("now", json!({"city": "Bergen"})),
        _ => "text".into(),
    });
    assert_eq!(turns[2].fault.as_deref(), Some("action name"));
    assert_eq!(turns[3].fault, None);
}

#[test]
fn files_that_are_not_as_they_must_be_are_refused_with_their_place() {
    let message = |change: &dyn Fn(&mut Value)| {
        let mut broken = session();
        change(&mut broken);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), broken.to_string()).unwrap();
        format!("{:#}", load(file.path().into(), "").unwrap_err())
    };
    let text = message(&|session| session["english_task_types"][1] = "Paralel".into());
    assert!(text.contains("wild_tool_bench_7, turn 2") && text.contains("`Paralel`"), "{text}");
    let text = message(&|session| session["english_answer_list"][0][0]["action"]["name"] = "later".into());
    assert!(text.contains("turn 1, action 0") && text.contains("now, clock"), "{text}");
    let text = message(&|session| session["english_answer_list"][2][0]["user_input"] = Value::Null);
    assert!(text.contains("turn 3") && text.contains("user_input"), "{text}");
    let text = message(&|session| session["english_answer_list"][1][2]["dependency_list"] = json!([9]));
    assert!(text.contains("turn 2: action 2 waits for action 9"), "{text}");
    let text = message(&|session| session["english_answer_list"][1][0]["dependency_list"] = json!([2]));
    assert!(text.contains("turn 2: actions wait for each other in a circle"), "{text}");
    let text = message(&|session| session["english_tasks"] = json!(["one"]));
    assert!(text.contains("english_answer_list"), "{text}");
    let text = message(&|session| session["english_tools"] = json!("none"));
    assert!(text.contains("wild_tool_bench_7"), "{text}");
}

const TURNS: &str = "data/wildtoolbench/sample_turns.jsonl.gz";
const TOOLS: &str = "data/wildtoolbench/tools_en.jsonl.gz";

/// The turns that a public report quotes, with the tools of their sessions.
fn quoted(rules: &str) -> Option<Vec<(Task, Value)>> {
    let (turns, tools) = (shared(TURNS)?, shared(TOOLS)?);
    let options = format!("rules = \"{rules}\"\ntools = \"{}\"", tools.display());
    let tasks = load(turns.clone(), &options).unwrap();
    let mut text = String::new();
    let mut file = flate2::read::GzDecoder::new(std::fs::File::open(turns).unwrap());
    std::io::Read::read_to_string(&mut file, &mut text).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((tasks.len(), lines.len()), (27, 27));
    Some(tasks.into_iter().zip(lines).collect())
}

/// Turns whose reference breaks its tool's declaration: session and turn.
const UNWINNABLE: [&str; 4] = ["wildtoolbench/18/2", "wildtoolbench/18/3", "wildtoolbench/2/3", "wildtoolbench/6/2"];

#[test]
fn the_quoted_turns_references_are_right_but_for_those_that_break_their_declaration() {
    for rules in ["official", "strict"] {
        let Some(turns) = quoted(rules) else { return };
        let mut wrong = Vec::new();
        for (task, _) in &turns {
            let replies = reference(task);
            let (score, verdicts, _) = play(task, |asked| replies[asked].clone());
            let is_unwinnable = UNWINNABLE.contains(&task.id().0.as_str());
            assert_eq!(verdicts[0].is_winnable, !is_unwinnable, "{}", task.id());
            assert_eq!(verdicts[0].differs, is_unwinnable, "{}", task.id());
            if score != Score::Graded(1.0) {
                wrong.push(task.id().0.as_str());
            }
        }
        wrong.sort_unstable();
        let expected: &[&str] = if rules == "official" { &UNWINNABLE } else { &[] };
        assert_eq!(wrong, expected, "{rules}");
    }
}

#[test]
fn the_quoted_wrong_predictions_fail_with_the_recorded_kind() {
    let Some(turns) = quoted("official") else { return };
    let mut kinds = std::collections::BTreeMap::new();
    for (task, line) in &turns {
        let predicted = &line["sample_prediction"];
        let names = predicted["tools_called"].as_array().unwrap().iter();
        let calls: Vec<String> = names
            .zip(predicted["arguments"].as_array().unwrap())
            .map(|(name, arguments)| {
                call(name.as_str().unwrap(), serde_json::from_str(arguments.as_str().unwrap()).unwrap())
            })
            .collect();
        // The calls at once, if there are any, then text.
        let (score, verdicts, _) = play(task, |asked| match (asked, calls.is_empty()) {
            (0, false) => calls.join("\n"),
            _ => "As told.".into(),
        });
        assert_eq!(score, Score::Graded(0.0), "{}", task.id());
        let fault = verdicts[0].fault.clone().unwrap();
        let recorded = line["sample_error_reason"].as_str().unwrap();
        match recorded {
            "action name not in candidate_answer_function_list" => assert_eq!(fault, "action name", "{}", task.id()),
            // No reason was recorded where the actions were right and an argument was not.
            "" => assert!(fault.starts_with("schema: ") || fault.starts_with("match: "), "{}: {fault}", task.id()),
            other => panic!("{}: an unknown kind `{other}`", task.id()),
        }
        *kinds.entry(fault).or_insert(0) += 1;
    }
    println!("{kinds:?}");
    assert_eq!(kinds["action name"], 18);
}
