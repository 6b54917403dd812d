//! What the files of an embedding model say of it: pooling, prompts, the limit on tokens.
//!
//! `modules.json` lists the steps from text to vector, as sentence-transformers writes them. A step that we do not compute
//! is an error, and so is a pooling that no file states: a model pooled in another way than it was trained gives vectors
//! that look right and are not.

use lifelong_models::Checkpoint;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::hub::ModelFiles;
use super::super::model::json_beside;

/// How the vectors of a text's tokens become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pooling {
    Mean,
    /// The first token's.
    Cls,
    /// The last token's.
    Last,
}

impl std::str::FromStr for Pooling {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "mean" => Ok(Pooling::Mean),
            "cls" => Ok(Pooling::Cls),
            "last" => Ok(Pooling::Last),
            other => Err(format!("expected mean, cls or last, found `{other}`")),
        }
    }
}

/// What is put in front of a text before it is tokenized; empty for most models.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompts {
    pub query: String,
    pub document: String,
}

impl Prompts {
    /// The prompt of queries with another task in it, of models that are told one (`Instruct: TASK` on a line before the
    /// query; Wang et al. 2024, "Improving Text Embeddings with Large Language Models", §3.1); `None` for all others.
    pub fn query_with(&self, task: &str) -> Option<String> {
        let (_, behind) = self.query.strip_prefix(INSTRUCT)?.split_once('\n')?;
        Some(format!("{INSTRUCT}{task}\n{behind}"))
    }
}

const INSTRUCT: &str = "Instruct: ";

/// Everything the files say.
#[derive(Debug, PartialEq)]
pub(super) struct Said {
    /// `None` when nothing states it.
    pub pooling: Option<Pooling>,
    pub prompts: Prompts,
    /// Of `sentence_bert_config.json`.
    pub max_tokens: Option<usize>,
}

/// Reads the files beside a checkpoint, and the checkpoint's own keys where it is GGUF.
///
/// # Errors
/// The file, what was expected in it and what was found.
pub(super) fn read(files: &ModelFiles, checkpoint: &Checkpoint) -> Result<Said, String> {
    let json = |name: &str| json_beside(files, name);
    let pooling_file = pooling_file(&json("modules.json"))?;
    let name = format!("{}/config.json", pooling_file.as_deref().unwrap_or("1_Pooling"));
    let pooling_json = json(&name);
    if pooling_file.is_some() && pooling_json.is_null() {
        return Err(format!("modules.json names a pooling module, whose `{name}` is missing: fetch it too"));
    }
    let prompts = prompts_of(&json("config_sentence_transformers.json"))?;
    if pooling_json["include_prompt"] == Value::Bool(false) && prompts != Prompts::default() {
        return Err(format!("`include_prompt` is false in {name}: pooling without the prompt is not supported"));
    }
    let pooling = match pooling_of(&pooling_json)? {
        Some(pooling) => Some(pooling),
        None => pooling_of_gguf(checkpoint)?,
    };
    let max_tokens = json("sentence_bert_config.json")["max_seq_length"].as_u64().map(|most| most as usize);
    Ok(Said { pooling, prompts, max_tokens })
}

/// The folder of the pooling module; `None` without `modules.json` or such a module in it.
fn pooling_file(modules: &Value) -> Result<Option<String>, String> {
    const KNOWN: [&str; 3] = ["Transformer", "Pooling", "Normalize"];
    let mut folder = None;
    for module in modules.as_array().into_iter().flatten() {
        let class = module["type"].as_str().unwrap_or_default();
        let name = class.rsplit('.').next().unwrap_or_default();
        if !KNOWN.contains(&name) {
            return Err(format!("modules.json asks for the step `{class}`, supported are {}", KNOWN.join(", ")));
        }
        if name == "Pooling" {
            let path = module["path"].as_str().unwrap_or_default();
            if path.is_empty() || folder.replace(path.to_string()).is_some() {
                return Err("modules.json must name the folder of one pooling module".into());
            }
        }
    }
    Ok(folder)
}

/// The one mode that a pooling module's `config.json` switches on; `None` without the file.
pub(super) fn pooling_of(config: &Value) -> Result<Option<Pooling>, String> {
    const KNOWN: [(&str, &str, Pooling); 3] = [
        ("pooling_mode_mean_tokens", "mean", Pooling::Mean),
        ("pooling_mode_cls_token", "cls", Pooling::Cls),
        ("pooling_mode_lasttoken", "lasttoken", Pooling::Last),
    ];
    let Value::Object(keys) = config else { return Ok(None) };
    // One word since sentence-transformers 5.5, a switch for each mode before.
    let is_on = |(key, value): &(&String, &Value)| key.starts_with("pooling_mode_") && **value == Value::Bool(true);
    let switched_on: Vec<&str> = match keys.get("pooling_mode") {
        Some(Value::String(mode)) => vec![mode],
        Some(Value::Array(modes)) => modes.iter().filter_map(Value::as_str).collect(),
        _ => keys.iter().filter(is_on).map(|(key, _)| key.as_str()).collect(),
    };
    let [only] = switched_on.as_slice() else {
        return Err(format!("expected one pooling mode switched on in 1_Pooling/config.json, found {switched_on:?}"));
    };
    let known = KNOWN.iter().find(|(key, word, _)| key == only || word == only);
    let known = known.map(|(_, _, pooling)| Some(*pooling));
    known.ok_or_else(|| format!("`{only}` is not supported; supported: {:?}", KNOWN.map(|(key, ..)| key)))
}

