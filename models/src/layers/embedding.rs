//! Token vectors.

use std::sync::Arc;

use lifelong_kernels::ops::{embed, residual};
use lifelong_kernels::{Device, Matrix};

use crate::error::Result;
use crate::weights::Weights;

/// The table of token vectors `[V, H]`; the output projection may share it.
pub(crate) struct Embedding {
    table: Arc<Matrix>,
    /// Factor of every vector; the output projection does not see it.
    scale: Option<f32>,
}

impl Embedding {
    pub fn load(weights: &mut Weights, name: &str, vocab: usize, hidden: usize) -> Result<Self> {
        Ok(Embedding { table: Arc::new(weights.matrix(&format!("{name}.weight"), vocab, hidden)?), scale: None })
    }

    pub fn scaled(self, scale: f32) -> Self {
        Embedding { scale: Some(scale), ..self }
    }

    pub fn table(&self) -> Arc<Matrix> {
        self.table.clone()
    }

    /// `out` `[T, H]`
    pub fn forward(&self, device: &Device, out: &mut [f32], tokens: &[u32]) -> Result<()> {
        embed::embedding(device, out, &self.table, tokens)?;
        match self.scale {
            Some(scale) => Ok(residual::scale(device, out, scale)?),
            None => Ok(()),
        }
    }
}
