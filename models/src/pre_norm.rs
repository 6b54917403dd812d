//! The body that most decoders share: norms before both halves of a layer, grouped heads, a gated feed-forward or
//! several of which a token sees a few.
//!
//! ```text
//! token ─ embedding ─┬─ rms norm ─ attention (rope, grouped heads) ─ + ─┬─ rms norm ─ gated mlp ─ + ─ … ─ norm ─ head
//!                    └──────────────────────────────────────────────────┘└──────────────────────────┘
//! ```
//!
//! Source: Touvron et al. 2023, "LLaMA", §2.2. An architecture of this shape is its [`crate::config::Family`] and the
//! keys of its own.

use lifelong_kernels::{Device, KvCache, Values};

use crate::architecture::{Batch, Decoder, Geometry, Scratch, check_batch};
use crate::checkpoint::Checkpoint;
use crate::config::{DecoderConfig, Family};
use crate::error::Result;
use crate::layers::attention::Attention;
use crate::layers::delta::DeltaNet;
use crate::layers::embedding::Embedding;
use crate::layers::experts::Experts;
use crate::layers::head::Head;
use crate::layers::mlp::GatedMlp;
use crate::layers::norm::RmsNorm;
use crate::layers::rope::Rotary;
use crate::names::Names;
use crate::pieces::{self, Stack};
use crate::weights::{self, Weights};

/// A loaded decoder of this shape.
pub struct PreNorm {
    geometry: Geometry,
    notes: Vec<String>,
    body: Body,
    head: Head,
}

/// Everything before the output projection.
pub(crate) struct Body {
    embedding: Embedding,
    rotary: Rotary,
    layers: Vec<Layer>,
    norm: RmsNorm,
}

struct Layer {
    rotated: bool,
    attention_norm: RmsNorm,
    mixer: Mixer,
    /// Its number among the layers with keys and values, or among those with states.
    place: usize,
    mlp_norm: RmsNorm,
    mlp: FeedForward,
}

/// The first half of a layer.
enum Mixer {
    Attention(Attention),
    Delta(DeltaNet),
}

/// The second half of a layer.
enum FeedForward {
    One(Box<GatedMlp>),
    Many(Box<Experts>),
}

impl PreNorm {
    /// Builds the model from a GGUF file or safetensors.
    ///
    /// # Errors
    /// A tensor that is missing, of another shape, of a type without a kernel, or that this body has no use for; dimensions
    /// that as many devices as the group has cannot share.
    pub fn load(family: &Family, config: &DecoderConfig, checkpoint: &Checkpoint, device: &Device) -> Result<Self> {
        Self::load_part(family, config, checkpoint, device, weights::is_angles)
    }

    /// As [`PreNorm::load`], of a checkpoint that holds other parts too: tensors that are `harmless` are left alone.
    ///
    /// # Errors
    /// As [`PreNorm::load`].
    pub fn load_part(
        family: &Family,
        config: &DecoderConfig,
        checkpoint: &Checkpoint,
        device: &Device,
        harmless: impl Fn(&str) -> bool,
    ) -> Result<Self> {
        let names = Names::of(checkpoint);
        let mut weights = Weights::new(checkpoint, device, config.notes.clone());
        weights.check_split(config)?;
        let body = Body::load(&mut weights, &names, config, device)?;
        let head = Head::load(&mut weights, &names.head, config.tying, (&names.embedding, &body.embedding))?;
        weights.finish(harmless)?;
        Ok(PreNorm { geometry: weights.geometry(family, config), notes: weights.notes, body, head })
    }
}

impl Body {
    /// # Errors
    /// A tensor that is missing, of another shape or of a type without a kernel.
    pub fn load(weights: &mut Weights, names: &Names, config: &DecoderConfig, device: &Device) -> Result<Self> {
        let embedding = Embedding::load(weights, &names.embedding, config.vocab, config.hidden)?;
        let norm = RmsNorm::load(weights, &names.norm, config.hidden, config.norm)?;
        let build = |weights: &mut Weights, layer| Layer::load(weights, names, layer, config);
        let layers = weights.layers(device.threads(), config.layers, build)?;
        Ok(Body { embedding, rotary: Rotary::new(&config.rope), layers, norm })
    }

    /// Runs all layers over the tokens of a checked step and leaves their normalised states `[T, H]` in `scratch.normed`.
    /// A layer that is the `i`-th of those with keys and values, or of those with states, keeps its own in layer `place(i)`
    /// of the cache.
    pub fn forward(
        &self,
        device: &Device,
        batch: &Batch,
        cache: &mut KvCache,
        geometry: &Geometry,
        place: impl Fn(usize) -> usize + Sync,
        scratch: &mut Scratch,
    ) -> Result<()> {
        if self.layers.iter().all(Layer::is_plain)
            && pieces::forward(self, geometry, device, batch, cache, &place, scratch)?
        {
            return Ok(());
        }
        self.begin(device, batch.tokens, scratch)?;
        for (index, layer) in self.layers.iter().enumerate() {
            let rotary = layer.rotated.then_some(&self.rotary);
            layer.mixer.forward(device, batch, cache, place(layer.place), rotary, scratch)?;
            self.finish(device, index, batch.tokens.len(), scratch)?;
        }
        Ok(())
    }
}

