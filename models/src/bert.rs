//! BERT encoders, among them the MiniLM sentence models.
//!
//! Source: Devlin et al. 2019, "BERT", §3; the layer is the post-norm Transformer encoder of Vaswani et al. 2017, §3.1.

use lifelong_kernels::ops::attention::{AttentionShape, DistanceBias};
use lifelong_kernels::ops::{embed, residual};
use lifelong_kernels::{Device, Matrix, Values};

use crate::architecture::{Encoder, Geometry, Scratch, check_texts};
use crate::checkpoint::Checkpoint;
use crate::config::BertConfig;
use crate::error::Result;
use crate::layers::attention::Attention;
use crate::layers::embedding::Embedding;
use crate::layers::linear::{Bias, Linear};
use crate::layers::mlp::Mlp;
use crate::layers::norm::LayerNorm;
use crate::pieces;
use crate::weights::Weights;

/// A loaded BERT encoder.
pub struct Bert {
    geometry: Geometry,
    notes: Vec<String>,
    embedding: Embedding,
    /// Position vectors from a text's first token on, with the vector of token type 0 added: every text is a first segment.
    positions: Matrix,
    norm: LayerNorm,
    layers: Vec<Layer>,
    bias: Option<DistanceBias>,
}

/// What the architectures of this body differ in beside their dimensions.
pub(crate) struct Variant {
    /// Name in the registry.
    pub architecture: &'static str,
    /// What tensors of a larger model begin with.
    pub prefix: &'static str,
    /// Names of a layer's attention: query, key, value, output, norm.
    pub attention: [&'static str; 5],
    /// What scores of every layer get added, from the encoder's own tensors.
    pub bias: fn(&mut Weights, &str, &BertConfig) -> Result<Option<DistanceBias>>,
}

/// Names of [`Variant::attention`] in BERT and RoBERTa.
pub(crate) const ATTENTION: [&str; 5] = [
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "attention.output.LayerNorm",
];

/// No bias of scores.
pub(crate) fn no_bias(_: &mut Weights, _: &str, _: &BertConfig) -> Result<Option<DistanceBias>> {
    Ok(None)
}

static VARIANT: Variant = Variant { architecture: "bert", prefix: "bert.", attention: ATTENTION, bias: no_bias };

struct Layer {
    attention: Attention,
    attention_norm: LayerNorm,
    mlp: Mlp,
    mlp_norm: LayerNorm,
}

/// Builds a BERT, with or without the prefix `bert.` on its tensors.
///
/// # Errors
/// As [`BertConfig::from_checkpoint`]; a tensor that is missing, of another shape or type, or without use.
pub fn load(checkpoint: &Checkpoint, device: &Device) -> Result<Box<dyn Encoder>> {
    let config = BertConfig::from_checkpoint(checkpoint)?;
    Ok(Box::new(Bert::load(&VARIANT, &config, checkpoint, device)?))
}

impl Bert {
    /// Builds the encoder from safetensors, with or without the variant's prefix on its tensors. A pooler or a head for
    /// masked words in the file is left out: the output is the last hidden states.
    ///
    /// # Errors
    /// A tensor that is missing, of another shape or type, or that the encoder has no use for.
    pub(crate) fn load(
        variant: &Variant,
        config: &BertConfig,
        checkpoint: &Checkpoint,
        device: &Device,
    ) -> Result<Self> {
        let prefix = variant.prefix;
        let is_prefixed = checkpoint.contains(&format!("{prefix}embeddings.word_embeddings.weight"));
        let prefix = if is_prefixed { prefix } else { "" };
        let mut weights = Weights::new(checkpoint, device, config.notes.clone());
        let BertConfig { hidden, layer_norm_epsilon, .. } = *config;
        let name = |part: &str| format!("{prefix}embeddings.{part}");
        let embedding = Embedding::load(&mut weights, &name("word_embeddings"), config.vocab, hidden)?;
        let positions = positions(&mut weights, &name, config)?;
        let norm = LayerNorm::load(&mut weights, &name("LayerNorm"), hidden, layer_norm_epsilon)?;
        let bias = (variant.bias)(&mut weights, prefix, config)?;
        let build = |weights: &mut Weights, layer| {
            Layer::load(weights, &format!("{prefix}encoder.layer.{layer}"), &variant.attention, config)
        };
        let layers = weights.layers(device.threads(), config.layers, build)?;
        weights.finish(|name| {
            let name = name.strip_prefix(prefix).unwrap_or(name);
            let heads = ["pooler.", "cls.", "lm_head."];
            heads.iter().any(|head| name.starts_with(head)) || name == "embeddings.position_ids"
        })?;
        let geometry = geometry(variant.architecture, config, &weights);
        Ok(Bert { geometry, notes: weights.notes, embedding, positions, norm, layers, bias })
    }
}

fn positions(weights: &mut Weights, name: &impl Fn(&str) -> String, config: &BertConfig) -> Result<Matrix> {
    let BertConfig { hidden, context, first_position, token_types, .. } = *config;
    let mut table = weights.table(&name("position_embeddings.weight"), first_position + context, hidden)?;
    table.drain(..first_position * hidden);
    if token_types > 0 {
        let types = weights.table(&name("token_type_embeddings.weight"), token_types, hidden)?;
        for row in table.chunks_exact_mut(hidden) {
            row.iter_mut().zip(&types).for_each(|(value, first_type)| *value += first_type);
        }
    }
    Ok(Matrix::f32_on(weights.device, context, hidden, &table)?)
}

fn geometry(architecture: &str, config: &BertConfig, weights: &Weights) -> Geometry {
    Geometry {
        architecture: architecture.to_string(),
        layers: config.layers,
        hidden: config.hidden,
        heads: config.heads,
        kv_heads: config.heads,
        head_dim: config.hidden / config.heads,
        key_bias: true,
        feed_forward: config.feed_forward,
        vocab: config.vocab,
        context: config.context,
        state_layers: 0,
        state_values: 0,
        parameters: weights.parameters,
        weight_bytes: weights.bytes,
    }
}

impl Layer {
    fn load(weights: &mut Weights, prefix: &str, attention: &[&str; 5], config: &BertConfig) -> Result<Self> {
        let [query, key, value, output, attention_norm] = attention;
        let BertConfig { hidden, heads, feed_forward, layer_norm_epsilon, activation, .. } = *config;
        let head_dim = hidden / heads;
        let shape =
            AttentionShape { heads, kv_heads: heads, head_dim, scale: 1.0 / (head_dim as f32).sqrt(), window: None };
        let mut linear = |part: &str, n, k| Linear::load(weights, &format!("{prefix}.{part}"), n, k, Bias::Present);
        let attention = Attention {
            query: linear(query, hidden, hidden)?,
            key: linear(key, hidden, hidden)?,
            value: linear(value, hidden, hidden)?,
            output: linear(output, hidden, hidden)?,
            head_norms: None,
            gate: None,
            sinks: None,
            shape,
        };
        let up = linear("intermediate.dense", feed_forward, hidden)?;
        let down = linear("output.dense", hidden, feed_forward)?;
        let mut norm = |part: &str| LayerNorm::load(weights, &format!("{prefix}.{part}"), hidden, layer_norm_epsilon);
        Ok(Layer {
            attention,
            attention_norm: norm(attention_norm)?,
            mlp: Mlp { up, down, activation },
            mlp_norm: norm("output.LayerNorm")?,
        })
    }
}

impl Encoder for Bert {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn forward(
        &self,
        device: &Device,
        tokens: &[u32],
        lengths: &[usize],
        scratch: &mut Scratch,
        hidden: &mut Values,
    ) -> Result<()> {
        check_texts(tokens, lengths, &self.geometry)?;
        let hidden = hidden.take(device, tokens.len() * self.geometry.hidden)?;
        pieces::texts(device, &self.geometry, (tokens, lengths), hidden, scratch, |texts, hidden, scratch| {
            self.pass(device, texts, scratch, hidden)
        })
    }
}

impl Bert {
    fn pass(
        &self,
        device: &Device,
        (tokens, lengths): (&[u32], &[usize]),
        scratch: &mut Scratch,
        hidden: &mut [f32],
    ) -> Result<()> {
        let width = hidden.len();
        self.embed(device, tokens, lengths, scratch, hidden)?;
        for layer in &self.layers {
            layer.attention.bidirectional(device, hidden, lengths, self.bias.as_ref(), scratch)?;
            layer.attention_norm.forward_residual(device, hidden, scratch.projected.take(device, width)?)?;
            layer.mlp.forward(device, hidden, scratch)?;
            layer.mlp_norm.forward_residual(device, hidden, scratch.projected.take(device, width)?)?;
        }
        Ok(())
    }

    fn embed(
        &self,
        device: &Device,
        tokens: &[u32],
        lengths: &[usize],
        scratch: &mut Scratch,
        hidden: &mut [f32],
    ) -> Result<()> {
        let Scratch { positions, residual, normed, .. } = scratch;
        positions.clear();
        positions.extend(lengths.iter().flat_map(|length| 0..*length as u32));
        let (sum, places) = (residual.take(device, hidden.len())?, normed.take(device, hidden.len())?);
        self.embedding.forward(device, sum, tokens)?;
        embed::embedding(device, places, &self.positions, positions)?;
        residual::add(device, sum, places)?;
        self.norm.forward(device, hidden, sum)
    }
}
