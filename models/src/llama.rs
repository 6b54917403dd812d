//! The Llama family: Llama 1 to 3, SmolLM2 and others that publish under its name.
//!
//! ```text
//! token ─ embedding ─┬─ rms norm ─ attention (rope, grouped heads) ─ + ─┬─ rms norm ─ gated mlp ─ + ─ … ─ norm ─ head
//!                    └──────────────────────────────────────────────────┘└──────────────────────────┘
//! ```
//!
//! Source: Touvron et al. 2023, "LLaMA", §2.2; grouped heads: Touvron et al. 2023, "Llama 2", §2.2; long contexts: the
//! Llama 3.1 release. GGUF files of this architecture have the rows of q and k permuted so that rotated pairs lie side by
//! side; the scores are the same sums in another order.

use lifelong_kernels::ops::attention::AttentionShape;
use lifelong_kernels::{Device, KvCache};

use crate::architecture::{Batch, Decoder, Geometry, Scratch, check_batch};
use crate::checkpoint::Checkpoint;
use crate::config::LlamaConfig;
use crate::error::Result;
use crate::layers::attention::Attention;
use crate::layers::embedding::Embedding;
use crate::layers::head::Head;
use crate::layers::linear::{Bias, Linear};
use crate::layers::mlp::GatedMlp;
use crate::layers::norm::RmsNorm;
use crate::layers::rope::Rotary;
use crate::weights::Weights;

/// A loaded Llama.
pub struct Llama {
    geometry: Geometry,
    notes: Vec<String>,
    embedding: Embedding,
    rotary: Rotary,
    layers: Vec<Layer>,
    norm: RmsNorm,
    head: Head,
}

struct Layer {
    attention_norm: RmsNorm,
    attention: Attention,
    mlp_norm: RmsNorm,
    mlp: GatedMlp,
}

/// What a container calls each part; `{}` stands for the layer.
struct Names {
    embedding: &'static str,
    norm: &'static str,
    head: &'static str,
    layer: &'static str,
    attention_norm: &'static str,
    query: &'static str,
    key: &'static str,
    value: &'static str,
    output: &'static str,
    mlp_norm: &'static str,
    gate: &'static str,
    up: &'static str,
    down: &'static str,
}

const GGUF: Names = Names {
    embedding: "token_embd",
    norm: "output_norm",
    head: "output",
    layer: "blk",
    attention_norm: "attn_norm",
    query: "attn_q",
    key: "attn_k",
    value: "attn_v",
    output: "attn_output",
    mlp_norm: "ffn_norm",
    gate: "ffn_gate",
    up: "ffn_up",
    down: "ffn_down",
};

const HUGGING_FACE: Names = Names {
    embedding: "model.embed_tokens",
    norm: "model.norm",
    head: "lm_head",
    layer: "model.layers",
    attention_norm: "input_layernorm",
    query: "self_attn.q_proj",
    key: "self_attn.k_proj",
    value: "self_attn.v_proj",
    output: "self_attn.o_proj",
    mlp_norm: "post_attention_layernorm",
    gate: "mlp.gate_proj",
    up: "mlp.up_proj",
    down: "mlp.down_proj",
};

impl Llama {
    /// Builds the model from a GGUF file or safetensors.
    ///
    /// # Errors
    /// As [`LlamaConfig::from_checkpoint`]; a tensor that is missing, of another shape, of a type without a kernel, or
    /// that this architecture has no use for.
    pub fn load(checkpoint: &Checkpoint, device: &Device) -> Result<Self> {
        let config = LlamaConfig::from_checkpoint(checkpoint)?;
        let names = if checkpoint.gguf().is_some() { GGUF } else { HUGGING_FACE };
        let mut weights = Weights::new(checkpoint, config.notes.clone());
        let embedding = Embedding::load(&mut weights, names.embedding, config.vocab, config.hidden)?;
        let head = Head::load(&mut weights, names.head, config.tying, (names.embedding, &embedding))?;
        let norm = RmsNorm::load(&mut weights, names.norm, config.hidden, config.rms_epsilon)?;
        let build = |weights: &mut Weights, layer| Layer::load(weights, &names, layer, &config);
        let layers = weights.layers(device.threads(), config.layers, build)?;
        // Angles that the configuration has read already, and a buffer of early Hugging Face checkpoints.
        weights.finish(|name| name == "rope_freqs.weight" || name.ends_with("rotary_emb.inv_freq"))?;
        Ok(Llama {
            geometry: geometry(&config, &weights),
            notes: weights.notes,
            embedding,
            rotary: Rotary::new(&config.rope, config.context),
            layers,
            norm,
            head,
        })
    }
}

