//! Whether arguments mean what the reference's mean (WildToolBench, released checker: second of its two checks).
//!
//! Types must be identical, so 1 and 1.0 differ. Texts may differ a little; how much depends on their length.

use serde_json::Value;

use super::rouge;
use crate::reply::similarity;

/// A reference text of fewer characters must be this alike character by character.
const SHORT: usize = 10;
const MIN_RATIO: f64 = 0.8;
const MIN_ROUGE: f64 = 0.7;

/// The first fault, or `None` where they agree.
pub fn fault(predicted: &Value, gold: &Value) -> Option<&'static str> {
    if kind(predicted) != kind(gold) {
        return Some("match: type");
    }
    match (predicted, gold) {
        (Value::Object(predicted), Value::Object(gold)) => {
            if predicted.len() != gold.len() || gold.keys().any(|name| !predicted.contains_key(name)) {
                return Some("match: keys");
            }
            gold.iter().find_map(|(name, gold)| fault(&predicted[name], gold))
        }
        (Value::Array(predicted), Value::Array(gold)) => {
            if predicted.len() != gold.len() {
                return Some("match: array length");
            }
            predicted.iter().zip(gold).find_map(|(predicted, gold)| fault(predicted, gold))
        }
        (Value::String(predicted), Value::String(gold)) => text_fault(predicted, gold),
        _ => (predicted != gold).then_some("match: value"),
    }
}

/// Python's type of a value.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "none",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float",
        Value::Number(_) => "int",
        Value::String(_) => "str",
        Value::Array(_) => "list",
        Value::Object(_) => "dict",
    }
}

fn text_fault(predicted: &str, gold: &str) -> Option<&'static str> {
    let squeezed = |text: &str| text.split_whitespace().collect::<String>().to_lowercase();
    if predicted == gold || squeezed(predicted) == squeezed(gold) {
        return None;
    }
    if gold.chars().count() < SHORT && similarity::ratio(predicted, gold) < MIN_RATIO {
        return Some("match: text similarity");
    }
    // As released, a short text that passed is asked for its words too: one that differs in its only word fails.
    match rouge::f1(predicted, gold) {
        None => Some("match: rouge"),
        Some(score) if score < MIN_ROUGE => Some("match: text similarity"),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn equal_up_to_spaces_and_case_agrees() {
        for (predicted, gold) in [
            (json!({"a": 1, "b": [true, null, 1.5]}), json!({"b": [true, null, 1.5], "a": 1})),
            (json!("Las Vegas"), json!("lasvegas")),
            (
                json!("the quick brown fox jumps over the lazy dog"),
                json!("the quick brown fox leaps over the lazy dog"),
            ),
        ] {
            assert_eq!(fault(&predicted, &gold), None, "{predicted} {gold}");
        }
    }

    #[test]
    fn every_kind_of_difference_has_its_words() {
        for (predicted, gold, words) in [
            (json!(1.0), json!(1), "match: type"),
            (json!(true), json!(1), "match: type"),
            (json!("1"), json!(1), "match: type"),
            (json!(4), json!(5), "match: value"),
            (json!({"a": 1}), json!({}), "match: keys"),
            (json!({"a": 1}), json!({"b": 1}), "match: keys"),
            (json!([1]), json!([1, 2]), "match: array length"),
            (json!(["a", "b"]), json!(["b", "a"]), "match: text similarity"),
            // Alike enough by characters, and yet no word in common.
            (json!("climates"), json!("climate"), "match: text similarity"),
            (json!("Republican party of the state"), json!("Democrat"), "match: text similarity"),
            (json!("..."), json!("the reference text"), "match: rouge"),
        ] {
            assert_eq!(fault(&predicted, &gold), Some(words), "{predicted} {gold}");
        }
    }
}
