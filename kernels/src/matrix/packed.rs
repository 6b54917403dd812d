//! The packed layouts: tiles of 16 output rows, so that one vector holds one step of 16 outputs.

use half::{bf16, f16};

use super::blocks::{Group, read_block, zero_level};
use super::format::Format;
use super::mxfp4;
use super::words::Words;
use crate::cuda::DeviceMatrix;
use crate::memory::Aligned;

/// Output rows in a tile: the lanes of a vector. The last tile is filled up with zeros.
pub(crate) const TILE_ROWS: usize = 16;

/// Packed weights.
pub(crate) enum Storage {
    F32(Panels<f32>),
    F16(Panels<HalfBits>),
    BF16(Panels<BrainBits>),
    /// Plain ones, rounded.
    Words(Words),
    Blocks(Blocks),
    /// On a GPU, which reads other layouts.
    Device(DeviceMatrix),
}

/// The bits of an IEEE half-precision number.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub(crate) struct HalfBits(pub(crate) u16);

/// The bits of a bfloat16.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub(crate) struct BrainBits(pub(crate) u16);

/// Plain weights `[tiles][k][16]`.
pub(crate) struct Panels<T: bytemuck::Zeroable + Copy> {
    pub(crate) values: Aligned<T>,
    pub(crate) columns: usize,
}

/// Quantised weights. One group is 16 rows by 32 columns, its bytes in the order of an 8-bit dot product over four
/// columns; groups follow each other along the columns, tiles along the rows.
///
/// ```text
/// 8 bits:  levels[quad 0..8][row 0..16][4]                                 512 bytes
/// 4 bits:  levels[quad 0..4][row 0..16][4]  low nibble = quad q, high = quad q + 4   256 bytes
/// scales, minima: [half 0..halves][row 0..16]
/// ```
///
/// Beside scales that are powers of two the nibbles are floats: codes of levels, see [`mxfp4::LEVELS`].
pub(crate) struct Blocks {
    pub(crate) levels: Aligned<u8>,
    /// 4 or 8.
    pub(crate) bits: usize,
    /// 1: scales for 32 columns; 2: for 16.
    pub(crate) halves: usize,
    /// The level that stands for zero.
    pub(crate) zero: i32,
    pub(crate) scales: BlockScales,
    pub(crate) minima: Option<BlockScales>,
    /// Groups along the columns: k / 32.
    pub(crate) groups: usize,
}

/// Per-group factors: as stored (`f16`, or the exponent of a power of two), or products of stored factors that only `f32`
/// holds exactly.
pub(crate) enum BlockScales {
    /// `2^(byte − 128)`; nothing where the byte is 0 or 1.
    Powers(Aligned<u8>),
    F16(Aligned<u16>),
    F32(Aligned<f32>),
}

impl BlockScales {
    fn zeroed(half_precision: bool, length: usize) -> Self {
        if half_precision {
            BlockScales::F16(Aligned::for_weights(length))
        } else {
            BlockScales::F32(Aligned::for_weights(length))
        }
    }

    fn powers(length: usize) -> Self {
        BlockScales::Powers(Aligned::for_weights(length))
    }

    fn set(&mut self, index: usize, value: f32) {
        match self {
            BlockScales::Powers(values) => values[index] = mxfp4::exponent(value),
            // Exact: the value was read from an f16.
            BlockScales::F16(values) => values[index] = f16::from_f32(value).to_bits(),
            BlockScales::F32(values) => values[index] = value,
        }
    }

    fn get(&self, index: usize) -> f32 {
        match self {
            BlockScales::Powers(values) => mxfp4::power(values[index]),
            BlockScales::F16(values) => f16::from_bits(values[index]).to_f32(),
            BlockScales::F32(values) => values[index],
        }
    }

    fn bytes(&self) -> usize {
        match self {
            BlockScales::Powers(values) => values.len(),
            BlockScales::F16(values) => values.len() * 2,
            BlockScales::F32(values) => values.len() * 4,
        }
    }
}

