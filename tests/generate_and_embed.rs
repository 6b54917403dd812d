//! The promises of `lifelong generate` and `lifelong embed`: input order, the same tokens whatever the batch, clear errors.

mod support;

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

fn lifelong(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lifelong")).args(arguments).output().unwrap()
}

fn lines(text: &[u8]) -> Vec<Value> {
    String::from_utf8_lossy(text).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_file_of_requests_comes_back_in_order_with_the_same_tokens_in_any_batch() {
    if support::model_files("smollm2-135m-instruct").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.jsonl");
    fs::write(
        &input,
        concat!(
            "{\"prompt\": \"One, two, three,\", \"max_tokens\": 9, \"temperature\": 0.8}\n",
            "{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}], \"max_tokens\": 2}\n",
            "{\"prompt\": \"The sea is\", \"max_tokens\": 4, \"seed\": 5, \"temperature\": 1.0}\n",
        ),
    )
    .unwrap();
    let run = |batch: &str, threads: &str| {
        let input = input.to_str().unwrap();
        let arguments = ["generate", "--model", "smollm2-135m-instruct", "--input", input, "--seed", "3"];
        let output = lifelong(&[&arguments[..], &["--max-batch", batch, "--threads", threads]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        lines(&output.stdout)
    };
    let (alone, together) = (run("1", "1"), run("8", "2"));
    let tokens = |written: &[Value]| written.iter().map(|line| line["tokens"].clone()).collect::<Vec<_>>();
    assert_eq!(tokens(&alone), tokens(&together));
    let generated: Vec<u64> = alone.iter().map(|line| line["usage"]["generated"].as_u64().unwrap()).collect();
    assert_eq!(generated, [9, 2, 4], "each line keeps its place and its own limit");
    assert_eq!(alone[2]["seed"], 5);
}

/// From text to text on Gemma 3 270M: the tokens of llama.cpp's greedy completions, one prompt beyond the sliding window.
#[test]
fn gemma_3_completes_as_llama_cpp_does() {
    if support::model_files("gemma-3-270m").is_none() {
        return;
    }
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/gemma3/greedy.json");
    let golden: Value = serde_json::from_str(&fs::read_to_string(golden).unwrap()).unwrap();
    let cases = [0, 8, 13, 18].map(|index| &golden["cases"][index]);
    assert!(cases[3]["prompt"].as_array().unwrap().len() > 512);
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.jsonl");
    let requests: Vec<String> = (cases.iter())
        .map(|case| {
            let max_tokens = case["continuation"].as_array().unwrap().len();
            serde_json::json!({ "prompt": case["text"], "max_tokens": max_tokens }).to_string()
        })
        .collect();
    fs::write(&input, requests.join("\n")).unwrap();
    let model = ["generate", "--model", "gemma-3-270m", "--seed", "1", "--kv-memory", "128MiB", "--input"];
    let output = lifelong(&[&model[..], &[input.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for (case, line) in cases.iter().zip(lines(&output.stdout)) {
        assert_eq!(line["usage"]["prompt"], case["prompt"].as_array().unwrap().len(), "{}", case["text"]);
        assert_eq!(line["tokens"], case["continuation"], "{}", case["text"]);
    }
}

#[test]
fn a_bad_request_line_is_named_before_a_model_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.jsonl");
    fs::write(&input, "{\"prompt\": \"a\"}\n{\"prompt\": \"b\", \"temprature\": 1}\n").unwrap();
    let output = lifelong(&["generate", "--model", "smollm2-135m-instruct", "--input", input.to_str().unwrap()]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{message}");
    assert!(message.contains("in.jsonl:2") && message.contains("temprature"), "{message}");
}

#[test]
fn texts_are_embedded_in_order() {
    if support::model_files("all-minilm-l6-v2").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.jsonl");
    fs::write(&input, "{\"t\": \"a longer text about the sea\"}\n{\"t\": \"cat\"}\n{\"t\": \"kitten\"}\n").unwrap();
    let input = input.to_str().unwrap();
    let output = lifelong(&["embed", "--input", input, "--field", "t"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows = lines(&output.stdout);
    let texts: Vec<&str> = rows.iter().map(|row| row["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["a longer text about the sea", "cat", "kitten"]);
    let vector = |row: &Value| -> Vec<f64> {
        row["embedding"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
    };
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let [sea, cat, kitten] = [&rows[0], &rows[1], &rows[2]].map(vector);
    assert!((dot(&cat, &cat) - 1.0).abs() < 1e-5, "vectors have length 1");
    assert!(dot(&cat, &kitten) > dot(&cat, &sea) + 0.2, "like texts are near");

    let missing = lifelong(&["embed", "--input", input, "--field", "x"]);
    let message = String::from_utf8_lossy(&missing.stderr);
    assert!(message.contains("in.jsonl:1") && message.contains("no field `x` (found: t)"), "{message}");
}

#[test]
fn a_reply_can_be_held_to_a_schema_and_settings_to_the_template() {
    if support::model_files("smollm2-135m-instruct").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let schema = r#"{"type": "object", "properties": {"answer": {"enum": ["yes", "no"]}}, "required": ["answer"], "additionalProperties": false}"#;
    fs::write(path("schema.json"), schema).unwrap();
    fs::write(path("tools.json"), r#"[{"type": "function", "function": {"name": "f"}}]"#).unwrap();
    let generate = |arguments: &[&str]| {
        let model = ["generate", "--model", "smollm2-135m-instruct", "--seed", "1", "--json"];
        let output = lifelong(&[&model[..], arguments].concat());
        (output.status.success(), lines(&output.stdout), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (is_done, written, message) =
        generate(&["--chat", "Is ice cold?", "--json-schema", &path("schema.json"), "--tools", &path("tools.json")]);
    assert!(is_done, "{message}");
    let answer: Value = serde_json::from_str(written[0]["text"].as_str().unwrap()).unwrap();
    assert!(answer["answer"] == "yes" || answer["answer"] == "no", "{answer}");
    assert_eq!(written[0]["finish"], "grammar");

    // One line of many may have a grammar of its own.
    let line = r#"{"prompt": "I say", "grammar": {"regex": " (yes|no)!"}}"#;
    fs::write(path("in.jsonl"), format!("{line}\n{{\"prompt\": \"I say\", \"max_tokens\": 3}}\n")).unwrap();
    let (is_done, written, message) = generate(&["--input", &path("in.jsonl")]);
    assert!(is_done, "{message}");
    assert!([" yes!", " no!"].contains(&written[0]["text"].as_str().unwrap()), "{}", written[0]["text"]);
    assert_eq!(written[1]["finish"], "length");

    // SmolLM2's template says no format for calls; a user may.
    assert!(written[0].get("reply").is_none());
    let call = r#"<tool_call>\{"name": "f", "arguments": \{"x": [0-9]{1,3}\}\}</tool_call>"#;
    let line = serde_json::json!({"messages": [{"role": "user", "content": "q"}], "grammar": {"regex": call}});
    fs::write(path("in.jsonl"), line.to_string()).unwrap();
    let format = ["--tool-format", "hermes", "--tools", &path("tools.json")];
    let (is_done, written, message) = generate(&[&["--input", &path("in.jsonl")][..], &format].concat());
    assert!(is_done, "{message}");
    let reply = &written[0]["reply"];
    assert_eq!(
        (&reply["status"], &reply["calls"][0]["name"], &reply["calls"][0]["known"]),
        (&"ok".into(), &"f".into(), &true.into())
    );
    assert!(reply["calls"][0]["arguments"]["x"].is_u64(), "{reply}");

    fs::write(path("schema.json"), r#"{"type": "array", "contains": {"type": "null"}}"#).unwrap();
    let (is_done, _, message) = generate(&["--chat", "q", "--json-schema", &path("schema.json")]);
    assert!(!is_done && message.contains("JSON schema") && message.contains("contains"), "{message}");
    let (is_done, _, message) = generate(&["--chat", "q", "--enable-thinking", "false"]);
    assert!(!is_done && message.contains("never reads `enable_thinking`"), "{message}");
    let (is_done, _, message) = generate(&["--chat", "q", "--tool-format", "hermess"]);
    assert!(!is_done && message.contains("did you mean `hermes`"), "{message}");
}
