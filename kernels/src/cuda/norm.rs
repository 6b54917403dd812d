//! Normalisation of rows.

use super::Cuda;
use super::operation::Operation;
use super::runner::Argument;
use crate::error::Result;

/// What a block has of shared memory without asking for more, less the kernel's own.
const SHARED_BYTES: usize = (48 << 10) - 256;
/// Rows up to this width get one warp, others eight.
const NARROW: usize = 256;

/// Runs a kernel over rows of `width` that hold `values` altogether: pointers, then what all norms take.
fn run(
    mut operation: Operation<'_>,
    kernel: &'static str,
    pointers: &[u64],
    [values, width]: [usize; 2],
    eps: f32,
) -> Result<()> {
    let bytes = width * size_of::<f32>();
    // Whether a row is kept in shared memory.
    let fits = bytes <= SHARED_BYTES;
    let (threads, shared_bytes) = (if width <= NARROW { 32 } else { 256 }, if fits { bytes } else { 0 });
    let pointers = pointers.iter().map(|pointer| Argument::from(*pointer));
    let arguments: Vec<Argument<'_>> =
        pointers.chain([Argument::from(width as u32), Argument::from(eps), Argument::from(u32::from(fits))]).collect();
    operation.launch(kernel, [(values / width) as u32, 1, 1], threads, shared_bytes, &arguments)?;
    operation.finish()
}

pub(crate) fn rms_norm(cuda: &Cuda, out: &mut [f32], x: &[f32], weight: &[f32], eps: f32) -> Result<()> {
    let (extents, mut operation) = ([x.len(), weight.len()], Operation::begin(cuda, "rms_norm")?);
    let pointers = [operation.output(out)?, operation.input(x)?, operation.input(weight)?];
    run(operation, "rms_norm", &pointers, extents, eps)
}

pub(crate) fn rms_norm_in_place(cuda: &Cuda, x: &mut [f32], weight: &[f32], eps: f32) -> Result<()> {
    let (extents, mut operation) = ([x.len(), weight.len()], Operation::begin(cuda, "rms_norm_in_place")?);
    let (x, weight) = (operation.in_out(x)?, operation.input(weight)?);
    run(operation, "rms_norm", &[x, x, weight], extents, eps)
}

pub(crate) fn rms_norm_residual(
    cuda: &Cuda,
    residual: &mut [f32],
    out: &mut [f32],
    x: &[f32],
    weight: &[f32],
    eps: f32,
) -> Result<()> {
    let (extents, mut operation) = ([x.len(), weight.len()], Operation::begin(cuda, "rms_norm_residual")?);
    let (residual, out) = (operation.in_out(residual)?, operation.output(out)?);
    let pointers = [residual, out, operation.input(x)?, operation.input(weight)?];
    run(operation, "rms_norm_residual", &pointers, extents, eps)
}

pub(crate) fn layer_norm(
    cuda: &Cuda,
    out: &mut [f32],
    x: &[f32],
    weight: &[f32],
    bias: &[f32],
    eps: f32,
) -> Result<()> {
    let (extents, mut operation) = ([x.len(), weight.len()], Operation::begin(cuda, "layer_norm")?);
    let (out, x) = (operation.output(out)?, operation.input(x)?);
    let pointers = [out, x, operation.input(weight)?, operation.input(bias)?];
    run(operation, "layer_norm", &pointers, extents, eps)
}

pub(crate) fn layer_norm_residual(
    cuda: &Cuda,
    residual: &mut [f32],
    x: &[f32],
    weight: &[f32],
    bias: &[f32],
    eps: f32,
) -> Result<()> {
    let (extents, mut operation) = ([x.len(), weight.len()], Operation::begin(cuda, "layer_norm_residual")?);
    let (residual, x) = (operation.in_out(residual)?, operation.input(x)?);
    let pointers = [residual, x, operation.input(weight)?, operation.input(bias)?];
    run(operation, "layer_norm_residual", &pointers, extents, eps)
}
