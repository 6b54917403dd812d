//! The `answer` and `choice` operations of the `extraction` behaviour cases.

mod cases;

use lifelong::reply::{answer, think};
use serde_json::Value;

fn options(given: &Value) -> Vec<String> {
    given["options"].as_array().unwrap().iter().map(|option| option.as_str().unwrap().to_string()).collect()
}

#[test]
fn answer_cases_hold() {
    let Some(cases) = cases::load("extraction.json") else { return };
    let mut checked = 0;
    for case in &cases {
        let id = case["id"].as_str().unwrap();
        let given = &case["given"];
        let expected = &case["expect"]["value"];
        let text = given["text"].as_str().unwrap_or_default();
        let said = think::strip(text);
        match (given["op"].as_str().unwrap(), given["rule"].as_str()) {
            ("answer", Some("number")) => assert_eq!(said.and_then(answer::last_number), expected.as_f64(), "{id}"),
            ("answer", Some("marker")) => {
                let value = said.and_then(answer::marker).and_then(answer::last_number);
                assert_eq!(value, expected.as_f64(), "{id}");
            }
            ("answer", Some("boxed")) => assert_eq!(said.and_then(answer::boxed), expected.as_str(), "{id}"),
            ("choice", None) => {
                let value = said.and_then(|said| answer::choice(said, &options(given)));
                assert_eq!(value.as_deref(), expected.as_str(), "{id}");
            }
            _ => continue,
        }
        checked += 1;
    }
    assert!(checked >= 14, "only {checked} cases");
}

proptest::proptest! {
    /// No text a model could write makes a reader panic, and what is read is finite and one of the options.
    #[test]
    fn readers_take_any_text(text in "(\\PC|[-0-9.,$%(){}\\\\#\n]|<think>|</think>|\\\\boxed\\{){0,40}") {
        let letters = ["A", "B"].map(String::from);
        let said = think::strip(&text).unwrap_or_default();
        assert!(answer::last_number(said).is_none_or(f64::is_finite));
        assert!(answer::choice(said, &letters).is_none_or(|letter| letters.contains(&letter)));
        assert!(answer::first_line(said).is_none_or(|line| !line.trim().is_empty()));
        answer::marker(said);
        answer::boxed(said);
    }

    /// A number written in any of the usual ways reads back as itself.
    #[test]
    fn written_numbers_read_back(whole in 0u32..2_000_000, cents in 0u32..100) {
        let grouped = group(whole);
        let value = f64::from(whole) + f64::from(cents) / 100.0;
        for text in [
            format!("It costs ${grouped}.{cents:02}."),
            format!("{whole}.{cents:02}"),
            format!("first 7, then {grouped}.{cents:02}%"),
        ] {
            let read = answer::last_number(&text).unwrap();
            assert!((read - value).abs() < 1e-6, "{text} reads as {read}");
        }
        assert_eq!(answer::last_number(&format!("from -{grouped}")), Some(0.0 - f64::from(whole)));
    }
}

fn group(number: u32) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}
