//! The output projection: hidden states of the wanted rows to logits.

use std::sync::Arc;

use lifelong_kernels::ops::{experts, matmul};
use lifelong_kernels::{Device, Matrix, Values};

use super::embedding::Embedding;
use crate::architecture::Scratch;
use crate::config::{self, Tying};
use crate::error::{Error, Result};
use crate::weights::Weights;

pub(crate) struct Head {
    weight: Arc<Matrix>,
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
        if !own {
            return Ok(Head { weight: table });
        }
        let weight = weights.matrix(&name, table.rows(), table.columns())?;
        Ok(Head { weight: Arc::new(weight) })
    }

    /// Logits `[outputs, V]` of the rows `outputs` of `scratch.normed`, of `rows` rows.
    pub fn forward(
        &self,
        device: &Device,
        logits: &mut Values,
        rows: usize,
        outputs: &[usize],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let hidden = self.weight.columns();
        let Scratch { normed, attended, outputs: numbers, .. } = scratch;
        let x = normed.take(device, rows * hidden)?;
        let gathered = attended.take(device, outputs.len() * hidden)?;
        numbers.clear();
        numbers.extend(outputs.iter().map(|output| *output as u32));
        experts::gather(device, gathered, x, numbers, hidden)?;
        let logits = logits.take(device, outputs.len() * self.weight.rows())?;
        Ok(matmul::linear(device, logits, gathered, &self.weight)?)
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
