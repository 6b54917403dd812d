//! Table look-up.

use super::Cuda;
use super::matrix::{DeviceBlocks, DeviceMatrix};
use super::memory::Buffer;
use super::operation::Operation;
use super::runner::arguments;
use crate::error::Result;
use crate::matrix::Matrix;

const THREADS: u32 = 256;

/// The caller has checked that the table lies on the device.
pub(crate) fn embedding(cuda: &Cuda, out: &mut [f32], table: &Matrix, tokens: &[u32]) -> Result<()> {
    let width = table.columns() as u32;
    let grid = [tokens.len() as u32, 1, 1];
    let mut operation = Operation::begin(cuda, "embedding")?;
    let out = operation.output(out)?;
    let tokens = operation.step_input("tokens", tokens)?;
    let mut plain = |kernel, values: &Buffer| {
        operation.launch(kernel, grid, THREADS, 0, arguments![out, values.address(), tokens, width])
    };
    match table.on_device() {
        DeviceMatrix::F32(values) => plain("embed_f32", values)?,
        DeviceMatrix::F16(values) => plain("embed_f16", values)?,
        DeviceMatrix::BF16(values) => plain("embed_bf16", values)?,
        DeviceMatrix::Blocks(DeviceBlocks { levels, bits, halves, zero, half_scales, scales, minima }) => {
            let arguments = arguments![
                out,
                levels.address(),
                scales.address(),
                minima.as_ref().map_or(0, Buffer::address),
                tokens,
                width,
                *bits as u32,
                *halves as u32,
                *zero,
                u32::from(*half_scales),
            ];
            operation.launch("embed_blocks", grid, THREADS, 0, arguments)?;
        }
    }
    operation.finish()
}
