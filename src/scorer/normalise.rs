//! When two texts count as the same: the comparisons of specs/benchmarks.md §2.3, in one place for every scorer.

use serde::{Deserialize, Serialize};

/// A named way of making texts comparable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Normalise {
    /// Nothing is changed.
    Exact,
    /// Case folded, punctuation dropped, spaces collapsed (BrowseComp-Plus exact match in AgentCL).
    #[default]
    CasefoldNopunct,
    /// Lower case, `, . ; :` become spaces, spaces collapsed (ContinualSkillBench exact match).
    CsbExact,
    /// Lower case, ASCII punctuation and the articles `a an the` dropped, spaces collapsed (SQuAD's rule).
    Squad,
}

impl Normalise {
    /// The comparable form of one text.
    pub fn apply(self, text: &str) -> String {
        match self {
            Normalise::Exact => text.to_string(),
            Normalise::CasefoldNopunct => collapse(&fold_case(text).replace(is_punctuation, "")),
            Normalise::CsbExact => collapse(&text.to_lowercase().replace([',', '.', ';', ':'], " ")),
            Normalise::Squad => join(&without_articles(&squad_tokens(text))),
        }
    }

    /// Both texts in comparable form. Under [`Normalise::Squad`] a text made of articles alone keeps them, and so does
    /// the other side, so that `the` neither vanishes nor equals `a`.
    pub fn pair(self, left: &str, right: &str) -> (String, String) {
        if self != Normalise::Squad {
            return (self.apply(left), self.apply(right));
        }
        let (left, right) = (squad_tokens(left), squad_tokens(right));
        let (short_left, short_right) = (without_articles(&left), without_articles(&right));
        if short_left.is_empty() || short_right.is_empty() {
            (join(&left), join(&right))
        } else {
            (join(&short_left), join(&short_right))
        }
    }

    pub fn is_match(self, left: &str, right: &str) -> bool {
        let (left, right) = self.pair(left, right);
        left == right
    }

    /// F1 over the bags of space-separated tokens: both empty is 1, one empty is 0.
    pub fn token_f1(self, prediction: &str, reference: &str) -> f64 {
        let (prediction, reference) = self.pair(prediction, reference);
        bag_f1(
            prediction.split(' ').filter(|token| !token.is_empty()),
            reference.split(' ').filter(|token| !token.is_empty()),
        )
    }
}

/// Letters and digits of a text as lower-case words: what `contains` searches in.
pub fn words(text: &str) -> Vec<String> {
    fold_case(text)
        .split(|character: char| !character.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(String::from)
        .collect()
}

/// Unicode case folding as far as the standard library carries it: upper case first, so that `ß` equals `SS`.
fn fold_case(text: &str) -> String {
    text.to_uppercase().to_lowercase()
}

fn squad_tokens(text: &str) -> Vec<String> {
    let bare = text.to_lowercase().replace(|character: char| character.is_ascii_punctuation(), "");
    bare.split_whitespace().map(String::from).collect()
}

fn without_articles(tokens: &[String]) -> Vec<String> {
    tokens.iter().filter(|token| !matches!(token.as_str(), "a" | "an" | "the")).cloned().collect()
}

fn join(tokens: &[String]) -> String {
    tokens.join(" ")
}

fn collapse(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// ASCII punctuation and symbols, general punctuation, CJK punctuation and its full-width forms.
fn is_punctuation(character: char) -> bool {
    character.is_ascii_punctuation()
        || matches!(character,
            '\u{00A1}'..='\u{00BF}' | '\u{2010}'..='\u{2027}' | '\u{2030}'..='\u{205E}' | '\u{3001}'..='\u{3003}'
            | '\u{3008}'..='\u{301F}' | '\u{FF01}'..='\u{FF0F}' | '\u{FF1A}'..='\u{FF20}' | '\u{FF3B}'..='\u{FF40}'
            | '\u{FF5B}'..='\u{FF65}')
            && !character.is_alphanumeric()
}

fn bag_f1<'a>(prediction: impl Iterator<Item = &'a str>, reference: impl Iterator<Item = &'a str>) -> f64 {
    let mut prediction: Vec<&str> = prediction.collect();
    let reference: Vec<&str> = reference.collect();
    let (given, wanted) = (prediction.len(), reference.len());
    if given == 0 || wanted == 0 {
        return if given == wanted { 1.0 } else { 0.0 };
    }
    let mut shared = 0usize;
    for token in &reference {
        if let Some(at) = prediction.iter().position(|other| other == token) {
            prediction.swap_remove(at);
            shared += 1;
        }
    }
    2.0 * shared as f64 / (given + wanted) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_keeps_what_it_should() {
        assert_eq!(Normalise::Exact.apply(" A "), " A ");
        assert_eq!(Normalise::CasefoldNopunct.apply(" Straße,  «Nord»! "), "strasse nord");
        assert_eq!(Normalise::CsbExact.apply("A.B; c-d"), "a b c-d");
        assert_eq!(Normalise::Squad.apply("The U.S.A.  an apple"), "usa apple");
    }

    #[test]
    fn articles_alone_do_not_vanish() {
        assert!(Normalise::Squad.is_match("The", "the"));
        assert!(!Normalise::Squad.is_match("the", "a"));
        assert!(!Normalise::Squad.is_match("the cat", "the"));
        assert!(Normalise::Squad.is_match("the cat", "cat"));
    }

    #[test]
    fn f1_counts_repeats_once_a_pair() {
        let f1 = Normalise::Squad.token_f1("Paris Paris Paris Paris Paris", "Paris");
        assert!((f1 - 1.0 / 3.0).abs() < 1e-12, "{f1}");
        assert_eq!(Normalise::Squad.token_f1("", ""), 1.0);
        assert_eq!(Normalise::Squad.token_f1("", "x"), 0.0);
    }
}
