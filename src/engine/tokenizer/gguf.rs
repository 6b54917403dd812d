//! A tokenizer rebuilt from GGUF metadata.
//!
//! GGUF carries the vocabulary, the merges (or the scores they came from) and the ids of special tokens; how text is cut
//! into words is only named. Two kinds are rebuilt: byte-level BPE (`gpt2`) and SentencePiece BPE (`llama`).
//!
//! Key names: `gguf-py/gguf/constants.py` of ggml-org/llama.cpp. One of them is misspelt in the format itself
//! (`seperator_token_id`); candle's reader looks for other names and finds none of them.

use std::collections::HashMap;

use lifelong_models::gguf::{FromValue, Header};
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::{NFC, Prepend, Replace, Sequence as Normalizers};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence as PreTokenizers;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, ModelWrapper, NormalizerWrapper, PreTokenizerWrapper, SplitDelimiterBehavior};

use super::error::TokenizerError;
use super::pieces::{Leading, Spelling};
use super::pretokenizer::PreTokenizer;
use super::vocabulary::{TokenKind, Vocabulary, byte_token};

/// The `tokenizer.ggml.*` metadata of a GGUF file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GgufVocabulary {
    /// `tokenizer.ggml.model`: `gpt2` or `llama`.
    pub model: String,
    /// `tokenizer.ggml.pre`.
    pub pre: Option<String>,
    /// `tokenizer.ggml.tokens`: token texts by id.
    pub tokens: Vec<String>,
    /// `tokenizer.ggml.token_type`, one each token; empty when the file has none (all are normal then).
    pub token_types: Vec<i32>,
    /// `tokenizer.ggml.merges`: `left right`, best first.
    pub merges: Vec<String>,
    /// `tokenizer.ggml.scores`, one each token (higher merges first).
    pub scores: Vec<f32>,
    /// `tokenizer.ggml.bos_token_id`.
    pub bos: Option<u32>,
    /// `tokenizer.ggml.eos_token_id`.
    pub eos: Option<u32>,
    /// `tokenizer.ggml.eot_token_id`: end of a turn.
    pub eot: Option<u32>,
    /// `tokenizer.ggml.eom_token_id`: end of a message that expects a tool's answer.
    pub eom: Option<u32>,
    /// `tokenizer.ggml.unknown_token_id`.
    pub unknown: Option<u32>,
    /// `tokenizer.ggml.padding_token_id`.
    pub padding: Option<u32>,
    /// `tokenizer.ggml.add_bos_token`.
    pub add_bos: Option<bool>,
    /// `tokenizer.ggml.add_eos_token`.
    pub add_eos: Option<bool>,
    /// `tokenizer.ggml.add_space_prefix`.
    pub add_space_prefix: Option<bool>,
}

/// The parts of a [`Tokenizer`](super::Tokenizer) that the metadata determines.
pub(super) struct Rebuilt {
    pub library: tokenizers::Tokenizer,
    pub spelling: Spelling,
    pub vocabulary: Vocabulary,
    pub add_bos: bool,
    pub add_eos: bool,
}

impl GgufVocabulary {
    /// Reads the metadata of a GGUF file; `None` when it carries no tokenizer.
    ///
    /// # Errors
    /// [`TokenizerError::Vocabulary`] with the key, for a value of the wrong type.
    pub fn read(header: &Header) -> Result<Option<Self>, TokenizerError> {
        let Some(model) = get::<&str>(header, "model")? else { return Ok(None) };
        let tokens: Vec<&str> = get(header, "tokens")?.unwrap_or_default();
        let merges: Vec<&str> = get(header, "merges")?.unwrap_or_default();
        Ok(Some(GgufVocabulary {
            model: model.to_string(),
            pre: get::<&str>(header, "pre")?.map(str::to_string),
            tokens: tokens.into_iter().map(str::to_string).collect(),
            token_types: get(header, "token_type")?.unwrap_or_default(),
            merges: merges.into_iter().map(str::to_string).collect(),
            scores: get(header, "scores")?.unwrap_or_default(),
            bos: get(header, "bos_token_id")?,
            eos: get(header, "eos_token_id")?,
            eot: get(header, "eot_token_id")?,
            eom: get(header, "eom_token_id")?,
            unknown: get(header, "unknown_token_id")?,
            padding: get(header, "padding_token_id")?,
            add_bos: get(header, "add_bos_token")?,
            add_eos: get(header, "add_eos_token")?,
            add_space_prefix: get(header, "add_space_prefix")?,
        }))
    }