impl<T: bytemuck::Zeroable + Copy> Panels<T> {
    pub(super) fn pack(rows: usize, columns: usize, value: impl Fn(usize, usize) -> T) -> Self {
        let tiles = rows.div_ceil(TILE_ROWS);
        let mut values = Aligned::for_weights(tiles * columns * TILE_ROWS);
        for row in 0..rows {
            let tile = row / TILE_ROWS * columns * TILE_ROWS + row % TILE_ROWS;
            for column in 0..columns {
                values[tile + column * TILE_ROWS] = value(row, column);
            }
        }
        Self { values, columns }
    }

    fn row(&self, row: usize) -> impl Iterator<Item = T> {
        let tile = &self.values[row / TILE_ROWS * self.columns * TILE_ROWS..][..self.columns * TILE_ROWS];
        tile.iter().skip(row % TILE_ROWS).step_by(TILE_ROWS).copied()
    }
}

impl Blocks {
    fn pack(format: Format, rows: usize, columns: usize, bytes: &[u8]) -> Self {
        let is_coded = format == Format::MXFP4 && mxfp4::has_plain_scales(bytes);
        let bits = if is_coded { 4 } else { format.packed_bits() };
        let (halves, half_precision) = (format.scales_in_a_group(), format.has_half_scales());
        let groups = columns / 32;
        let all = rows.div_ceil(TILE_ROWS) * groups;
        let factors = all * halves * TILE_ROWS;
        let mut packed = Self {
            levels: Aligned::for_weights(all * TILE_ROWS * 4 * bits),
            bits,
            halves,
            zero: zero_level(format),
            scales: match is_coded {
                true => BlockScales::powers(factors),
                false => BlockScales::zeroed(half_precision, factors),
            },
            minima: format.has_minima().then(|| BlockScales::zeroed(half_precision, factors)),
            groups,
        };
        let mut read = [Group::default(); 8];
        let read = &mut read[..format.block_values() / 32];
        let blocks_a_row = columns / format.block_values();
        for (index, block) in bytes.chunks_exact(format.block_bytes()).enumerate() {
            read_block(format, block, read);
            let (row, first) = (index / blocks_a_row, index % blocks_a_row * read.len());
            for (offset, group) in read.iter().enumerate() {
                packed.set(row, first + offset, group);
            }
        }
        packed
    }

    /// Whether the nibbles are codes of levels.
    fn is_coded(&self) -> bool {
        matches!(self.scales, BlockScales::Powers(_))
    }

    fn set(&mut self, row: usize, group: usize, values: &Group) {
        let (at, lane) = (row / TILE_ROWS * self.groups + group, row % TILE_ROWS);
        let bytes_a_group = TILE_ROWS * 4 * self.bits;
        // Four columns of one row stand together.
        let levels = self.levels[at * bytes_a_group..][..bytes_a_group].as_chunks_mut::<4>().0;
        let stored =
            if matches!(self.scales, BlockScales::Powers(_)) { values.levels.map(mxfp4::code) } else { values.levels };
        let columns = stored.as_chunks::<4>().0;
        if self.bits == 8 {
            for (quad, columns) in columns.iter().enumerate() {
                levels[quad * TILE_ROWS + lane] = *columns;
            }
        } else {
            for (quad, (low, high)) in columns[..4].iter().zip(&columns[4..]).enumerate() {
                levels[quad * TILE_ROWS + lane] = std::array::from_fn(|column| low[column] | high[column] << 4);
            }
        }
        for half in 0..self.halves {
            let index = (at * self.halves + half) * TILE_ROWS + lane;
            self.scales.set(index, values.scale[half]);
            if let Some(minima) = &mut self.minima {
                minima.set(index, values.minimum[half]);
            }
        }
    }

