//! Operations on a GPU against the processor: what a machine with a GPU runs before its numbers are trusted.
//!
//! The same comparisons as the tests of the emulator, on fewer shapes and in the program itself, so that a machine needs
//! nothing but the program.

use crate::kv::{BLOCK_TOKENS, KvCache, KvGeometry, KvType, Segment};
use crate::matrix::{Format, Matrix, quantize};
use crate::ops::attention::{self, AttentionShape};
use crate::ops::experts::{self, Shares};
use crate::ops::matmul::{self, Precision};
use crate::ops::rope::{self, RopeStyle, RopeTable};
use crate::ops::sample::{self, Sampling};
use crate::ops::{activation, embed, kv, norm, pool};
use crate::{Device, Result};

/// What an operation gave on both devices.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub name: String,
    /// The largest difference, relative to the largest value of the processor; 0 for equal bits.
    pub error: f64,
    /// What rounding allows: 0 where both compute the same to the bit.
    pub tolerance: f64,
}

impl Outcome {
    /// Whether the device may be trusted with it.
    pub fn holds(&self) -> bool {
        self.error <= self.tolerance
    }
}

/// Products with weights of 16 bits round activations to as many, attention over such a cache its own weights.
const F16: f64 = 2e-3;
const BF16: f64 = 1.5e-2;

type Check = fn(&Device) -> Result<Vec<f32>>;

/// Name, tolerance, and what gives the numbers of a device.
const CHECKS: &[(&str, f64, Check)] = &[
    ("embedding q4_k", 0.0, |device| {
        let table = matrix(device, Format::Q4K, 40, 512)?;
        let mut out = vec![0.0; 3 * 512];
        embed::embedding(device, &mut out, &table, &[7, 39, 7])?;
        Ok(out)
    }),
    ("rms norm, residual", 0.0, |device| {
        let (mut residual, mut out) = (numbers(1, 5 * 4096), vec![0.0; 5 * 4096]);
        norm::rms_norm_residual(device, &mut residual, &mut out, &numbers(2, 5 * 4096), &numbers(3, 4096), 1e-6)?;
        Ok([residual, out].concat())
    }),
    ("layer norm", 0.0, |device| {
        let mut out = vec![0.0; 3 * 384];
        norm::layer_norm(device, &mut out, &numbers(4, 3 * 384), &numbers(5, 384), &numbers(6, 384), 1e-12)?;
        Ok(out)
    }),
    ("rope", 0.0, |device| {
        let mut x = numbers(7, 4 * 6 * 128);
        let table = RopeTable::new(128, 9000, 5e5);
        rope::rope(device, &mut x, &[0, 1, 4095, 8999], &table, 6, RopeStyle::Halves)?;
        Ok(x)
    }),
    ("swiglu and gelu", 0.0, |device| {
        let (mut out, mut x) = (vec![0.0; 9999], numbers(8, 9999));
        activation::swiglu(device, &mut out, &numbers(9, 9999), &numbers(10, 9999))?;
        activation::gelu(device, &mut x)?;
        Ok([out, x].concat())
    }),
    ("mean pooling", 0.0, |device| {
        let mut out = vec![0.0; 3 * 384];
        pool::mean(device, &mut out, &numbers(11, 60 * 384), &[1, 42, 17])?;
        Ok(out)
    }),
    ("routes to experts", 0.0, |device| {
        let (mut chosen, mut share) = (vec![0; 20 * 8], vec![0.0; 20 * 8]);
        experts::route(device, &mut chosen, &mut share, &numbers(12, 20 * 128), 128, Shares::OfChosen)?;
        Ok(chosen.iter().map(|expert| *expert as f32).chain(share).collect())
    }),
    ("products f32", 1e-6, |device| products(device, Format::F32)),
    ("products f16", F16, |device| products(device, Format::F16)),
    ("products bf16", BF16, |device| products(device, Format::BF16)),
    ("products q8_0", 0.0, |device| products(device, Format::Q8_0)),
    ("products q4_k", 0.0, |device| products(device, Format::Q4K)),
    ("products q6_k", 0.0, |device| products(device, Format::Q6K)),
    ("attention f32, grouped", 1e-6, |device| paged(device, KvType::F32, 128, None)),
    ("attention f16, window", F16, |device| paged(device, KvType::F16, 64, Some(100))),
    ("attention bf16, wide heads", BF16, |device| paged(device, KvType::BF16, 256, None)),
    ("attention of whole texts", 1e-6, |device| {
        let shape = AttentionShape { heads: 6, kv_heads: 6, head_dim: 64, scale: 0.125, window: None };
        let [q, k, v] = [13, 14, 15].map(|seed| numbers(seed, 130 * 6 * 64));
        let mut out = vec![0.0; q.len()];
        attention::bidirectional(device, &mut out, &q, &k, &v, &[1, 100, 29], shape)?;
        Ok(out)
    }),
    ("draws", 0.0, |device| {
        let row = |position: u64| Sampling { temperature: 0.8, top_k: 50, top_p: 0.9, min_p: 0.01, key: 3, position };
        let rows: Vec<Sampling> = (0..16).map(row).collect();
        let drawn = sample::draw(device, &numbers(16, 16 * 5000), 5000, &rows)?;
        Ok(drawn.iter().map(|drawn| drawn.map_or(-1.0, |drawn| drawn.token as f32)).collect())
    }),
];

