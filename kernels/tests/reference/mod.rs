//! Naive references in double precision, and seeded inputs.
#![allow(dead_code)] // each test file uses its own part

mod iq4;

use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use candle_core::{Device as CandleDevice, Tensor};
use lifelong_kernels::{Device, Format, InstructionSet, Segment};

/// The processor at every instruction set it has, slowest first.
pub fn devices(threads: usize) -> Vec<Device> {
    InstructionSet::ALL.into_iter().filter_map(|set| Device::cpu_with(threads, set).ok()).collect()
}

/// Numbers for tests: a 64-bit mixing function of (seed, index), so that inputs do not depend on each other's order.
pub fn random(seed: u64, count: usize) -> Vec<f32> {
    (0..count as u64).map(|index| (unit(seed, index) * 2.0 - 1.0) as f32).collect()
}

/// As `random`, with a few values much larger than the rest, as in the activations of language models.
pub fn random_with_outliers(seed: u64, count: usize) -> Vec<f32> {
    let mut values = random(seed, count);
    for (index, value) in values.iter_mut().enumerate() {
        if unit(seed ^ 0xabcd, index as u64) < 0.01 {
            *value *= 50.0;
        }
    }
    values
}

fn unit(seed: u64, index: u64) -> f64 {
    let mut bits = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(index.wrapping_mul(0xD1B5_4A32_D192_ED03));
    for shift in [30, 27, 31] {
        bits = (bits ^ (bits >> shift)).wrapping_mul(0x94D0_49BB_1331_11EB);
    }
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// `x Wᵀ` in double precision.
pub fn linear(x: &[f32], w: &[f32], k: usize) -> Vec<f64> {
    x.chunks_exact(k)
        .flat_map(|x| w.chunks_exact(k).map(|w| x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum()))
        .collect()
}

/// Bytes of `weights` in `format` as candle writes them, and the numbers candle reads back.
pub fn quantise(format: Format, n: usize, k: usize, weights: &[f32]) -> (Vec<u8>, Vec<f32>) {
    if format == Format::MXFP4 {
        let bytes = weights.chunks_exact(32).flat_map(mxfp4_block).collect::<Vec<u8>>();
        return (bytes.clone(), dequantise(format, n, k, bytes));
    }
    if let Format::IQ4_NL | Format::IQ4_XS = format {
        let bytes = iq4::quantise(format, weights);
        return (bytes.clone(), iq4::dequantise(format, &bytes));
    }
    let device = CandleDevice::Cpu;
    let tensor = Tensor::from_slice(weights, (n, k), &device).unwrap();
    let quantised = QTensor::quantize(&tensor, candle_type(format)).unwrap();
    let bytes = quantised.data().unwrap().into_owned();
    (bytes.clone(), dequantise(format, n, k, bytes))
}

/// The numbers of a 4-bit float by its bits, those with a sign left out.
const FOUR_BIT_FLOATS: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

/// A block of 32 values in MXFP4, which candle does not have: the largest becomes 4 to 8 units, each the nearest number.
fn mxfp4_block(values: &[f32]) -> Vec<u8> {
    let largest = values.iter().fold(0f32, |largest, value| largest.max(value.abs()));
    let exponent = largest.log2().floor() as i32 - 2;
    let code = |value: f32| {
        let units = value.abs() / 2f32.powi(exponent);
        let distance = |code: &usize| (FOUR_BIT_FLOATS[*code] - units).abs();
        let nearest = (0..8).min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap() as u8;
        nearest | u8::from(value < 0.0) << 3
    };
    let nibbles = (0..16).map(|index| code(values[index]) | code(values[index + 16]) << 4);
    std::iter::once((exponent + 127) as u8).chain(nibbles).collect()
}

/// The numbers candle reads from `bytes`.
pub fn dequantise(format: Format, n: usize, k: usize, bytes: Vec<u8>) -> Vec<f32> {
    if format == Format::MXFP4 {
        let number = |nibble: u8, scale: f32| {
            let magnitude = FOUR_BIT_FLOATS[usize::from(nibble & 7)] * scale;
            if nibble & 8 == 0 { magnitude } else { -magnitude }
        };
        let block = |block: &[u8]| {
            let scale = 2f32.powi(i32::from(block[0]) - 127);
            let nibbles = [0, 4].map(|shift| block[1..].iter().map(move |byte| byte >> shift & 15));
            nibbles.into_iter().flatten().map(|nibble| number(nibble, scale)).collect::<Vec<f32>>()
        };
        return bytes.chunks_exact(17).flat_map(block).collect();
    }
    if let Format::IQ4_NL | Format::IQ4_XS = format {
        return iq4::dequantise(format, &bytes);
    }
    let device = CandleDevice::Cpu;
    let storage = QStorage::from_data(bytes.into(), &device, candle_type(format)).unwrap();
    let tensor = QTensor::new(storage, (n, k)).unwrap().dequantize(&device).unwrap();
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

fn candle_type(format: Format) -> GgmlDType {
    match format {
        Format::F32 => GgmlDType::F32,
        Format::F16 => GgmlDType::F16,
        Format::BF16 => GgmlDType::BF16,
        Format::Q4_0 => GgmlDType::Q4_0,
        Format::Q4_1 => GgmlDType::Q4_1,
        Format::Q5_0 => GgmlDType::Q5_0,
        Format::Q5_1 => GgmlDType::Q5_1,
        Format::Q8_0 => GgmlDType::Q8_0,
        Format::Q2K => GgmlDType::Q2K,
        Format::Q3K => GgmlDType::Q3K,
        Format::Q4K => GgmlDType::Q4K,
        Format::Q5K => GgmlDType::Q5K,
        Format::Q6K => GgmlDType::Q6K,
        Format::Q8K => GgmlDType::Q8K,
        Format::MXFP4 | Format::IQ4_NL | Format::IQ4_XS => unreachable!("candle has no such types"),
    }
}

/// The largest difference, relative to the largest reference value.
pub fn relative_error(found: &[f32], reference: &[f64]) -> f64 {
    assert_eq!(found.len(), reference.len());
    let scale = reference.iter().fold(1e-30, |largest: f64, value| largest.max(value.abs()));
    let difference = found.iter().zip(reference).map(|(a, b)| (f64::from(*a) - b).abs());
    difference.fold(0.0, |largest, value| if value.is_nan() { f64::INFINITY } else { largest.max(value) }) / scale
}

/// Fails with the first differing place.
#[track_caller]
pub fn assert_same_bits(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: lengths");
    if let Some(index) = found.iter().zip(expected).position(|(a, b)| a.to_bits() != b.to_bits()) {
        panic!("{what}: value {index} is {:?}, expected {:?}", found[index], expected[index]);
    }
}

/// Attention of one query over `keys`/`values` `[len][D]`, in double precision.
pub fn attend(q: &[f32], keys: &[Vec<f32>], values: &[Vec<f32>], scale: f64) -> Vec<f64> {
    let dot = |key: &Vec<f32>| q.iter().zip(key).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>() * scale;
    let scores: Vec<f64> = keys.iter().map(dot).collect();
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
    let sum: f64 = weights.iter().sum();
    (0..q.len())
        .map(|d| weights.iter().zip(values).map(|(weight, value)| weight / sum * f64::from(value[d])).sum())
        .collect()
}

/// One segment of `query_len` tokens after `context_len`, at packed row `query_start`.
pub fn segment(query_start: usize, query_len: usize, context_len: usize, table: std::ops::Range<usize>) -> Segment {
    Segment { query_start, query_len, context_len, table }
}
