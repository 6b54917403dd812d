//! Dimensions of a decoder: the keys that the families share, read with each family's own defaults.

use lifelong_kernels::ops::rope::RopeStyle;

use super::gguf::GgufKeys;
use super::{HuggingFace, MAX_CONTEXT, MAX_LAYERS, MAX_VOCAB, MAX_WIDTH, Mixture, Recurrence, Rope, problem, within};
use crate::checkpoint::{Checkpoint, Metadata};
use crate::error::{Error, Result};
use crate::fp8;

/// What a family fixes, and what it means when its files leave a key out.
#[derive(Debug)]
pub struct Family {
    /// Name in the registry; also what the keys of its GGUF files start with.
    pub name: &'static str,
    /// Documented defaults of integers in `config.json`, by key.
    pub defaults: &'static [(&'static str, usize)],
    pub tied: bool,
    pub norm_epsilon: f32,
    pub rope_base: f64,
    /// How the rows of q and k are laid out in its GGUF files; safetensors always hold halves.
    pub gguf_rope: RopeStyle,
    pub gate: Gate,
}

/// The function on the gate of a feed-forward layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    Silu,
    GeluTanh,
}

impl Gate {
    /// The key of `config.json` that names the function, and the name.
    fn stated(self) -> (&'static str, &'static str) {
        match self {
            Gate::Silu => ("hidden_act", "silu"),
            Gate::GeluTanh => ("hidden_activation", "gelu_pytorch_tanh"),
        }
    }
}

/// Everything a decoder's computation depends on besides its weights.
#[derive(Debug, Clone, PartialEq)]
pub struct DecoderConfig {
    pub layers: usize,
    pub hidden: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub feed_forward: usize,
    pub vocab: usize,
    /// Positions the model was trained for.
    pub context: usize,
    pub norm: Norm,
    pub rope: Rope,
    /// Factor of every attention score.
    pub score_scale: f32,
    /// Keys that each layer's queries see, their own counted; `None` for all. One entry a layer.
    pub windows: Vec<Option<usize>>,
    /// Whether each layer rotates its heads; one entry a layer.
    pub rotated: Vec<bool>,
    pub gate: Gate,
    pub tying: Tying,
    pub biases: Biases,
    /// Whether every query and key head is normalised before it is rotated.
    pub head_norms: bool,
    /// Whether q, k and v are stored as one matrix, and gate and up as another.
    pub fused: bool,
    /// Whether every query head has a sink, a logit that joins its softmax.
    pub sinks: bool,
    /// Whether the output of attention is gated before it is projected; the gate's rows take turns with the query's.
    pub gated_attention: bool,
    /// Layers of several experts, where a model has them.
    pub mixture: Option<Mixture>,
    /// Layers of linear attention, where a model has them.
    pub recurrence: Option<Recurrence>,
    /// Defaults that were taken because a key was absent.
    pub notes: Vec<String>,
}

/// How root mean square norms read their weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Norm {
    pub epsilon: f32,
    /// Added to every stored weight: 1 in safetensors of Gemma, whose weights are differences from 1.
    pub offset: f32,
}

/// Which projections add a vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Biases {
    pub qkv: bool,
    pub output: bool,
    pub mlp: bool,
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

impl DecoderConfig {
    /// Reads what the families share; an architecture adds what is its own. No layer has a window and all are rotated,
    /// heads are not normalised, matrices are not fused, scores are divided by the root of the head size.
    ///
    /// # Errors
    /// [`Error::Config`] naming the key that is missing, of the wrong type, out of range, or that asks for a computation
    /// we do not have.
    pub fn from_checkpoint(checkpoint: &Checkpoint, family: &Family) -> Result<Self> {
        match checkpoint.metadata()? {
            Metadata::Gguf(header) => refuse_gguf_mixture(GgufKeys { header, architecture: family.name })?,
            Metadata::HuggingFace { path, config } => refuse_mixture(&HuggingFace { path, config })?,
        }
        Self::of_mixture(checkpoint, family)
    }

    /// As [`DecoderConfig::from_checkpoint`], for a family that reads the keys of its mixture of experts itself.
    ///
    /// # Errors
    /// As [`DecoderConfig::from_checkpoint`].
    pub fn of_mixture(checkpoint: &Checkpoint, family: &Family) -> Result<Self> {
        match checkpoint.metadata()? {
            Metadata::Gguf(header) => {
                Self::from_gguf(checkpoint, GgufKeys { header, architecture: family.name }, family)
            }
            Metadata::HuggingFace { path, config } => Self::from_huggingface(HuggingFace { path, config }, family),
        }
    }

