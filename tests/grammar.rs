//! Constrained decoding on real weights: the reply is what the schema says, and the same whatever the batch.

mod support;

use lifelong::engine::error::Error;
use lifelong::engine::grammar::Grammar;
use lifelong::engine::model;
use lifelong::engine::request::{Completion, Finish, Request};
use lifelong::engine::sampling::Sampling;
use lifelong::engine::session::{Engine, EngineOptions, Session};
use lifelong::engine::template::{ChatMessage, RenderOptions};
use lifelong_kernels::Device;
use serde_json::{Value, json};

fn engine(max_batch: usize) -> Option<Engine> {
    let files = support::model_files("smollm2-135m-instruct")?;
    let loaded = model::load(&files, &Device::cpu(2)).unwrap();
    let options =
        EngineOptions { max_batch, kv_memory_bytes: Some(512 << 20), prefill_chunk: 97, ..EngineOptions::default() };
    Some(Engine::start(loaded, &options).unwrap())
}

/// Schemas with a limit on every length, so that each reply ends, and what to ask under them.
fn schemas() -> Vec<(Value, &'static str)> {
    let text = json!({"type": "string", "maxLength": 12});
    let object = |properties: Value| {
        let required: Vec<&String> = properties.as_object().unwrap().keys().collect();
        json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
    };
    vec![
        (
            object(json!({"city": text, "people": {"type": "integer", "minimum": 0, "maximum": 99999999}})),
            "Describe Paris.",
        ),
        (object(json!({"answer": {"enum": ["yes", "no", "maybe"]}})), "Is water wet?"),
        (json!({"type": "boolean"}), "Is the sky green?"),
        (json!({"type": "integer", "minimum": 1, "maximum": 10}), "Rate this soup."),
        (json!({"type": "integer", "minimum": -20, "maximum": 20, "multipleOf": 5}), "A number, please."),
        (json!({"enum": ["A", "B", "C", "D"]}), "Which letter comes after B?"),
        (json!({"const": {"fixed": [1, null, "é"]}}), "Anything."),
        (
            json!({"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "minItems": 3, "maxItems": 3}),
            "Three numbers.",
        ),
        (json!({"type": "array", "items": text, "minItems": 1, "maxItems": 4}), "Name some fruit."),
        (json!({"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4}$"}), "A licence plate."),
        (json!({"type": "string", "format": "date"}), "When did the war end?"),
        (json!({"type": ["null", "boolean"]}), "Say nothing."),
        (
            json!({"anyOf": [object(json!({"a": {"type": "boolean"}})), object(json!({"b": {"type": "null"}}))]}),
            "a or b?",
        ),
        (
            object(json!({"steps": {"type": "array", "maxItems": 2, "items": object(json!({"do": text}))}})),
            "How to boil an egg?",
        ),
        (
            json!({"$defs": {"node": object(json!({"name": text, "next": {"anyOf": [{"type": "null"}, {"type": "boolean"}]}}))}, "$ref": "#/$defs/node"}),
            "A list of one.",
        ),
        (
            object(
                json!({"lat": {"type": "integer", "minimum": -90, "maximum": 90}, "lon": {"type": "integer", "minimum": -180, "maximum": 180}}),
            ),
            "Where is Rome?",
        ),
        (object(json!({"日本語": text, "q\"uote": {"type": "boolean"}})), "Keys of all kinds."),
        (json!({"type": "object", "properties": {"only": text}, "additionalProperties": false}), "All optional."),
        (
            json!({"type": "array", "prefixItems": [{"type": "boolean"}, text], "items": false, "minItems": 2}),
            "A pair.",
        ),
        (
            object(
                json!({"x": {"type": "object", "properties": {"y": {"const": 1}}, "required": ["y"], "additionalProperties": false}}),
            ),
            "Deep.",
        ),
    ]
}

/// Whether a value is what a schema says, for the keywords that the schemas above use. Written apart from the decoder.
fn holds(schema: &Value, value: &Value, root: &Value) -> bool {
    if let Some(path) = schema["$ref"].as_str() {
        return holds(root.pointer(path.trim_start_matches('#')).unwrap(), value, root);
    }
    let is_type = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        // The standard counts 1.0 as an integer, and -0.0 too.
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("no check for the type {other}"),
    };
    schema.as_object().unwrap().iter().all(|(keyword, limit)| match keyword.as_str() {
        "type" => match limit {
            Value::Array(names) => names.iter().any(|name| is_type(name.as_str().unwrap())),
            name => is_type(name.as_str().unwrap()),
        },
        "enum" => limit.as_array().unwrap().contains(value),
        "const" => limit == value,
        "anyOf" => limit.as_array().unwrap().iter().any(|schema| holds(schema, value, root)),
        "minimum" => value.as_f64().unwrap() >= limit.as_f64().unwrap(),
        "maximum" => value.as_f64().unwrap() <= limit.as_f64().unwrap(),
        "multipleOf" => value.as_f64().unwrap() % limit.as_f64().unwrap() == 0.0,
        "maxLength" => value.as_str().unwrap().chars().count() as u64 <= limit.as_u64().unwrap(),
        "pattern" => regex::Regex::new(limit.as_str().unwrap()).unwrap().is_match(value.as_str().unwrap()),
        "format" => regex::Regex::new(r"^\d{4}-\d\d-\d\d$").unwrap().is_match(value.as_str().unwrap()),
        "minItems" => value.as_array().unwrap().len() as u64 >= limit.as_u64().unwrap(),
        "maxItems" => value.as_array().unwrap().len() as u64 <= limit.as_u64().unwrap(),
        "prefixItems" => limit
            .as_array()
            .unwrap()
            .iter()
            .zip(value.as_array().unwrap())
            .all(|(schema, item)| holds(schema, item, root)),
        "items" => {
            let before = schema["prefixItems"].as_array().map_or(0, Vec::len);
            let mut rest = value.as_array().unwrap().iter().skip(before);
            if limit == false { rest.next().is_none() } else { rest.all(|item| holds(limit, item, root)) }
        }
        "properties" => {
            let known = limit.as_object().unwrap();
            known.iter().all(|(key, schema)| value.get(key).is_none_or(|value| holds(schema, value, root)))
        }
        "required" => limit.as_array().unwrap().iter().all(|key| value.get(key.as_str().unwrap()).is_some()),
        "additionalProperties" => {
            assert!(limit == false);
            value.as_object().unwrap().keys().all(|key| schema["properties"].get(key).is_some())
        }
        "$defs" => true,
        other => panic!("no check for the keyword {other}"),
    })
}

fn request(session: &Session, question: &str, grammar: Option<Grammar>, temperature: f64, seed: u64) -> Request {
    let tokens = session.render(&[ChatMessage::user(question)], &RenderOptions::default()).unwrap();
    let sampling = Sampling {
        grammar,
        temperature,
        top_p: if temperature > 0.0 { 0.9 } else { 1.0 },
        max_tokens: 160,
        ..Sampling::default()
    };
    Request { tokens, sampling, seed }
}

/// All requests: each schema greedily and drawn, and free ones between them.
fn requests(session: &Session) -> Vec<Request> {
    let mut requests = Vec::new();
    for (index, (schema, question)) in (0u64..).zip(schemas()) {
        let grammar = || Some(Grammar::JsonSchema(schema.clone()));
        requests.push(request(session, question, grammar(), 0.0, index));
        requests.push(request(session, question, grammar(), 1.2, 100 + index));
        if index % 5 == 0 {
            requests.push(Request {
                sampling: Sampling { max_tokens: 12, ..request(session, question, None, 0.7, index).sampling },
                ..request(session, question, None, 0.7, index)
            });
        }
    }
    requests
}

fn all(session: &Session, requests: Vec<Request>) -> Vec<Completion> {
    let mut completions = vec![None; requests.len()];
    for (index, completion) in session.complete_all(requests) {
        completions[index] = Some(completion.unwrap());
    }
    completions.into_iter().map(Option::unwrap).collect()
}

#[test]
fn replies_are_what_their_schema_says_and_the_same_in_any_batch() {
    let Some(together) = engine(48) else { return };
    let session = together.session();
    let asked = requests(&session);
    let completions = all(&session, asked.clone());
    assert_eq!(session.stats().finished_requests, asked.len() as u64);

    let mut schemas_met = 0;
    for (request, completion) in asked.iter().zip(&completions) {
        let Some(Grammar::JsonSchema(schema)) = &request.sampling.grammar else { continue };
        let value: Value = serde_json::from_str(&completion.text)
            .unwrap_or_else(|error| panic!("{schema}: {error}: {:?} ({:?})", completion.text, completion.finish));
        assert!(holds(schema, &value, schema), "{schema}: {value}");
        assert!(matches!(completion.finish, Finish::Grammar | Finish::Eos(_)), "{schema}: {:?}", completion.finish);
        schemas_met += 1;
    }
    assert_eq!(schemas_met, 40);
    let ended = completions.iter().filter(|completion| completion.finish == Finish::Grammar).count();
    assert!(ended > 0, "a form that admits nothing more ends the completion");

    let alone = engine(1).unwrap();
    let in_other_order: Vec<Request> = asked.iter().rev().cloned().collect();
    let alone = all(&alone.session(), in_other_order);
    for ((request, one), other) in asked.iter().zip(&completions).zip(alone.iter().rev()) {
        assert_eq!(one.tokens, other.tokens, "{:?}", request.sampling.grammar);
        assert_eq!((&one.text, &one.finish), (&other.text, &other.finish));
    }
}

#[test]
fn what_is_not_masked_keeps_its_probability() {
    let Some(engine) = engine(4) else { return };
    let session = engine.session();
    let free = request(&session, "Answer yes or no: is ice cold?", None, 0.0, 1);
    let any = Grammar::Regex("(?s:.*)".into());
    let logprobs = |grammar| Sampling { grammar, logprobs: 3, max_tokens: 12, ..Sampling::default() };
    let free = session.complete(Request { sampling: logprobs(None), ..free }).unwrap();
    let tokens =
        session.render(&[ChatMessage::user("Answer yes or no: is ice cold?")], &RenderOptions::default()).unwrap();
    let masked = session.complete(Request { tokens, sampling: logprobs(Some(any)), seed: 1 }).unwrap();
    assert_eq!(
        (free.tokens, free.logprobs),
        (masked.tokens, masked.logprobs),
        "a form that admits all changes nothing"
    );
}

#[test]
fn a_schema_that_cannot_be_honoured_is_an_error_before_decoding() {
    let Some(engine) = engine(2) else { return };
    let session = engine.session();
    let unsupported = Grammar::JsonSchema(json!({"type": "array", "uniqueItems": true}));
    let error = session.complete(request(&session, "q", Some(unsupported), 0.0, 1)).unwrap_err();
    assert!(matches!(error, Error::Grammar { .. }) && error.to_string().contains("uniqueItems"), "{error}");
    assert_eq!(session.stats().steps, 0);
}
