//! Rates that kernels are compared with, measured on the device.

use std::time::Instant;

use super::Cuda;
use super::memory::Buffer;
use super::operation::Operation;
use super::runner::{Argument, arguments};
use crate::error::Result;
use crate::limits::Limits;

/// The best of this many runs counts.
const RUNS: usize = 5;
/// A run takes at least this long, so that starting it does not count.
const RUN_S: f64 = 2e-3;
const MOST_BLOCKS: u32 = 1 << 16;
const THREADS: u32 = 256;
const WARPS: usize = THREADS as usize / 32;
/// Rounds of a warp, and products that each keeps at work.
const ROUNDS: i32 = 64;
const CHAINS: usize = 8;
/// Operations of one product: 16 by 8 by so many, a multiply and an add each.
const FLOAT_OPERATIONS: usize = 16 * 8 * 16 * 2;
const INTEGER_OPERATIONS: usize = 16 * 8 * 32 * 2;
/// Bytes read: more than caches hold.
const LEAST_READ: usize = 64 << 20;
const MOST_READ: usize = 512 << 20;
/// Blocks that share out a read: several for each of the largest chip's processors.
const READ_BLOCKS: u32 = 2048;

/// Measures for a tenth of a second.
pub(crate) fn measure(cuda: &Cuda, bytes: usize) -> Result<Limits> {
    let memory = &cuda.memory;
    let out = Buffer::new(memory, (MOST_BLOCKS * THREADS) as usize * size_of::<f32>())?;
    let inputs = Buffer::zeroed(memory, THREADS as usize * size_of::<u32>())?;
    let products = |kernel: &'static str, operations: usize| -> Result<f64> {
        let arguments: &[Argument<'_>] = arguments![out.address(), inputs.address(), ROUNDS];
        let (blocks, seconds) = best(|blocks| launch(cuda, kernel, blocks, arguments))?;
        Ok((blocks as usize * WARPS * ROUNDS as usize * CHAINS * operations) as f64 / seconds)
    };
    let (floats, integers) =
        (products("limit_floats", FLOAT_OPERATIONS)?, products("limit_integers", INTEGER_OPERATIONS)?);
    let area = Buffer::zeroed(memory, bytes.clamp(LEAST_READ, MOST_READ).next_multiple_of(16))?;
    let arguments: &[Argument<'_>] = arguments![out.address(), area.address(), (area.bytes() / 16) as u64];
    let seconds = quickest(|| launch(cuda, "limit_read", READ_BLOCKS, arguments))?;
    Ok(Limits { read: area.bytes() as f64 / seconds, integers, floats })
}

fn launch(cuda: &Cuda, kernel: &'static str, blocks: u32, arguments: &[Argument<'_>]) -> Result<()> {
    let mut operation = Operation::begin(cuda, kernel)?;
    operation.launch(kernel, [blocks, 1, 1], THREADS, 0, arguments)?;
    operation.finish()?;
    cuda.synchronize()
}

/// How many blocks take long enough, and their seconds at best.
fn best(run: impl Fn(u32) -> Result<()>) -> Result<(u32, f64)> {
    let mut blocks = 1;
    loop {
        let seconds = quickest(|| run(blocks))?;
        if seconds >= RUN_S || blocks >= MOST_BLOCKS {
            return Ok((blocks, seconds));
        }
        blocks *= 2;
    }
}

fn quickest(run: impl Fn() -> Result<()>) -> Result<f64> {
    run()?;
    let mut quickest = f64::INFINITY;
    for _ in 0..RUNS {
        let begun = Instant::now();
        run()?;
        quickest = quickest.min(begun.elapsed().as_secs_f64());
    }
    Ok(quickest)
}