    /// Builds the tokenizer.
    ///
    /// # Errors
    /// [`TokenizerError`] for a tokenizer model or pre-tokenizer outside our tables, missing keys, and arrays that do
    /// not fit each other.
    pub(super) fn rebuild(&self) -> Result<Rebuilt, TokenizerError> {
        self.check()?;
        let vocabulary = self.vocabulary();
        let mut rebuilt = match self.model.as_str() {
            "gpt2" => self.byte_level(vocabulary)?,
            "llama" => self.sentence_piece(vocabulary)?,
            other => {
                return Err(TokenizerError::UnknownModel { found: other.to_string(), known: vec!["gpt2", "llama"] });
            }
        };
        let added: Vec<AddedToken> = rebuilt
            .vocabulary
            .iter()
            .filter_map(|(_, token)| match token.kind {
                TokenKind::Control => Some(AddedToken::from(&*token.text, true).normalized(false)),
                TokenKind::UserDefined => Some(AddedToken::from(&*token.text, false).normalized(false)),
                TokenKind::Normal | TokenKind::Byte(_) | TokenKind::Unused => None,
            })
            .collect();
        rebuilt.library.add_tokens(added).map_err(broken)?;
        Ok(rebuilt)
    }

    fn check(&self) -> Result<(), TokenizerError> {
        if self.tokens.is_empty() {
            return Err(TokenizerError::MissingKey {
                key: "tokenizer.ggml.tokens",
                help: "put the model's tokenizer.json beside the file",
            });
        }
        for (key, found) in [("token_type", self.token_types.len()), ("scores", self.scores.len())] {
            if found != 0 && found != self.tokens.len() {
                let expected = self.tokens.len();
                let reason =
                    format!("`tokenizer.ggml.{key}` has {found} entries, expected {expected} (one each token)");
                return Err(TokenizerError::Vocabulary { reason });
            }
        }
        let ids = [
            ("bos", self.bos),
            ("eos", self.eos),
            ("eot", self.eot),
            ("eom", self.eom),
            ("unknown", self.unknown),
            ("padding", self.padding),
        ];
        for (name, id) in ids {
            if let Some(id) = id.filter(|id| *id as usize >= self.tokens.len()) {
                let reason = format!(
                    "`tokenizer.ggml.{name}_token_id` is {id}, expected below the {} tokens of the vocabulary",
                    self.tokens.len()
                );
                return Err(TokenizerError::Vocabulary { reason });
            }
        }
        Ok(())
    }

    /// Token kinds by the codes of `llama.h` (1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte).
    fn vocabulary(&self) -> Vocabulary {
        let mut vocabulary = Vocabulary::default();
        for (id, text) in (0u32..).zip(&self.tokens) {
            let kind = match self.token_types.get(id as usize) {
                Some(2 | 3) => TokenKind::Control,
                Some(4) => TokenKind::UserDefined,
                Some(5) => TokenKind::Unused,
                Some(6) => byte_token(text).map_or(TokenKind::Normal, TokenKind::Byte),
                _ => TokenKind::Normal,
            };
            vocabulary.insert(id, text, kind);
        }
        vocabulary
    }

    /// Ids by text. Where two ids share a text the lower one encodes it.
    fn ids(&self) -> HashMap<&str, u32> {
        let mut ids = HashMap::with_capacity(self.tokens.len());
        for (id, text) in (0u32..).zip(&self.tokens) {
            ids.entry(text.as_str()).or_insert(id);
        }
        ids
    }

