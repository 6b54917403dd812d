//! Dimensions of BERT.

use super::{HuggingFace, MAX_CONTEXT, MAX_LAYERS, MAX_VOCAB, MAX_WIDTH, problem, within};
use crate::checkpoint::{Checkpoint, Metadata};
use crate::error::{Error, Result};

/// Everything a BERT encoder's computation depends on besides its weights.
#[derive(Debug, Clone, PartialEq)]
pub struct BertConfig {
    pub layers: usize,
    pub hidden: usize,
    pub heads: usize,
    pub feed_forward: usize,
    pub vocab: usize,
    /// Tokens of a text at most.
    pub context: usize,
    /// The row of the position table that a text's first token takes; the table has `first_position + context` rows.
    pub first_position: usize,
    /// Rows of the token-type table, the first of which is used; 0 in an architecture without one.
    pub token_types: usize,
    pub layer_norm_epsilon: f32,
    pub activation: Gelu,
    /// Defaults that were taken because a key was absent.
    pub notes: Vec<String>,
}

/// The two forms of GELU (Hendrycks & Gimpel 2016, §2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gelu {
    Erf,
    Tanh,
}

impl BertConfig {
    /// Reads a Hugging Face `config.json` of `BertModel`.
    ///
    /// # Errors
    /// [`Error::Config`] naming the key that is missing, of the wrong type, out of range, or that asks for a computation
    /// we do not have; [`Error::UnsupportedArchitecture`] for a GGUF file.
    pub fn from_checkpoint(checkpoint: &Checkpoint) -> Result<Self> {
        const KEY: &str = "type_vocab_size";
        let mut config = Self::without_token_types(checkpoint)?;
        if let Metadata::HuggingFace { path, config: json } = checkpoint.metadata()? {
            let types = HuggingFace { path, config: json }.or_default(KEY, 2, &mut config.notes)?;
            config.token_types = within(path, KEY, types, MAX_VOCAB)?;
        }
        Ok(config)
    }

    /// As [`BertConfig::from_checkpoint`], for an architecture that has no token types.
    pub(crate) fn without_token_types(checkpoint: &Checkpoint) -> Result<Self> {
        let Metadata::HuggingFace { path, config } = checkpoint.metadata()? else {
            let (path, found) = (checkpoint.path().to_path_buf(), "bert in GGUF".to_string());
            return Err(Error::UnsupportedArchitecture { path, found, supported: vec!["bert in safetensors".into()] });
        };
        let config = HuggingFace { path, config };
        let mut notes = Vec::new();
        let dimension = |key: &str, limit| within(path, key, config.require(key)?, limit);
        let hidden = dimension("hidden_size", MAX_WIDTH)?;
        let heads = dimension("num_attention_heads", MAX_WIDTH)?;
        if !hidden.is_multiple_of(heads) {
            let text = format!("{heads} heads do not divide {hidden} hidden elements");
            return Err(problem(path, "num_attention_heads", text));
        }
        if let Some(kind) = config.get::<String>("position_embedding_type")?.filter(|kind| kind != "absolute") {
            return Err(problem(path, "position_embedding_type", format!("found `{kind}`, supported is `absolute`")));
        }
        if config.get::<bool>("is_decoder")?.unwrap_or(false) {
            return Err(problem(path, "is_decoder", "found true; only the bidirectional encoder is supported"));
        }
        Ok(BertConfig {
            layers: dimension("num_hidden_layers", MAX_LAYERS)?,
            hidden,
            heads,
            feed_forward: dimension("intermediate_size", MAX_WIDTH)?,
            vocab: dimension("vocab_size", MAX_VOCAB)?,
            context: dimension("max_position_embeddings", MAX_CONTEXT)?,
            first_position: 0,
            token_types: 0,
            layer_norm_epsilon: config.or_default("layer_norm_eps", 1e-12, &mut notes)?,
            activation: match config.or_default("hidden_act", "gelu".to_string(), &mut notes)?.as_str() {
                "gelu" => Gelu::Erf,
                "gelu_new" | "gelu_pytorch_tanh" => Gelu::Tanh,
                other => {
                    let text = format!("found `{other}`, supported are gelu, gelu_new and gelu_pytorch_tanh");
                    return Err(problem(path, "hidden_act", text));
                }
            },
            notes,
        })
    }
}
