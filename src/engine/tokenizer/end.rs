//! Which tokens end a generation.

use super::vocabulary::{TokenKind, Vocabulary};

/// Control tokens that end a turn or a document in the chat formats in use. Conversions often name only one of a
/// model's, so they are recognised by their text, as llama.cpp does (`src/llama-vocab.cpp`, end-of-generation list).
const ENDING: &[&str] = &[
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|end_of_turn|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",
    "<EOT>",
    "[EOS]",
    "<eos>",
    "</s>",
];

/// The declared ids and, when asked to `recognise`, those that say so by their text: ascending, each once.
///
/// In the Harmony format (`<|return|>`) `<|end|>` only ends one of a reply's parts.
pub(super) fn ending_ids(
    vocabulary: &Vocabulary,
    declared: impl IntoIterator<Item = u32>,
    recognise: bool,
) -> Vec<u32> {
    let harmony = vocabulary.find("<|return|>").is_some();
    let by_text = vocabulary
        .iter()
        .filter(|(_, token)| recognise && token.kind == TokenKind::Control && ENDING.contains(&&*token.text))
        .filter(|(_, token)| !(harmony && &*token.text == "<|end|>"))
        .map(|(id, _)| id);
    let mut ids: Vec<u32> = declared.into_iter().chain(by_text).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_only_looks_like_an_end_does_not_end() {
        let mut vocabulary = Vocabulary::default();
        vocabulary.insert(0, "<|im_end|>", TokenKind::Control);
        vocabulary.insert(1, "</s>", TokenKind::UserDefined);
        vocabulary.insert(2, "x", TokenKind::Normal);
        assert_eq!(ending_ids(&vocabulary, [2, 0, 2], true), [0, 2]);
    }

    #[test]
    fn a_complete_list_is_taken_as_it_is() {
        let mut vocabulary = Vocabulary::default();
        vocabulary.insert(0, "<|endoftext|>", TokenKind::Control);
        vocabulary.insert(1, "<|im_end|>", TokenKind::Control);
        assert_eq!(ending_ids(&vocabulary, [1], false), [1]);
    }

    #[test]
    fn the_end_of_a_harmony_part_does_not_end_the_reply() {
        let mut vocabulary = Vocabulary::default();
        vocabulary.insert(0, "<|end|>", TokenKind::Control);
        vocabulary.insert(1, "<|return|>", TokenKind::Control);
        assert_eq!(ending_ids(&vocabulary, [1], true), [1]);
    }
}
