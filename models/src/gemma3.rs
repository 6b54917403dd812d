//! Gemma 3, its language model: norms before and after both halves of a layer, five layers with a window and their own
//! angles to one that sees everything.
//!
//! ```text
//! token ─ embedding · √H ─┬─ norm ─ attention ─ norm ─ + ─┬─ norm ─ gated mlp ─ norm ─ + ─ … ─ norm ─ head
//!                         └────────────────────────────┘  └─────────────────────────┘
//! ```
//!
//! Source: Gemma Team 2025, "Gemma 3 Technical Report", §2; norms, gate and scale of embeddings: Gemma Team 2024,
//! "Gemma 2", §2. Safetensors hold norm weights as differences from 1, GGUF files as they are used.

use lifelong_kernels::ops::rope::RopeStyle;
use lifelong_kernels::{Device, Format, KvCache, Values};

use crate::architecture::{Batch, Decoder, Geometry, Scratch, check_batch};
use crate::checkpoint::{Checkpoint, Metadata};
use crate::config::gguf::GgufKeys;
use crate::config::{self, DecoderConfig, Family, Gate, HuggingFace, Rope, RopeScaling, window};
use crate::error::Result;
use crate::layers::attention::Attention;
use crate::layers::embedding::Embedding;
use crate::layers::head::Head;
use crate::layers::mlp::GatedMlp;
use crate::layers::norm::RmsNorm;
use crate::layers::rope::Rotary;
use crate::names::Names;
use crate::pieces::{self, Stack};
use crate::weights::{self, Weights};

/// Defaults of `Gemma3TextConfig` in transformers: multimodal checkpoints leave out what equals them.
pub static FAMILY: Family = Family {
    name: "gemma3",
    defaults: &[
        ("vocab_size", 262_208),
        ("num_attention_heads", 8),
        ("num_key_value_heads", 4),
        ("head_dim", 256),
        ("max_position_embeddings", 131_072),
    ],
    tied: true,
    norm_epsilon: 1e-6,
    rope_base: 1_000_000.0,
    gguf_rope: RopeStyle::Halves,
    gate: Gate::GeluTanh,
};
const LOCAL_ROPE_BASE: f64 = 10_000.0;
const WINDOW: usize = 4096;
/// Every sixth layer sees everything.
const PATTERN: usize = 6;
const SCORE_DIVISOR: f64 = 256.0;

/// What Gemma 3's computation depends on besides its weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Gemma3Config {
    /// Its `rope` is that of layers that see everything.
    pub decoder: DecoderConfig,
    /// The angles of layers with a window.
    pub local_rope: Rope,
}

impl Gemma3Config {
    /// # Errors
    /// As [`DecoderConfig::from_checkpoint`].
    pub fn from_checkpoint(checkpoint: &Checkpoint) -> Result<Self> {
        let decoder = DecoderConfig::from_checkpoint(checkpoint, &FAMILY)?;
        match checkpoint.metadata()? {
            Metadata::Gguf(header) => Self::from_gguf(decoder, GgufKeys { header, architecture: FAMILY.name }),
            Metadata::HuggingFace { path, config } => Self::from_huggingface(decoder, HuggingFace { path, config }),
        }
    }

    fn from_huggingface(mut decoder: DecoderConfig, config: HuggingFace) -> Result<Self> {
        let notes = &mut decoder.notes;
        decoder.norm.offset = 1.0;
        decoder.head_norms = true;
        let divisor: f64 = config.or_default("query_pre_attn_scalar", SCORE_DIVISOR, notes)?;
        decoder.score_scale = score_scale(divisor)
            .ok_or_else(|| config::problem(config.path, "query_pre_attn_scalar", not_positive(divisor)))?;
        let Some(window) = window::stated(&config, WINDOW, notes)? else {
            let text = "found null, expected the number of keys that most layers see";
            return Err(config::problem(config.path, "sliding_window", text));
        };
        decoder.windows = match window::by_layer_types(&config, decoder.layers, Some(window))? {
            Some(windows) => windows,
            None => {
                let pattern = config.get("sliding_window_pattern")?.unwrap_or(PATTERN);
                let pattern = config::within(config.path, "sliding_window_pattern", pattern, config::MAX_LAYERS)?;
                by_pattern(decoder.layers, pattern, window)
            }
        };
        let local_rope = local_rope(&config, decoder.rope.rotary_dim, notes)?;
        Ok(Gemma3Config { decoder, local_rope })
    }

