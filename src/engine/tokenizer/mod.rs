//! Text to token ids and back.
//!
//! A tokenizer comes from a model's `tokenizer.json`, or is rebuilt from the metadata of its GGUF file. Encoding runs the
//! `tokenizers` library step by step rather than through its `encode`, because two things there must differ by call or by
//! length: whether special tokens in a text are tokens or just text, and very long white space (`long_blank.rs`).
//! Decoding is our own, on bytes (see [`DecodeStream`]).

mod charsmap;
mod end;
mod error;
mod file;
mod gguf;
mod long_blank;
mod pieces;
mod pretokenizer;
mod stream;
mod vocabulary;

use std::sync::{Arc, OnceLock};

use tokenizers::{
    AddedVocabulary, Model, NormalizerWrapper, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer as _,
};

pub use error::TokenizerError;
pub use gguf::GgufVocabulary;
pub use pretokenizer::{PRE_TOKENIZERS, PreTokenizer};
pub use stream::DecodeStream;
pub use vocabulary::{TokenKind, Vocabulary, VocabularyToken};

use pieces::Spelling;

/// What special tokens written out in a text become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Specials {
    /// The tokens they name: for text that a template wrote.
    Parse,
    /// Plain text, encoded like any other: for data from users, benchmarks and models, which must not be able to end a
    /// turn. Tokens that are matched in text but steer nothing (`<tool_call>`) stay tokens.
    Literal,
}

/// A model's tokenizer. Cloning is cheap; all clones share one vocabulary.
#[derive(Clone)]
pub struct Tokenizer {
    shared: Arc<Shared>,
}

struct Shared {
    library: tokenizers::Tokenizer,
    /// The library's added tokens with the control tokens switched off.
    literal: AddedVocabulary,
    spelling: Spelling,
    vocabulary: Vocabulary,
    /// Ids around a text where the model wants them: `[BOS]` and nothing, or `[CLS]` and `[SEP]`.
    prefix: Vec<u32>,
    suffix: Vec<u32>,
    bos: Option<u32>,
    eos: Option<u32>,
    unknown: Option<u32>,
    padding: Option<u32>,
    /// Ids that end a generation, ascending.
    ends: Vec<u32>,
    digest: OnceLock<blake3::Hash>,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Tokenizer")
            .field("tokens", &self.vocab_size())
            .field("spelling", &self.shared.spelling)
            .field("eos_ids", &self.shared.ends)
            .finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// The ids of a text: its own tokens alone, no BOS or EOS around them. A chat rendered by a template is encoded with
    /// this and [`Specials::Parse`]; the template writes BOS itself where the model wants one.
    ///
    /// Bytes that the vocabulary has no token for are left out, as the reference tokenizers do
    /// (see [`lost_bytes`](Tokenizer::lost_bytes)).
    pub fn encode(&self, text: &str, specials: Specials) -> Vec<u32> {
        let added = match specials {
            Specials::Parse => self.shared.library.get_added_vocabulary(),
            Specials::Literal => &self.shared.literal,
        };
        let pieces = added.extract_and_normalize(self.shared.library.get_normalizer(), text);
        self.segment(pieces, text.len())
    }

    /// Breaks up the control tokens written in a text by putting `guard` after the first character of each; `None` when
    /// none is. [`encode_guarded`](Tokenizer::encode_guarded) takes the guards out again, after control tokens have been
    /// looked for.
    pub(crate) fn guard(&self, text: &str, guard: char) -> Option<String> {
        let mut guarded: Option<String> = None;
        while let Some(at) = self.find_control(guarded.as_deref().unwrap_or(text), guard) {
            let found = guarded.get_or_insert_with(|| text.to_string());
            let first = found[at..].chars().next().map_or(0, char::len_utf8);
            found.insert(at + first, guard);
        }
        guarded
    }

