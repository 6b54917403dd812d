//! Weight matrices, repacked once at load into the layout the matrix products read.

mod blocks;
mod format;
mod iq4;
mod packed;
mod quantize;

pub use format::Format;
pub(crate) use packed::{BlockScales, Blocks, BrainBits, HalfBits, Panels, Storage, TILE_ROWS};
pub use quantize::{QUANTIZABLE, quantize};

use crate::error::{Error, Result, check_length};

/// A weight `[n, k]`: `n` output features by `k` input features, as the rows of `W` in `y = x Wᵀ`.
///
/// The bytes of the file are read once and not kept. Numbers are kept exactly as stored, but for K-quants, whose block
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
        check_extents(n, k)?;
        let block = format.block_values();
        if !k.is_multiple_of(block) {
            return Err(Error::Blocks { format, rows: n, columns: k, block });
        }
        check_length("matrix", "bytes", bytes.len(), &[("n", n), ("bytes a row", k / block * format.block_bytes())])?;
        Ok(Self { format, rows: n, columns: k, storage: Storage::pack(format, n, k, bytes) })
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

    /// Whether products with it are of 8-bit integers.
    pub(crate) fn is_quantised(&self) -> bool {
        matches!(self.storage, Storage::Blocks(_))
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

    pub(crate) fn storage(&self) -> &Storage {
        &self.storage
    }
}

impl std::fmt::Debug for Matrix {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Matrix [{}, {}] {:?}", self.rows, self.columns, self.format)
    }
}

fn check_extents(n: usize, k: usize) -> Result<()> {
    if n == 0 || k == 0 {
        return Err(Error::Shape { op: "matrix", problem: format!("[{n}, {k}] has no elements") });
    }
    Ok(())
}