/// `ARCHITECTURE.pooling_type`, numbered as in `llama.h`.
fn pooling_of_gguf(checkpoint: &Checkpoint) -> Result<Option<Pooling>, String> {
    let Some(header) = checkpoint.gguf() else { return Ok(None) };
    let architecture: Option<&str> = header.get("general.architecture").map_err(|error| error.to_string())?;
    let key = format!("{}.pooling_type", architecture.unwrap_or_default());
    match header.get::<u32>(&key).map_err(|error| error.to_string())? {
        None => Ok(None),
        Some(1) => Ok(Some(Pooling::Mean)),
        Some(2) => Ok(Some(Pooling::Cls)),
        Some(3) => Ok(Some(Pooling::Last)),
        Some(other) => Err(format!("`{key}` is {other}, supported are 1 (mean), 2 (cls) and 3 (last)")),
    }
}

/// The prompts that sentence-transformers puts before queries and documents: those named so, else the default one.
fn prompts_of(config: &Value) -> Result<Prompts, String> {
    let file = "config_sentence_transformers.json";
    let text = |name: &str| match &config["prompts"][name] {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        other => Err(format!("prompt `{name}` in {file}: expected a text, found {other}")),
    };
    let default = match &config["default_prompt_name"] {
        Value::String(name) => text(name)?.ok_or_else(|| format!("{file} has no prompt `{name}`, its default"))?,
        _ => String::new(),
    };
    let first = |names: &[&str]| -> Result<String, String> {
        for name in names {
            if let Some(text) = text(name)? {
                return Ok(text);
            }
        }
        Ok(default.clone())
    };
    Ok(Prompts { query: first(&["query"])?, document: first(&["document", "passage", "corpus"])? })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_task_stands_where_the_models_own_stood() {
        let prompts = |query: &str| Prompts { query: query.into(), document: String::new() };
        let told = prompts("Instruct: Find passages\nQuery:").query_with("Find facts");
        assert_eq!(told.as_deref(), Some("Instruct: Find facts\nQuery:"));
        assert_eq!((prompts("query: ").query_with("x"), prompts("Instruct: x").query_with("y")), (None, None));
    }

    #[test]
    fn pooling_that_is_unknown_or_combined_is_refused_by_name() {
        let both = json!({ "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true });
        assert!(pooling_of(&both).unwrap_err().contains("pooling_mode_cls_token"));
        let unknown = json!({ "pooling_mode_max_tokens": true });
        assert!(pooling_of(&unknown).unwrap_err().contains("pooling_mode_max_tokens"));
        assert_eq!(pooling_of(&Value::Null), Ok(None));
    }

    #[test]
    fn pooling_in_one_word_is_read_too() {
        assert_eq!(
            pooling_of(&json!({ "pooling_mode": "lasttoken", "include_prompt": true })),
            Ok(Some(Pooling::Last))
        );
        assert_eq!(pooling_of(&json!({ "pooling_mode": ["cls"] })), Ok(Some(Pooling::Cls)));
        assert!(pooling_of(&json!({ "pooling_mode": ["cls", "mean"] })).unwrap_err().contains("mean"));
    }

    /// A GGUF file of two keys and no tensors.
    fn gguf(pooling_type: u32) -> Checkpoint {
        let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
        let bytes = [
            &b"GGUF\x03\0\0\0"[..],
            &[0; 8],
            &2u64.to_le_bytes(),
            &text("general.architecture"),
            &8u32.to_le_bytes(),
            &text("qwen3"),
            &text("qwen3.pooling_type"),
            &4u32.to_le_bytes(),
            &pooling_type.to_le_bytes(),
            &[0; 32],
        ]
        .concat();
        let file = lifelong_models::file::ModelFile::from_bytes(std::path::Path::new("x.gguf"), bytes);
        Checkpoint::from_gguf(std::sync::Arc::new(file)).unwrap()
    }

    #[test]
    fn gguf_states_pooling_by_number() {
        assert_eq!(pooling_of_gguf(&gguf(1)), Ok(Some(Pooling::Mean)));
        assert_eq!(pooling_of_gguf(&gguf(3)), Ok(Some(Pooling::Last)));
        assert!(pooling_of_gguf(&gguf(4)).unwrap_err().contains("qwen3.pooling_type"));
    }

    #[test]
    fn steps_that_are_not_computed_are_refused() {
        let step = |class: &str, path: &str| json!({ "type": class, "path": path });
        let pooling = step("sentence_transformers.models.Pooling", "1_Pooling");
        let plain = json!([step("sentence_transformers.models.Transformer", ""), pooling]);
        assert_eq!(pooling_file(&plain), Ok(Some("1_Pooling".to_string())));
        assert_eq!(pooling_file(&Value::Null), Ok(None));
        let dense = json!([pooling, step("sentence_transformers.models.Dense", "2_Dense")]);
        assert!(pooling_file(&dense).unwrap_err().contains("models.Dense"));
    }

    #[test]
    fn queries_have_the_prompt_of_their_name_and_documents_theirs() {
        let prompts = |config| prompts_of(&config).unwrap();
        let both = json!({ "prompts": { "query": "Q: ", "document": "" }, "default_prompt_name": null });
        assert_eq!(prompts(both), Prompts { query: "Q: ".into(), document: String::new() });
        let default = json!({ "prompts": { "x": "X ", "passage": "P " }, "default_prompt_name": "x" });
        assert_eq!(prompts(default), Prompts { query: "X ".into(), document: "P ".into() });
        assert_eq!(prompts(Value::Null), Prompts::default());
        assert!(prompts_of(&json!({ "default_prompt_name": "gone" })).unwrap_err().contains("gone"));
    }
}