    /// As [`encode`](Tokenizer::encode) with [`Specials::Parse`], for text in which [`guard`](Tokenizer::guard) has
    /// marked what must stay text. `guard` is no part of the text.
    pub(crate) fn encode_guarded(&self, text: &str, guard: char) -> Vec<u32> {
        let library = &self.shared.library;
        let mut pieces = library.get_added_vocabulary().extract_and_normalize(library.get_normalizer(), text);
        let unmark = |piece: &mut tokenizers::NormalizedString| piece.replace(guard, "");
        pieces.normalize(unmark).expect("replacing a character cannot fail");
        self.segment(pieces, text.len())
    }

    /// Byte offset of the first control token in a text that is longer than one character (a shorter one cannot be
    /// broken up).
    fn find_control(&self, text: &str, guard: char) -> Option<usize> {
        let added = self.shared.library.get_added_vocabulary();
        let pieces = added.extract_and_normalize::<NormalizerWrapper>(None, text);
        pieces
            .get_splits(OffsetReferential::Original, OffsetType::Byte)
            .into_iter()
            .find(|(piece, _, tokens)| {
                let control = |id| self.token_kind(id) == Some(TokenKind::Control);
                tokens.iter().flatten().any(|token| control(token.id))
                    && piece.chars().nth(1).is_some_and(|second| second != guard)
            })
            .map(|(_, (start, _), _)| start)
    }

