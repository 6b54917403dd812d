//! Weights drawn at random: models of any size without a file.

use super::{Format, Matrix, Storage, check_extents};
use crate::cpu::philox;
use crate::cuda::on_gpu;
use crate::device::{Backend, Device};
use crate::error::{Error, Result};

/// What a weight is drawn from: numbers evenly spread over [−reach, reach).
///
/// A number is a function of the key and of its place alone: words of Philox, of which 24 bits count. So every device draws
/// the same weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    pub key: u64,
    pub reach: f32,
}

impl Draw {
    /// The first `count` numbers as a file stores them.
    ///
    /// # Errors
    /// [`Error::Shape`] for a format of blocks.
    pub fn bytes(self, format: Format, count: usize) -> Result<Vec<u8>> {
        let numbers = (0..count.div_ceil(4) as u64).flat_map(|position| philox::words(self.key, position));
        // Exact but for the last product.
        let numbers = numbers.take(count).map(|word| ((word >> 8) as f32 / 8_388_608.0 - 1.0) * self.reach);
        match format {
            Format::F32 => Ok(numbers.flat_map(f32::to_le_bytes).collect()),
            Format::F16 => Ok(numbers.flat_map(|number| half::f16::from_f32(number).to_le_bytes()).collect()),
            Format::BF16 => Ok(numbers.flat_map(|number| half::bf16::from_f32(number).to_le_bytes()).collect()),
            _ => Err(no_blocks(format)),
        }
    }
}

impl Matrix {
    /// A weight `[n, k]` of random numbers, drawn where products of `device` read it.
    ///
    /// # Errors
    /// [`Error::Shape`] for a format of blocks or an extent of zero; [`Error::Cuda`] when a GPU has not as much memory left.
    pub fn drawn(device: &Device, format: Format, n: usize, k: usize, draw: Draw) -> Result<Self> {
        check_extents(n, k)?;
        let Backend::Cuda(cuda) = device.backend() else {
            return Self::from_bytes(format, n, k, &draw.bytes(format, n * k)?);
        };
        if format.block_values() != 1 {
            return Err(no_blocks(format));
        }
        let storage = Storage::Device(on_gpu!(cuda, draw::place(format, n * k, draw))?);
        Ok(Self { format, rows: n, columns: k, storage })
    }
}

fn no_blocks(format: Format) -> Error {
    Error::Shape { op: "draw", problem: format!("{format:?} is a format of blocks, expected F32, F16 or BF16") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spread_over_the_reach_and_depend_on_key_and_place_alone() {
        let draw = Draw { key: 9, reach: 0.5 };
        let numbers = |draw: Draw, count| -> Vec<f32> {
            let bytes = draw.bytes(Format::F32, count).unwrap();
            bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
        };
        let many = numbers(draw, 10_001);
        assert_eq!(many[..7], numbers(draw, 7));
        assert_ne!(many[..7], numbers(Draw { key: 10, ..draw }, 7));
        assert!(many.iter().all(|number| (-0.5..0.5).contains(number)));
        let mean = |of: &dyn Fn(f32) -> f64| many.iter().map(|number| of(*number)).sum::<f64>() / many.len() as f64;
        // A uniform number over ±0.5 has the variance 1/12.
        assert!(mean(&f64::from).abs() < 0.01);
        assert!((mean(&|number| f64::from(number) * f64::from(number)) - 1.0 / 12.0).abs() < 0.002);
    }

    #[test]
    fn blocks_are_refused() {
        let draw = Draw { key: 0, reach: 1.0 };
        let error = Matrix::drawn(&Device::cpu(1), Format::Q8_0, 1, 32, draw).unwrap_err();
        assert!(error.to_string().contains("expected F32, F16 or BF16"), "{error}");
    }
}
