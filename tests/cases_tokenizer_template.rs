//! The shared behaviour cases of the family `tokenizer_template`, each run against the tokenizer and the chat template.
//!
//! A case that nothing here runs fails the test, unless it is listed in [`NOT_YET`] with the reason.

use std::path::PathBuf;
use std::time::Instant;

use lifelong::engine::template::{
    ChatMessage, ChatTemplate, RenderOptions, TemplateError, TemplateFault, TemplateTokens,
};
use lifelong::engine::tokenizer::{Specials, Tokenizer};
use serde_json::Value;

/// Ids that are not tested yet, with the reason.
const NOT_YET: &[(&str, &str)] = &[];

fn cases() -> Option<Value> {
    let shared = std::env::var_os("LIFELONG_SHARED")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    let path = shared.join("cases/tokenizer_template.json");
    if !path.is_file() {
        println!("skipped: {} is absent", path.display());
        return None;
    }
    let text = std::fs::read_to_string(path).unwrap();
    Some(serde_json::from_str(&text).unwrap())
}

#[test]
fn every_case_holds() {
    let Some(file) = cases() else { return };
    let mut failures = Vec::new();
    let mut run = 0;
    for case in file["cases"].as_array().unwrap() {
        let id = case["id"].as_str().unwrap();
        if NOT_YET.iter().any(|(listed, _)| *listed == id) {
            continue;
        }
        run += 1;
        if let Err(reason) = check(&file["fixtures"], case) {
            failures.push(format!("{id}: {reason} (why: {})", case["why"].as_str().unwrap_or_default()));
        }
    }
    assert!(run > 0, "the file holds no case");
    assert!(failures.is_empty(), "{} of {run} cases fail:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn the_list_of_exceptions_names_existing_cases() {
    let Some(file) = cases() else { return };
    let ids: Vec<&str> = file["cases"].as_array().unwrap().iter().map(|case| case["id"].as_str().unwrap()).collect();
    for (id, _) in NOT_YET {
        assert!(ids.contains(id), "{id} is no case any more");
    }
}

fn check(fixtures: &Value, case: &Value) -> Result<(), String> {
    let (given, expect) = (&case["given"], &case["expect"]);
    match given["op"].as_str().unwrap() {
        "encode" => encode(fixtures, given, expect),
        "decode" => decode(fixtures, given, expect),
        "decode_stream" => decode_stream(fixtures, given, expect),
        "encode_time" => encode_time(fixtures, given, expect),
        "chat_encode" => chat_encode(fixtures, given, expect),
        "render" => render(given, expect),
        "render_pair" => render_pair(given, expect),
        op => Err(format!("no test runs the operation `{op}`")),
    }
}

fn tokenizer(fixtures: &Value, name: &Value) -> Tokenizer {
    let name = name.as_str().unwrap().strip_prefix("fixture:").unwrap();
    Tokenizer::from_bytes(fixtures[name].to_string().as_bytes()).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| u32::try_from(id.as_u64().unwrap()).unwrap()).collect()
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}: found {found:?}, expected {expected:?}")) }
}

fn encode(fixtures: &Value, given: &Value, expect: &Value) -> Result<(), String> {
    let tokenizer = tokenizer(fixtures, &given["tokenizer"]);
    let specials = if given["parse_special_in_text"] == true { Specials::Parse } else { Specials::Literal };
    let text = given["text"].as_str().unwrap();
    let found = match given["add_special_tokens"].as_bool().unwrap() {
        true => tokenizer.encode_document(text, specials),
        false => tokenizer.encode(text, specials),
    };
    equal("ids", found.clone(), ids(&expect["ids"]))?;
    let tokens: Vec<&str> = found.iter().map(|id| tokenizer.token_text(*id).unwrap()).collect();
    let expected: Vec<&str> =
        expect["tokens"].as_array().unwrap().iter().map(|token| token.as_str().unwrap()).collect();
    equal("tokens", tokens, expected)
}

fn decode(fixtures: &Value, given: &Value, expect: &Value) -> Result<(), String> {
    let tokenizer = tokenizer(fixtures, &given["tokenizer"]);
    let ids = ids(&given["ids"]);
    let found = match given["skip_special_tokens"].as_bool().unwrap() {
        true => tokenizer.decode(&ids),
        false => tokenizer.decode_with_specials(&ids),
    };
    equal("text", found.as_str(), expect["text"].as_str().unwrap())
}

fn decode_stream(fixtures: &Value, given: &Value, expect: &Value) -> Result<(), String> {
    let tokenizer = tokenizer(fixtures, &given["tokenizer"]);
    let ids = ids(&given["ids"]);
    let skip = given["skip_special_tokens"].as_bool().unwrap();
    let mut stream = if skip { tokenizer.decode_stream() } else { tokenizer.decode_stream_with_specials() };
    let pieces: Vec<String> = ids.iter().map(|id| stream.push(*id)).collect();
    let expected: Vec<&str> =
        expect["pieces"].as_array().unwrap().iter().map(|piece| piece.as_str().unwrap()).collect();
    equal("pieces", pieces.iter().map(String::as_str).collect(), expected)?;
    let text = expect["final_text"].as_str().unwrap();
    equal("joined pieces", pieces.concat().as_str(), text)?;
    let whole = if skip { tokenizer.decode(&ids) } else { tokenizer.decode_with_specials(&ids) };
    equal("decoded at once", whole.as_str(), text)
}

