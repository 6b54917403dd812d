//! A decoder's body as an encoder: the states of all tokens behind the last norm, each of which has seen the tokens before
//! it. What the last one holds is then the text's vector.
//!
//! A text is computed in one step, so no layer reads what another has kept: one layer of cache serves all of them.

use lifelong_kernels::ops::residual;
use lifelong_kernels::{BLOCK_TOKENS, Device, KvCache, KvGeometry, Segment, Values};

use crate::architecture::{Batch, Encoder, Geometry, Scratch, check_texts};
use crate::checkpoint::Checkpoint;
use crate::config::{DecoderConfig, Family};
use crate::error::Result;
use crate::names::Names;
use crate::pre_norm::Body;
use crate::weights::{self, Weights};

/// A loaded body.
pub struct CausalEncoder {
    geometry: Geometry,
    notes: Vec<String>,
    body: Body,
}

impl CausalEncoder {
    /// Builds the encoder from a GGUF file or safetensors, with or without a language model's names around its tensors. A
    /// separate output projection in the file is left out.
    ///
    /// # Errors
    /// A tensor that is missing, of another shape, of a type without a kernel, or that this body has no use for.
    pub fn load(
        architecture: &str,
        family: &Family,
        config: &DecoderConfig,
        checkpoint: &Checkpoint,
        device: &Device,
    ) -> Result<Self> {
        let names = Names::of(checkpoint);
        let mut weights = Weights::new(checkpoint, device, config.notes.clone());
        let body = Body::load(&mut weights, &names, config, device)?;
        let head = format!("{}.weight", names.head);
        weights.finish(|name| weights::is_angles(name) || name == head)?;
        let geometry = Geometry { architecture: architecture.into(), ..weights.geometry(family, config) };
        Ok(CausalEncoder { geometry, notes: weights.notes, body })
    }

    /// The first blocks of a cache of one layer, kept from step to step.
    fn cache(&self, device: &Device, blocks: usize, kept: Option<KvCache>) -> Result<KvCache> {
        let geometry = KvGeometry { layers: 1, ..self.geometry.kv(blocks) };
        match kept {
            Some(cache)
                if KvGeometry { blocks, ..*cache.geometry() } == geometry && cache.geometry().blocks >= blocks =>
            {
                Ok(cache)
            }
            _ => Ok(KvCache::new(device, geometry)?),
        }
    }
}

impl Encoder for CausalEncoder {
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
        let width = tokens.len() * self.geometry.hidden;
        let hidden = hidden.take(device, width)?;
        if tokens.is_empty() {
            return Ok(());
        }
        let segments = segments(lengths);
        let blocks = segments.last().map_or(0, |segment| segment.table.end);
        let tables: Vec<u32> = (0..blocks as u32).collect();
        let positions: Vec<u32> = lengths.iter().flat_map(|length| 0..*length as u32).collect();
        let batch = Batch { tokens, positions: &positions, segments: &segments, tables: &tables, outputs: &[] };
        let mut cache = self.cache(device, blocks, scratch.cache.take())?;
        self.body.forward(device, &batch, &mut cache, &self.geometry, |_| 0, scratch)?;
        scratch.cache = Some(cache);
        Ok(residual::copy(device, hidden, scratch.normed.take(device, width)?)?)
    }
}

/// Every text from its first token on, in blocks of its own.
fn segments(lengths: &[usize]) -> Vec<Segment> {
    let (mut row, mut block) = (0, 0);
    let segment = |length: &usize| {
        let table = block..block + length.div_ceil(BLOCK_TOKENS);
        let segment = Segment { query_start: row, query_len: *length, context_len: 0, table };
        (row, block) = (row + length, segment.table.end);
        segment
    };
    lengths.iter().map(segment).collect()
}
