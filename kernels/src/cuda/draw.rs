//! Weights drawn where they lie.

use super::Cuda;
use super::matrix::DeviceMatrix;
use super::memory::Buffer;
use super::operation::{Operation, blocks};
use super::runner::arguments;
use crate::error::Result;
use crate::matrix::{Draw, Format};

const THREADS: u32 = 256;
/// Values of a thread: what one call of the generator gives.
const VALUES: usize = 4;

/// `count` numbers of a plain format.
pub(crate) fn place(cuda: &Cuda, format: Format, count: usize, draw: Draw) -> Result<DeviceMatrix> {
    let buffer = Buffer::new(&cuda.memory, count * format.block_bytes())?;
    let kernel = match format {
        Format::F16 => "draw_f16",
        Format::BF16 => "draw_bf16",
        _ => "draw_f32",
    };
    let mut operation = Operation::begin(cuda, "draw")?;
    let arguments = arguments![buffer.address(), draw.key, draw.reach, count as u64];
    operation.launch(kernel, blocks(count.div_ceil(VALUES), THREADS), THREADS, 0, arguments)?;
    operation.finish()?;
    Ok(match format {
        Format::F16 => DeviceMatrix::F16(buffer),
        Format::BF16 => DeviceMatrix::BF16(buffer),
        _ => DeviceMatrix::F32(buffer),
    })
}
