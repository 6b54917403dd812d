//! Weight matrices, repacked once at load into the layout the matrix products read.

mod blocks;
mod draw;
mod experts;
mod format;
mod iq4;
mod mxfp4;
mod packed;
mod quantize;
#[cfg(any(feature = "cuda", feature = "emulate"))]
pub(crate) mod split;
mod words;

pub use draw::Draw;
pub use experts::ExpertWeights;
pub use format::Format;
pub(crate) use mxfp4::LEVELS;
pub(crate) use packed::{BlockScales, Blocks, BrainBits, HalfBits, Panels, Storage, TILE_ROWS};
pub use quantize::{QUANTIZABLE, quantize};
pub(crate) use words::{GROUP, LEVEL, Words};

use crate::cuda::on_gpu;
use crate::device::{Backend, Device};
use crate::error::{Error, Result, check_length};

/// A weight `[n, k]`: `n` output features by `k` input features, as the rows of `W` in `y = x Wᵀ`.
///
/// It lies where one kind of device reads it. The bytes of the file are read once and not kept. Numbers are kept exactly as stored, but for K-quants, whose block
/// scales become one `f32` product per sub-block (the product ggml forms at every use).
pub struct Matrix {
    format: Format,
    rows: usize,
    columns: usize,
    storage: Storage,
}

impl Matrix {
    /// Packs `f32` weights, row-major `[n, k]`.
    ///
    /// # Errors
    /// [`Error::Length`] or [`Error::Shape`] when the slice does not hold `n · k` values or one of them is zero.
    pub fn from_f32(n: usize, k: usize, weights: &[f32]) -> Result<Self> {
        check_extents(n, k)?;
        check_length("matrix", "weights", weights.len(), &[("n", n), ("k", k)])?;
        let storage = Storage::F32(Panels::pack(n, k, |row, column| weights[row * k + column]));
        Ok(Self { format: Format::F32, rows: n, columns: k, storage })
    }

    /// Packs weights as they stand in a file: row-major, little-endian, quantised formats in ggml's blocks.
    ///
    /// # Errors
    /// [`Error::Blocks`] when `k` is not a whole number of the format's blocks, [`Error::Length`] (in bytes) when the
    /// slice has another size than `[n, k]` takes, [`Error::Shape`] when an extent is zero.
    pub fn from_bytes(format: Format, n: usize, k: usize, bytes: &[u8]) -> Result<Self> {
        check_bytes(format, n, k, bytes)?;
        Ok(Self { format, rows: n, columns: k, storage: Storage::pack(format, n, k, bytes) })
    }

    /// As [`Matrix::from_bytes`], where products of `device` read it.
    ///
    /// # Errors
    /// As [`Matrix::from_bytes`]; [`Error::Cuda`] when a GPU has not as much memory left.
    pub fn on(device: &Device, format: Format, n: usize, k: usize, bytes: &[u8]) -> Result<Self> {
        let Backend::Cuda(cuda) = device.backend() else { return Self::from_bytes(format, n, k, bytes) };
        check_bytes(format, n, k, bytes)?;
        let storage = Storage::Device(on_gpu!(cuda, matrix::place(format, n, k, bytes))?);
        Ok(Self { format, rows: n, columns: k, storage })
    }

    /// As [`Matrix::on`], but that the processor holds plain weights as integers of 16 bits: each off by at most 1/16 382 of
    /// the largest of 32 that follow each other in a row, read at half the bytes of `f32` and multiplied, by activations
    /// rounded alike, at up to twice its rate. Rows of another length than a whole number of 32 stay as they are.
    ///
    /// # Errors
    /// As [`Matrix::on`].
    pub fn rounded_on(device: &Device, format: Format, n: usize, k: usize, bytes: &[u8]) -> Result<Self> {
        if device.is_gpu() || format.block_values() > 1 || !k.is_multiple_of(GROUP) {
            return Self::on(device, format, n, k, bytes);
        }
        check_bytes(format, n, k, bytes)?;
        Ok(Self { format, rows: n, columns: k, storage: Storage::rounded(format, n, k, bytes) })
    }

    /// As [`Matrix::from_f32`], where products of `device` read it.
    ///
    /// # Errors
    /// As [`Matrix::from_f32`]; [`Error::Cuda`] when a GPU has not as much memory left.
    pub fn f32_on(device: &Device, n: usize, k: usize, weights: &[f32]) -> Result<Self> {
        if !device.is_gpu() {
            return Self::from_f32(n, k, weights);
        }
        check_extents(n, k)?;
        check_length("matrix", "weights", weights.len(), &[("n", n), ("k", k)])?;
        Self::on(device, Format::F32, n, k, bytemuck::cast_slice(weights))
    }

    /// Output features `n`.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Input features `k`.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The format the weights came in.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Whether products with it are of integers.
    pub(crate) fn is_quantised(&self) -> bool {
        match &self.storage {
            Storage::F32(_) | Storage::F16(_) | Storage::BF16(_) => false,
            Storage::Words(_) | Storage::Blocks(_) => true,
            Storage::Device(matrix) => matrix.is_quantised(),
        }
    }

    /// Products of 8 bits that one with it takes as long as, where it is of integers: two of 16 bits fit where four of 8 do.
    pub(crate) fn eight_bit_products(&self) -> usize {
        if let Storage::Words(_) = &self.storage { 2 } else { 1 }
    }

    /// Fails unless it lies where operations of this device read weights.
    pub(crate) fn check_place(&self, op: &'static str, device: &Device) -> Result<()> {
        let lies_on_gpu = matches!(self.storage, Storage::Device(_));
        if lies_on_gpu == device.is_gpu() {
            return Ok(());
        }
        let found = if lies_on_gpu { "a GPU" } else { "the processor" };
        let problem = format!("{self:?} lies in the memory of {found}, the operation runs on {}", device.name());
        Err(Error::Shape { op, problem: problem + "; make it with `Matrix::on`" })
    }

    /// Memory the packed weights take.
    pub fn bytes(&self) -> usize {
        self.storage.bytes()
    }

    /// Writes row `row`, dequantised, into `out` of `k` values.
    ///
    /// # Panics
    /// When `row` is not a row or `out` has another length: operations check both first.
    pub(crate) fn read_row(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.rows && out.len() == self.columns);
        self.storage.read_row(row, out);
    }

    /// The caller has checked that it lies there.
    #[cfg(any(feature = "cuda", feature = "emulate"))]
    pub(crate) fn on_device(&self) -> &crate::cuda::DeviceMatrix {
        match &self.storage {
            Storage::Device(matrix) => matrix,
            _ => unreachable!("operations check where a matrix lies: our bug"),
        }
    }

    pub(crate) fn storage(&self) -> &Storage {
        &self.storage
    }
}

impl std::fmt::Debug for Matrix {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Matrix [{}, {}] {:?}", self.rows, self.columns, self.format)
    }
}

fn check_bytes(format: Format, n: usize, k: usize, bytes: &[u8]) -> Result<()> {
    check_extents(n, k)?;
    let block = format.block_values();
    if !k.is_multiple_of(block) {
        return Err(Error::Blocks { format, rows: n, columns: k, block });
    }
    check_length("matrix", "bytes", bytes.len(), &[("n", n), ("bytes a row", k / block * format.block_bytes())])
}

fn check_extents(n: usize, k: usize) -> Result<()> {
    if n == 0 || k == 0 {
        return Err(Error::Shape { op: "matrix", problem: format!("[{n}, {k}] has no elements") });
    }
    Ok(())
}
