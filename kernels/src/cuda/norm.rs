//! Normalisation of rows.

use super::Cuda;
use super::operation::Operation;
use super::runner::arguments;
use crate::error::Result;

/// What a block has of shared memory without asking for more, less the kernel's own.
const SHARED_BYTES: usize = (48 << 10) - 256;
/// Rows up to this width get one warp, others eight.
const NARROW: usize = 256;

/// How rows of a width are given to blocks.
struct Rows {
    grid: [u32; 3],
    threads: u32,
    /// Whether a row is kept in shared memory, and what that takes.
    staged: u32,
    shared_bytes: usize,
}

impl Rows {
    fn of(values: usize, width: usize) -> Self {
        let bytes = width * size_of::<f32>();
        let fits = bytes <= SHARED_BYTES;
        Self {
            grid: [(values / width) as u32, 1, 1],
            threads: if width <= NARROW { 32 } else { 256 },
            staged: u32::from(fits),
            shared_bytes: if fits { bytes } else { 0 },
        }
    }
}

pub(crate) fn rms_norm(cuda: &Cuda, out: &mut [f32], x: &[f32], weight: &[f32], eps: f32) -> Result<()> {
    let (width, rows) = (weight.len() as u32, Rows::of(x.len(), weight.len()));
    let mut operation = Operation::begin(cuda, "rms_norm")?;
    let (out, x, weight) = (operation.output(out)?, operation.input(x)?, operation.input(weight)?);
    let arguments = arguments![out, x, weight, width, eps, rows.staged];
    operation.launch("rms_norm", rows.grid, rows.threads, rows.shared_bytes, arguments)?;
    operation.finish()
}

pub(crate) fn rms_norm_in_place(cuda: &Cuda, x: &mut [f32], weight: &[f32], eps: f32) -> Result<()> {
    let (width, rows) = (weight.len() as u32, Rows::of(x.len(), weight.len()));
    let mut operation = Operation::begin(cuda, "rms_norm_in_place")?;
    let (x, weight) = (operation.in_out(x)?, operation.input(weight)?);
    let arguments = arguments![x, x, weight, width, eps, rows.staged];
    operation.launch("rms_norm", rows.grid, rows.threads, rows.shared_bytes, arguments)?;
    operation.finish()
}

pub(crate) fn rms_norm_residual(
    cuda: &Cuda,
    residual: &mut [f32],
    out: &mut [f32],
    x: &[f32],
    weight: &[f32],
    eps: f32,
) -> Result<()> {
    let (width, rows) = (weight.len() as u32, Rows::of(x.len(), weight.len()));
    let mut operation = Operation::begin(cuda, "rms_norm_residual")?;
    let (residual, out) = (operation.in_out(residual)?, operation.output(out)?);
    let (x, weight) = (operation.input(x)?, operation.input(weight)?);
    let arguments = arguments![residual, out, x, weight, width, eps, rows.staged];
    operation.launch("rms_norm_residual", rows.grid, rows.threads, rows.shared_bytes, arguments)?;
    operation.finish()
}

pub(crate) fn layer_norm(
    cuda: &Cuda,
    out: &mut [f32],
    x: &[f32],
    weight: &[f32],
    bias: &[f32],
    eps: f32,
) -> Result<()> {
    let (width, rows) = (weight.len() as u32, Rows::of(x.len(), weight.len()));
    let mut operation = Operation::begin(cuda, "layer_norm")?;
    let (out, x) = (operation.output(out)?, operation.input(x)?);
    let (weight, bias) = (operation.input(weight)?, operation.input(bias)?);
    let arguments = arguments![out, x, weight, bias, width, eps, rows.staged];
    operation.launch("layer_norm", rows.grid, rows.threads, rows.shared_bytes, arguments)?;
    operation.finish()
}

pub(crate) fn layer_norm_residual(
    cuda: &Cuda,
    residual: &mut [f32],
    x: &[f32],
    weight: &[f32],
    bias: &[f32],
    eps: f32,
) -> Result<()> {
    let (width, rows) = (weight.len() as u32, Rows::of(x.len(), weight.len()));
    let mut operation = Operation::begin(cuda, "layer_norm_residual")?;
    let (residual, x) = (operation.in_out(residual)?, operation.input(x)?);
    let (weight, bias) = (operation.input(weight)?, operation.input(bias)?);
    let arguments = arguments![residual, x, weight, bias, width, eps, rows.staged];
    operation.launch("layer_norm_residual", rows.grid, rows.threads, rows.shared_bytes, arguments)?;
    operation.finish()
}
