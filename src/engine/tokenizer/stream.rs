//! Text out of tokens as they come, in whole characters.

use super::Tokenizer;

/// Turns tokens into text one at a time.
///
/// Each [`push`](DecodeStream::push) returns the text that became certain; joined, the pieces are exactly
/// [`Tokenizer::decode`] of all tokens. Half a character is never printed: its bytes wait for the rest. A byte that can
/// begin no character is printed once as U+FFFD and does not hold up what follows.
#[derive(Debug, Clone)]
pub struct DecodeStream {
    tokenizer: Tokenizer,
    show_control: bool,
    is_first: bool,
    pending: Vec<u8>,
}

impl DecodeStream {
    pub(super) fn new(tokenizer: Tokenizer, show_control: bool) -> Self {
        DecodeStream { tokenizer, show_control, is_first: true, pending: Vec::new() }
    }

    /// Takes the next token and returns the whole characters it completed; empty while a character is unfinished.
    pub fn push(&mut self, id: u32) -> String {
        let shown = self.tokenizer.write_piece(id, self.show_control, self.is_first, &mut self.pending);
        self.is_first &= !shown;
        take_characters(&mut self.pending)
    }

    /// The bytes of an unfinished character. Generation may end inside one (length limit): such a tail is no text, and
    /// [`Tokenizer::decode`] leaves it out as well.
    pub fn pending(&self) -> &[u8] {
        &self.pending
    }
}

/// Takes all finished characters out of `bytes`, invalid bytes as U+FFFD (one for each maximal broken part, as Unicode
/// recommends, chapter 3.9), and leaves the beginning of an unfinished character.
pub(super) fn take_characters(bytes: &mut Vec<u8>) -> String {
    let mut text = String::new();
    let mut taken = 0;
    loop {
        match std::str::from_utf8(&bytes[taken..]) {
            Ok(rest) => {
                text.push_str(rest);
                taken = bytes.len();
                break;
            }
            Err(error) => {
                let valid = taken + error.valid_up_to();
                text.push_str(std::str::from_utf8(&bytes[taken..valid]).expect("valid up to here"));
                taken = valid;
                match error.error_len() {
                    Some(broken) => {
                        text.push(char::REPLACEMENT_CHARACTER);
                        taken += broken;
                    }
                    None => break,
                }
            }
        }
    }
    bytes.drain(..taken);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn half_a_character_waits() {
        let mut bytes = "a😀".as_bytes()[..3].to_vec();
        assert_eq!(take_characters(&mut bytes), "a");
        assert_eq!(bytes, [0xf0, 0x9f]);
        bytes.extend_from_slice(&[0x98, 0x80]);
        assert_eq!(take_characters(&mut bytes), "😀");
        assert!(bytes.is_empty());
    }

    #[test]
    fn a_broken_byte_is_replaced_once_and_does_not_stall() {
        let mut bytes = vec![b'h', 0xff, 0xf0, 0x9f, b'i'];
        assert_eq!(take_characters(&mut bytes), "h\u{fffd}\u{fffd}i");
        assert!(bytes.is_empty());
    }

    proptest! {
        #[test]
        fn pieces_join_to_the_lossy_whole(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..5), 0..20)) {
            let whole: Vec<u8> = chunks.concat();
            let mut pending = Vec::new();
            let mut joined = String::new();
            for chunk in &chunks {
                pending.extend_from_slice(chunk);
                joined.push_str(&take_characters(&mut pending));
            }
            // What is left is the unfinished tail that a lossy decode would print as one replacement.
            let tail = if pending.is_empty() { "" } else { "\u{fffd}" };
            prop_assert_eq!(joined + tail, String::from_utf8_lossy(&whole).into_owned());
        }
    }
}
