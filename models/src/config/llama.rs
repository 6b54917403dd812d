//! Dimensions of the Llama family.

use super::{HuggingFace, MAX_CONTEXT, MAX_LAYERS, MAX_VOCAB, MAX_WIDTH, Rope, problem, within};
use crate::checkpoint::{Checkpoint, Metadata};
use crate::error::{Error, Result};
use crate::gguf::Header;

/// Everything a Llama's computation depends on besides its weights.
#[derive(Debug, Clone, PartialEq)]
pub struct LlamaConfig {
    pub layers: usize,
    pub hidden: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub feed_forward: usize,
    pub vocab: usize,
    /// Positions the model was trained for.
    pub context: usize,
    pub rms_epsilon: f32,
    pub rope: Rope,
    pub tying: Tying,
    pub attention_bias: bool,
    pub mlp_bias: bool,
    /// Defaults that were taken because a key was absent.
    pub notes: Vec<String>,
}

/// Where the output projection comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tying {
    /// The embedding, by declaration.
    Tied,
    /// A tensor of its own, which must be there.
    Separate,
    /// The rule of GGUF: a tensor of its own when the file has one, else the embedding.
    TiedWhenAbsent,
}

impl LlamaConfig {
    /// Reads GGUF keys `llama.*` or a Hugging Face `config.json` of `LlamaForCausalLM`.
    ///
    /// # Errors
    /// [`Error::Config`] naming the key that is missing, of the wrong type, out of range, or that asks for a computation
    /// we do not have.
    pub fn from_checkpoint(checkpoint: &Checkpoint) -> Result<Self> {
        match checkpoint.metadata()? {
            Metadata::Gguf(header) => Self::from_gguf(checkpoint, header),
            Metadata::HuggingFace { path, config } => Self::from_huggingface(HuggingFace { path, config }),
        }
    }

    fn from_huggingface(config: HuggingFace) -> Result<Self> {
        let path = config.path;
        let mut notes = Vec::new();
        let dimension = |key: &str, limit| within(path, key, config.require(key)?, limit);
        let hidden = dimension("hidden_size", MAX_WIDTH)?;
        let heads = dimension("num_attention_heads", MAX_WIDTH)?;
        let kv_heads = config.get("num_key_value_heads")?.unwrap_or(heads);
        let head_dim =
            head_dim(hidden, heads, config.get("head_dim")?, |text| problem(path, "num_attention_heads", text))?;
        let context = config.or_default("max_position_embeddings", 2048, &mut notes)?;
        let context = within(path, "max_position_embeddings", context, MAX_CONTEXT)?;
        check_groups(heads, kv_heads, |text| problem(path, "num_key_value_heads", text))?;
        if let Some(activation) = config.get::<String>("hidden_act")?.filter(|name| name != "silu") {
            return Err(problem(path, "hidden_act", format!("found `{activation}`, the family uses `silu`")));
        }
        if config.raw("quantization_config").is_some() {
            let text = "weights quantised by a Python library cannot be read; use the original or a GGUF file";
            return Err(problem(path, "quantization_config", text));
        }
        let tied = config.or_default("tie_word_embeddings", false, &mut notes)?;
        Ok(LlamaConfig {
            layers: dimension("num_hidden_layers", MAX_LAYERS)?,
            hidden,
            heads,
            kv_heads,
            head_dim,
            feed_forward: dimension("intermediate_size", MAX_WIDTH)?,
            vocab: dimension("vocab_size", MAX_VOCAB)?,
            context,
            rms_epsilon: config.or_default("rms_norm_eps", 1e-6, &mut notes)?,
            rope: Rope::from_huggingface(&config, head_dim, context, &mut notes)?,
            tying: if tied { Tying::Tied } else { Tying::Separate },
            attention_bias: config.get("attention_bias")?.unwrap_or(false),
            mlp_bias: config.get("mlp_bias")?.unwrap_or(false),
            notes,
        })
    }

    fn from_gguf(checkpoint: &Checkpoint, header: &Header) -> Result<Self> {
        let path = checkpoint.path();
        let dimension = |key: &str, limit| within(path, key, header.require(key)?, limit);
        let hidden = dimension("llama.embedding_length", MAX_WIDTH)?;
        let heads = dimension("llama.attention.head_count", MAX_WIDTH)?;
        let kv_heads = header.get("llama.attention.head_count_kv")?.unwrap_or(heads);
        let declared = header.get("llama.attention.key_length")?;
        let head_dim = head_dim(hidden, heads, declared, |text| header.problem("llama.attention.head_count", text))?;
        if let Some(found) = header.get::<usize>("llama.attention.value_length")?.filter(|found| *found != head_dim) {
            let text = format!("found {found}, expected the key length {head_dim}");
            return Err(header.problem("llama.attention.value_length", text));
        }
        if let Some(experts) = header.get::<u32>("llama.expert_count")?.filter(|experts| *experts > 0) {
            let text = format!("found {experts}; mixtures of experts are not part of this architecture");
            return Err(header.problem("llama.expert_count", text));
        }
        check_groups(heads, kv_heads, |text| header.problem("llama.attention.head_count_kv", text))?;
        let bias = |name: &str| checkpoint.contains(name);
        Ok(LlamaConfig {
            layers: dimension("llama.block_count", MAX_LAYERS)?,
            hidden,
            heads,
            kv_heads,
            head_dim,
            feed_forward: dimension("llama.feed_forward_length", MAX_WIDTH)?,
            vocab: vocab(checkpoint, header)?,
            context: dimension("llama.context_length", MAX_CONTEXT)?,
            rms_epsilon: header.require("llama.attention.layer_norm_rms_epsilon")?,
            rope: Rope::from_gguf(checkpoint, header, head_dim)?,
            tying: Tying::TiedWhenAbsent,
            attention_bias: bias("blk.0.attn_q.bias"),
            mlp_bias: bias("blk.0.ffn_gate.bias"),
            notes: Vec::new(),
        })
    }
}

fn head_dim(hidden: usize, heads: usize, declared: Option<usize>, problem: impl Fn(String) -> Error) -> Result<usize> {
    match declared {
        Some(dim) if (1..=MAX_WIDTH).contains(&dim) => Ok(dim),
        Some(dim) => Err(problem(format!("heads of {dim} elements, expected 1 to {MAX_WIDTH}"))),
        None if hidden.is_multiple_of(heads) => Ok(hidden / heads),
        None => {
            Err(problem(format!("{heads} heads do not divide {hidden} hidden elements, and no head size is given")))
        }
    }
}

fn check_groups(heads: usize, kv_heads: usize, problem: impl Fn(String) -> Error) -> Result<()> {
    if kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
        return Err(problem(format!("found {kv_heads}, expected a divisor of the {heads} query heads")));
    }
    Ok(())
}

/// The token list is the vocabulary; the count beside it and the embedding must agree.
fn vocab(checkpoint: &Checkpoint, header: &Header) -> Result<usize> {
    let counted = header.get::<usize>("llama.vocab_size")?;
    let listed = header.get::<crate::gguf::Array>("tokenizer.ggml.tokens")?.map(|tokens| tokens.len());
    let rows = checkpoint.shape("token_embd.weight").and_then(|shape| shape.first().copied());
    let Some(vocab) = counted.or(listed).or(rows) else {
        return Err(
            header.problem("llama.vocab_size", "the key is missing, and so are tokens and embedding".to_string())
        );
    };
    within(checkpoint.path(), "llama.vocab_size", vocab, MAX_VOCAB)
}