    /// The ids of a text whose added tokens have been taken out already.
    fn segment(&self, mut pieces: PreTokenizedString, text_bytes: usize) -> Vec<u32> {
        let library = &self.shared.library;
        long_blank::cut(&mut pieces, text_bytes);
        if let Some(pre_tokenizer) = library.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut pieces).expect("pre-tokenizers only fail on a broken split of ours");
        }
        let model = library.get_model();
        pieces.tokenize(|piece| model.tokenize(piece.get())).expect("loading has checked the unknown token");
        let encoding = pieces.into_encoding(None, 0, OffsetType::None).expect("every piece was just tokenized");
        encoding.get_ids().to_vec()
    }

    /// The ids of a prompt that no template wrote: [`encode`](Tokenizer::encode), and in front what the model wants
    /// there (BOS). A text that begins with BOS already gets no second one.
    pub fn encode_prompt(&self, text: &str, specials: Specials) -> Vec<u32> {
        let ids = self.encode(text, specials);
        match self.shared.prefix.as_slice() {
            prefix if ids.starts_with(prefix) => ids,
            prefix => [prefix, &ids].concat(),
        }
    }

    /// The ids of a text to be embedded: as [`encode_prompt`](Tokenizer::encode_prompt), and what the model wants at the
    /// end (`[SEP]`, EOS).
    pub fn encode_document(&self, text: &str, specials: Specials) -> Vec<u32> {
        let mut ids = self.encode_prompt(text, specials);
        ids.extend_from_slice(&self.shared.suffix);
        ids
    }

    /// The text of a reply: control tokens are no part of it. Invalid UTF-8 is replaced, an unfinished character at the
    /// end left out. Ids outside the vocabulary print nothing.
    pub fn decode(&self, ids: &[u32]) -> String {
        self.decode_all(ids, false)
    }

    /// As [`decode`](Tokenizer::decode), with control tokens written out.
    pub fn decode_with_specials(&self, ids: &[u32]) -> String {
        self.decode_all(ids, true)
    }

    /// Decodes tokens as they come; see [`decode`](Tokenizer::decode).
    pub fn decode_stream(&self) -> DecodeStream {
        DecodeStream::new(self.clone(), false)
    }

    /// Decodes tokens as they come; see [`decode_with_specials`](Tokenizer::decode_with_specials).
    pub fn decode_stream_with_specials(&self) -> DecodeStream {
        DecodeStream::new(self.clone(), true)
    }

    /// A token as the vocabulary writes it (`Ġhello`).
    pub fn token_text(&self, id: u32) -> Option<&str> {
        self.shared.vocabulary.get(id).map(|token| &*token.text)
    }

    /// The bytes a token prints inside a text (` hello`).
    pub fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        let token = self.shared.vocabulary.get(id)?;
        let mut bytes = Vec::new();
        self.shared.spelling.write(token, false, &mut bytes);
        Some(bytes)
    }

    pub fn token_kind(&self, id: u32) -> Option<TokenKind> {
        self.shared.vocabulary.get(id).map(|token| token.kind)
    }

    /// The id of a token by its vocabulary text.
    pub fn token_id(&self, text: &str) -> Option<u32> {
        self.shared.vocabulary.find(text)
    }

    /// One more than the highest id. A model's logits may be wider (padded).
    pub fn vocab_size(&self) -> usize {
        self.shared.vocabulary.len()
    }

    /// Beginning of sequence, where the model has one, whether or not prompts begin with it.
    pub fn bos_id(&self) -> Option<u32> {
        self.shared.bos
    }

    /// The end-of-sequence id that the tokenizer itself names; generation ends at any of
    /// [`eos_ids`](Tokenizer::eos_ids).
    pub fn eos_id(&self) -> Option<u32> {
        self.shared.eos
    }

    /// Every id that ends a generation, ascending: what the metadata, `generation_config.json` and the tokenizer name,
    /// and the control tokens that end a turn or a document by their text.
    pub fn eos_ids(&self) -> &[u32] {
        &self.shared.ends
    }

    pub fn unknown_id(&self) -> Option<u32> {
        self.shared.unknown
    }

    pub fn padding_id(&self) -> Option<u32> {
        self.shared.padding
    }

    /// Bytes of UTF-8 text that a byte-level vocabulary has no token for, ascending; text loses them on encoding.
    /// SmolLM2's has none for six control characters, for example.
    pub fn lost_bytes(&self) -> Vec<u8> {
        if self.shared.spelling != Spelling::ByteLevel {
            return Vec::new();
        }
        let model = self.shared.library.get_model();
        // 0xC0, 0xC1 and 0xF5 upwards never occur in UTF-8.
        let utf8 = (0u8..=0xbf).chain(0xc2..=0xf4);
        utf8.filter(|byte| model.token_to_id(&pieces::character_of(*byte).to_string()).is_none()).collect()
    }

    /// Names the tokenizer in manifests: equal digests encode and decode alike. Covers the vocabulary, the merges, every
    /// step of the library's pipeline, and the ids around and after a text.
    pub fn digest(&self) -> String {
        self.shared.digest.get_or_init(|| self.compute_digest()).to_hex().to_string()
    }

    fn compute_digest(&self) -> blake3::Hash {
        let Shared { library, spelling, vocabulary, prefix, suffix, bos, eos, ends, .. } = &*self.shared;
        let mut hasher = blake3::Hasher::new();
        // The library writes vocabulary, merges and added tokens in order of id, rank and id.
        hasher.update(library.to_string(false).expect("a tokenizer can be written as JSON").as_bytes());
        for (id, token) in vocabulary.iter() {
            hasher.update(format!("\n{id} {:?} {:?}", token.kind, token.text).as_bytes());
        }
        hasher.update(format!("\n{spelling:?} {prefix:?} {suffix:?} {bos:?} {eos:?} {ends:?}").as_bytes());
        hasher.finalize()
    }

    fn decode_all(&self, ids: &[u32], show_control: bool) -> String {
        let mut bytes = Vec::new();
        let mut is_first = true;
        for id in ids {
            is_first &= !self.write_piece(*id, show_control, is_first, &mut bytes);
        }
        stream::take_characters(&mut bytes)
    }

    /// Appends what a token prints; says whether it prints (an unknown id or a hidden control token does not).
    fn write_piece(&self, id: u32, show_control: bool, is_first: bool, out: &mut Vec<u8>) -> bool {
        match self.shared.vocabulary.get(id) {
            Some(token) if show_control || token.kind != TokenKind::Control => {
                self.shared.spelling.write(token, is_first, out);
                true
            }
            _ => false,
        }
    }
}
