//! The output projection: hidden states of the wanted rows to logits.

use std::sync::Arc;

use lifelong_kernels::ops::{exchange, experts, matmul};
use lifelong_kernels::{Device, Matrix, Values};

use super::embedding::Embedding;
use crate::architecture::Scratch;
use crate::config::{self, Tying};
use crate::error::{Error, Result};
use crate::weights::Weights;

/// Of a split decoder every device has a run of the rows of a matrix of the head's own. One that is shared with the embedding
/// is whole on all of them, as that is, and the first multiplies by it.
pub(crate) struct Head {
    weight: Arc<Matrix>,
    /// The logits of a row.
    vocabulary: usize,
}

impl Head {
    /// The matrix that `tying` asks for: `{name}.weight` or the embedding's.
    ///
    /// # Errors
    /// [`Error::MissingTensor`] for a separate head that is not there; [`Error::Config`] for a tied head that is there
    /// too and differs.
    pub fn load(weights: &mut Weights, name: &str, tying: Tying, embedding: (&str, &Embedding)) -> Result<Self> {
        let (embedding_name, embedding) = (format!("{}.weight", embedding.0), embedding.1);
        let name = format!("{name}.weight");
        let present = weights.checkpoint.contains(&name);
        let table = embedding.table();
        let own = match tying {
            Tying::Separate if !present => {
                let reason =
                    "and `tie_word_embeddings` is not set: the output projection cannot be guessed".to_string();
                let path = weights.checkpoint.path().to_path_buf();
                return Err(Error::MissingTensor { path, tensor: name, reason });
            }
            Tying::Separate => true,
            Tying::TiedWhenAbsent => present,
            Tying::Tied => {
                if present {
                    check_equal(weights, &name, &embedding_name)?;
                }
                false
            }
        };
        let vocabulary = table.rows();
        if !own {
            return Ok(Head { weight: table, vocabulary });
        }
        let weight = weights.rows(&name, &weights.vocabulary(vocabulary), table.columns())?;
        Ok(Head { weight: Arc::new(weight), vocabulary })
    }

    /// Logits `[outputs, V]` of the rows `outputs` of `scratch.normed`, of `rows` rows; of a split decoder on the first device,
    /// and none on others.
    pub fn forward(
        &self,
        device: &Device,
        logits: &mut Values,
        rows: usize,
        outputs: &[usize],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let (hidden, width, is_first) = (self.weight.columns(), self.weight.rows(), device.rank().is_first());
        let logits = logits.take(device, if is_first { outputs.len() * self.vocabulary } else { 0 })?;
        let is_whole = width == self.vocabulary;
        if is_whole && !is_first {
            return Ok(());
        }
        let Scratch { normed, attended, up, outputs: numbers, .. } = scratch;
        let x = normed.take(device, rows * hidden)?;
        let gathered = attended.take(device, outputs.len() * hidden)?;
        numbers.clear();
        numbers.extend(outputs.iter().map(|output| *output as u32));
        experts::gather(device, gathered, x, numbers, hidden)?;
        if is_whole {
            return Ok(matmul::linear(device, logits, gathered, &self.weight)?);
        }
        let own = up.take(device, outputs.len() * width)?;
        matmul::linear(device, own, gathered, &self.weight)?;
        Ok(exchange::columns(device, logits, own, self.vocabulary)?)
    }
}

fn check_equal(weights: &mut Weights, head: &str, embedding: &str) -> Result<()> {
    let (a, b) = (weights.checkpoint.tensor(head)?, weights.checkpoint.tensor(embedding)?);
    if (a.shape, a.format, a.bytes) != (b.shape, b.format, b.bytes) {
        let text = format!("true, but `{head}` is there too and differs from `{embedding}`");
        return Err(config::problem(weights.checkpoint.path(), "tie_word_embeddings", text));
    }
    weights.skip(head);
    weights.notes.push(format!("`{head}` ignored: equal to `{embedding}`, which it is tied to"));
    Ok(())
}