fn encode_time(fixtures: &Value, given: &Value, expect: &Value) -> Result<(), String> {
    let unit = given["text_unit"].as_str().unwrap();
    let repeat = usize::try_from(given["repeat"].as_u64().unwrap()).unwrap();
    for name in given["tokenizers"].as_array().unwrap() {
        let tokenizer = tokenizer(fixtures, name);
        let seconds = |repeat: usize, times: usize| {
            let text = unit.repeat(repeat);
            let start = cpu_seconds();
            for _ in 0..times {
                assert!(!tokenizer.encode(&text, Specials::Parse).is_empty());
            }
            cpu_seconds() - start
        };
        // "Doubling the repeat count may at most triple the time", over three doublings: 27 times; quadratic work takes
        // 64 times as long. Both lengths are encoded until the same text has passed, long enough for a coarse clock. A
        // busy machine only adds, so one round of five that holds is enough.
        let limit = expect["max_seconds_cpu"].as_f64().unwrap();
        let rounds: Vec<(f64, f64, f64)> = (0..5)
            .map(|_| (seconds(repeat / 4, 64) / 64.0, seconds(repeat, 1), seconds(2 * repeat, 8) / 8.0))
            .collect();
        if !rounds.iter().any(|(short, given, long)| *given <= limit && *long <= 27.0 * short) {
            return Err(format!("{name}: seconds at a quarter, once and twice the length: {rounds:.4?}"));
        }
    }
    Ok(())
}

/// Seconds this thread has spent on a processor; wall time where the system does not say.
fn cpu_seconds() -> f64 {
    static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    let schedule = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = schedule.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    nanoseconds.map_or_else(|| START.elapsed().as_secs_f64(), |nanoseconds| nanoseconds * 1e-9)
}

fn chat_encode(fixtures: &Value, given: &Value, expect: &Value) -> Result<(), String> {
    let tokenizer = tokenizer(fixtures, &given["tokenizer"]);
    let text = given["rendered"].as_str().unwrap();
    let found = match given["rendered_by_template"].as_bool().unwrap() {
        true => tokenizer.encode(text, Specials::Parse),
        false => tokenizer.encode_prompt(text, Specials::Parse),
    };
    equal("ids", found.clone(), ids(&expect["ids"]))?;
    // The same text given as a plain prompt must not get a second BOS either.
    equal("ids as a prompt", tokenizer.encode_prompt(text, Specials::Parse), ids(&expect["ids"]))?;
    let bos = tokenizer.token_id("<|begin_of_text|>").unwrap();
    equal("BOS", found.iter().filter(|id| **id == bos).count() as u64, expect["bos_count"].as_u64().unwrap())
}

fn rendered(template: &str, given: &Value) -> Result<String, TemplateError> {
    let text = |key: &str| given[key].as_str().map(str::to_string);
    let tokens = TemplateTokens { bos: text("bos_token"), eos: text("eos_token"), ..TemplateTokens::default() };
    let messages: Vec<ChatMessage> = serde_json::from_value(given["messages"].clone()).unwrap();
    let options = RenderOptions {
        add_generation_prompt: given["add_generation_prompt"].as_bool().unwrap(),
        tools: given.get("tools").map(|tools| tools.as_array().unwrap().clone()),
        extra: given.get("vars").map(|vars| vars.as_object().unwrap().clone()).unwrap_or_default(),
        ..RenderOptions::default()
    };
    ChatTemplate::new(template, tokens)?.render(&messages, &options)
}

/// The cases' names of error kinds.
fn fault_named(kind: &str) -> TemplateFault {
    match kind {
        "template_raised" => TemplateFault::Raised,
        "template_type_error" => TemplateFault::Type,
        "template_security" => TemplateFault::Security,
        "template_limit" => TemplateFault::Limit,
        other => panic!("no fault of ours is called {other}"),
    }
}

fn render(given: &Value, expect: &Value) -> Result<(), String> {
    let found = rendered(given["template"].as_str().unwrap(), given);
    let Some(error) = expect.get("error") else {
        return equal("text", found.map_err(|error| error.to_string())?.as_str(), expect["text"].as_str().unwrap());
    };
    match found {
        Err(TemplateError::Failed { fault, reason, .. }) => {
            equal("fault", fault, fault_named(error["kind"].as_str().unwrap()))?;
            let part = error.get("message_contains").and_then(Value::as_str).unwrap_or_default();
            if reason.contains(part) { Ok(()) } else { Err(format!("the message {reason:?} lacks {part:?}")) }
        }
        other => Err(format!("found {other:?}, expected the error {error}")),
    }
}

fn render_pair(given: &Value, expect: &Value) -> Result<(), String> {
    let template = given["template"].as_str().unwrap();
    let [first, second] = ["first", "second"].map(|turn| rendered(template, &given[turn]).unwrap());
    let common = first.chars().zip(second.chars()).take_while(|(a, b)| a == b).count();
    equal("first is a prefix", second.starts_with(&first), expect["first_is_prefix_of_second"].as_bool().unwrap())?;
    equal("common prefix", common as u64, expect["common_prefix_chars"].as_u64().unwrap())
}
