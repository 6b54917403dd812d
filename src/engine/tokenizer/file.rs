//! Loading: from `tokenizer.json` and the small files beside it, from GGUF metadata, or from both, checked against each
//! other.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use lifelong_models::Checkpoint;
use serde_json::Value;
use tokenizers::{Encoding, Model, ModelWrapper, PostProcessor, Token};

use super::end::ending_ids;
use super::error::TokenizerError;
use super::gguf::GgufVocabulary;
use super::pieces::Spelling;
use super::vocabulary::{TokenKind, Vocabulary, byte_token};
use super::{Shared, Tokenizer};

/// What the files beside `tokenizer.json` say of special tokens.
#[derive(Debug, Default)]
struct Declared {
    bos: Option<String>,
    eos: Option<String>,
    unknown: Option<String>,
    padding: Option<String>,
    /// End ids of `generation_config.json`; they are the model's whole list where it is given.
    ends: Option<Vec<u32>>,
}

impl Tokenizer {
    /// The tokenizer of an opened model whose small files lie in `folder`; see [`load`](Tokenizer::load).
    ///
    /// # Errors
    /// As [`load`](Tokenizer::load).
    pub fn from_checkpoint(checkpoint: &Checkpoint, folder: &Path) -> Result<Self, TokenizerError> {
        let gguf = checkpoint.gguf().map(GgufVocabulary::read).transpose()?.flatten();
        Tokenizer::load(gguf.as_ref(), folder)
    }

    /// The tokenizer of a model: the `tokenizer.json` in `folder` where there is one, else the GGUF metadata. Where both
    /// exist they must agree on every id.
    ///
    /// # Errors
    /// [`TokenizerError`]: nothing to load from, a file that cannot be read, a model or pre-tokenizer we do not rebuild,
    /// or two sources that disagree.
    pub fn load(gguf: Option<&GgufVocabulary>, folder: &Path) -> Result<Self, TokenizerError> {
        match (folder.join("tokenizer.json").is_file(), gguf) {
            (true, None) => Tokenizer::from_folder(folder),
            (true, Some(gguf)) => {
                let tokenizer = Tokenizer::from_folder(folder)?;
                tokenizer.check_against(gguf)?;
                Ok(tokenizer)
            }
            (false, Some(gguf)) => Tokenizer::from_gguf(gguf),
            (false, None) => Err(TokenizerError::Absent { folder: folder.to_path_buf() }),
        }
    }

    /// From `tokenizer.json`, with `tokenizer_config.json`, `special_tokens_map.json`, `generation_config.json` and
    /// `config.json` where they lie beside it.
    ///
    /// Truncation, padding and merge dropout that the file carries are reset: they belong to one training or serving
    /// set-up (all-MiniLM-L6-v2 pads to 128), not to the vocabulary.
    ///
    /// # Errors
    /// [`TokenizerError::Read`], [`TokenizerError::File`], [`TokenizerError::UnknownDecoder`].
    pub fn from_folder(folder: &Path) -> Result<Self, TokenizerError> {
        let path = folder.join("tokenizer.json");
        let bytes = std::fs::read(&path)
            .map_err(|error| TokenizerError::Read { path: path.clone(), reason: error.to_string() })?;
        Tokenizer::from_json(&bytes, &path, &Declared::read(folder)?)
    }

    /// From the bytes of a `tokenizer.json` alone.
    ///
    /// # Errors
    /// [`TokenizerError::File`], [`TokenizerError::UnknownDecoder`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TokenizerError> {
        Tokenizer::from_json(bytes, Path::new("tokenizer.json"), &Declared::default())
    }

    /// Rebuilt from GGUF metadata.
    ///
    /// # Errors
    /// [`TokenizerError::UnknownModel`], [`TokenizerError::UnknownPreTokenizer`], [`TokenizerError::MissingKey`],
    /// [`TokenizerError::Vocabulary`].
    pub fn from_gguf(gguf: &GgufVocabulary) -> Result<Self, TokenizerError> {
        let rebuilt = gguf.rebuild()?;
        let declared = [gguf.eos, gguf.eot, gguf.eom].into_iter().flatten();
        let ends = ending_ids(&rebuilt.vocabulary, declared, true);
        let around = |wanted: bool, id: Option<u32>| if wanted { Vec::from_iter(id) } else { Vec::new() };
        Ok(Tokenizer::assemble(Shared {
            literal: rebuilt.library.get_added_vocabulary().clone(),
            library: rebuilt.library,
            spelling: rebuilt.spelling,
            vocabulary: rebuilt.vocabulary,
            prefix: around(rebuilt.add_bos, gguf.bos),
            suffix: around(rebuilt.add_eos, gguf.eos),
            bos: gguf.bos,
            eos: gguf.eos,
            unknown: gguf.unknown,
            padding: gguf.padding,
            ends,
            digest: OnceLock::new(),
        }))
    }

    /// Whether this tokenizer and a GGUF vocabulary give every id the same text.
    ///
    /// # Errors
    /// [`TokenizerError::Disagree`] with the first differing id.
    pub fn check_against(&self, gguf: &GgufVocabulary) -> Result<(), TokenizerError> {
        let differs = |(id, theirs): &(u32, &String)| match self.token_text(*id) {
            // SentencePiece conversions write the blanks of user-defined tokens out.
            Some(ours) => ours != *theirs && ours.replace('▁', " ") != theirs.replace('▁', " "),
            // Conversions fill a vocabulary up to the width of the embedding with tokens of kind 5 (unused).
            None => gguf.token_types.get(*id as usize) != Some(&5),
        };
        let differing: Vec<(u32, &String)> = (0u32..).zip(&gguf.tokens).filter(differs).collect();
        let Some((id, theirs)) = differing.first() else { return Ok(()) };
        Err(TokenizerError::Disagree {
            count: differing.len(),
            total: gguf.tokens.len(),
            id: *id,
            file: self.token_text(*id).map_or_else(|| "no token".to_string(), |text| format!("{text:?}")),
            gguf: format!("{theirs:?}"),
        })
    }

    fn from_json(bytes: &[u8], path: &Path, declared: &Declared) -> Result<Self, TokenizerError> {
        let fault = |reason: String| TokenizerError::File { path: path.to_path_buf(), reason };
        let mut library = tokenizers::Tokenizer::from_bytes(bytes).map_err(|error| fault(error.to_string()))?;
        library.with_padding(None);
        library.with_truncation(None).map_err(|error| fault(error.to_string()))?;
        reset_dropout(&mut library);
        library
            .get_model()
            .tokenize("\u{10ffff}")
            .map_err(|error| fault(format!("a character outside the vocabulary cannot be encoded: {error}")))?;

        let spelling = Spelling::of(library.get_decoder())?;
        let vocabulary = vocabulary_of(&library);
        let (prefix, suffix) = around_text(&library).map_err(|error| fault(error.to_string()))?;
        let find = |text: &Option<String>| library.token_to_id(text.as_deref()?);
        let eos = find(&declared.eos);
        let listed = declared.ends.iter().flatten().copied();
        let ends = ending_ids(&vocabulary, listed.chain(eos), declared.ends.is_none());
        Ok(Tokenizer::assemble(Shared {
            literal: library.get_added_vocabulary().clone(),
            spelling,
            vocabulary,
            prefix,
            suffix,
            bos: find(&declared.bos),
            eos,
            unknown: find(&declared.unknown),
            padding: find(&declared.padding),
            ends,
            digest: OnceLock::new(),
            library,
        }))
    }

    fn assemble(mut shared: Shared) -> Self {
        shared.literal.set_encode_special_tokens(true);
        Tokenizer { shared: Arc::new(shared) }
    }
}

