//! Parts of weights, for a model that is split over a group of devices.
//!
//! ```text
//! query, key, value, gate, up   [outputs, inputs]   a run of outputs each: whole heads, columns of the feed-forward
//! output, down                  [outputs, inputs]   the same run of inputs: a partial sum each, added by an exchange
//! output projection             [vocabulary, H]     a run of outputs each, gathered
//! ```
//!
//! On a device that is alone every share is the whole, and weights are taken as they stand.

use std::borrow::Cow;
use std::ops::Range;

use lifelong_kernels::{Format, Matrix, Rank, Values};

use crate::config::DecoderConfig;
use crate::error::{Error, Result};
use crate::fp8;
use crate::weights::Weights;

/// Columns of a feed-forward that stay together where nothing else decides: what a kernel takes at a time.
const COLUMNS: usize = 32;

/// A dimension of a weight, and the run of it that is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub all: usize,
    pub here: Range<usize>,
}

impl Share {
    pub fn whole(all: usize) -> Self {
        Share { all, here: 0..all }
    }

    /// A rank's run of `all`, cut between units.
    fn of(rank: Rank, all: usize, unit: usize) -> Self {
        let units = rank.share(all / unit);
        let end = if rank.number + 1 == rank.count { all } else { units.end * unit };
        Share { all, here: units.start * unit..end }
    }

    /// Where each item stands for `width`, such as a head for its rows.
    pub fn times(&self, width: usize) -> Self {
        Share { all: self.all * width, here: self.here.start * width..self.here.end * width }
    }

    pub fn is_whole(&self) -> bool {
        self.here == (0..self.all)
    }

    pub fn len(&self) -> usize {
        self.here.len()
    }
}

/// The heads of an attention layer that are here.
pub(crate) struct Heads {
    pub query: Share,
    pub key_value: Share,
}

impl Heads {
    pub fn of(rank: Rank, config: &DecoderConfig) -> Self {
        let key_value = Share::of(rank, config.kv_heads, 1);
        Heads { query: key_value.times(config.heads / config.kv_heads), key_value }
    }
}

impl Weights<'_> {
    fn rank(&self) -> Rank {
        self.device.rank()
    }

    /// Fails unless a decoder of these dimensions can be split over as many devices as there are.
    pub fn check_split(&self, config: &DecoderConfig) -> Result<()> {
        let ranks = self.rank().count;
        let problem = match (&config.mixture, &config.recurrence) {
            _ if ranks == 1 => return Ok(()),
            (Some(_), _) => "mixtures of experts are not split".to_string(),
            (_, Some(_)) => "layers with states are not split".to_string(),
            _ if config.gated_attention => "attention with a gate is not split".to_string(),
            _ if !config.kv_heads.is_multiple_of(ranks) => {
                let counts = (1..=config.kv_heads).filter(|count| config.kv_heads.is_multiple_of(*count));
                let counts: Vec<String> = counts.map(|count| count.to_string()).collect();
                format!("its {} key-value heads can be shared by {} devices", config.kv_heads, counts.join(", "))
            }
            _ => return Ok(()),
        };
        Err(self.no_split(problem))
    }

    fn no_split(&self, problem: String) -> Error {
        Error::Split { path: self.checkpoint.path().to_path_buf(), devices: self.rank().count, problem }
    }

    /// The columns of a feed-forward that are here, by the blocks that its `down` is held in: layers of one file differ.
    pub fn columns(&self, down: &str, feed_forward: usize) -> Result<Share> {
        let rank = self.rank();
        if rank.count == 1 {
            return Ok(Share::whole(feed_forward));
        }
        let block = self.block(down, feed_forward)?;
        let fits = |unit: &usize| feed_forward.is_multiple_of(*unit) && feed_forward / unit >= rank.count;
        match [block.max(COLUMNS), block].into_iter().find(fits) {
            Some(unit) => Ok(Share::of(rank, feed_forward, unit)),
            None => Err(self.no_split(format!(
                "`{down}` has {feed_forward} inputs in blocks of {block}, less than one block each"
            ))),
        }
    }

    /// The rows of an output projection that are here.
    pub fn vocabulary(&self, vocabulary: usize) -> Share {
        Share::of(self.rank(), vocabulary, 1)
    }

    /// The part of a projection that is here: as [`Weights::projection`] of the whole, cut.
    pub fn part(&mut self, name: &str, outputs: &Share, inputs: &Share) -> Result<Matrix> {
        if outputs.is_whole() && inputs.is_whole() {
            return self.projection(name, outputs.all, inputs.all);
        }
        let (stored, bytes) = self.stored(name, &[outputs.all, inputs.all])?;
        self.cut(name, (stored, &bytes), outputs, inputs)
    }

    /// As [`Weights::part`], never quantised.
    pub fn rows(&mut self, name: &str, outputs: &Share, inputs: usize) -> Result<Matrix> {
        if outputs.is_whole() {
            return self.matrix(name, outputs.all, inputs);
        }
        let (stored, bytes) = self.stored(name, &[outputs.all, inputs])?;
        let bytes = cut(stored, &bytes, outputs, &Share::whole(inputs));
        Ok(Matrix::on(self.device, stored, outputs.len(), inputs, &bytes)?)
    }

    /// Several projections that are stored as one, their rows behind one another: of each the rows that are here.
    pub fn split<const N: usize>(&mut self, name: &str, outputs: [Share; N], k: usize) -> Result<[Matrix; N]> {
        let total: usize = outputs.iter().map(|share| share.all).sum();
        let (stored, bytes) = self.stored(name, &[total, k])?;
        let row_bytes = bytes.len() / total;
        let (mut start, mut parts) = (0, Vec::with_capacity(N));
        for share in outputs {
            let own = &bytes[start * row_bytes..(start + share.all) * row_bytes];
            parts.push(self.cut(name, (stored, own), &share, &Share::whole(k))?);
            start += share.all;
        }
        Ok(parts.try_into().unwrap_or_else(|_| unreachable!("one part for each share")))
    }

    /// The part of a bias, or of another vector, that is here.
    pub fn values_part(&mut self, name: &str, share: &Share) -> Result<Values> {
        let values = self.vector(name, share.all)?;
        self.placed(&values[share.here.clone()])
    }

    fn cut(&mut self, name: &str, (stored, bytes): (Format, &[u8]), outputs: &Share, inputs: &Share) -> Result<Matrix> {
        // As of the whole: parts are held in the same format.
        let chosen = self.chosen(name, stored, inputs.all);
        let block = chosen.unwrap_or(stored).block_values();
        if [inputs.here.start, inputs.here.end].iter().any(|end| !end.is_multiple_of(block)) {
            let Share { all, here } = inputs;
            let found = format!("`{name}` has {all} inputs in blocks of {block} ({:?})", chosen.unwrap_or(stored));
            let problem = format!(
                "{found}, and a part from {} to {} would cut one; take fewer devices or weights in other blocks",
                here.start, here.end
            );
            return Err(self.no_split(problem));
        }
        self.placed_as(stored, &cut(stored, bytes, outputs, inputs), outputs.len(), inputs.len(), chosen)
    }

    /// Inputs of a weight that are held in one block.
    fn block(&self, name: &str, inputs: usize) -> Result<usize> {
        let stored = match self.checkpoint.draws() {
            Some(drawn) => drawn.format,
            None if self.checkpoint.type_name(name) == Some(fp8::TYPE) => Format::BF16,
            None => self.checkpoint.tensor(name)?.format,
        };
        Ok(self.choose(stored, inputs).unwrap_or(stored).block_values())
    }
}

