//! Tensors of a checkpoint as candle asks for them: shapes checked, every one accounted for, factors multiplied in.

use std::sync::{Mutex, MutexGuard, PoisonError};

use candle_core::{DType, Device, Shape, Tensor};
use candle_nn::var_builder::SimpleBackend;
use candle_nn::{Init, VarBuilder};

use super::config::Described;
use crate::architecture::Geometry;
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::weights::{Weights, is_angles, numbers_of};

const HEAD: &str = "lm_head.weight";
const EMBEDDING: &str = "model.embed_tokens.weight";

/// The tensors of one checkpoint.
pub(super) struct Source<'a> {
    checkpoint: &'a Checkpoint,
    is_tied: bool,
    weights: Mutex<Weights<'a>>,
    /// Why a tensor could not be given.
    fault: Mutex<Option<Error>>,
}

/// What a tensor of this name is multiplied by.
pub(super) type Factor<'a> = dyn Fn(&str) -> f64 + Send + Sync + 'a;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Source<'a> {
    pub fn new(checkpoint: &'a Checkpoint, device: &'a lifelong_kernels::Device, is_tied: bool) -> Self {
        let weights = Mutex::new(Weights::new(checkpoint, device, Vec::new()));
        Source { checkpoint, is_tied, weights, fault: Mutex::new(None) }
    }

    /// The tensors as they are.
    pub fn builder(&self) -> VarBuilder<'_> {
        self.scaled(&|_| 1.0)
    }

    /// The tensors times a factor each.
    pub fn scaled<'b>(&'b self, factor: &'b Factor<'b>) -> VarBuilder<'b> {
        VarBuilder::from_backend(Box::new(Reader { source: self, factor }), DType::F32, Device::Cpu)
    }

    /// The first tensor that could not be given.
    pub fn fault(&self) -> Option<Error> {
        lock(&self.fault).take()
    }

    /// The dimensions with what was read, and all that loading wants known.
    ///
    /// # Errors
    /// [`Error::UnknownTensors`] when candle asked for less than the file holds.
    pub fn finish(self, described: Described) -> Result<(Geometry, Vec<String>)> {
        let mut weights = self.weights.into_inner().unwrap_or_else(PoisonError::into_inner);
        if self.is_tied {
            // A second copy of the table of token vectors.
            weights.skip(HEAD);
        }
        weights.finish(is_angles)?;
        let geometry = Geometry { parameters: weights.parameters, weight_bytes: weights.bytes, ..described.geometry };
        Ok((geometry, [described.notes, weights.notes].concat()))
    }

    fn numbers(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        if name == HEAD && self.is_tied {
            return numbers_of(self.checkpoint, EMBEDDING, shape);
        }
        lock(&self.weights).numbers(name, shape)
    }
}

struct Reader<'b, 'a> {
    source: &'b Source<'a>,
    factor: &'b Factor<'b>,
}

impl SimpleBackend for Reader<'_, '_> {
    fn get(&self, shape: Shape, name: &str, _: Init, dtype: DType, device: &Device) -> candle_core::Result<Tensor> {
        let mut numbers = self.source.numbers(name, shape.dims()).map_err(|error| {
            let text = error.to_string();
            lock(&self.source.fault).get_or_insert(error);
            candle_core::Error::Msg(text)
        })?;
        let factor = (self.factor)(name);
        if factor != 1.0 {
            numbers.iter_mut().for_each(|number| *number = (f64::from(*number) * factor) as f32);
        }
        Tensor::from_vec(numbers, shape, device)?.to_dtype(dtype)
    }

    fn get_unchecked(&self, name: &str, dtype: DType, device: &Device) -> candle_core::Result<Tensor> {
        let shape = Shape::from(self.source.checkpoint.shape(name).unwrap_or_default());
        self.get(shape, name, Init::default(), dtype, device)
    }

    fn contains_tensor(&self, name: &str) -> bool {
        self.source.checkpoint.contains(name) || (name == HEAD && self.source.is_tied)
    }
}