    fn from_huggingface(config: HuggingFace, family: &Family) -> Result<Self> {
        let path = config.path;
        refuse(&config)?;
        check_gate(&config, family.gate)?;
        let mut notes = Vec::new();
        let mut dimension = |key: &str, limit| {
            let default = family.defaults.iter().find(|(name, _)| *name == key);
            let value = match default {
                Some((_, default)) => config.or_default(key, *default, &mut notes)?,
                None => config.require(key)?,
            };
            within(path, key, value, limit)
        };
        let layers = dimension("num_hidden_layers", MAX_LAYERS)?;
        let hidden = dimension("hidden_size", MAX_WIDTH)?;
        let heads = dimension("num_attention_heads", MAX_WIDTH)?;
        // Models without a layer that is not a mixture have the width of experts alone.
        let is_dense = config.raw("intermediate_size").is_some() || config.raw("moe_intermediate_size").is_none();
        let feed_forward = dimension(if is_dense { "intermediate_size" } else { "moe_intermediate_size" }, MAX_WIDTH)?;
        let vocab = dimension("vocab_size", MAX_VOCAB)?;
        let context = dimension("max_position_embeddings", MAX_CONTEXT)?;
        let declared = |key: &str| family.defaults.iter().any(|(name, _)| *name == key) || config.raw(key).is_some();
        let kv_heads = match declared("num_key_value_heads") {
            true => dimension("num_key_value_heads", MAX_WIDTH)?,
            false => heads,
        };
        check_groups(heads, kv_heads, |text| problem(path, "num_key_value_heads", text))?;
        let head_dim = match declared("head_dim") {
            true => dimension("head_dim", MAX_WIDTH)?,
            false => divided(hidden, heads, |text| problem(path, "num_attention_heads", text))?,
        };
        let rope = Rope::from_huggingface(&config, head_dim, context, family.rope_base, &mut notes)?;
        let attention_bias = config.get("attention_bias")?.unwrap_or(false);
        let tied = config.or_default("tie_word_embeddings", family.tied, &mut notes)?;
        Ok(DecoderConfig {
            layers,
            hidden,
            heads,
            kv_heads,
            head_dim,
            feed_forward,
            vocab,
            context: rope.usable(context, &mut notes).min(MAX_CONTEXT),
            norm: Norm { epsilon: config.or_default("rms_norm_eps", family.norm_epsilon, &mut notes)?, offset: 0.0 },
            rope,
            score_scale: 1.0 / (head_dim as f32).sqrt(),
            windows: vec![None; layers],
            rotated: vec![true; layers],
            gate: family.gate,
            tying: if tied { Tying::Tied } else { Tying::Separate },
            biases: Biases {
                qkv: attention_bias,
                output: attention_bias,
                mlp: config.get("mlp_bias")?.unwrap_or(false),
            },
            head_norms: false,
            fused: false,
            sinks: false,
            gated_attention: false,
            mixture: None,
            recurrence: None,
            notes,
        })
    }

    fn from_gguf(checkpoint: &Checkpoint, keys: GgufKeys, family: &Family) -> Result<Self> {
        refuse_gguf(keys)?;
        let dimension = |key: &str, limit| keys.within(key, keys.require(key)?, limit);
        let hidden = dimension("embedding_length", MAX_WIDTH)?;
        let heads = dimension("attention.head_count", MAX_WIDTH)?;
        let kv_heads = keys.get("attention.head_count_kv")?.unwrap_or(heads);
        check_groups(heads, kv_heads, |text| keys.problem("attention.head_count_kv", text))?;
        let head_dim = match keys.get("attention.key_length")? {
            Some(length) => keys.within("attention.key_length", length, MAX_WIDTH)?,
            None => divided(hidden, heads, |text| keys.problem("attention.head_count", text))?,
        };
        if let Some(found) = keys.get::<usize>("attention.value_length")?.filter(|found| *found != head_dim) {
            let text = format!("found {found}, expected the key length {head_dim}");
            return Err(keys.problem("attention.value_length", text));
        }
        // Blocks behind the layers predict further tokens: another part than this one.
        let blocks = dimension("block_count", MAX_LAYERS)?;
        let layers = blocks.saturating_sub(keys.get("nextn_predict_layers")?.unwrap_or(0));
        keys.within("block_count", layers, MAX_LAYERS)?;
        let is_dense = keys.get::<usize>("expert_feed_forward_length")?.is_none();
        let states_dense = keys.get::<usize>("feed_forward_length")?.is_some();
        let feed_forward = if is_dense || states_dense { "feed_forward_length" } else { "expert_feed_forward_length" };
        let rope = Rope::from_gguf(checkpoint, keys, head_dim, family)?;
        let mut notes = Vec::new();
        let bias = |part: &str| checkpoint.contains(&format!("blk.0.{part}.bias"));
        Ok(DecoderConfig {
            layers,
            hidden,
            heads,
            kv_heads,
            head_dim,
            feed_forward: dimension(feed_forward, MAX_WIDTH)?,
            vocab: vocab(checkpoint, keys)?,
            context: rope.usable(dimension("context_length", MAX_CONTEXT)?, &mut notes).min(MAX_CONTEXT),
            norm: Norm { epsilon: keys.require("attention.layer_norm_rms_epsilon")?, offset: 0.0 },
            rope,
            score_scale: 1.0 / (head_dim as f32).sqrt(),
            windows: vec![None; layers],
            rotated: vec![true; layers],
            gate: family.gate,
            tying: Tying::TiedWhenAbsent,
            biases: Biases { qkv: bias("attn_q"), output: bias("attn_output"), mlp: bias("ffn_gate") },
            head_norms: false,
            fused: false,
            sinks: false,
            gated_attention: false,
            mixture: None,
            recurrence: None,
            notes,
        })
    }
}

