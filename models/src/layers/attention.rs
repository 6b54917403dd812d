//! Self-attention: projections around the kernel, causal over the cache or within a whole text.

use lifelong_kernels::ops::activation;
use lifelong_kernels::ops::attention::{self, AttentionShape, DistanceBias};
use lifelong_kernels::ops::exchange;
use lifelong_kernels::ops::kv;
use lifelong_kernels::ops::matmul::Precision;
use lifelong_kernels::{Device, KvCache, Values};

use super::linear::{self, Bias, Linear};
use super::norm::RmsNorm;
use super::rope::Rotary;
use crate::architecture::{Batch, Scratch};
use crate::config::DecoderConfig;
use crate::error::Result;
use crate::names::Names;
use crate::share::Heads;
use crate::weights::Weights;

/// The four projections, the shape between them, and norms of every query and key head where a model has them.
pub(crate) struct Attention {
    pub query: Linear,
    pub key: Linear,
    pub value: Linear,
    pub output: Linear,
    pub head_norms: Option<HeadNorms>,
    /// The gate of the output, `[HQ · D]`.
    pub gate: Option<Linear>,
    /// A logit of each query head that joins its softmax.
    pub sinks: Option<Values>,
    pub shape: AttentionShape,
}

/// Root mean square norms over the elements of a head (Dehghani et al. 2023, "Scaling Vision Transformers to 22 Billion
/// Parameters", §2, there with another norm).
pub(crate) struct HeadNorms {
    query: RmsNorm,
    key: RmsNorm,
}

impl Attention {
    /// The attention of one layer of a decoder; of one that is split, with the heads that are here.
    pub fn load(weights: &mut Weights, names: &Names, layer: usize, config: &DecoderConfig) -> Result<Self> {
        let DecoderConfig { hidden, head_dim, norm, biases, .. } = *config;
        let heads = Heads::of(weights.device.rank(), config);
        let name = |part: &str| names.layer(layer, part);
        let qkv = Bias::from(biases.qkv);
        let head_norms = match config.head_norms {
            true => Some(HeadNorms {
                query: RmsNorm::load(weights, &name(names.query_norm), head_dim, norm)?,
                key: RmsNorm::load(weights, &name(names.key_norm), head_dim, norm)?,
            }),
            false => None,
        };
        let (q_width, kv_width) = (heads.query.times(head_dim), heads.key_value.times(head_dim));
        let mut gate = None;
        let [query, key, value] = match config.fused {
            _ if config.gated_attention => {
                let turns =
                    weights.in_turns(&format!("{}.weight", name(names.query)), q_width.all, head_dim, hidden)?;
                let [query, gates] = turns.map(|weight| Linear::new(weight, None));
                gate = Some(gates);
                let key = Linear::load_outputs(weights, &name(names.key), &kv_width, hidden, qkv)?;
                [query, key, Linear::load_outputs(weights, &name(names.value), &kv_width, hidden, qkv)?]
            }
            true => {
                let widths = [q_width.clone(), kv_width.clone(), kv_width];
                Linear::load_split(weights, &name(names.qkv), widths, hidden)?
            }
            false => [
                Linear::load_outputs(weights, &name(names.query), &q_width, hidden, qkv)?,
                Linear::load_outputs(weights, &name(names.key), &kv_width, hidden, qkv)?,
                Linear::load_outputs(weights, &name(names.value), &kv_width, hidden, qkv)?,
            ],
        };
        let sinks = match config.sinks {
            true => Some(weights.values_part(&name(names.sinks), &heads.query)?),
            false => None,
        };
        Ok(Attention {
            query,
            key,
            value,
            output: Linear::load_inputs(weights, &name(names.output), hidden, &q_width, Bias::from(biases.output))?,
            head_norms,
            gate,
            sinks,
            shape: AttentionShape {
                heads: heads.query.len(),
                kv_heads: heads.key_value.len(),
                head_dim,
                scale: config.score_scale,
                window: config.windows[layer],
            },
        })
    }