impl Declared {
    fn read(folder: &Path) -> Result<Self, TokenizerError> {
        let config = read_json(&folder.join("tokenizer_config.json"))?;
        let map = read_json(&folder.join("special_tokens_map.json"))?;
        let text = |key: &str| [&config, &map].into_iter().find_map(|file| token_text(file.get(key)?));
        let generation = read_json(&folder.join("generation_config.json"))?;
        let model = read_json(&folder.join("config.json"))?;
        Ok(Declared {
            bos: text("bos_token"),
            eos: text("eos_token"),
            unknown: text("unk_token"),
            padding: text("pad_token"),
            ends: [&generation, &model].into_iter().find_map(|file| end_ids(file.get("eos_token_id")?)),
        })
    }
}

/// The JSON of an optional file; `Null` where there is none.
fn read_json(path: &Path) -> Result<Value, TokenizerError> {
    if !path.is_file() {
        return Ok(Value::Null);
    }
    let bytes = std::fs::read(path)
        .map_err(|error| TokenizerError::Read { path: path.to_path_buf(), reason: error.to_string() })?;
    serde_json::from_slice(&bytes)
        .map_err(|error| TokenizerError::File { path: path.to_path_buf(), reason: error.to_string() })
}

/// A special token is written as a string, or as an object with its `content`.
fn token_text(value: &Value) -> Option<String> {
    value.as_str().or_else(|| value.get("content")?.as_str()).map(str::to_string)
}

/// One id or a list of ids.
fn end_ids(value: &Value) -> Option<Vec<u32>> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        Value::Array(ids) => ids.iter().map(id).collect(),
        single => id(single).map(|id| vec![id]),
    }
}

/// Merge dropout draws random segmentations: of use in training only.
fn reset_dropout(library: &mut tokenizers::Tokenizer) {
    if let ModelWrapper::BPE(model) = library.get_model()
        && model.dropout.is_some()
    {
        let mut model = model.clone();
        model.dropout = None;
        library.with_model(ModelWrapper::BPE(model));
    }
}

fn vocabulary_of(library: &tokenizers::Tokenizer) -> Vocabulary {
    let byte_fallback = match library.get_model() {
        ModelWrapper::BPE(model) => model.byte_fallback,
        ModelWrapper::Unigram(model) => model.byte_fallback(),
        _ => false,
    };
    let mut vocabulary = Vocabulary::default();
    for (text, id) in library.get_vocab(false) {
        let byte = if byte_fallback { byte_token(&text) } else { None };
        vocabulary.insert(id, &text, byte.map_or(TokenKind::Normal, TokenKind::Byte));
    }
    for (id, token) in library.get_added_tokens_decoder() {
        let kind = if token.special { TokenKind::Control } else { TokenKind::UserDefined };
        vocabulary.insert(id, &token.content, kind);
    }
    vocabulary
}

/// The ids that the post-processor puts before and after a text, found by letting it process one id that cannot occur.
fn around_text(library: &tokenizers::Tokenizer) -> tokenizers::Result<(Vec<u32>, Vec<u32>)> {
    const PROBE: u32 = u32::MAX;
    let Some(processor) = library.get_post_processor() else { return Ok((Vec::new(), Vec::new())) };
    let probe = Encoding::from_tokens(vec![Token::new(PROBE, String::new(), (0, 0))], 0);
    let processed = processor.process(probe, None, true)?;
    let ids = processed.get_ids();
    let at = ids.iter().position(|id| *id == PROBE).ok_or("the post-processor drops the text")?;
    Ok((ids[..at].to_vec(), ids[at + 1..].to_vec()))
}