    fn byte_level(&self, vocabulary: Vocabulary) -> Result<Rebuilt, TokenizerError> {
        let name = self.pre.as_deref().ok_or(TokenizerError::MissingKey {
            key: "tokenizer.ggml.pre",
            help: "files converted before May 2024 lack it: convert the model again, or put its tokenizer.json beside \
                   the file",
        })?;
        let pre_tokenizer = PreTokenizer::find(name)?;
        let merges = self.split_merges()?;
        let ids: Vocab = self.ids().into_iter().map(|(text, id)| (text.to_string(), id)).collect();
        let model = BPE::builder()
            .vocab_and_merges(ids, merges)
            .ignore_merges(pre_tokenizer.ignore_merges)
            .build()
            .map_err(broken)?;

        let mut library = tokenizers::Tokenizer::new(ModelWrapper::BPE(model));
        if pre_tokenizer.compose {
            library.with_normalizer(Some(NormalizerWrapper::NFC(NFC))).map_err(broken)?;
        }
        library.with_pre_tokenizer(Some(word_splitter(pre_tokenizer)?));
        Ok(Rebuilt {
            library,
            spelling: Spelling::ByteLevel,
            vocabulary,
            add_bos: self.add_bos.unwrap_or(pre_tokenizer.add_bos),
            add_eos: self.add_eos.unwrap_or(false),
        })
    }

    /// `left right` in two; a blank may be the first character of `left`, never of `right`.
    fn split_merges(&self) -> Result<Vec<(String, String)>, TokenizerError> {
        if self.merges.is_empty() {
            return Err(TokenizerError::MissingKey {
                key: "tokenizer.ggml.merges",
                help: "put the model's tokenizer.json beside the file",
            });
        }
        let split = |(line, merge): (usize, &String)| {
            let second = merge.char_indices().nth(1).map_or(merge.len(), |(at, _)| at);
            let blank = merge[second..].find(' ').map(|at| second + at);
            blank.map(|at| (merge[..at].to_string(), merge[at + 1..].to_string())).ok_or_else(|| {
                TokenizerError::Vocabulary { reason: format!("merge {line} is {merge:?}, expected `left right`") }
            })
        };
        self.merges.iter().enumerate().map(split).collect()
    }

    /// SentencePiece BPE: pieces merge best score first.
    fn sentence_piece(&self, vocabulary: Vocabulary) -> Result<Rebuilt, TokenizerError> {
        if self.scores.is_empty() {
            return Err(TokenizerError::MissingKey {
                key: "tokenizer.ggml.scores",
                help: "put the model's tokenizer.json beside the file",
            });
        }
        let ids = self.ids();
        let merges = self.merges_by_score(&ids, &vocabulary);
        let ids: Vocab = ids.into_iter().map(|(text, id)| (text.to_string(), id)).collect();
        let mut builder = BPE::builder().vocab_and_merges(ids, merges).byte_fallback(true).fuse_unk(true);
        if let Some(unknown) = self.unknown {
            builder = builder.unk_token(self.tokens[unknown as usize].clone());
        }
        let model = builder.build().map_err(broken)?;

        let space_prefix = self.add_space_prefix.unwrap_or(true);
        let mut steps = Vec::new();
        if space_prefix {
            steps.push(NormalizerWrapper::Prepend(Prepend::new(MARKER.to_string())));
        }
        steps.push(NormalizerWrapper::Replace(Replace::new(" ", MARKER).map_err(broken)?));
        let mut library = tokenizers::Tokenizer::new(ModelWrapper::BPE(model));
        library.with_normalizer(Some(NormalizerWrapper::Sequence(Normalizers::new(steps)))).map_err(broken)?;
        let leading = if space_prefix { Leading::DropOne } else { Leading::Keep };
        Ok(Rebuilt {
            library,
            spelling: Spelling::Marker { marker: MARKER.to_string(), leading },
            vocabulary,
            add_bos: self.add_bos.unwrap_or(true),
            add_eos: self.add_eos.unwrap_or(false),
        })
    }