    fn from_gguf(mut decoder: DecoderConfig, keys: GgufKeys) -> Result<Self> {
        decoder.head_norms = true;
        // No key holds the divisor. It is the head size, but in the 27B model, where it is hidden size / heads.
        if decoder.layers == 62 {
            decoder.score_scale = 1.0 / ((decoder.hidden / decoder.heads) as f32).sqrt();
        }
        const WINDOW_KEY: &str = "attention.sliding_window";
        let window = keys.within(WINDOW_KEY, keys.require(WINDOW_KEY)?, config::MAX_CONTEXT)?;
        const PATTERN_KEY: &str = "attention.sliding_window_pattern";
        let pattern = keys.get(PATTERN_KEY)?.unwrap_or(PATTERN);
        let pattern = keys.within(PATTERN_KEY, pattern, config::MAX_LAYERS)?;
        decoder.windows = by_pattern(decoder.layers, pattern, window);
        let base = keys.get::<f32>("rope.freq_base_swa")?.map_or(LOCAL_ROPE_BASE, f64::from);
        let local_rope = Rope { base, scaling: RopeScaling::None, ..decoder.rope.clone() };
        local_rope.check(decoder.head_dim, |_, text| keys.problem("rope.freq_base_swa", text))?;
        Ok(Gemma3Config { decoder, local_rope })
    }
}

fn score_scale(divisor: f64) -> Option<f32> {
    (divisor.is_finite() && divisor > 0.0).then(|| 1.0 / (divisor as f32).sqrt())
}

fn not_positive(found: f64) -> String {
    format!("found {found}, expected a finite number above 0")
}

/// The last of every `pattern` layers sees everything.
fn by_pattern(layers: usize, pattern: usize, window: usize) -> Vec<Option<usize>> {
    (1..=layers).map(|layer| (!layer.is_multiple_of(pattern)).then_some(window)).collect()
}

/// `rope_local_base_freq`, or `rope_parameters.sliding_attention` since transformers 5.
fn local_rope(config: &HuggingFace, rotary_dim: usize, notes: &mut Vec<String>) -> Result<Rope> {
    const KEY: &str = "rope_parameters.sliding_attention";
    let parameters = config.raw("rope_parameters").and_then(|parameters| parameters.get("sliding_attention"));
    let kind = parameters.and_then(|parameters| parameters.get("rope_type")).and_then(|kind| kind.as_str());
    if let Some(kind) = kind.filter(|kind| *kind != "default") {
        let text = format!("found `{kind}`, expected default: only layers without a window have scaled angles");
        return Err(config::problem(config.path, &format!("{KEY}.rope_type"), text));
    }
    let base = match parameters.and_then(|parameters| parameters.get("rope_theta")) {
        Some(theta) => config.typed(&format!("{KEY}.rope_theta"), theta)?,
        None => config.or_default("rope_local_base_freq", LOCAL_ROPE_BASE, notes)?,
    };
    let rope = Rope { base, rotary_dim, scaling: RopeScaling::None, style: RopeStyle::Halves };
    rope.check(rotary_dim, |_, text| config::problem(config.path, "rope_local_base_freq", text))?;
    Ok(rope)
}

/// A loaded Gemma 3.
pub struct Gemma3 {
    geometry: Geometry,
    notes: Vec<String>,
    embedding: Embedding,
    rotary: Rotary,
    local_rotary: Rotary,
    layers: Vec<Layer>,
    norm: RmsNorm,
    head: Head,
}

struct Layer {
    attention_norm: RmsNorm,
    attention: Attention,
    after_attention: RmsNorm,
    mlp_norm: RmsNorm,
    mlp: GatedMlp,
    after_mlp: RmsNorm,
}

/// The norms that this family names in its own way.
struct NormNames {
    after_attention: &'static str,
    mlp: &'static str,
    after_mlp: &'static str,
}

const GGUF_NORMS: NormNames =
    NormNames { after_attention: "post_attention_norm", mlp: "ffn_norm", after_mlp: "post_ffw_norm" };
const HUGGING_FACE_NORMS: NormNames = NormNames {
    after_attention: "post_attention_layernorm",
    mlp: "pre_feedforward_layernorm",
    after_mlp: "post_feedforward_layernorm",
};

/// Builds a Gemma 3. The vision part of a multimodal checkpoint is left out, and noted.
///
/// # Errors
/// As [`Gemma3Config::from_checkpoint`]; a tensor that is missing, of another shape, of a type without a kernel, or that
/// this architecture has no use for.
pub fn load(checkpoint: &Checkpoint, device: &Device) -> Result<Box<dyn Decoder>> {
    let Gemma3Config { decoder: config, local_rope } = Gemma3Config::from_checkpoint(checkpoint)?;
    let names = Names::of(checkpoint);
    let mut weights = Weights::new(checkpoint, device, config.notes.clone());
    let embedding = Embedding::load(&mut weights, &names.embedding, config.vocab, config.hidden)?;
    let scale = embedding_scale(config.hidden, embedding.table().format(), checkpoint.gguf().is_some());
    let head = Head::load(&mut weights, &names.head, config.tying, (&names.embedding, &embedding))?;
    let norm = RmsNorm::load(&mut weights, &names.norm, config.hidden, config.norm)?;
    let build = |weights: &mut Weights, layer| Layer::load(weights, &names, layer, &config);
    let layers = weights.layers(device.threads(), config.layers, build)?;
    weights.finish(|name| weights::is_angles(name) || is_vision(name))?;
    let vision = checkpoint.names().filter(|name| is_vision(name)).count();
    if vision > 0 {
        weights.notes.push(format!("text only: the vision part is not used (tensors: {vision})"));
    }
    Ok(Box::new(Gemma3 {
        geometry: weights.geometry(&FAMILY, &config),
        notes: weights.notes,
        embedding: embedding.scaled(scale),
        rotary: Rotary::new(&config.rope),
        local_rotary: Rotary::new(&local_rope),
        layers,
        norm,
        head,
    }))
}

