//! Token vectors.

use std::sync::Arc;

use lifelong_kernels::ops::embed;
use lifelong_kernels::{Device, Matrix};

use crate::error::Result;
use crate::weights::Weights;

/// The table of token vectors `[V, H]`; the output projection may share it.
pub(crate) struct Embedding {
    table: Arc<Matrix>,
}

impl Embedding {
    pub fn load(weights: &mut Weights, name: &str, vocab: usize, hidden: usize) -> Result<Self> {
        Ok(Embedding { table: Arc::new(weights.matrix(&format!("{name}.weight"), vocab, hidden)?) })
    }

    pub fn table(&self) -> Arc<Matrix> {
        self.table.clone()
    }

    /// `out` `[T, H]`
    pub fn forward(&self, device: &Device, out: &mut [f32], tokens: &[u32]) -> Result<()> {
        Ok(embed::embedding(device, out, &self.table, tokens)?)
    }
}
