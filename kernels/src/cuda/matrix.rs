//! Weights on the device.
//!
//! Plain formats lie as they are stored: `[n][k]`, row-major, 4 or 2 bytes each.
//!
//! Quantised formats all become one form, the one that products on the processor have (`matrix/blocks.rs`): small integers
//! in groups of 32 columns with a scale and, in some formats, a minimum; here row-major and apart from each other, so that
//! every load is aligned:
//!
//! ```text
//! levels  bits 4: [n][k / 32][16]   byte i holds column i (low nibble) and column i + 16 (high)
//!         bits 8: [n][k / 32][32]   a byte a column
//!                                   unsigned; `zero`, one number for a format, is the level that stands for 0
//! scales  [n][k / 32][halves]       f16 or f32; halves 2 where 16 columns share a scale, else 1
//! minima  as scales                 there where a format has them
//!
//! weight = scale · (level − zero) + minimum
//! ```

use bytemuck::{Pod, Zeroable};

use super::Cuda;
use super::memory::Buffer;
use crate::error::Result;
use crate::matrix::Format;
use crate::matrix::split::Split;

/// A weight `[n, k]` on the device.
pub(crate) enum DeviceMatrix {
    F32(Buffer),
    F16(Buffer),
    BF16(Buffer),
    Blocks(DeviceBlocks),
}

/// The arrays of a quantised weight.
pub(crate) struct DeviceBlocks {
    pub(crate) levels: Buffer,
    /// 4 or 8.
    pub(crate) bits: usize,
    /// 1: scales for 32 columns; 2: for 16.
    pub(crate) halves: usize,
    /// The level that stands for zero.
    pub(crate) zero: i32,
    /// Whether scales and minima are `f16`, else `f32`.
    pub(crate) half_scales: bool,
    pub(crate) scales: Buffer,
    pub(crate) minima: Option<Buffer>,
}

/// Where the arrays of a weight begin; 0 for those that it does not have.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(crate) struct Addresses {
    /// Numbers or levels.
    pub(crate) weights: u64,
    pub(crate) scales: u64,
    pub(crate) minima: u64,
}

impl DeviceMatrix {
    pub(crate) fn addresses(&self) -> Addresses {
        match self {
            DeviceMatrix::F32(values) | DeviceMatrix::F16(values) | DeviceMatrix::BF16(values) => {
                Addresses { weights: values.address(), scales: 0, minima: 0 }
            }
            DeviceMatrix::Blocks(blocks) => Addresses {
                weights: blocks.levels.address(),
                scales: blocks.scales.address(),
                minima: blocks.minima.as_ref().map_or(0, Buffer::address),
            },
        }
    }

    pub(crate) fn is_quantised(&self) -> bool {
        matches!(self, DeviceMatrix::Blocks(_))
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            DeviceMatrix::F32(values) | DeviceMatrix::F16(values) | DeviceMatrix::BF16(values) => values.bytes(),
            DeviceMatrix::Blocks(blocks) => {
                blocks.levels.bytes() + blocks.scales.bytes() + blocks.minima.as_ref().map_or(0, Buffer::bytes)
            }
        }
    }
}

/// Puts a weight on the device; the caller has checked that `bytes` holds exactly `[n, k]`.
pub(crate) fn place(cuda: &Cuda, format: Format, n: usize, k: usize, bytes: &[u8]) -> Result<DeviceMatrix> {
    let memory = &cuda.memory;
    let plain = || Buffer::from_bytes(memory, bytes);
    Ok(match format {
        Format::F32 => DeviceMatrix::F32(plain()?),
        Format::F16 => DeviceMatrix::F16(plain()?),
        Format::BF16 => DeviceMatrix::BF16(plain()?),
        _ => {
            let split = Split::read(format, n, k, bytes);
            DeviceMatrix::Blocks(DeviceBlocks {
                levels: Buffer::from_bytes(memory, &split.levels)?,
                bits: split.bits,
                halves: split.halves,
                zero: split.zero,
                half_scales: split.half_scales,
                scales: Buffer::from_bytes(memory, &split.scales)?,
                minima: match &split.minima {
                    Some(minima) => Some(Buffer::from_bytes(memory, minima)?),
                    None => None,
                },
            })
        }
    })
}