fn geometry(config: &LlamaConfig, weights: &Weights) -> Geometry {
    Geometry {
        architecture: "llama".to_string(),
        layers: config.layers,
        hidden: config.hidden,
        heads: config.heads,
        kv_heads: config.kv_heads,
        head_dim: config.head_dim,
        feed_forward: config.feed_forward,
        vocab: config.vocab,
        context: config.context,
        parameters: weights.parameters,
        weight_bytes: weights.bytes,
    }
}

impl Layer {
    fn load(weights: &mut Weights, names: &Names, layer: usize, config: &LlamaConfig) -> Result<Self> {
        let LlamaConfig { hidden, heads, kv_heads, head_dim, feed_forward, rms_epsilon, .. } = *config;
        let name = |part: &str| format!("{}.{layer}.{part}", names.layer);
        let (attention_bias, mlp_bias) = (Bias::from(config.attention_bias), Bias::from(config.mlp_bias));
        let shape = AttentionShape { heads, kv_heads, head_dim, scale: 1.0 / (head_dim as f32).sqrt(), window: None };
        Ok(Layer {
            attention_norm: RmsNorm::load(weights, &name(names.attention_norm), hidden, rms_epsilon)?,
            attention: Attention {
                query: Linear::load(weights, &name(names.query), heads * head_dim, hidden, attention_bias)?,
                key: Linear::load(weights, &name(names.key), kv_heads * head_dim, hidden, attention_bias)?,
                value: Linear::load(weights, &name(names.value), kv_heads * head_dim, hidden, attention_bias)?,
                output: Linear::load(weights, &name(names.output), hidden, heads * head_dim, attention_bias)?,
                shape,
            },
            mlp_norm: RmsNorm::load(weights, &name(names.mlp_norm), hidden, rms_epsilon)?,
            mlp: GatedMlp {
                gate: Linear::load(weights, &name(names.gate), feed_forward, hidden, mlp_bias)?,
                up: Linear::load(weights, &name(names.up), feed_forward, hidden, mlp_bias)?,
                down: Linear::load(weights, &name(names.down), hidden, feed_forward, mlp_bias)?,
            },
        })
    }
}

impl Decoder for Llama {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn forward(
        &self,
        device: &Device,
        batch: &Batch,
        cache: &mut KvCache,
        scratch: &mut Scratch,
        logits: &mut Vec<f32>,
    ) -> Result<()> {
        check_batch(batch, &self.geometry)?;
        let rows = batch.tokens.len();
        let width = rows * self.geometry.hidden;
        let first = self.layers.first().map_or(&self.norm, |layer| &layer.attention_norm);
        self.embedding.forward(device, scratch.residual.take(width), batch.tokens)?;
        first.forward(device, scratch.normed.take(width), scratch.residual.take(width))?;
        for (index, layer) in self.layers.iter().enumerate() {
            layer.attention.causal(device, batch, cache, index, &self.rotary, scratch)?;
            add_and_norm(device, &layer.mlp_norm, width, scratch)?;
            layer.mlp.forward(device, rows, scratch)?;
            let next = self.layers.get(index + 1).map_or(&self.norm, |layer| &layer.attention_norm);
            add_and_norm(device, next, width, scratch)?;
        }
        let Scratch { normed, attended, .. } = scratch;
        self.head.forward(device, logits, normed.take(width), batch.outputs, attended)
    }
}

/// Adds a half layer's output to the residual and leaves the next norm of that in `normed`.
fn add_and_norm(device: &Device, norm: &RmsNorm, width: usize, scratch: &mut Scratch) -> Result<()> {
    let Scratch { residual, normed, projected, .. } = scratch;
    norm.forward_residual(device, residual.take(width), normed.take(width), projected.take(width))
}