    /// All ways to make a normal piece out of two pieces, best piece first; of one piece, lower ids first. This is how
    /// transformers turns a SentencePiece model into merges (`SentencePieceExtractor` in `convert_slow_tokenizer.py`).
    fn merges_by_score(&self, ids: &HashMap<&str, u32>, vocabulary: &Vocabulary) -> Vec<(String, String)> {
        let is_piece = |id: u32| vocabulary.get(id).is_some_and(|token| token.kind == TokenKind::Normal);
        let mut merges: Vec<(f32, u32, u32)> = Vec::with_capacity(2 * self.tokens.len());
        for (id, text) in (0u32..).zip(&self.tokens).filter(|(id, _)| is_piece(*id)) {
            let mut ways: Vec<(u32, u32)> = text
                .char_indices()
                .skip(1)
                .filter_map(|(at, _)| Some((*ids.get(&text[..at])?, *ids.get(&text[at..])?)))
                .collect();
            ways.sort_unstable();
            merges.extend(ways.into_iter().map(|(left, right)| (self.scores[id as usize], left, right)));
        }
        // Stable: pieces of one score keep the order of their ids.
        merges.sort_by(|a, b| b.0.total_cmp(&a.0));
        let text = |id: u32| self.tokens[id as usize].clone();
        merges.into_iter().map(|(_, left, right)| (text(left), text(right))).collect()
    }
}

fn get<'a, T: FromValue<'a>>(header: &'a Header, key: &str) -> Result<Option<T>, TokenizerError> {
    header.get(&format!("tokenizer.ggml.{key}")).map_err(broken)
}

/// SentencePiece's sign for a blank.
const MARKER: &str = "▁";

fn word_splitter(pre_tokenizer: &PreTokenizer) -> Result<PreTokenizerWrapper, TokenizerError> {
    let mut steps = Vec::new();
    for pattern in pre_tokenizer.patterns {
        let pattern = SplitPattern::Regex((*pattern).to_string());
        let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false).map_err(broken)?;
        steps.push(PreTokenizerWrapper::Split(split));
    }
    steps.push(PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, true, false)));
    Ok(PreTokenizerWrapper::Sequence(PreTokenizers::new(steps)))
}