impl Stack for Body {
    fn layers(&self) -> usize {
        self.layers.len()
    }

    fn begin(&self, device: &Device, tokens: &[u32], scratch: &mut Scratch) -> Result<()> {
        let width = tokens.len() * self.norm.width();
        let first = self.layers.first().map_or(&self.norm, |layer| &layer.attention_norm);
        self.embedding.forward(device, scratch.residual.take(device, width)?, tokens)?;
        first.forward(device, scratch.normed.take(device, width)?, scratch.residual.take(device, width)?)
    }

    fn attention(&self, layer: usize) -> (&Attention, Option<&Rotary>) {
        let layer = &self.layers[layer];
        let Mixer::Attention(attention) = &layer.mixer else { unreachable!("only plain layers are cut: our bug") };
        (attention, layer.rotated.then_some(&self.rotary))
    }

    fn finish(&self, device: &Device, layer: usize, rows: usize, scratch: &mut Scratch) -> Result<()> {
        let width = rows * self.norm.width();
        let next = self.layers.get(layer + 1).map_or(&self.norm, |layer| &layer.attention_norm);
        let layer = &self.layers[layer];
        add_and_norm(device, &layer.mlp_norm, width, scratch)?;
        layer.mlp.forward(device, rows, scratch)?;
        add_and_norm(device, next, width, scratch)
    }
}

impl Layer {
    /// Attention and one feed-forward layer. Experts are better left whole: a piece would read most of them for few rows.
    fn is_plain(&self) -> bool {
        matches!((&self.mixer, &self.mlp), (Mixer::Attention(_), FeedForward::One(_)))
    }

    fn load(weights: &mut Weights, names: &Names, layer: usize, config: &DecoderConfig) -> Result<Self> {
        let norm = |weights: &mut Weights, part: &str| {
            RmsNorm::load(weights, &names.layer(layer, part), config.hidden, config.norm)
        };
        Ok(Layer {
            rotated: config.rotated[layer],
            attention_norm: norm(weights, names.attention_norm)?,
            mixer: match config.recurrence.as_ref().filter(|recurrence| recurrence.layers[layer]) {
                Some(recurrence) => Mixer::Delta(DeltaNet::load(weights, names, layer, config, recurrence.shape)?),
                None => Mixer::Attention(Attention::load(weights, names, layer, config)?),
            },
            place: place(config, layer),
            mlp_norm: norm(weights, names.mlp_norm)?,
            mlp: match config.mixture.as_ref().filter(|mixture| mixture.layers[layer]) {
                Some(mixture) => {
                    FeedForward::Many(Box::new(Experts::load(weights, names, layer, config.hidden, mixture)?))
                }
                None => FeedForward::One(Box::new(GatedMlp::load(weights, names, layer, config)?)),
            },
        })
    }
}

/// How many layers of the same kind stand before this one.
fn place(config: &DecoderConfig, layer: usize) -> usize {
    let Some(recurrence) = &config.recurrence else { return layer };
    recurrence.layers[..layer].iter().filter(|has_state| **has_state == recurrence.layers[layer]).count()
}

impl Mixer {
    /// Reads `scratch.normed` `[rows, H]`, leaves the output in `scratch.projected`.
    fn forward(
        &self,
        device: &Device,
        batch: &Batch,
        cache: &mut KvCache,
        place: usize,
        rotary: Option<&Rotary>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        match self {
            Mixer::Attention(attention) => attention.causal(device, batch, cache, place, rotary, scratch),
            Mixer::Delta(delta) => delta.forward(device, batch, cache, place, scratch),
        }
    }
}

impl FeedForward {
    /// Reads `scratch.normed` `[rows, H]`, leaves the output in `scratch.projected`.
    fn forward(&self, device: &Device, rows: usize, scratch: &mut Scratch) -> Result<()> {
        match self {
            FeedForward::One(mlp) => mlp.forward(device, rows, scratch),
            FeedForward::Many(experts) => experts.forward(device, rows, scratch),
        }
    }
}

impl Decoder for PreNorm {
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
        self.body.forward(device, batch, cache, &self.geometry, |place| place, scratch)?;
        self.head.forward(device, logits, batch.tokens.len(), batch.outputs, scratch)
    }
}

/// Adds a half layer's output to the residual and leaves the next norm of that in `normed`.
fn add_and_norm(device: &Device, norm: &RmsNorm, width: usize, scratch: &mut Scratch) -> Result<()> {
    let Scratch { residual, normed, projected, .. } = scratch;
    let (residual, normed) = (residual.take(device, width)?, normed.take(device, width)?);
    norm.forward_residual(device, residual, normed, projected.take(device, width)?)
}
