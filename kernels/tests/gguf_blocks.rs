//! Blocks of every format as the `gguf` package reads and writes them; `golden/gguf_blocks.py` prints the digests.

mod reference;

use lifelong_kernels::ops::embed;
use lifelong_kernels::{Device, Format, Matrix, QUANTIZABLE, quantize};
use reference::{quantise, random};

/// FNV-1a.
fn digest(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, step)
}

fn mixed(seed: u64, index: u64) -> u64 {
    let mut bits = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(index.wrapping_mul(0xD1B5_4A32_D192_ED03));
    for shift in [30, 27, 31] {
        bits = (bits ^ (bits >> shift)).wrapping_mul(0x94D0_49BB_1331_11EB);
    }
    bits
}

/// One row of whole blocks, dequantised.
fn read(format: Format, bytes: &[u8]) -> Vec<f32> {
    let columns = bytes.len() / format.block_bytes() * format.block_values();
    let matrix = Matrix::from_bytes(format, 1, columns, bytes).unwrap();
    let mut out = vec![0.0; columns];
    embed::embedding(&Device::cpu(1), &mut out, &matrix, &[0]).unwrap();
    out
}

/// Five blocks of drawn bytes whose factors are 0.125, below zero, the smallest, the largest and 0.
#[test]
fn blocks_are_read_to_the_bit() {
    let halves: [u16; 5] = [0x3000, 0x8c00, 0x0001, 0x7bff, 0x0000];
    let expected: [(Format, &[usize], u64); 13] = [
        (Format::Q4_0, &[0], 0x1df5_0aa3_1d5e_7786),
        (Format::Q4_1, &[0, 2], 0x5a8a_5e52_d9dd_d686),
        (Format::Q5_0, &[0], 0x4eaa_e0d6_2236_807f),
        (Format::Q5_1, &[0, 2], 0x6a9e_34d2_6136_67ac),
        (Format::Q8_0, &[0], 0x69dd_e6d7_cb1a_5c39),
        (Format::Q2K, &[80, 82], 0xf3d4_53de_b566_be0f),
        (Format::Q3K, &[108], 0x5e06_5eee_8424_2447),
        (Format::Q4K, &[0, 2], 0xc290_5acc_604a_f113),
        (Format::Q5K, &[0, 2], 0x3051_b96f_2823_69c2),
        (Format::Q6K, &[208], 0x19d9_e565_9a7f_e336),
        (Format::IQ4_NL, &[0], 0x6267_4176_c999_c36c),
        (Format::IQ4_XS, &[0], 0xeefd_abac_2f37_0b08),
        (Format::MXFP4, &[], 0x0c58_4939_fefe_fec8),
    ];
    for (seed, (format, places, expected)) in expected.into_iter().enumerate() {
        let size = format.block_bytes();
        let mut bytes: Vec<u8> = (0..5 * size as u64).map(|index| (mixed(seed as u64, index) >> 56) as u8).collect();
        for (block, half) in bytes.chunks_exact_mut(size).zip(halves) {
            for place in places {
                block[*place..place + 2].copy_from_slice(&half.to_le_bytes());
            }
        }
        // Zeros of either sign are the same weight.
        let found = digest(read(format, &bytes).into_iter().flat_map(|value| (value + 0.0).to_le_bytes()));
        assert!(found == expected, "{format:?}: {found:#018x}");
    }
}

/// Zeros, numbers whose factor is below the smallest half, a ramp, and drawn numbers.
#[test]
fn formats_of_32_values_are_written_to_the_byte() {
    let mut values = random(90, 4096);
    values[..32].fill(0.0);
    values[32..64].fill(1e-9);
    for (index, value) in values[64..96].iter_mut().enumerate() {
        *value = if index == 31 { 3.0 } else { (index as f64 * (6.0 / 31.0) - 3.0) as f32 };
    }
    for (format, expected) in [(Format::Q8_0, 0xa317_db0a_03f1_cbac), (Format::Q4_0, 0x5b33_f140_e786_18d6u64)] {
        let found = digest(quantize(format, 1, 4096, &values).unwrap());
        assert!(found == expected, "{format:?}: {found:#018x}");
    }
}

/// Nearly normal numbers with their outliers, as weights are.
fn weights(count: usize) -> Vec<f32> {
    let parts: Vec<Vec<f32>> = (0..6).map(|part| random(200 + part, count)).collect();
    (0..count).map(|index| parts.iter().map(|part| part[index]).sum::<f32>() * 0.02).collect()
}

fn squared_error(values: &[f32], read: &[f32]) -> f64 {
    values.iter().zip(read).map(|(a, b)| f64::from(a - b).powi(2)).sum()
}

/// The error of a weight in root mean squares, and ggml's search (as candle has it) beside ours.
#[test]
fn what_is_written_comes_close_and_no_further_off_than_ggml() {
    let values = weights(64 * 256);
    let power: f64 = values.iter().map(|value| f64::from(*value).powi(2)).sum();
    // Of the weights' own root mean square.
    for (format, most) in
        [(Format::Q8_0, 0.006), (Format::Q6K, 0.018), (Format::Q5K, 0.04), (Format::Q4K, 0.08), (Format::Q4_0, 0.10)]
    {
        let bytes = quantize(format, 64, 256, &values).unwrap();
        assert_eq!(bytes.len(), values.len() / format.block_values() * format.block_bytes());
        let ours = squared_error(&values, &read(format, &bytes));
        let (_, theirs) = quantise(format, 64, 256, &values);
        let theirs = squared_error(&values, &theirs);
        let relative = |error: f64| (error / power).sqrt();
        println!("{format:?}: {:.4} of the weights, ggml {:.4}", relative(ours), relative(theirs));
        assert!(relative(ours) <= most, "{format:?}: {}", relative(ours));
        assert!(relative(ours) <= 1.001 * relative(theirs), "{format:?}: {} and {}", relative(ours), relative(theirs));
    }
}

#[test]
fn blocks_of_zeros_and_of_one_sign_stay_what_they_are() {
    for format in QUANTIZABLE {
        let bytes = quantize(format, 1, 256, &[0.0; 256]).unwrap();
        assert!(read(format, &bytes).iter().all(|value| *value == 0.0), "{format:?}");
        for sign in [1.0f32, -1.0] {
            let bytes = quantize(format, 1, 256, &[0.5 * sign; 256]).unwrap();
            let worst =
                read(format, &bytes).iter().fold(0.0, |worst: f32, value| worst.max((value - 0.5 * sign).abs()));
            assert!(worst < 0.5 * 0.02, "{format:?}: {worst}");
        }
    }
    assert!(quantize(Format::Q4K, 1, 32, &[0.0; 32]).is_err(), "not a whole block");
    assert!(quantize(Format::Q2K, 1, 256, &[0.0; 256]).is_err(), "a format that is only read");
}
