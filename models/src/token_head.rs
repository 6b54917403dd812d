//! A projection of token states that comes in a file of its own beside an encoder: BGE-M3's learned sparse weights
//! (`sparse_linear`) and its vectors for late interaction (`colbert_linear`).
//!
//! Source: Chen et al. 2024, "BGE M3-Embedding", §3.2.

use std::path::Path;

use lifelong_kernels::Device;

use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::layers::linear::Linear;
use crate::weights::Weights;

/// `y = W h + b` for the state of every token.
pub struct TokenHead {
    linear: Linear,
    /// Weights and biases.
    pub parameters: u64,
}

impl TokenHead {
    /// Opens a file with a `weight` `[n, hidden]` and a `bias` `[n]`: safetensors, or what `torch.save` wrote of a linear
    /// layer's state.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Malformed`]; [`Error::ShapeMismatch`] for another width than `hidden`, and for other
    /// tensors in the file.
    pub fn open(path: &Path, hidden: usize, device: &Device) -> Result<Self> {
        let checkpoint = Checkpoint::open(path)?;
        let mut weights = Weights::new(&checkpoint, device, Vec::new());
        let Some([outputs, _]) = checkpoint.shape("weight") else {
            let found = checkpoint.shape("weight").unwrap_or_default().to_vec();
            let (path, tensor) = (path.to_path_buf(), "weight".to_string());
            return Err(Error::ShapeMismatch { path, tensor, expected: vec![hidden, hidden], found });
        };
        let outputs = *outputs;
        let weight = weights.table("weight", outputs, hidden)?;
        let bias = weights.vector("bias", outputs)?;
        weights.finish(|_| false)?;
        let linear = Linear::from_f32(device, outputs, hidden, &weight, &bias)?;
        Ok(TokenHead { linear, parameters: weights.parameters })
    }

    /// Numbers that a token gets.
    pub fn outputs(&self) -> usize {
        self.linear.outputs()
    }

    /// `out` `[T, n]` of the states `hidden` `[T, H]`.
    ///
    /// # Errors
    /// A wrong length.
    pub fn forward(&self, device: &Device, out: &mut [f32], hidden: &[f32]) -> Result<()> {
        self.linear.forward(device, out, hidden)
    }
}
