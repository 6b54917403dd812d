//! The table of tokens: what each id says, and what kind of token it is.

/// What a token is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// Made by the model's own segmentation of text.
    Normal,
    /// Steers the model (`<|im_end|>`); made from text only under [`Specials::Parse`](super::Specials), and no part of a
    /// reply's text.
    Control,
    /// Matched whole in any text, and printed like text (`<tool_call>`).
    UserDefined,
    /// One byte, for text the vocabulary has no piece for.
    Byte(u8),
    /// A reserved id that no text becomes.
    Unused,
}

/// One entry of the vocabulary, its text as the vocabulary writes it (`Ġhello`, `▁hello`, `##ing`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VocabularyToken {
    pub text: Box<str>,
    pub kind: TokenKind,
}

/// All tokens by id. An id with no token (a hole in the numbering) holds `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vocabulary {
    tokens: Vec<Option<VocabularyToken>>,
}

impl Vocabulary {
    pub(super) fn insert(&mut self, id: u32, text: &str, kind: TokenKind) {
        let index = id as usize;
        if index >= self.tokens.len() {
            self.tokens.resize(index + 1, None);
        }
        self.tokens[index] = Some(VocabularyToken { text: text.into(), kind });
    }

    pub fn get(&self, id: u32) -> Option<&VocabularyToken> {
        self.tokens.get(id as usize)?.as_ref()
    }

    /// One more than the highest id.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Tokens in order of id, holes left out.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &VocabularyToken)> {
        (0u32..).zip(&self.tokens).filter_map(|(id, token)| Some((id, token.as_ref()?)))
    }

    /// The lowest id whose token has this text.
    pub fn find(&self, text: &str) -> Option<u32> {
        self.iter().find(|(_, token)| &*token.text == text).map(|(id, _)| id)
    }
}

/// The byte a byte token such as `<0x0A>` stands for.
pub(super) fn byte_token(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let hexadecimal = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    if hexadecimal { u8::from_str_radix(digits, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_in_the_numbering_stay_holes() {
        let mut vocabulary = Vocabulary::default();
        vocabulary.insert(2, "b", TokenKind::Normal);
        vocabulary.insert(0, "a", TokenKind::Control);
        assert_eq!(vocabulary.len(), 3);
        assert_eq!(vocabulary.get(1), None);
        assert_eq!(vocabulary.find("b"), Some(2));
        assert_eq!(vocabulary.iter().map(|(id, _)| id).collect::<Vec<_>>(), [0, 2]);
    }

    #[test]
    fn byte_tokens_are_two_hexadecimal_digits() {
        assert_eq!(byte_token("<0x0A>"), Some(10));
        assert_eq!(byte_token("<0xFF>"), Some(255));
        assert_eq!(byte_token("<0x1>"), None);
        assert_eq!(byte_token("<0x+1>"), None);
        assert_eq!(byte_token("x0A"), None);
    }
}