/// `√H`. Safetensors in half precision were trained with the root rounded like the weights (25.25 for 25.298 in the
/// smallest model); llama.cpp, whose files we then hold, multiplies by the float32 root.
fn embedding_scale(hidden: usize, format: Format, is_gguf: bool) -> f32 {
    let root = (hidden as f32).sqrt();
    match format {
        Format::BF16 if !is_gguf => half::bf16::from_f32(root).to_f32(),
        Format::F16 if !is_gguf => half::f16::from_f32(root).to_f32(),
        _ => root,
    }
}

fn is_vision(name: &str) -> bool {
    let name = name.strip_prefix("model.").unwrap_or(name);
    name.starts_with("vision_tower.") || name.starts_with("multi_modal_projector.")
}

impl Layer {
    fn load(weights: &mut Weights, names: &Names, layer: usize, config: &DecoderConfig) -> Result<Self> {
        let own = if weights.checkpoint.gguf().is_some() { GGUF_NORMS } else { HUGGING_FACE_NORMS };
        let norm = |weights: &mut Weights, part: &str| {
            RmsNorm::load(weights, &names.layer(layer, part), config.hidden, config.norm)
        };
        Ok(Layer {
            attention_norm: norm(weights, names.attention_norm)?,
            attention: Attention::load(weights, names, layer, config)?,
            after_attention: norm(weights, own.after_attention)?,
            mlp_norm: norm(weights, own.mlp)?,
            mlp: GatedMlp::load(weights, names, layer, config)?,
            after_mlp: norm(weights, own.after_mlp)?,
        })
    }
}

impl Decoder for Gemma3 {
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
        logits: &mut Values,
    ) -> Result<()> {
        check_batch(batch, &self.geometry)?;
        let rows = batch.tokens.len();
        if !pieces::forward(self, &self.geometry, device, batch, cache, |layer| layer, scratch)? {
            self.begin(device, batch.tokens, scratch)?;
            for layer in 0..self.layers.len() {
                let (attention, rotary) = self.attention(layer);
                attention.causal(device, batch, cache, layer, rotary, scratch)?;
                self.finish(device, layer, rows, scratch)?;
            }
        }
        self.head.forward(device, logits, rows, batch.outputs, scratch)
    }
}

impl Stack for Gemma3 {
    fn layers(&self) -> usize {
        self.layers.len()
    }

    fn begin(&self, device: &Device, tokens: &[u32], scratch: &mut Scratch) -> Result<()> {
        let width = tokens.len() * self.geometry.hidden;
        let first = self.layers.first().map_or(&self.norm, |layer| &layer.attention_norm);
        self.embedding.forward(device, scratch.residual.take(device, width)?, tokens)?;
        first.forward(device, scratch.normed.take(device, width)?, scratch.residual.take(device, width)?)
    }

    fn attention(&self, layer: usize) -> (&Attention, Option<&Rotary>) {
        let attention = &self.layers[layer].attention;
        let rotary = if attention.shape.window.is_some() { &self.local_rotary } else { &self.rotary };
        (attention, Some(rotary))
    }

    fn finish(&self, device: &Device, layer: usize, rows: usize, scratch: &mut Scratch) -> Result<()> {
        let width = rows * self.geometry.hidden;
        let next = self.layers.get(layer + 1).map_or(&self.norm, |layer| &layer.attention_norm);
        let layer = &self.layers[layer];
        norm_add_and_norm(device, [&layer.after_attention, &layer.mlp_norm], width, scratch)?;
        layer.mlp.forward(device, rows, scratch)?;
        norm_add_and_norm(device, [&layer.after_mlp, next], width, scratch)
    }
}

/// Adds the norm of a half layer's output to the residual and leaves the next norm of that in `normed`.
fn norm_add_and_norm(device: &Device, [after, next]: [&RmsNorm; 2], width: usize, scratch: &mut Scratch) -> Result<()> {
    let Scratch { residual, normed, projected, .. } = scratch;
    let projected = projected.take(device, width)?;
    after.forward_in_place(device, projected)?;
    next.forward_residual(device, residual.take(device, width)?, normed.take(device, width)?, projected)
}
