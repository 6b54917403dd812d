//! What a GGUF header says of the tokenizer and the chat template.

use lifelong_models::gguf::{Header, Value};

use super::error::{Error, Result};
use super::tokenizer::GgufVocabulary;

/// The `tokenizer.ggml.*` keys of a header, `None` when it carries no vocabulary.
///
/// # Errors
/// [`Error::Load`] naming a key of another type, or one whose texts are not UTF-8.
pub(crate) fn vocabulary(header: &Header) -> Result<Option<GgufVocabulary>> {
    let Some(model) = get::<&str>(header, "model")? else { return Ok(None) };
    Ok(Some(GgufVocabulary {
        model: model.to_string(),
        pre: get::<&str>(header, "pre")?.map(str::to_string),
        tokens: texts(header, "tokens")?,
        token_types: numbers(header, "token_type", |value| value.to::<i32>())?,
        merges: texts(header, "merges")?,
        scores: numbers(header, "scores", |value| value.to::<f32>())?,
        bos: get(header, "bos_token_id")?,
        eos: get(header, "eos_token_id")?,
        eot: get(header, "eot_token_id")?,
        eom: get(header, "eom_token_id")?,
        unknown: get(header, "unknown_token_id")?,
        padding: get(header, "padding_token_id")?,
        add_bos: get(header, "add_bos_token")?,
        add_eos: get(header, "add_eos_token")?,
        add_space_prefix: get(header, "add_space_prefix")?,
    }))
}

/// The chat template in the header.
///
/// # Errors
/// [`Error::Load`] when the key holds something else.
pub(crate) fn chat_template(header: &Header) -> Result<Option<&str>> {
    header.get("tokenizer.chat_template").map_err(|error| fault(&error))
}

fn get<'a, T: lifelong_models::gguf::FromValue<'a>>(header: &'a Header, key: &str) -> Result<Option<T>> {
    header.get(&full(key)).map_err(|error| fault(&error))
}

fn full(key: &str) -> String {
    format!("tokenizer.ggml.{key}")
}

fn fault(error: &dyn std::fmt::Display) -> Error {
    Error::Load { what: "the tokenizer".to_string(), reason: error.to_string() }
}

fn ill_typed(key: &str, expected: &str) -> Error {
    fault(&format!("metadata key `{}`: expected {expected}", full(key)))
}

/// The texts of an array, empty when the key is absent.
fn texts(header: &Header, key: &str) -> Result<Vec<String>> {
    match header.value(&full(key)).map_err(|error| fault(&error))? {
        None => Ok(Vec::new()),
        Some(Value::Array(array)) => {
            let strings = array.strings().ok_or_else(|| ill_typed(key, "an array of strings"))?;
            strings
                .map(|bytes| String::from_utf8(bytes.to_vec()).map_err(|_| ill_typed(key, "UTF-8 strings")))
                .collect()
        }
        Some(_) => Err(ill_typed(key, "an array of strings")),
    }
}

/// The numbers of an array, empty when the key is absent.
fn numbers<T>(header: &Header, key: &str, read: impl Fn(Value<'static>) -> Option<T>) -> Result<Vec<T>> {
    match header.value(&full(key)).map_err(|error| fault(&error))? {
        None => Ok(Vec::new()),
        Some(Value::Array(array)) if array.is_empty() => Ok(Vec::new()),
        Some(Value::Array(array)) => array
            .values()
            .and_then(|values| values.map(read).collect())
            .ok_or_else(|| ill_typed(key, "an array of numbers")),
        Some(_) => Err(ill_typed(key, "an array of numbers")),
    }
}
