//! MPNet encoders, among them all-mpnet-base-v2: a RoBERTa without token types, whose heads add to every score a bias by
//! the distance from query to key, the same in all layers.
//!
//! Source: Song et al. 2020, "MPNet", §2; the buckets of distances are those of Raffel et al. 2020, "Exploring the Limits
//! of Transfer Learning with a Unified Text-to-Text Transformer", §2.1, in both directions.

use lifelong_kernels::Device;
use lifelong_kernels::ops::attention::DistanceBias;

use crate::architecture::Encoder;
use crate::bert::{Bert, Variant};
use crate::checkpoint::{Checkpoint, Metadata};
use crate::config::{self, BertConfig, HuggingFace};
use crate::error::Result;
use crate::weights::Weights;
use crate::xlm_roberta;

/// `relative_attention_num_buckets` of `MPNetConfig` in transformers.
const BUCKETS: usize = 32;
/// Distances from here on share the last bucket of their direction. No key of the file states it.
const FARTHEST: f32 = 128.0;

static VARIANT: Variant = Variant {
    architecture: "mpnet",
    prefix: "mpnet.",
    attention: ["attention.attn.q", "attention.attn.k", "attention.attn.v", "attention.attn.o", "attention.LayerNorm"],
    bias,
};

/// Builds an MPNet, with or without the prefix `mpnet.` on its tensors.
///
/// # Errors
/// As [`crate::bert::load`]; a number of buckets that is not 8 or more and a
/// multiple of 4.
pub fn load(checkpoint: &Checkpoint, device: &Device) -> Result<Box<dyn Encoder>> {
    Ok(Box::new(Bert::load(&VARIANT, &config(checkpoint)?, checkpoint, device)?))
}

/// # Errors
/// As [`load`].
pub fn config(checkpoint: &Checkpoint) -> Result<BertConfig> {
    let mut config = BertConfig::without_token_types(checkpoint)?;
    xlm_roberta::start_behind_padding(checkpoint, &mut config)?;
    buckets(checkpoint, &mut config.notes)?;
    Ok(config)
}

fn buckets(checkpoint: &Checkpoint, notes: &mut Vec<String>) -> Result<usize> {
    const KEY: &str = "relative_attention_num_buckets";
    let Metadata::HuggingFace { path, config: json } = checkpoint.metadata()? else { return Ok(BUCKETS) };
    let found = HuggingFace { path, config: json }.or_default(KEY, BUCKETS, notes)?;
    if found < 8 || found % 4 != 0 || found > config::MAX_WIDTH {
        return Err(config::problem(path, KEY, format!("found {found}, expected a multiple of 4 from 8 on")));
    }
    Ok(found)
}

/// The table `[buckets, heads]` spread over all distances of a text.
fn bias(weights: &mut Weights, prefix: &str, config: &BertConfig) -> Result<Option<DistanceBias>> {
    let buckets = buckets(weights.checkpoint, &mut Vec::new())?;
    let heads = config.heads;
    let table = weights.table(&format!("{prefix}encoder.relative_attention_bias.weight"), buckets, heads)?;
    let of = |head: usize, distance: isize| table[bucket(distance, buckets) * heads + head];
    Ok(Some(DistanceBias::new(heads, config.context, of)))
}

/// The bucket of key position − query position. Half of the buckets are for keys behind the query; in each half the first
/// half is for single distances, the rest for ranges that grow as powers up to [`FARTHEST`].
fn bucket(distance: isize, buckets: usize) -> usize {
    let half = buckets / 2;
    let single = half / 2;
    let first = if distance > 0 { half } else { 0 };
    let steps = distance.unsigned_abs();
    if steps < single {
        return first + steps;
    }
    // In 32 bits and in this order, as the reference: the borders of the ranges are where its rounding puts them.
    let octaves = (steps as f32 / single as f32).ln() / (f64::from(FARTHEST) / single as f64).ln() as f32;
    let range = (octaves * (half - single) as f32) as usize;
    first + (single + range).min(half - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the reference's formula, in both directions: single distances, the borders of ranges, the last one.
    #[test]
    fn distances_fall_into_the_buckets_of_the_reference() {
        let distances = [0, 1, -1, 7, -7, 8, -9, 11, 12, 15, 16, 20, 31, -32, -50, 90, 91, 127, -128, 511, -511];
        let expected = [0, 17, 1, 23, 7, 24, 8, 24, 25, 25, 26, 26, 27, 12, 13, 30, 31, 31, 15, 31, 15];
        assert_eq!(distances.map(|distance| bucket(distance, 32)), expected);
        let weighted: usize = (-600..=600).map(|distance| (distance + 601) as usize * bucket(distance, 32)).sum();
        assert_eq!(weighted, 19_105_790);
    }
}