/// Keys of any family that change what is computed, in a way no architecture here computes.
fn refuse(config: &HuggingFace) -> Result<()> {
    let path = config.path;
    let method = config.raw("quantization_config").map(|quantisation| quantisation.get("quant_method"));
    // MXFP4 tensors say what they are by their own names.
    if method.is_some_and(|method| method.and_then(|method| method.as_str()) != Some("mxfp4")) {
        fp8::check(config)?;
    }
    for key in ["attn_logit_softcapping", "final_logit_softcapping"] {
        if let Some(found) = config.get::<f64>(key)?.filter(|cap| *cap != 0.0) {
            let text = format!("found {found}, expected null: capped logits are not supported");
            return Err(problem(path, key, text));
        }
    }
    if config.get::<bool>("use_bidirectional_attention")?.unwrap_or(false) {
        let text = "found true; only causal attention is supported for decoders";
        return Err(problem(path, "use_bidirectional_attention", text));
    }
    Ok(())
}

/// As [`refuse`], for families without mixtures.
fn refuse_mixture(config: &HuggingFace) -> Result<()> {
    let path = config.path;
    if config.raw("quantization_config").is_some() {
        fp8::check(config)?;
    }
    for key in ["num_experts", "num_local_experts"] {
        if let Some(found) = config.get::<usize>(key)?.filter(|experts| *experts > 0) {
            let text = format!("found {found}; mixtures of experts are not part of this architecture");
            return Err(problem(path, key, text));
        }
    }
    Ok(())
}

/// As [`refuse_mixture`].
fn refuse_gguf_mixture(keys: GgufKeys) -> Result<()> {
    match keys.get::<u32>("expert_count")?.filter(|experts| *experts > 0) {
        Some(experts) => {
            let text = format!("found {experts}; mixtures of experts are not part of this architecture");
            Err(keys.problem("expert_count", text))
        }
        None => Ok(()),
    }
}

/// As [`refuse`].
fn refuse_gguf(keys: GgufKeys) -> Result<()> {
    for key in ["attn_logit_softcapping", "final_logit_softcapping", "attention.clamp_kqv", "attention.max_alibi_bias"]
    {
        if let Some(found) = keys.get::<f32>(key)?.filter(|value| *value != 0.0) {
            return Err(keys.problem(key, format!("found {found}, expected 0: this computation is not supported")));
        }
    }
    if keys.get::<bool>("attention.causal")? == Some(false) {
        return Err(keys.problem("attention.causal", "found false; only causal attention is supported for decoders"));
    }
    Ok(())
}

fn check_gate(config: &HuggingFace, gate: Gate) -> Result<()> {
    let (key, expected) = gate.stated();
    match config.get::<String>(key)?.filter(|name| name != expected) {
        Some(found) => Err(problem(config.path, key, format!("found `{found}`, the family uses `{expected}`"))),
        None => Ok(()),
    }
}

fn divided(hidden: usize, heads: usize, problem: impl Fn(String) -> Error) -> Result<usize> {
    if hidden.is_multiple_of(heads) {
        return Ok(hidden / heads);
    }
    Err(problem(format!("{heads} heads do not divide {hidden} hidden elements, and no head size is given")))
}

fn check_groups(heads: usize, kv_heads: usize, problem: impl Fn(String) -> Error) -> Result<()> {
    if kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
        return Err(problem(format!("found {kv_heads}, expected a divisor of the {heads} query heads")));
    }
    Ok(())
}

/// The token list is the vocabulary; the count beside it and the embedding must agree.
fn vocab(checkpoint: &Checkpoint, keys: GgufKeys) -> Result<usize> {
    let counted = keys.get::<usize>("vocab_size")?;
    let listed = keys.header.get::<crate::gguf::Array>("tokenizer.ggml.tokens")?.map(|tokens| tokens.len());
    let rows = checkpoint.shape("token_embd.weight").and_then(|shape| shape.first().copied());
    let Some(vocab) = counted.or(listed).or(rows) else {
        return Err(keys.problem("vocab_size", "the key is missing, and so are tokens and embedding"));
    };
    keys.within("vocab_size", vocab, MAX_VOCAB)
}
