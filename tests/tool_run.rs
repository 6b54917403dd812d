//! A run over tool dialogues: every attempt is a whole dialogue, whatever the batch, and an interrupted run goes on to the
//! same records.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

/// Three sessions of two turns in the published form.
fn sessions() -> String {
    let node = |name: &str, arguments: Value, observation: Value, waits_for: &[usize]| {
        json!({ "action": {"name": name, "arguments": arguments}, "observation": observation,
                "dependency_list": waits_for })
    };
    let session = |index: usize, (tool, city): (&str, &str)| {
        json!({
            "id": format!("wild_tool_bench_{index}"),
            "english_env_info": "2024-07-26",
            "english_tools": [{"type": "function", "function": {"name": tool, "description": tool, "parameters": {
                "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]
            }}}],
            "english_tasks": [format!("{tool} in {city}?"), "Thanks!"],
            "english_answer_list": [
                [node(tool, json!({"city": city}), json!("fine"), &[]),
                 node("prepare_to_answer", json!({}), json!("It is fine."), &[0])],
                [node("prepare_to_answer", json!({}), json!("You are welcome."), &[])],
            ],
            "english_task_types": ["Single-Tool", "Chat"],
            "english_turn_subtypes": ["Partial Information"],
        })
        .to_string()
    };
    let given = [("weather", "Oslo"), ("traffic", "Rome"), ("news", "Lima")];
    given.into_iter().enumerate().map(|(index, given)| session(index, given)).collect::<Vec<_>>().join("\n")
}

fn run(config: &Path, folder: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_lifelong"))
        .args(["run".as_ref(), config.as_os_str(), "--out".as_ref(), folder.as_os_str()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The stored lines by where they belong.
fn records(folder: &Path) -> BTreeMap<String, Value> {
    let text = fs::read_to_string(folder.join("attempts.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["record"].clone());
    lines.map(|record| (record["coord"].to_string(), record)).collect()
}

#[test]
fn a_dialogue_is_one_attempt_at_any_batch_size_and_after_an_interruption() {
    if support::local_model_files("smollm2-135m-instruct").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("wild_tool_bench.jsonl");
    fs::write(&data, sessions()).unwrap();
    let config = |name: &str, engine: &str| {
        let path = folder.path().join(name);
        let text = format!(
            "name = \"tools\"\nseed = 5\n[models]\nbackbones = [\"smollm2-135m-instruct\"]\n[engine]\n{engine}\n[sampling]\n\
             temperature = 0.7\nmax_tokens = 12\n[benchmark]\nname = \"wildtoolbench\"\npath = \"{}\"\n[matrix]\nseeds = 1\n",
            data.display()
        );
        fs::write(&path, text).unwrap();
        path
    };
    let whole = folder.path().join("whole");
    let report = run(&config("whole.toml", "max_batch = 8"), &whole);
    let stored = records(&whole);
    assert_eq!(stored.len(), 3 + 6);
    for record in stored.values() {
        let trace: Value = serde_json::from_str(record["attempt"]["answer"].as_str().unwrap()).unwrap();
        assert_eq!(trace["turns"].as_array().unwrap().len(), 2);
        let grade = record["score"]["graded"].as_f64().unwrap();
        assert!([0.0, 0.5, 1.0].contains(&grade), "{record}");
    }
    // Behind a demonstration stand its question and its reference dialogue, the target's question last.
    let shown = stored.values().find(|record| record["coord"]["sequence"] == 1).unwrap();
    let turns: Vec<&str> =
        shown["attempt"]["turns"].as_array().unwrap().iter().map(|turn| turn["content"].as_str().unwrap()).collect();
    assert!(turns[1].ends_with("weather in Oslo?") && turns[2].contains("\"name\": \"weather\""), "{turns:?}");
    assert_eq!(
        turns[3..7],
        ["<tool_response>\n\"fine\"\n</tool_response>", "It is fine.", "Thanks!", "You are welcome."]
    );
    assert!(report.contains("Tool dialogues") && report.contains("session accuracy"), "{report}");
    let table = fs::read_to_string(whole.join("report/tool_turns.csv")).unwrap();
    assert!(table.lines().any(|line| line.starts_with("matrix/smollm2-135m-instruct,zero-shot,turn accuracy,Chat,")));

    let single = folder.path().join("single");
    run(&config("single.toml", "max_batch = 1\nthreads = 1"), &single);
    assert_eq!(records(&single), stored);

    let stopped = folder.path().join("stopped");
    fs::create_dir(&stopped).unwrap();
    fs::copy(whole.join("manifest.json"), stopped.join("manifest.json")).unwrap();
    let text = fs::read_to_string(whole.join("attempts.jsonl")).unwrap();
    let first: Vec<&str> = text.lines().take(4).collect();
    fs::write(stopped.join("attempts.jsonl"), first.join("\n") + "\n{\"record\":{\"coo").unwrap();
    run(&config("stopped.toml", "max_batch = 3"), &stopped);
    assert_eq!(records(&stopped), stored);
}