    /// Causal attention of a packed step, with grouped heads and, given angles, rotated positions. Reads `scratch.normed`
    /// `[T, H]`, leaves the output in `scratch.projected`; of a split decoder the sum over all heads.
    pub fn causal(
        &self,
        device: &Device,
        batch: &Batch,
        cache: &mut KvCache,
        layer: usize,
        rotary: Option<&Rotary>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        self.query_key_value(device, batch.positions, rotary, scratch)?;
        kv::write(device, cache, layer, &scratch.key, &scratch.value, batch.segments, batch.tables)?;
        self.attend(device, batch, cache, layer, scratch)
    }

    /// The first part of [`Attention::causal`]: leaves what goes into the cache in `scratch.key` and `scratch.value`, and the
    /// queries in `scratch.query`.
    pub fn query_key_value(
        &self,
        device: &Device,
        positions: &[u32],
        rotary: Option<&Rotary>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let AttentionShape { heads, kv_heads, head_dim, .. } = self.shape;
        let rows = positions.len();
        let x = scratch.normed.take(device, rows * self.output.outputs())?;
        let q = scratch.query.take(device, rows * heads * head_dim)?;
        let k = scratch.key.take(device, rows * kv_heads * head_dim)?;
        let v = scratch.value.take(device, rows * kv_heads * head_dim)?;
        self.project(device, [&mut *q, &mut *k, &mut *v], x)?;
        if let Some(norms) = &self.head_norms {
            norms.query.forward_in_place(device, q)?;
            norms.key.forward_in_place(device, k)?;
        }
        if let Some(rotary) = rotary {
            rotary.forward(device, q, positions, heads)?;
            rotary.forward(device, k, positions, kv_heads)?;
        }
        Ok(())
    }

    /// The last part of [`Attention::causal`]: from the queries on, when keys and values are in the cache.
    pub fn attend(
        &self,
        device: &Device,
        batch: &Batch,
        cache: &KvCache,
        layer: usize,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let AttentionShape { heads, head_dim, .. } = self.shape;
        let rows = batch.tokens.len();
        let x = scratch.normed.take(device, rows * self.output.outputs())?;
        let q = scratch.query.take(device, rows * heads * head_dim)?;
        let attended = scratch.attended.take(device, rows * heads * head_dim)?;
        let (segments, tables) = (batch.segments, batch.tables);
        match &self.sinks {
            Some(sinks) => {
                attention::paged_with_sinks(device, attended, q, sinks, cache, layer, segments, tables, self.shape)?
            }
            None => attention::paged(device, attended, q, cache, layer, segments, tables, self.shape)?,
        }
        if let Some(gate) = &self.gate {
            let gates = scratch.gate.take(device, attended.len())?;
            linear::forward_each(device, [(&mut *gates, gate)], x, Precision::Bits16)?;
            activation::sigmoid_gate(device, attended, gates)?;
        }
        let projected = scratch.projected.take(device, x.len())?;
        self.output.forward(device, projected, attended)?;
        Ok(exchange::sum(device, projected)?)
    }

    /// Attention of every token to its whole text. Reads `x` `[T, H]`, leaves the output in `scratch.projected`.
    pub fn bidirectional(
        &self,
        device: &Device,
        x: &[f32],
        lengths: &[usize],
        bias: Option<&DistanceBias>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let q = scratch.query.take(device, x.len())?;
        let k = scratch.key.take(device, x.len())?;
        let v = scratch.value.take(device, x.len())?;
        let attended = scratch.attended.take(device, x.len())?;
        self.project(device, [&mut *q, &mut *k, &mut *v], x)?;
        match bias {
            Some(bias) => attention::bidirectional_biased(device, attended, q, k, v, lengths, self.shape, bias)?,
            None => attention::bidirectional(device, attended, q, k, v, lengths, self.shape)?,
        }
        self.output.forward(device, scratch.projected.take(device, x.len())?, attended)
    }

    /// Query, key and value of the rows `x`.
    ///
    /// Their activations are rounded to 16 bits. In SmolLM2 (Q4_1) 8 bits here alone made half of the variance of the
    /// logits against float32, for a sixth of the work of a layer.
    fn project(&self, device: &Device, [q, k, v]: [&mut [f32]; 3], x: &[f32]) -> Result<()> {
        let projections = [(q, &self.query), (k, &self.key), (v, &self.value)];
        linear::forward_each(device, projections, x, Precision::Bits16)
    }
}
