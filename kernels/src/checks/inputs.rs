//! Inputs that are the same every time, and references in double precision.

use half::{bf16, f16};

use crate::kv::Segment;
use crate::matrix::Format;

/// A 64-bit mixing function of (seed, index), so that inputs do not depend on each other's order.
fn mix(seed: u64, index: u64) -> u64 {
    let mut bits = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(index.wrapping_mul(0xD1B5_4A32_D192_ED03));
    for shift in [30, 27, 31] {
        bits = (bits ^ (bits >> shift)).wrapping_mul(0x94D0_49BB_1331_11EB);
    }
    bits
}

fn unit(seed: u64, index: u64) -> f64 {
    (mix(seed, index) >> 11) as f64 / (1u64 << 53) as f64
}

/// Numbers in [−1, 1).
pub(super) fn random(seed: u64, count: usize) -> Vec<f32> {
    (0..count as u64).map(|index| (unit(seed, index) * 2.0 - 1.0) as f32).collect()
}

/// As `random`, with a few values much larger than the rest, as in the activations of language models.
pub(super) fn random_with_outliers(seed: u64, count: usize) -> Vec<f32> {
    let mut values = random(seed, count);
    for (index, value) in values.iter_mut().enumerate() {
        if unit(seed ^ 0xabcd, index as u64) < 0.01 {
            *value *= 50.0;
        }
    }
    values
}

/// Numbers as a file of plain numbers stores them.
pub(super) fn stored(format: Format, values: &[f32]) -> Vec<u8> {
    match format {
        Format::F16 => values.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()).collect(),
        Format::BF16 => values.iter().flat_map(|value| bf16::from_f32(*value).to_le_bytes()).collect(),
        _ => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
    }
}

/// A weight `[n, k]` of any format: plain numbers, or blocks of random bits between finite scales.
pub(super) fn weights(format: Format, seed: u64, n: usize, k: usize) -> Vec<u8> {
    if format.block_values() == 1 {
        return stored(format, &random(seed, n * k));
    }
    let block = format.block_bytes();
    let mut bytes: Vec<u8> = (0..n * k / format.block_values() * block).map(|at| mix(seed, at as u64) as u8).collect();
    for (index, bytes) in bytes.chunks_exact_mut(block).enumerate() {
        let mut scale = |at: usize| {
            let scale = (unit(seed + 1, (index * 2 + at % 4) as u64) * 2.0 - 1.0) * 0.05;
            bytes[at..at + 2].copy_from_slice(&f16::from_f64(scale).to_le_bytes());
        };
        match format {
            Format::Q2K => [80, 82].into_iter().for_each(scale),
            Format::Q3K => scale(108),
            Format::Q6K => scale(208),
            Format::Q4_1 | Format::Q5_1 | Format::Q4K | Format::Q5K => [0, 2].into_iter().for_each(scale),
            Format::Q8K => bytes[..4].copy_from_slice(&((unit(seed + 1, index as u64) * 0.1) as f32).to_le_bytes()),
            // A power of two: its exponent.
            Format::MXFP4 => bytes[0] = 118 + bytes[0] % 8,
            _ => scale(0),
        }
    }
    bytes
}

/// `x Wᵀ` in double precision.
pub(super) fn linear(x: &[f32], w: &[f32], k: usize) -> Vec<f64> {
    x.chunks_exact(k)
        .flat_map(|x| w.chunks_exact(k).map(|w| x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum()))
        .collect()
}

/// The largest difference, relative to the largest reference value.
pub(super) fn relative_error(found: &[f32], reference: &[f64]) -> f64 {
    let scale = reference.iter().fold(1e-30, |largest: f64, value| largest.max(value.abs()));
    let difference = found.iter().zip(reference).map(|(a, b)| (f64::from(*a) - b).abs());
    difference.fold(0.0, |largest, value| if value.is_nan() { f64::INFINITY } else { largest.max(value) }) / scale
}

/// One segment of `query_len` tokens after `context_len`, at packed row `query_start`.
pub(super) fn segment(
    query_start: usize,
    query_len: usize,
    context_len: usize,
    table: std::ops::Range<usize>,
) -> Segment {
    Segment { query_start, query_len, context_len, table }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Matrix;

    #[test]
    fn blocks_of_every_format_are_numbers_and_not_all_the_same() {
        for format in Format::ALL {
            let matrix = Matrix::from_bytes(format, 3, 256, &weights(format, 7, 3, 256)).unwrap();
            let mut row = [0.0; 256];
            for index in 0..3 {
                matrix.read_row(index, &mut row);
                assert!(row.iter().all(|value| value.is_finite() && value.abs() < 1000.0), "{format:?} {row:?}");
                assert!(row.iter().any(|value| *value != row[0]), "{format:?}");
            }
        }
    }
}
