//! Loading: from `tokenizer.json` and the small files beside it, from GGUF metadata, or from both, checked against each
//! other.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use lifelong_models::Checkpoint;
use serde_json::Value;
use tokenizers::{Encoding, Model, ModelWrapper, PostProcessor, Token};

use super::charsmap;
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
        let mut library = read_library(bytes).map_err(fault)?;
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

/// The library's tokenizer. Its reader panics at some broken files, which are no bug of whoever opened the file: the
/// parts that it panics at are read as JSON first, and any other panic becomes the file's fault.
fn read_library(bytes: &[u8]) -> Result<tokenizers::Tokenizer, String> {
    #[derive(serde::Deserialize)]
    struct Parts {
        #[serde(default, rename = "decoder")]
        _decoder: Value,
        #[serde(default)]
        normalizer: Value,
    }
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let parts: Parts = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if let Some(fault) = charsmap::fault_in(&parts.normalizer) {
        return Err(fault);
    }
    let read = std::panic::catch_unwind(|| tokenizers::Tokenizer::from_bytes(bytes));
    match read {
        Ok(library) => library.map_err(|error| error.to_string()),
        Err(_) => Err("a part of it has a form that its reader cannot take (see the panic above)".to_string()),
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::engine::tokenizer::Specials;

    /// A tokenizer.json of whole words, with the fixed padding and truncation that published files carry.
    fn words() -> Value {
        let special = |id: u32, text: &str| {
            json!({"id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false,
                   "normalized": false, "special": true})
        };
        json!({
            "version": "1.0",
            "truncation": {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0},
            "padding": {"strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
                        "pad_type_id": 0, "pad_token": "[PAD]"},
            "added_tokens": [special(0, "[PAD]"), special(1, "[CLS]"), special(2, "[SEP]")],
            "normalizer": null,
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                      "max_input_chars_per_word": 100,
                      "vocab": {"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "[UNK]": 3, "a": 4, "b": 5}},
        })
    }

    fn folder(files: &[(&str, Value)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, value) in files {
            std::fs::write(folder.path().join(name), value.to_string()).unwrap();
        }
        folder
    }

    #[test]
    fn padding_and_truncation_of_the_file_are_reset() {
        let tokenizer = Tokenizer::from_bytes(words().to_string().as_bytes()).unwrap();
        assert_eq!(tokenizer.encode_document("a b a b a", Specials::Literal), [1, 4, 5, 4, 5, 4, 2]);
        assert_eq!(tokenizer.encode_prompt("a", Specials::Literal), [1, 4]);
        assert_eq!(tokenizer.encode("a", Specials::Literal), [4]);
    }

    #[test]
    fn special_tokens_come_from_the_files_beside() {
        let folder = folder(&[
            ("tokenizer.json", words()),
            ("tokenizer_config.json", json!({"eos_token": {"content": "[SEP]"}, "bos_token": null})),
            ("special_tokens_map.json", json!({"bos_token": "[CLS]", "pad_token": "[PAD]", "eos_token": "[PAD]"})),
            ("generation_config.json", json!({"eos_token_id": [5, 4]})),
            ("config.json", json!({"eos_token_id": 0})),
        ]);
        let tokenizer = Tokenizer::from_folder(folder.path()).unwrap();
        assert_eq!((tokenizer.bos_id(), tokenizer.eos_id(), tokenizer.padding_id()), (Some(1), Some(2), Some(0)));
        assert_eq!(tokenizer.eos_ids(), [2, 4, 5]);
    }

    #[test]
    fn merge_dropout_is_reset() {
        let mut file = words();
        file["model"] = json!({"type": "BPE", "dropout": 0.9, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "vocab": {"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "a": 3, "b": 4, "ab": 5}, "merges": ["a b"]});
        let tokenizer = Tokenizer::from_bytes(file.to_string().as_bytes()).unwrap();
        assert!((0..50).all(|_| tokenizer.encode("ab", Specials::Literal) == [5]));
    }

    #[test]
    fn a_model_that_cannot_encode_everything_is_refused() {
        let mut file = words();
        file["model"]["unk_token"] = json!("[GONE]");
        let error = Tokenizer::from_bytes(file.to_string().as_bytes()).unwrap_err().to_string();
        assert!(error.contains("outside the vocabulary"), "{error}");
        file = words();
        file["decoder"] = json!({"type": "CTC", "pad_token": "[PAD]", "word_delimiter_token": "|", "cleanup": true});
        let error = Tokenizer::from_bytes(file.to_string().as_bytes()).unwrap_err().to_string();
        assert!(error.contains("CTC"), "{error}");
    }

    #[test]
    fn file_and_gguf_must_agree_on_every_id() {
        let folder = folder(&[("tokenizer.json", words())]);
        let tokens: Vec<String> = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "a", "b", "[PAD6]"].map(String::from).to_vec();
        let mut gguf = GgufVocabulary {
            model: "bert".to_string(),
            token_types: vec![3, 3, 3, 3, 1, 1, 5],
            tokens,
            ..GgufVocabulary::default()
        };
        assert!(Tokenizer::load(Some(&gguf), folder.path()).is_ok(), "unused tokens fill the embedding up");
        gguf.tokens[4] = "z".to_string();
        let error = Tokenizer::load(Some(&gguf), folder.path()).unwrap_err();
        assert_eq!(
            error,
            TokenizerError::Disagree {
                count: 1,
                total: 7,
                id: 4,
                file: "\"a\"".to_string(),
                gguf: "\"z\"".to_string()
            }
        );
    }

    #[test]
    fn nothing_to_load_from_is_said() {
        let folder = folder(&[]);
        let error = Tokenizer::load(None, folder.path()).unwrap_err().to_string();
        assert!(error.contains("expected tokenizer.json"), "{error}");
    }

    #[test]
    fn the_digest_follows_what_changes_ids() {
        let digest = |file: &Value| Tokenizer::from_bytes(file.to_string().as_bytes()).unwrap().digest();
        let file = words();
        assert_eq!(digest(&file), digest(&file));
        let mut other = words();
        other["model"]["vocab"]["c"] = json!(6);
        assert_ne!(digest(&file), digest(&other));
        let mut other = words();
        other["post_processor"] = Value::Null;
        assert_ne!(digest(&file), digest(&other));
        let mut padded = words();
        padded["padding"] = Value::Null;
        assert_eq!(digest(&file), digest(&padded), "padding is reset");
    }
}