/// Runs every comparison, one after another.
///
/// # Errors
/// [`crate::Error::Cuda`] for a device that fails; numbers that differ are in the outcomes.
pub fn against_cpu(device: &Device) -> Result<Vec<Outcome>> {
    let cpu = Device::cpu(1);
    let outcome = |(name, tolerance, check): &(&str, f64, Check)| {
        let (expected, found) = (check(&cpu)?, check(device)?);
        Ok(Outcome { name: (*name).to_string(), error: difference(&found, &expected), tolerance: *tolerance })
    };
    CHECKS.iter().map(outcome).collect()
}

fn difference(found: &[f32], expected: &[f32]) -> f64 {
    let largest = expected.iter().fold(1e-30, |largest: f64, value| largest.max(f64::from(value.abs())));
    let of = |(found, expected): (&f32, &f32)| match found.to_bits() == expected.to_bits() {
        true => 0.0,
        // Differences that are no numbers, too, must not pass; equal numbers of other bits are a zero of another sign.
        false => match (f64::from(*found) - f64::from(*expected)).abs() / largest {
            difference if difference.is_nan() => f64::INFINITY,
            difference => difference.max(f64::MIN_POSITIVE),
        },
    };
    let worst = found.iter().zip(expected).map(of).fold(0.0, f64::max);
    if found.len() == expected.len() { worst } else { f64::INFINITY }
}

/// Numbers between −1 and 1 that depend on seed and place alone.
fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let number = |index: u64| {
        let mut bits = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(index.wrapping_mul(0xD1B5_4A32_D192_ED03));
        for shift in [30, 27, 31] {
            bits = (bits ^ (bits >> shift)).wrapping_mul(0x94D0_49BB_1331_11EB);
        }
        ((bits >> 40) as f32 / (1u64 << 23) as f32) - 1.0
    };
    (0..count as u64).map(number).collect()
}

fn matrix(device: &Device, format: Format, n: usize, k: usize) -> Result<Matrix> {
    let weights = numbers(100, n * k);
    let bytes = match format {
        Format::F32 => weights.iter().flat_map(|weight| weight.to_le_bytes()).collect(),
        Format::F16 => weights.iter().flat_map(|weight| half::f16::from_f32(*weight).to_le_bytes()).collect(),
        Format::BF16 => weights.iter().flat_map(|weight| half::bf16::from_f32(*weight).to_le_bytes()).collect(),
        _ => quantize(format, n, k, &weights)?,
    };
    Matrix::on(device, format, n, k, &bytes)
}

/// One row, several, and enough for every kind of kernel, at both precisions.
fn products(device: &Device, format: Format) -> Result<Vec<f32>> {
    let (n, k) = (200, 768);
    let w = matrix(device, format, n, k)?;
    let mut all = Vec::new();
    for (rows, precision) in
        [(1, Precision::Bits8), (13, Precision::Bits16), (40, Precision::Bits8), (70, Precision::Bits16)]
    {
        let mut out = vec![0.0; rows * n];
        matmul::linear_each(device, &mut [(&mut out, &w)], &numbers(17, rows * k), precision)?;
        all.extend(out);
    }
    Ok(all)
}

/// A prompt in two pieces and a row of another request, which shares its first blocks.
fn paged(device: &Device, kv_type: KvType, head_dim: usize, window: Option<usize>) -> Result<Vec<f32>> {
    let (kv_heads, heads) = (2, 8);
    let geometry = KvGeometry {
        layers: 1,
        blocks: 30,
        block_tokens: BLOCK_TOKENS,
        kv_heads,
        head_dim,
        kv_type,
        state_layers: 0,
        state_values: 0,
    };
    let shape = AttentionShape { heads, kv_heads, head_dim, scale: 1.0 / (head_dim as f32).sqrt(), window };
    let mut cache = KvCache::new(device, geometry)?;
    let first: Vec<u32> = (0..19).rev().collect();
    let second: Vec<u32> = first[..10].iter().copied().chain([25]).collect();
    let tables = [first, second].concat();
    let mut all = Vec::new();
    for (start, rows) in [(0, 250), (250, 33)] {
        let mut segments = vec![Segment { query_start: 0, query_len: rows, context_len: start, table: 0..19 }];
        if start > 0 {
            segments.push(Segment { query_start: rows, query_len: 1, context_len: 160, table: 19..30 });
        }
        let total: usize = segments.iter().map(|segment| segment.query_len).sum();
        let [k, v] = [18, 19].map(|seed| numbers(seed + start as u64, total * kv_heads * head_dim));
        kv::write(device, &mut cache, 0, &k, &v, &segments, &tables)?;
        let q = numbers(20 + start as u64, total * heads * head_dim);
        let mut out = vec![0.0; q.len()];
        attention::paged(device, &mut out, &q, &cache, 0, &segments, &tables, shape)?;
        all.extend(out);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_equals_itself_and_a_difference_is_seen() {
        let outcomes = against_cpu(&Device::cpu(2)).unwrap();
        assert_eq!(outcomes.len(), CHECKS.len());
        assert!(outcomes.iter().all(|outcome| outcome.error == 0.0 && outcome.holds()), "{outcomes:?}");
        assert_eq!(difference(&[1.0, 2.0], &[1.0, 4.0]), 0.5);
        assert!(difference(&[0.0], &[-0.0]) > 0.0 && difference(&[f32::NAN], &[1.0]).is_infinite());
        assert!(difference(&[1.0], &[1.0, 2.0]).is_infinite());
    }

    #[test]
    fn an_emulated_gpu_holds() {
        let Ok(device) = Device::emulated(0) else { return println!("skipped: built without the feature `emulate`") };
        let outcomes = against_cpu(&device).unwrap();
        for outcome in &outcomes {
            println!("{outcome:?}");
        }
        assert!(outcomes.iter().all(Outcome::holds), "{outcomes:#?}");
    }
}
