//! Limits on text that models write into a memory: everything kept has a largest size.

/// At most `most` characters of a text, trimmed; a cut is marked.
pub(super) fn clip(text: &str, most: usize) -> String {
    let text = text.trim();
    match text.char_indices().nth(most) {
        None => text.to_string(),
        Some((end, _)) => format!("{}…", text[..end].trim_end()),
    }
}

/// The same on one line, white space runs as one space.
pub(super) fn clip_line(text: &str, most: usize) -> String {
    clip(&text.split_whitespace().collect::<Vec<_>>().join(" "), most)
}

/// The first sentence of a text, or its first `most` characters, whichever is shorter.
pub(super) fn first_sentence(text: &str, most: usize) -> String {
    let text = text.trim();
    let end = text
        .char_indices()
        .find(|(at, letter)| {
            matches!(letter, '.' | '!' | '?' | '\n')
                && text[at + letter.len_utf8()..]
                    .chars()
                    .next()
                    .is_none_or(|next| *letter == '\n' || next.is_whitespace())
        })
        .map_or(text.len(), |(at, letter)| at + letter.len_utf8());
    clip(&text[..end], most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clip_keeps_whole_characters_and_says_so() {
        assert_eq!(clip(" äöü ", 3), "äöü");
        assert_eq!(clip("äöüß", 3), "äöü…");
        assert_eq!(clip_line("a\n  b", 9), "a b");
    }

    #[test]
    fn a_sentence_ends_at_a_stop_before_space_or_at_a_line() {
        assert_eq!(first_sentence("np.where is 1.5. Next", 300), "np.where is 1.5.");
        assert_eq!(first_sentence("one line\nmore", 300), "one line");
        assert_eq!(first_sentence("abcdef", 3), "abc…");
    }
}
