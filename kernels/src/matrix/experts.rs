//! The weights of one projection of every expert of a layer.

use super::{Format, Matrix};
use crate::cuda::{DeviceExperts, on_gpu};
use crate::device::{Backend, Device};
use crate::error::{Error, Result, check_length};

/// One weight `[n, k]` an expert, all of one format, and biases `[n]` of all experts or of none.
///
/// On a GPU a table says where each lies, so that one launch finds them all.
#[derive(Debug)]
pub struct ExpertWeights {
    matrices: Vec<Matrix>,
    /// `[E, n]`, for the processor.
    biases: Option<Vec<f32>>,
    #[cfg_attr(not(any(feature = "cuda", feature = "emulate")), expect(dead_code, reason = "read by GPUs"))]
    table: Option<DeviceExperts>,
}

impl ExpertWeights {
    /// Weights by the number of their expert, made for this device, with biases `[E, n]`.
    ///
    /// # Errors
    /// [`Error::Shape`] for no experts, for weights that are not alike, and for those of another device; [`Error::Length`]
    /// for biases of another length; [`Error::Cuda`] when a GPU has not as much memory left.
    pub fn new(device: &Device, matrices: Vec<Matrix>, biases: Option<Vec<f32>>) -> Result<Self> {
        let op = "expert weights";
        let Some(first) = matrices.first() else {
            return Err(Error::Shape { op, problem: "no experts, expected at least one".to_string() });
        };
        for matrix in &matrices {
            matrix.check_place(op, device)?;
            if alike(matrix) != alike(first) {
                let problem = format!("{matrix:?} beside {first:?}: experts of a layer are of one shape and format");
                return Err(Error::Shape { op, problem });
            }
        }
        if let Some(biases) = &biases {
            check_length(op, "biases", biases.len(), &[("experts", matrices.len()), ("n", first.rows())])?;
        }
        let table = match device.backend() {
            Backend::Cpu(_) => None,
            Backend::Cuda(cuda) => Some(on_gpu!(cuda, experts::place(&matrices, biases.as_deref()))?),
        };
        Ok(Self { matrices, biases, table })
    }

    /// How many experts there are.
    pub fn experts(&self) -> usize {
        self.matrices.len()
    }

    /// Output features `n` of each.
    pub fn rows(&self) -> usize {
        self.matrices[0].rows()
    }

    /// Input features `k`.
    pub fn columns(&self) -> usize {
        self.matrices[0].columns()
    }

    /// Memory that an expert's weights take, of all experts about the same.
    pub(crate) fn bytes_of_one(&self) -> usize {
        self.matrices[0].bytes()
    }

    pub(crate) fn matrix(&self, expert: usize) -> &Matrix {
        &self.matrices[expert]
    }

    pub(crate) fn bias(&self, expert: usize) -> Option<&[f32]> {
        self.biases.as_ref().map(|biases| &biases[expert * self.rows()..][..self.rows()])
    }

    /// The caller has checked that the weights lie on the device.
    #[cfg(any(feature = "cuda", feature = "emulate"))]
    pub(crate) fn on_device(&self) -> &DeviceExperts {
        self.table.as_ref().expect("operations check where weights lie: our bug")
    }
}

fn alike(matrix: &Matrix) -> (Format, usize, usize) {
    (matrix.format(), matrix.rows(), matrix.columns())
}
