//! Quantised weights as separate row-major arrays, for devices whose kernels read them so (`cuda/matrix.rs` draws them).

use half::f16;

use super::blocks::{Group, read_block, zero_level};
use super::format::Format;

/// A weight `[n, k]` taken apart.
pub(crate) struct Split {
    pub(crate) levels: Vec<u8>,
    /// 4 or 8.
    pub(crate) bits: usize,
    /// Scales in a group of 32 columns.
    pub(crate) halves: usize,
    /// The level that stands for zero.
    pub(crate) zero: i32,
    /// Whether scales and minima are `f16`, else `f32`.
    pub(crate) half_scales: bool,
    pub(crate) scales: Vec<u8>,
    pub(crate) minima: Option<Vec<u8>>,
}

impl Split {
    /// Reads `[n, k]` weights in blocks; the caller has checked the length of `bytes`.
    pub(crate) fn read(format: Format, n: usize, k: usize, bytes: &[u8]) -> Self {
        let bits = format.packed_bits();
        let groups = n * (k / 32);
        let mut split = Self {
            levels: Vec::with_capacity(groups * 4 * bits),
            bits,
            halves: format.scales_in_a_group(),
            zero: zero_level(format),
            half_scales: format.has_half_scales(),
            scales: Vec::new(),
            minima: format.has_minima().then(Vec::new),
        };
        let mut read = [Group::default(); 8];
        let read = &mut read[..format.block_values() / 32];
        for block in bytes.chunks_exact(format.block_bytes()) {
            read_block(format, block, read);
            read.iter().for_each(|group| split.push(group));
        }
        split
    }

    fn push(&mut self, group: &Group) {
        if self.bits == 8 {
            self.levels.extend(group.levels);
        } else {
            let (low, high) = group.levels.split_at(16);
            self.levels.extend(low.iter().zip(high).map(|(low, high)| low | high << 4));
        }
        push_factors(&mut self.scales, &group.scale[..self.halves], self.half_scales);
        if let Some(minima) = &mut self.minima {
            push_factors(minima, &group.minimum[..self.halves], self.half_scales);
        }
    }
}

fn push_factors(out: &mut Vec<u8>, factors: &[f32], half: bool) {
    for factor in factors {
        match half {
            // Exact: the factor was read from an f16.
            true => out.extend(f16::from_f32(*factor).to_le_bytes()),
            false => out.extend(factor.to_le_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Matrix;

    /// Bytes that are no special numbers as scales.
    fn bytes(format: Format, blocks: usize) -> Vec<u8> {
        (0..blocks * format.block_bytes()).map(|index| (index * 37 % 113) as u8 & 0x3b).collect()
    }

    /// What the arrays say, by the formula of `cuda/matrix.rs`, is what the packed weights of the processor say.
    #[test]
    fn arrays_hold_the_weights_of_every_format() {
        let (n, k) = (3, 512);
        for format in Format::ALL.into_iter().filter(|format| format.block_values() > 1) {
            let bytes = bytes(format, n * k / format.block_values());
            let split = Split::read(format, n, k, &bytes);
            let packed = Matrix::from_bytes(format, n, k, &bytes).unwrap();
            let factor = |factors: &[u8], index: usize| match split.half_scales {
                true => f16::from_le_bytes([factors[2 * index], factors[2 * index + 1]]).to_f32(),
                false => f32::from_le_bytes(factors[4 * index..][..4].try_into().unwrap()),
            };
            for row in 0..n {
                let mut expected = vec![0.0; k];
                packed.read_row(row, &mut expected);
                for (column, expected) in expected.iter().enumerate() {
                    let (group, place) = (row * k / 32 + column / 32, column % 32);
                    let level = match split.bits {
                        8 => split.levels[group * 32 + place],
                        _ => split.levels[group * 16 + place % 16] >> (place / 16 * 4) & 15,
                    };
                    let level = i32::from(level) - split.zero;
                    let index = group * split.halves + if split.halves == 2 { place / 16 } else { 0 };
                    let minimum = split.minima.as_ref().map_or(0.0, |minima| factor(minima, index));
                    let found = factor(&split.scales, index) * level as f32 + minimum;
                    assert_eq!(found.to_bits(), expected.to_bits(), "{format:?} row {row} column {column}");
                }
            }
        }
    }
}
