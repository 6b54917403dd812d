//! Tokens of a backbone whose tokenizer is not on this machine: good enough to price a plan, for nothing else.
//!
//! A text is cut where byte-pair tokenizers cut it before they merge (words with the space before them, digits, runs of
//! white space, marks), and long words into pieces. Equal texts give equal numbers, so that shared prefixes are shared here
//! too. Control tokens of a chat template count as [`TURN_TOKENS`] a message.

use crate::engine::generate::Prompter;
use crate::engine::template::ChatMessage;

/// Letters of a word that make one token.
const LETTERS: usize = 7;
/// Tokens that a chat template puts around a message.
const TURN_TOKENS: u32 = 5;

/// Counts tokens without a vocabulary.
pub struct EstimatedText;

impl Prompter for EstimatedText {
    fn render(&self, messages: &[ChatMessage]) -> anyhow::Result<Vec<u32>> {
        let mut tokens = Vec::new();
        for message in messages {
            tokens.extend((0..TURN_TOKENS).map(|place| number(&format!("{} {place}", message.role))));
            tokens.extend(self.encode(message.content.as_str().unwrap_or_default()));
        }
        tokens.extend((0..TURN_TOKENS).map(|place| number(&format!("reply {place}"))));
        Ok(tokens)
    }

    fn encode(&self, text: &str) -> Vec<u32> {
        pieces(text).into_iter().map(number).collect()
    }

    fn has_template(&self) -> bool {
        true
    }
}

fn pieces(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let length = first_piece(rest);
        let (piece, after) = rest.split_at(length);
        pieces.push(piece);
        rest = after;
    }
    pieces
}

/// Bytes of the first piece of a text that is not empty.
fn first_piece(text: &str) -> usize {
    let run = |text: &str, most: usize, is_in: &dyn Fn(char) -> bool| -> usize {
        text.chars().take_while(|c| is_in(*c)).take(most).map(char::len_utf8).sum()
    };
    let word = text.strip_prefix(' ').unwrap_or(text);
    let letters = run(word, LETTERS, &char::is_alphabetic);
    if letters > 0 {
        return text.len() - word.len() + letters;
    }
    match run(text, usize::MAX, &char::is_whitespace) {
        // A digit or a mark stands alone; two equal marks together.
        0 => {
            let first = text.chars().next().unwrap_or(' ');
            run(text, if first.is_numeric() { 1 } else { 2 }, &|c| c == first)
        }
        blank => match text[..blank].strip_suffix(' ') {
            // The last space belongs to the word behind it.
            Some(before) if !before.is_empty() && text[blank..].starts_with(char::is_alphabetic) => before.len(),
            _ => blank,
        },
    }
}

/// FNV-1a: the same piece, the same number.
fn number(piece: &str) -> u32 {
    piece.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_where_tokenizers_cut_it() {
        assert_eq!(
            pieces("def f(x):\n    return x == 12"),
            ["def", " f", "(", "x", ")", ":", "\n   ", " return", " x", " ", "==", " ", "1", "2"]
        );
        assert_eq!(pieces("internationally, über"), ["interna", "tionall", "y", ",", " über"]);
        assert_eq!(pieces(""), [""; 0]);
        for text in ["a  b", "  ", "\t\tx", "日本語 のテスト", "a\u{301}é!!!", " 7"] {
            assert_eq!(pieces(text).concat(), text);
            assert!(pieces(text).iter().all(|piece| !piece.is_empty()));
        }
    }

    #[test]
    fn equal_beginnings_are_equal_tokens() {
        let rendered = |last: &str| {
            let messages = [ChatMessage::system("Write Python."), ChatMessage::user(last)];
            EstimatedText.render(&messages).unwrap()
        };
        let (left, right) = (rendered("Sort a list."), rendered("Sort a map."));
        let shared = left.iter().zip(&right).take_while(|(left, right)| left == right).count();
        assert_eq!((left.len(), shared), (3 * 5 + 3 + 4, 2 * 5 + 3 + 2));
    }
}
