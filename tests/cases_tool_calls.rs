//! The shared behaviour cases of the family `tool_calls` that are about reading replies, each run against its dialect.
//!
//! A case that nothing here runs fails the test, unless it is listed in [`ELSEWHERE`] with the reason.

use std::path::PathBuf;

use lifelong::reply::tool_call::{self, FindingKind, Reading, Reply, Status, Tool};
use serde_json::{Value, json};

/// Ids that are not about reading a reply.
const ELSEWHERE: &[(&str, &str)] = &[
    ("tc-scalar", "compares given calls with a gold list: tests/bfcl.rs has the scorer's verdicts"),
    ("tc-parallel-order", "compares given calls with a gold list: tests/bfcl.rs has the scorer's verdicts"),
];

fn cases() -> Option<Vec<Value>> {
    let shared = std::env::var_os("LIFELONG_SHARED")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    let path = shared.join("cases/tool_calls.json");
    if !path.is_file() {
        println!("skipped: {} is absent", path.display());
        return None;
    }
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    Some(file["cases"].as_array().unwrap().clone())
}

#[test]
fn every_case_holds() {
    let Some(cases) = cases() else { return };
    let is_elsewhere = |case: &&Value| ELSEWHERE.iter().any(|(id, _)| case["id"] == **id);
    let (elsewhere, here): (Vec<&Value>, Vec<&Value>) = cases.iter().partition(is_elsewhere);
    assert_eq!(elsewhere.len(), ELSEWHERE.len(), "an exception names no case any more");
    assert!(here.len() >= 26, "the file holds fewer cases than it did");
    let failures: Vec<String> = here
        .iter()
        .filter_map(|case| {
            let reason = check(case).err()?;
            Some(format!("{}: {reason} (why: {})", case["id"], case["why"].as_str().unwrap_or_default()))
        })
        .collect();
    assert!(failures.is_empty(), "{} of {} cases fail:\n{}", failures.len(), here.len(), failures.join("\n"));
}

fn check(case: &Value) -> Result<(), String> {
    let (given, expect) = (&case["given"], &case["expect"]);
    let dialect = tool_call::find(given["dialect"].as_str().unwrap()).map_err(|error| error.to_string())?;
    let tools: Vec<Tool> = given["tools"].as_array().into_iter().flatten().map(tool).collect();
    let raw = given["raw"].as_str().unwrap();
    let read = |raw: &str| dialect.read(raw, &Reading { tools: &tools, ..Reading::default() });
    let reply = read(raw);
    match given["op"].as_str().unwrap() {
        "parse" => {
            parsed(&reply, expect)?;
            grows_with_its_text(raw, &reply, read)
        }
        "grade" => equal("class", class(&reply), expect["class"].as_str().unwrap()),
        op => Err(format!("no test runs the operation `{op}`")),
    }
}

fn tool(declared: &Value) -> Tool {
    match declared {
        Value::String(name) => Tool { name: name.clone(), ..Tool::default() },
        _ => {
            let typed = |(name, kind): (&String, &Value)| (name.clone(), json!({"type": kind}));
            Tool {
                name: declared["name"].as_str().unwrap().into(),
                parameters: declared["properties"].as_object().unwrap().iter().map(typed).collect(),
            }
        }
    }
}

fn parsed(reply: &Reply, expect: &Value) -> Result<(), String> {
    let calls: Vec<Value> = reply.calls.iter().map(|call| serde_json::to_value(call).unwrap()).collect();
    let expected = expect["calls"].as_array().unwrap();
    equal("number of calls", calls.len(), expected.len())?;
    for (call, expected) in calls.iter().zip(expected) {
        for (key, value) in expected.as_object().unwrap() {
            equal(key, &call[key], value)?;
        }
    }
    equal("text", reply.text.as_str(), expect["text"].as_str().unwrap())?;
    equal("status", &json!(reply.status), &expect["status"])?;
    let count = |key: &str, kind: FindingKind| match expect[key].as_u64() {
        Some(number) => equal(key, reply.count(kind) as u64, number),
        None => Ok(()),
    };
    count("broken", FindingKind::Broken)?;
    count("warnings", FindingKind::Ignored)?;
    if expect["repaired"] == true && reply.count(FindingKind::Repaired) == 0 {
        return Err("expected a repair, found none".into());
    }
    match expect["thought"].as_str() {
        Some(thought) => equal("thought", reply.thought.as_deref(), Some(thought)),
        None => Ok(()),
    }
}

/// Read while it grows, one character at a time, a reply shows its calls one after the other and takes none back; a
/// thought that turns out to have been one takes back what stood in it.
fn grows_with_its_text(raw: &str, whole: &Reply, read: impl Fn(&str) -> Reply) -> Result<(), String> {
    if raw.contains("</think>") {
        return Ok(());
    }
    for (end, _) in raw.char_indices() {
        for (index, call) in read(&raw[..end]).calls.iter().enumerate() {
            let later = whole.calls.get(index).map(|call| (&call.name, &call.arguments));
            equal("call so far", Some((&call.name, &call.arguments)), later)?;
        }
    }
    Ok(())
}

/// What a scorer makes of a reply where not calling is right.
fn class(reply: &Reply) -> &'static str {
    match reply.status {
        Status::None => "abstained",
        Status::Ok if reply.calls.is_empty() => "abstained",
        Status::Ok => "called",
        Status::Partial | Status::Broken | Status::Truncated => "broken",
    }
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}: found {found:?}, expected {expected:?}")) }
}
