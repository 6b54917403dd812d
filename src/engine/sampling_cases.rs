//! The published behaviour cases of the `sampling` family: distributions, draws and stopping. Cases about a whole
//! engine are in `tests/determinism.rs`.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::filters::Scratch;
use super::generation::{Generation, ModelLimits, declared_eos};
use super::penalty::History;
use super::request::{Finish, Request};
use super::sampler::{Draw, RowSampling, distribution, draw};
use super::sampling::Sampling;
use super::thought::TextStream;
use crate::seed::Seed;

/// The cases with these operations, or `None` (and one line) when the shared folder is absent.
fn cases(operations: &[&str]) -> Option<Vec<Value>> {
    let shared = std::env::var_os("LIFELONG_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    let path = shared.join("cases/sampling.json");
    let Ok(text) = std::fs::read_to_string(&path) else {
        println!("skipped: {} is absent", path.display());
        return None;
    };
    let family: Value = serde_json::from_str(&text).unwrap();
    let is_wanted = |case: &&Value| operations.contains(&case["given"]["op"].as_str().unwrap());
    let cases: Vec<Value> = family["cases"].as_array().unwrap().iter().filter(is_wanted).cloned().collect();
    assert!(!cases.is_empty());
    Some(cases)
}

/// A number, or one of the texts that stand for what JSON cannot say.
fn number(value: &Value) -> f64 {
    match value.as_str() {
        Some("nan") => f64::NAN,
        Some("inf") => f64::INFINITY,
        Some("-inf") => f64::NEG_INFINITY,
        _ => value.as_f64().unwrap(),
    }
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().map_or_else(Vec::new, |list| list.iter().map(|id| id.as_u64().unwrap() as u32).collect())
}

/// The sampling a distribution case asks for: temperature 1 unless it says otherwise.
fn sampling(given: &Value) -> Sampling {
    let mut sampling = Sampling { temperature: 1.0, ..Sampling::default() };
    for (field, value) in given.as_object().unwrap() {
        match field.as_str() {
            "temperature" => sampling.temperature = number(value),
            "top_k" => sampling.top_k = value.as_i64().unwrap(),
            "top_p" => sampling.top_p = number(value),
            "min_p" => sampling.min_p = number(value),
            "repetition_penalty" => sampling.repetition_penalty = number(value),
            "presence_penalty" => sampling.presence_penalty = number(value),
            "frequency_penalty" => sampling.frequency_penalty = number(value),
            "op" | "logits" | "prompt_ids" | "output_ids" | "seeds" | "n" => {}
            other => panic!("field {other} of a case is not known here"),
        }
    }
    sampling
}

fn logits(given: &Value) -> Vec<f32> {
    given["logits"].as_array().unwrap().iter().map(|logit| number(logit) as f32).collect()
}

#[test]
fn distributions() {
    for case in cases(&["distribution"]).unwrap_or_default() {
        let (id, given, expect) = (&case["id"], &case["given"], &case["expect"]);
        let sampling = sampling(given);
        let mut history = History::of_prompt(&ids(&given["prompt_ids"]));
        ids(&given["output_ids"]).into_iter().for_each(|token| history.push(token));
        let kind = expect["error"]["kind"].as_str();
        if let Err(error) = sampling.validate() {
            assert_eq!(kind, Some("config_error"), "{id}: {error}");
            continue;
        }
        let found = match distribution(&mut logits(given), &sampling, &history) {
            Err(_) => {
                assert_eq!(kind, Some("non_finite_logits"), "{id}");
                continue;
            }
            Ok(found) => found,
        };
        assert_eq!(kind, None, "{id}: expected an error, found {found:?}");
        assert_eq!(found.iter().map(|(token, _)| *token).collect::<Vec<_>>(), ids(&expect["kept"]), "{id}");
        for ((_, probability), expected) in found.iter().zip(expect["probs"].as_array().unwrap()) {
            assert!((probability - number(expected)).abs() < 1e-5, "{id}: {found:?}");
        }
    }
}

#[test]
fn draws_follow_the_distribution() {
    for case in cases(&["draws"]).unwrap_or_default() {
        let given = &case["given"];
        let (sampling, history, mut scratch) = (sampling(given), History::default(), Scratch::default());
        let n = given["n"].as_u64().unwrap();
        let mut counts = vec![0.0; logits(given).len()];
        for seed in 0..n {
            let row = RowSampling {
                sampling: &sampling,
                history: &history,
                constraint: None,
                uniform: Seed(seed).uniform_at(0),
            };
            counts[draw(&mut logits(given), &row, &mut scratch).unwrap().token as usize] += 1.0;
        }
        let probabilities = distribution(&mut logits(given), &sampling, &history).unwrap();
        let chi2: f64 = probabilities
            .iter()
            .map(|(token, probability)| {
                let expected = probability * n as f64;
                (counts[*token as usize] - expected).powi(2) / expected
            })
            .sum();
        assert!(chi2 <= number(&case["expect"]["chi2_max"]), "{}: {chi2}", case["id"]);
    }
}

/// Tokens whose texts a case dictates.
struct Scripted(Vec<String>);

impl TextStream for Scripted {
    fn push(&mut self, token: u32) -> String {
        self.0.get(token as usize).cloned().unwrap_or_default()
    }
}

#[test]
fn stopping() {
    for case in cases(&["stop"]).unwrap_or_default() {
        let (id, given, expect) = (&case["id"], &case["given"], &case["expect"]);
        let mut fields = given["request"].as_object().cloned().unwrap_or_default();
        fields.entry("max_tokens").or_insert(100.into());
        let sampling: Sampling = serde_json::from_value(Value::Object(fields)).unwrap();
        let pieces: Vec<String> = given["scripted_pieces"]
            .as_array()
            .map_or_else(Vec::new, |list| list.iter().map(|piece| piece.as_str().unwrap().to_string()).collect());
        let script = if pieces.is_empty() { ids(&given["scripted_ids"]) } else { (0..pieces.len() as u32).collect() };
        let tokenizer: Vec<u32> = given["tokenizer_eos_id"].as_u64().map(|id| id as u32).into_iter().collect();
        let eos = declared_eos(&[&given["config"], &given["generation_config"]], &tokenizer);

        let request = Request { tokens: vec![0], sampling, seed: 0 };
        let limits = ModelLimits { eos: &eos, context: 1000 };
        let (finish, shown, completion) = generate(&request, limits, pieces, script);

        let expected_finish = expect["finish"].as_str().unwrap();
        match (&finish, expected_finish) {
            (Finish::Eos(found), "eos") => assert_eq!(u64::from(*found), expect["eos_id"].as_u64().unwrap(), "{id}"),
            (Finish::Length, "length") | (Finish::StopString(_), "stop") => {}
            _ => panic!("{id}: expected {expected_finish}, found {finish:?}"),
        }
        if let Some(hidden) = expect["streamed_never_contains"].as_str() {
            assert!(!shown.contains(hidden), "{id}: {shown:?}");
        }
        if expect["output_ids"].is_array() {
            assert_eq!(completion.tokens, ids(&expect["output_ids"]), "{id}");
        }
        if let Some(text) = expect["text"].as_str() {
            assert_eq!(completion.text, text, "{id}");
        }
        if let Some(text) = expect["text_after_think"].as_str() {
            let answer = completion.text.split_once(request.sampling.think_end.as_deref().unwrap()).unwrap().1;
            assert_eq!(answer.trim_start(), text, "{id}");
        }
        assert_eq!(shown, completion.text, "{id}: what was streamed is the text");
    }
}

/// Runs a generation over a script of drawn tokens.
fn generate(
    request: &Request,
    limits: ModelLimits<'_>,
    pieces: Vec<String>,
    script: Vec<u32>,
) -> (Finish, String, super::request::Completion) {
    if let Some(completion) = request.completed_at_once() {
        return (completion.finish.clone(), String::new(), completion);
    }
    let mut generation = Generation::new(request, Box::new(Scripted(pieces)), None);
    let mut shown = String::new();
    for token in script {
        let progress = generation.accept(Draw { token, logprobs: None }, limits);
        shown.push_str(&progress.shown);
        if let Some(finish) = progress.finish {
            return (finish.clone(), shown, generation.take_completion(finish, 0));
        }
    }
    panic!("the script ended before the generation");
}
