//! ROUGE-L between two texts as the Python package `rouge` 1.0 computes it (Lin 2004, §3.2, with that package's ways):
//! texts are cut into sentences at full stops, and words count once each, as sets.
//!
//! `tests/golden/tools` holds values from the package. It segments Chinese with a dictionary; here every such
//! character is a word.

use std::collections::BTreeSet;

/// F1 of the union of longest common subsequences; `None` where a text has no sentence, which the package refuses.
pub fn f1(predicted: &str, gold: &str) -> Option<f64> {
    let has_han = predicted.chars().chain(gold.chars()).any(is_han);
    let (predicted, gold) = (sentences(predicted, has_han), sentences(gold, has_han));
    if predicted.is_empty() || gold.is_empty() {
        return None;
    }
    let mut common: BTreeSet<&str> = BTreeSet::new();
    for gold in &gold {
        for predicted in &predicted {
            common.extend(common_subsequence(gold, predicted));
        }
    }
    let words = |sentences: &[Vec<String>]| sentences.iter().flatten().collect::<BTreeSet<_>>().len() as f64;
    let (recall, precision) = (common.len() as f64 / words(&gold), common.len() as f64 / words(&predicted));
    Some(2.0 * (precision * recall) / (precision + recall + 1e-8))
}

fn is_han(character: char) -> bool {
    ('\u{4e00}'..='\u{9fa5}').contains(&character)
}

/// A sentence of spaces alone is one empty word, as in the package.
fn sentences(text: &str, has_han: bool) -> Vec<Vec<String>> {
    let apart =
        |text: &str| text.chars().flat_map(|c| if is_han(c) { vec![' ', c, ' '] } else { vec![c] }).collect::<String>();
    let text = if has_han { apart(text) } else { text.to_string() };
    let words = |sentence: &str| {
        let words: Vec<String> = sentence.split_whitespace().map(String::from).collect();
        if words.is_empty() { vec![String::new()] } else { words }
    };
    text.split('.').filter(|sentence| !sentence.is_empty()).map(words).collect()
}

/// One longest common subsequence: of several the one that the package walks to, which looks back in `right` first.
fn common_subsequence<'a>(left: &'a [String], right: &[String]) -> Vec<&'a str> {
    let mut table = vec![vec![0usize; right.len() + 1]; left.len() + 1];
    for i in 1..=left.len() {
        for j in 1..=right.len() {
            table[i][j] = match left[i - 1] == right[j - 1] {
                true => table[i - 1][j - 1] + 1,
                false => table[i - 1][j].max(table[i][j - 1]),
            };
        }
    }
    let (mut i, mut j) = (left.len(), right.len());
    let mut words = Vec::new();
    while i > 0 && j > 0 {
        if left[i - 1] == right[j - 1] {
            words.push(left[i - 1].as_str());
            (i, j) = (i - 1, j - 1);
        } else if table[i - 1][j] > table[i][j - 1] {
            i -= 1;
        } else {
            j -= 1;
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::f1;

    #[test]
    fn the_same_numbers_as_the_package() {
        let golden: serde_json::Value =
            serde_json::from_str(include_str!("../../../tests/golden/tools/values.json")).unwrap();
        for row in golden["texts"].as_array().unwrap() {
            let found = f1(row[0].as_str().unwrap(), row[1].as_str().unwrap());
            match (found, row[3].as_f64()) {
                (Some(found), Some(expected)) => assert!((found - expected).abs() < 1e-8, "{row}: {found}"),
                (found, expected) => assert_eq!(found, expected, "{row}"),
            }
        }
    }

    #[test]
    fn words_count_once_and_sentences_are_cut_at_stops() {
        let close = |found: Option<f64>, expected: f64| assert!((found.unwrap() - expected).abs() < 1e-6, "{found:?}");
        close(f1("a b c", "a b c"), 1.0);
        close(f1("a a a b", "a b"), 1.0);
        close(f1("x y", "a b"), 0.0);
        close(f1("a b. c d", "a b c d"), 1.0);
        close(f1("the cat sat", "the dog sat"), 2.0 / 3.0);
    }

    #[test]
    fn a_text_without_a_sentence_has_no_value() {
        assert_eq!(f1("...", "a"), None);
        assert_eq!(f1("a", ""), None);
        assert!(f1(" . ", "a").is_some());
    }
}