    fn read_row(&self, row: usize, out: &mut [f32]) {
        let lane = row % TILE_ROWS;
        let bytes_a_group = TILE_ROWS * 4 * self.bits;
        for (group, out) in out.chunks_exact_mut(32).enumerate() {
            let at = row / TILE_ROWS * self.groups + group;
            let levels = self.levels[at * bytes_a_group..][..bytes_a_group].as_chunks::<4>().0;
            for (half, out) in out.chunks_exact_mut(16).enumerate() {
                let index = (at * self.halves + half * (self.halves - 1)) * TILE_ROWS + lane;
                let scale = self.scales.get(index);
                let minimum = self.minima.as_ref().map_or(0.0, |minima| minima.get(index));
                for (column, out) in out.iter_mut().enumerate() {
                    let quad = half * 4 + column / 4;
                    let level = match self.bits {
                        8 => levels[quad * TILE_ROWS + lane][column % 4],
                        _ => levels[quad % 4 * TILE_ROWS + lane][column % 4] >> (quad / 4 * 4) & 15,
                    };
                    let level = if self.is_coded() { mxfp4::LEVELS[usize::from(level)] } else { level };
                    *out = scale * (i32::from(level) - self.zero) as f32 + minimum;
                }
            }
        }
    }
}

/// A number of 16 bits out of the bytes of a file.
fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes.as_chunks().0[at])
}

fn single(bytes: &[u8], at: usize) -> f32 {
    f32::from_le_bytes(bytes.as_chunks().0[at])
}

impl Storage {
    /// The caller has checked that `bytes` holds exactly `rows` by `columns` values.
    pub(super) fn pack(format: Format, rows: usize, columns: usize, bytes: &[u8]) -> Self {
        let (half, single) =
            (|row, column| half(bytes, row * columns + column), |row, column| single(bytes, row * columns + column));
        match format {
            Format::F32 => Storage::F32(Panels::pack(rows, columns, single)),
            Format::F16 => Storage::F16(Panels::pack(rows, columns, |row, column| HalfBits(half(row, column)))),
            Format::BF16 => Storage::BF16(Panels::pack(rows, columns, |row, column| BrainBits(half(row, column)))),
            _ => Storage::Blocks(Blocks::pack(format, rows, columns, bytes)),
        }
    }

    /// As [`Storage::pack`], plain weights rounded to 16 bits.
    pub(super) fn rounded(format: Format, rows: usize, columns: usize, bytes: &[u8]) -> Self {
        Storage::Words(Words::pack(rows, columns, |row, column| {
            let at = row * columns + column;
            match format {
                Format::F16 => f16::from_bits(half(bytes, at)).to_f32(),
                Format::BF16 => bf16::from_bits(half(bytes, at)).to_f32(),
                _ => single(bytes, at),
            }
        }))
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Storage::F32(panels) => panels.values.len() * 4,
            Storage::F16(panels) => panels.values.len() * 2,
            Storage::BF16(panels) => panels.values.len() * 2,
            Storage::Words(words) => words.bytes(),
            Storage::Blocks(blocks) => {
                blocks.levels.len() + blocks.scales.bytes() + blocks.minima.as_ref().map_or(0, BlockScales::bytes)
            }
            Storage::Device(matrix) => matrix.bytes(),
        }
    }

    pub(super) fn read_row(&self, row: usize, out: &mut [f32]) {
        fn copy(out: &mut [f32], values: impl Iterator<Item = f32>) {
            out.iter_mut().zip(values).for_each(|(out, value)| *out = value);
        }
        match self {
            Storage::F32(panels) => copy(out, panels.row(row)),
            Storage::F16(panels) => copy(out, panels.row(row).map(|bits| f16::from_bits(bits.0).to_f32())),
            Storage::BF16(panels) => copy(out, panels.row(row).map(|bits| bf16::from_bits(bits.0).to_f32())),
            Storage::Words(words) => words.read_row(row, out),
            Storage::Blocks(blocks) => blocks.read_row(row, out),
            Storage::Device(_) => unreachable!("operations check where a matrix lies: our bug"),
        }
    }
}