/// The rows `outputs` of a weight, of each the `inputs`, which begin and end with blocks.
fn cut<'a>(stored: Format, bytes: &'a [u8], outputs: &Share, inputs: &Share) -> Cow<'a, [u8]> {
    let at = |input: usize| input / stored.block_values() * stored.block_bytes();
    let row = at(inputs.all);
    let rows = &bytes[outputs.here.start * row..outputs.here.end * row];
    if inputs.is_whole() {
        return Cow::Borrowed(rows);
    }
    let mut own = Vec::with_capacity(outputs.len() * at(inputs.len()));
    rows.chunks_exact(row).for_each(|row| own.extend_from_slice(&row[at(inputs.here.start)..at(inputs.here.end)]));
    Cow::Owned(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_cut_between_units_and_cover_everything() {
        let shares = |all, unit, count| (0..count).map(move |number| Share::of(Rank { number, count }, all, unit).here);
        assert_eq!(shares(96, 32, 2).collect::<Vec<_>>(), [0..32, 32..96]);
        assert_eq!(shares(100, 32, 2).collect::<Vec<_>>(), [0..32, 32..100]);
        assert_eq!(shares(8, 1, 4).collect::<Vec<_>>(), [0..2, 2..4, 4..6, 6..8]);
        let heads = Share::of(Rank { number: 1, count: 2 }, 4, 1).times(16);
        assert_eq!(heads, Share { all: 64, here: 32..64 });
    }

    #[test]
    fn parts_of_a_weight_hold_its_blocks() {
        // Three rows of two blocks; a block's bytes are its number.
        let bytes: Vec<u8> = (0..6u8).flat_map(|block| vec![block; Format::Q8_0.block_bytes()]).collect();
        let share = |all, here| Share { all, here };
        let blocks = |bytes: &[u8]| bytes.chunks(34).map(|block| block[33]).collect::<Vec<_>>();
        assert_eq!(blocks(&cut(Format::Q8_0, &bytes, &share(3, 1..3), &share(64, 0..64))), [2, 3, 4, 5]);
        assert_eq!(blocks(&cut(Format::Q8_0, &bytes, &share(3, 0..3), &share(64, 32..64))), [1, 3, 5]);
    }
}
