//! Why a tokenizer could not be loaded. Encoding and decoding never fail.

use std::path::PathBuf;

/// A tokenizer that cannot be built, with what was found and what would do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    #[error("cannot read {}: {reason}", path.display())]
    Read { path: PathBuf, reason: String },

    #[error("{} is not a tokenizer we can load: {reason}", path.display())]
    File { path: PathBuf, reason: String },

    #[error(
        "{} holds no tokenizer: expected tokenizer.json, or a GGUF file whose metadata carries its vocabulary",
        folder.display()
    )]
    Absent { folder: PathBuf },

    #[error("the GGUF metadata has no `{key}`, which its tokenizer cannot be rebuilt without; {help}")]
    MissingKey { key: &'static str, help: &'static str },

    #[error(
        "the GGUF tokenizer model `{found}` is not one we rebuild (known: {}); put the model's tokenizer.json beside \
         the file",
        known.join(", ")
    )]
    UnknownModel { found: String, known: Vec<&'static str> },

    #[error(
        "the GGUF pre-tokenizer `{found}` is not one we know, and guessing would encode text differently from how the \
         model was trained; put the model's tokenizer.json beside the file (known: {})",
        known.join(", ")
    )]
    UnknownPreTokenizer { found: String, known: Vec<&'static str> },

    #[error("the GGUF vocabulary is broken: {reason}")]
    Vocabulary { reason: String },

    #[error(
        "the tokenizer's decoder {found} is not one we know (known: ByteLevel, WordPiece, Metaspace, and sequences of Replace, ByteFallback, Fuse, Strip)"
    )]
    UnknownDecoder { found: String },

    #[error(
        "tokenizer.json and the GGUF vocabulary disagree on {count} of {total} ids, first on id {id}: tokenizer.json \
         has {file}, the GGUF file has {gguf}; they belong to different models"
    )]
    Disagree { count: usize, total: usize, id: u32, file: String, gguf: String },
}
