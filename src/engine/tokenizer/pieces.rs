//! From token to bytes: what each token adds to a text.
//!
//! Decoding is done on bytes, one token at a time, so that a stream and a whole decode are the same thing by
//! construction. The library's own decoders work on whole strings, replace halves of a character at the seams, and its
//! stream re-decodes a window for each token.

use tokenizers::DecoderWrapper;

use super::error::TokenizerError;
use super::vocabulary::{TokenKind, VocabularyToken};

/// How a vocabulary writes bytes as token text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Spelling {
    /// Each byte is one printable character (GPT-2's table).
    ByteLevel,
    /// A marker (`▁`) stands for a blank, `<0xNN>` for a byte.
    Marker { marker: String, leading: Leading },
    /// Words are joined by blanks, `##` continues a word.
    WordPiece { prefix: String, cleanup: bool },
}

/// What happens to the blank that segmentation put before the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leading {
    Keep,
    /// One blank at the start of the text goes.
    DropOne,
    /// Every marker of the first token goes.
    DropAll,
}

impl Spelling {
    /// Reads the decoder of a `tokenizer.json`.
    pub(super) fn of(decoder: Option<&DecoderWrapper>) -> Result<Self, TokenizerError> {
        let Some(decoder) = decoder else { return Err(TokenizerError::UnknownDecoder { found: "(none)".to_string() }) };
        let steps = match decoder {
            DecoderWrapper::Sequence(sequence) => sequence.get_decoders(),
            single => std::slice::from_ref(single),
        };
        let unknown = || TokenizerError::UnknownDecoder {
            found: serde_json::to_string(decoder).unwrap_or_else(|_| format!("{decoder:?}")),
        };
        match steps {
            [DecoderWrapper::ByteLevel(_)] => Ok(Spelling::ByteLevel),
            [DecoderWrapper::WordPiece(words)] => {
                Ok(Spelling::WordPiece { prefix: words.prefix.clone(), cleanup: words.cleanup })
            }
            [DecoderWrapper::Metaspace(metaspace)] => {
                let never = tokenizers::pre_tokenizers::metaspace::PrependScheme::Never;
                let leading = if metaspace.prepend_scheme == never { Leading::Keep } else { Leading::DropAll };
                Ok(Spelling::Marker { marker: metaspace.get_replacement().to_string(), leading })
            }
            [DecoderWrapper::Replace(replace), rest @ ..] => {
                let marker = marker_of(replace).ok_or_else(unknown)?;
                let mut leading = Leading::Keep;
                for step in rest {
                    match step {
                        DecoderWrapper::ByteFallback(_) | DecoderWrapper::Fuse(_) => {}
                        DecoderWrapper::Strip(strip) if (strip.content, strip.start, strip.stop) == (' ', 1, 0) => {
                            leading = Leading::DropOne;
                        }
                        _ => return Err(unknown()),
                    }
                }
                Ok(Spelling::Marker { marker, leading })
            }
            _ => Err(unknown()),
        }
    }

    /// Appends the bytes of one token. `first` says that nothing was printed before it.
    pub(super) fn write(&self, token: &VocabularyToken, first: bool, out: &mut Vec<u8>) {
        let text = &*token.text;
        match (token.kind, self) {
            (TokenKind::Control | TokenKind::UserDefined, Spelling::WordPiece { .. }) if !first => {
                out.push(b' ');
                out.extend_from_slice(text.as_bytes());
            }
            (TokenKind::Control | TokenKind::UserDefined, _) => out.extend_from_slice(text.as_bytes()),
            (TokenKind::Byte(byte), _) => out.push(byte),
            (TokenKind::Normal | TokenKind::Unused, Spelling::ByteLevel) => write_byte_level(text, out),
            (_, Spelling::Marker { marker, leading }) => {
                let spaced = match leading {
                    Leading::DropAll if first => text.replace(marker, ""),
                    _ => text.replace(marker, " "),
                };
                let drop_blank = first && *leading == Leading::DropOne;
                let printed = if drop_blank { spaced.strip_prefix(' ').unwrap_or(&spaced) } else { &spaced };
                out.extend_from_slice(printed.as_bytes());
            }
            (_, Spelling::WordPiece { prefix, cleanup }) => {
                let joined = match text.strip_prefix(prefix.as_str()) {
                    Some(rest) if !first => rest.to_string(),
                    _ if first => text.to_string(),
                    _ => format!(" {text}"),
                };
                let printed = if *cleanup { tokenizers::decoders::wordpiece::cleanup(&joined) } else { joined };
                out.extend_from_slice(printed.as_bytes());
            }
        }
    }
}

