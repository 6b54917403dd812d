//! Activations and small parameters: `f32` where the device of a model wants them.

use std::ops::{Deref, DerefMut};

use crate::cuda::Managed;
use crate::device::{Backend, Device};
use crate::error::Result;

/// A vector of `f32` made for a device: on the heap for the processor; for a GPU in memory that both sides address and that
/// stays on the GPU while only operations touch it.
///
/// Operations on a GPU return before it is done. So between two calls of [`Device::synchronize`] these values belong to
/// operations: whoever reads or writes them directly synchronises first.
#[derive(Default)]
pub struct Values {
    storage: Storage,
    /// Of the values in memory, those that are meant.
    length: usize,
}

#[derive(Default)]
enum Storage {
    #[default]
    Empty,
    Host(Vec<f32>),
    Managed(Managed),
}

impl Values {
    /// Zeros.
    ///
    /// # Errors
    /// [`crate::Error::Cuda`] when a GPU has not as much memory left.
    pub fn zeros(device: &Device, length: usize) -> Result<Self> {
        let storage = match device.backend() {
            _ if length == 0 => Storage::Empty,
            Backend::Cpu(_) => Storage::Host(vec![0.0; length]),
            Backend::Cuda(cuda) => Storage::Managed(cuda.managed(length)?),
        };
        Ok(Self { storage, length })
    }

    /// A copy of numbers at hand.
    ///
    /// # Errors
    /// As [`Values::zeros`].
    pub fn copied(device: &Device, values: &[f32]) -> Result<Self> {
        let mut copy = Self::default();
        copy.extend(device, values)?;
        Ok(copy)
    }

    /// Puts numbers behind those that are there. Memory that is there already decides where they lie, else the device.
    ///
    /// # Errors
    /// As [`Values::zeros`].
    pub fn extend(&mut self, device: &Device, values: &[f32]) -> Result<()> {
        let (begin, length) = (self.length, self.length + values.len());
        if length > self.capacity() {
            match &mut self.storage {
                Storage::Empty => self.storage = Self::zeros(device, length)?.storage,
                Storage::Host(held) => held.resize(length, 0.0),
                Storage::Managed(held) => *held = held.grown(length)?,
            }
        }
        if let Storage::Managed(held) = &self.storage {
            held.synchronize()?;
        }
        self.length = length;
        self[begin..].copy_from_slice(values);
        Ok(())
    }

    /// Makes these `length` values and gives them out. What they hold is left over: whoever asks writes them all. Memory is
    /// taken only where there is not enough.
    ///
    /// # Errors
    /// As [`Values::zeros`].
    pub fn take(&mut self, device: &Device, length: usize) -> Result<&mut [f32]> {
        if length > self.capacity() {
            // What it holds goes first: it is not wanted, and memory may be short.
            *self = Self::default();
            *self = Self::zeros(device, length)?;
        }
        self.length = length;
        Ok(self)
    }

    fn capacity(&self) -> usize {
        match &self.storage {
            Storage::Empty => 0,
            Storage::Host(values) => values.len(),
            Storage::Managed(values) => values.values().len(),
        }
    }
}

impl From<Vec<f32>> for Values {
    /// On the heap: a GPU reads them too, as a copy at every use.
    fn from(values: Vec<f32>) -> Self {
        let length = values.len();
        let storage = if values.is_empty() { Storage::Empty } else { Storage::Host(values) };
        Self { storage, length }
    }
}

impl Deref for Values {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match &self.storage {
            Storage::Empty => &[],
            Storage::Host(values) => &values[..self.length],
            Storage::Managed(values) => &values.values()[..self.length],
        }
    }
}

impl DerefMut for Values {
    fn deref_mut(&mut self) -> &mut [f32] {
        match &mut self.storage {
            Storage::Empty => &mut [],
            Storage::Host(values) => &mut values[..self.length],
            Storage::Managed(values) => &mut values.values_mut()[..self.length],
        }
    }
}

impl std::fmt::Debug for Values {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Values [{}]", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extending_keeps_and_taking_less_does_not_give_memory_back() {
        let device = Device::cpu(1);
        let mut values = Values::copied(&device, &[1.0, 2.0]).unwrap();
        values.extend(&device, &[3.0]).unwrap();
        assert_eq!(&values[..], [1.0, 2.0, 3.0]);
        let start = values.as_ptr();
        assert_eq!(values.take(&device, 1).unwrap(), [1.0]);
        assert_eq!((values.take(&device, 3).unwrap().len(), values.as_ptr()), (3, start));
        assert_eq!(values.take(&device, 9).unwrap(), [0.0; 9]);
        assert!(Values::zeros(&device, 0).unwrap().is_empty());
        assert!(Values::from(Vec::new()).is_empty());
    }
}