fn broken(error: impl std::fmt::Display) -> TokenizerError {
    TokenizerError::Vocabulary { reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::tokenizer::{Specials, Tokenizer};

    fn byte_level(words: &[&str], merges: &[&str]) -> GgufVocabulary {
        let letters = (0..=255).map(|byte| super::super::pieces::character_of(byte).to_string());
        let tokens: Vec<String> = ["<s>", "</s>"]
            .into_iter()
            .map(String::from)
            .chain(letters)
            .chain(words.iter().map(|w| w.to_string()))
            .collect();
        GgufVocabulary {
            model: "gpt2".to_string(),
            pre: Some("smollm".to_string()),
            token_types: (0..tokens.len()).map(|id| if id < 2 { 3 } else { 1 }).collect(),
            tokens,
            merges: merges.iter().map(|merge| merge.to_string()).collect(),
            bos: Some(0),
            eos: Some(1),
            ..GgufVocabulary::default()
        }
    }

    fn refusal(change: impl Fn(&mut GgufVocabulary)) -> String {
        let mut gguf = byte_level(&["ab"], &["a b"]);
        change(&mut gguf);
        Tokenizer::from_gguf(&gguf).unwrap_err().to_string()
    }

    #[test]
    fn what_cannot_be_rebuilt_is_named() {
        assert!(refusal(|gguf| gguf.model = "rwkv".to_string()).contains("`rwkv`"));
        assert!(refusal(|gguf| gguf.pre = Some("kimi-k9".to_string())).contains("`kimi-k9`"));
        assert!(refusal(|gguf| gguf.pre = None).contains("tokenizer.ggml.pre"));
        assert!(refusal(|gguf| gguf.merges.clear()).contains("tokenizer.ggml.merges"));
        assert!(refusal(|gguf| gguf.tokens.clear()).contains("tokenizer.ggml.tokens"));
        assert!(refusal(|gguf| gguf.merges = vec!["ab".to_string()]).contains("merge 0 is \"ab\""));
        assert!(refusal(|gguf| gguf.merges = vec!["a q?".to_string()]).contains("q?"));
        assert!(refusal(|gguf| gguf.token_types.truncate(3)).contains("token_type` has 3 entries, expected 259"));
        assert!(refusal(|gguf| gguf.eos = Some(259)).contains("eos_token_id` is 259, expected below the 259"));
        assert!(refusal(|gguf| gguf.model = "llama".to_string()).contains("tokenizer.ggml.scores"));
    }

    #[test]
    fn bos_and_eos_follow_the_file_then_the_pre_tokenizer() {
        let mut gguf = byte_level(&["ab"], &["a b"]);
        let prompt = |gguf: &GgufVocabulary, text: &str| {
            let tokenizer = Tokenizer::from_gguf(gguf).unwrap();
            (tokenizer.encode_prompt(text, Specials::Parse), tokenizer.encode_document(text, Specials::Parse))
        };
        assert_eq!(prompt(&gguf, "ab"), (vec![258], vec![258]));
        gguf.pre = Some("llama-bpe".to_string());
        assert_eq!(prompt(&gguf, "ab"), (vec![0, 258], vec![0, 258]));
        assert_eq!(prompt(&gguf, "<s>ab"), (vec![0, 258], vec![0, 258]), "not doubled");
        (gguf.add_bos, gguf.add_eos) = (Some(false), Some(true));
        assert_eq!(prompt(&gguf, "ab"), (vec![258], vec![258, 1]));
    }

    #[test]
    fn token_kinds_decide_what_text_becomes_and_prints() {
        let mut gguf = byte_level(&["<tool>", "[PAD1]"], &["a b"]);
        gguf.tokens.push("ab".to_string());
        gguf.token_types[258] = 4;
        gguf.token_types[259] = 5;
        gguf.token_types.push(1);
        let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
        assert_eq!(tokenizer.encode("ab<tool>", Specials::Literal), [260, 258], "user-defined tokens are always found");
        assert!(!tokenizer.encode("[PAD1]", Specials::Parse).contains(&259), "unused ones never");
        assert!(!tokenizer.encode("</s>", Specials::Literal).contains(&1), "control ones when asked for");
        assert_eq!(tokenizer.decode(&[260, 1, 258, 259, 9999]), "ab<tool>[PAD1]");
        assert_eq!(tokenizer.decode_with_specials(&[260, 1]), "ab</s>");
    }

    fn sentence_piece() -> GgufVocabulary {
        let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(String::from).to_vec();
        tokens.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
        let pieces =
            [("▁", -10.0), ("a", -11.0), ("b", -12.0), ("▁a", -3.0), ("ab", -1.0), ("▁ab", -2.0), ("</", -0.5)];
        let types = [vec![2, 3, 3], vec![6; 256], vec![1; pieces.len()]].concat();
        let scores = std::iter::repeat_n(0.0, 259).chain(pieces.iter().map(|(_, score)| *score)).collect();
        tokens.extend(pieces.iter().map(|(text, _)| text.to_string()));
        GgufVocabulary {
            model: "llama".to_string(),
            tokens,
            token_types: types,
            scores,
            bos: Some(1),
            eos: Some(2),
            unknown: Some(0),
            ..GgufVocabulary::default()
        }
    }

    #[test]
    fn sentence_piece_merges_the_best_score_first() {
        let tokenizer = Tokenizer::from_gguf(&sentence_piece()).unwrap();
        // ▁ab: "ab" (-1) forms before "▁a" (-3), then "▁ab" (-2).
        assert_eq!(tokenizer.encode("ab", Specials::Parse), [264]);
        assert_eq!(tokenizer.encode("aab", Specials::Parse), [262, 263]);
        assert_eq!(tokenizer.encode_prompt("ab ab", Specials::Parse), [1, 264, 264]);
        assert_eq!(tokenizer.decode(&[1, 264, 264]), "ab ab");
    }

    #[test]
    fn sentence_piece_spells_the_unknown_in_bytes() {
        let tokenizer = Tokenizer::from_gguf(&sentence_piece()).unwrap();
        let ids = tokenizer.encode("é", Specials::Parse);
        assert_eq!(ids, [259, 3 + 0xc3, 3 + 0xa9]);
        assert_eq!(tokenizer.decode(&ids), "é");
        assert_eq!(tokenizer.decode(&ids[..2]), "", "half a character is no text");
    }

    #[test]
    fn no_merge_makes_a_control_token() {
        let mut gguf = sentence_piece();
        gguf.tokens.extend(["s", ">", "</s"].map(String::from));
        gguf.token_types.extend([1; 3]);
        gguf.scores.extend([-20.0, -21.0, -0.1]);
        let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
        assert_eq!(tokenizer.encode("</s>", Specials::Parse), [2]);
        assert!(!tokenizer.encode("</s>", Specials::Literal).contains(&2));
    }
}