/// The marker of a decoder step "replace the marker by a blank".
fn marker_of(replace: &tokenizers::normalizers::Replace) -> Option<String> {
    let value = serde_json::to_value(replace).ok()?;
    let marker = value.get("pattern")?.get("String")?.as_str()?;
    (value.get("content")?.as_str()? == " ").then(|| marker.to_string())
}

/// Token text of a byte-level vocabulary back to bytes; text with a character outside the table is taken as it is.
fn write_byte_level(text: &str, out: &mut Vec<u8>) {
    let start = out.len();
    for character in text.chars() {
        match byte_of(character) {
            Some(byte) => out.push(byte),
            None => {
                out.truncate(start);
                out.extend_from_slice(text.as_bytes());
                return;
            }
        }
    }
}

/// The byte a character stands for in GPT-2's table: printable Latin-1 characters are themselves, the 68 other bytes are
/// U+0100 and up in their order.
pub(super) fn byte_of(character: char) -> Option<u8> {
    let code = character as u32;
    match code {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => Some(code as u8),
        0x100..=0x120 => Some((code - 0x100) as u8),
        0x121..=0x142 => Some((code - 0x121 + 0x7f) as u8),
        0x143 => Some(0xad),
        _ => None,
    }
}

/// The character of a byte in GPT-2's table.
pub(super) fn character_of(byte: u8) -> char {
    let code = match byte {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => u32::from(byte),
        0x00..=0x20 => 0x100 + u32::from(byte),
        0x7f..=0xa0 => 0x121 + u32::from(byte) - 0x7f,
        0xad => 0x143,
    };
    char::from_u32(code).expect("the table is below U+0144")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_byte_table_is_the_librarys_and_its_own_inverse() {
        let alphabet = tokenizers::pre_tokenizers::byte_level::ByteLevel::alphabet();
        for byte in 0..=255 {
            let character = character_of(byte);
            assert!(alphabet.contains(&character), "{byte}");
            assert_eq!(byte_of(character), Some(byte));
        }
        assert_eq!(alphabet.len(), 256);
    }

    fn written(spelling: &Spelling, tokens: &[(&str, TokenKind)]) -> String {
        let mut out = Vec::new();
        for (index, (text, kind)) in tokens.iter().enumerate() {
            spelling.write(&VocabularyToken { text: (*text).into(), kind: *kind }, index == 0, &mut out);
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn user_text_is_printed_as_it_is_spelled() {
        let tokens = [("<é ▁>", TokenKind::UserDefined), ("Ġx", TokenKind::Normal)];
        assert_eq!(written(&Spelling::ByteLevel, &tokens), "<é ▁> x");
    }

    #[test]
    fn words_join_with_blanks_and_continuations_without() {
        let spelling = Spelling::WordPiece { prefix: "##".to_string(), cleanup: true };
        let tokens = [("play", TokenKind::Normal), ("##ing", TokenKind::Normal), ("!", TokenKind::Normal)];
        assert_eq!(written(&spelling, &tokens), "playing!");
    }

    #[test]
    fn only_the_first_marker_is_dropped() {
        let spelling = Spelling::Marker { marker: "▁".to_string(), leading: Leading::DropOne };
        assert_eq!(written(&spelling, &[("▁▁a", TokenKind::Normal), ("▁b", TokenKind::Normal)]), " a b");
    }
}
