//! Products with plain weights that are held as integers of 16 bits.

mod reference;

use lifelong_kernels::ops::{embed, matmul};
use lifelong_kernels::{Device, Format, Matrix};
use reference::*;

/// What an integer may be off by, of the largest of its group.
const HALF_STEP: f64 = 1.0 / 16_382.0;

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn rounded(n: usize, k: usize, values: &[f32]) -> Matrix {
    Matrix::rounded_on(&Device::cpu(1), Format::F32, n, k, &bytes(values)).unwrap()
}

fn linear_on(device: &Device, x: &[f32], w: &Matrix) -> Vec<f32> {
    let mut out = vec![0.0; x.len() / w.columns() * w.rows()];
    matmul::linear(device, &mut out, x, w).unwrap();
    out
}

/// The largest magnitude of each group of 32, squared.
fn largest_squares(values: &[f32]) -> impl Iterator<Item = f64> {
    values.chunks(32).map(|group| group.iter().fold(0f64, |largest, value| largest.max(f64::from(value.abs()))).powi(2))
}

fn sum_of_squares(values: &[f32]) -> f64 {
    values.iter().map(|value| f64::from(*value).powi(2)).sum()
}

/// Roundings are even within half a step and independent, so the error of a sum has a standard deviation of what is computed
/// here; six of those is the bound.
#[test]
fn they_are_as_close_as_their_integers_allow() {
    for (n, k, rows) in [(40, 384, 9), (16, 1536, 3), (5, 32, 1)] {
        let (w, x) = (random_with_outliers(1, n * k), random_with_outliers(2, rows * k));
        let halves = |convert: fn(f32) -> u16| w.iter().flat_map(|w| convert(*w).to_le_bytes()).collect::<Vec<u8>>();
        let f16 = halves(|w| half::f16::from_f32(w).to_bits());
        let bf16 = halves(|w| half::bf16::from_f32(w).to_bits());
        let read: [(Format, Vec<u8>, Vec<f32>); 3] = [
            (Format::F32, bytes(&w), w.clone()),
            (Format::F16, f16, w.iter().map(|w| half::f16::from_f32(*w).to_f32()).collect()),
            (Format::BF16, bf16, w.iter().map(|w| half::bf16::from_f32(*w).to_f32()).collect()),
        ];
        for (format, bytes, w) in &read {
            let matrix = Matrix::rounded_on(&Device::cpu(1), *format, n, k, bytes).unwrap();
            let expected = linear(&x, w, k);
            for device in devices(2) {
                let out = linear_on(&device, &x, &matrix);
                for (index, (found, expected)) in out.iter().zip(&expected).enumerate() {
                    let (x, w) = (&x[index / n * k..][..k], &w[index % n * k..][..k]);
                    let of_groups = |largest: &[f32], other: &[f32]| -> f64 {
                        largest_squares(largest)
                            .zip(other.chunks(32))
                            .map(|(square, group)| square * sum_of_squares(group))
                            .sum()
                    };
                    let deviation = HALF_STEP * ((of_groups(x, w) + of_groups(w, x)) / 3.0).sqrt();
                    let error = (f64::from(*found) - expected).abs();
                    assert!(error < 6.0 * deviation, "{device:?} {format:?} k {k}: {error}, deviation {deviation}");
                }
            }
        }
    }
}

/// Every integer is the largest there is, of one sign or of both: sums fill their 32 bits, and are exact.
#[test]
fn sums_of_the_largest_integers_are_exact() {
    let (n, k) = (17, 96);
    let signs = |modulus: usize| move |i: usize| if i.is_multiple_of(modulus) { -1.0 } else { 1.0 };
    let x: Vec<f32> = [1, 2, 3, 97].into_iter().flat_map(|modulus| (0..k).map(signs(modulus))).collect();
    let w: Vec<f32> = (0..n * k).map(|i| signs(1 + i / k)(i % k)).collect();
    let expected = linear(&x, &w, k);
    for device in devices(1) {
        let error = relative_error(&linear_on(&device, &x, &rounded(n, k, &w)), &expected);
        assert!(error < 1e-6, "{device:?}: {error}");
    }
}

#[test]
fn rows_alone_and_together() {
    let (n, k, rows) = (44, 384, 33);
    let (matrix, x) = (rounded(n, k, &random(3, n * k)), random_with_outliers(4, rows * k));
    let first = &devices(1)[0];
    let alone: Vec<f32> = x.chunks_exact(k).flat_map(|x| linear_on(first, x, &matrix)).collect();
    for device in (1..=3).flat_map(devices) {
        for count in [1, 2, 3, 8, 15, 33] {
            let out = linear_on(&device, &x[..count * k], &matrix);
            assert_same_bits(&out, &alone[..count * n], &format!("{device:?}, {count} rows"));
        }
    }
}

/// What is no number stays visible, where it belongs.
#[test]
fn nan_and_infinity_reach_their_own_results_only() {
    let (n, k) = (20, 64);
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let (mut w, mut x) = (random(5, n * k), random(6, 3 * k));
        (w[7 * k + 40], x[k + 3]) = (bad, bad);
        for device in devices(1) {
            let out = linear_on(&device, &x, &rounded(n, k, &w));
            for (index, value) in out.iter().enumerate() {
                let is_bad = index / n == 1 || index % n == 7;
                assert_eq!(value.is_finite(), !is_bad, "{device:?} {bad}: row {}, output {}", index / n, index % n);
            }
        }
    }
}

#[test]
fn zeros_are_zeros_and_odd_rows_stay_floats() {
    let device = Device::cpu(1);
    assert_eq!(linear_on(&device, &[0.0; 64], &rounded(3, 64, &[0.5; 192])), [0.0; 3]);
    assert_eq!(linear_on(&device, &[1.0; 64], &rounded(3, 64, &[0.0; 192])), [0.0; 3]);
    // Too small to be scaled: as good as zero, on both sides.
    assert_eq!(linear_on(&device, &[1.0; 64], &rounded(3, 64, &[-1e-40; 192])), [0.0; 3]);
    assert_eq!(linear_on(&device, &[1e-40; 64], &rounded(3, 64, &[0.5; 192])), [0.0; 3]);
    let (w, x) = (random(7, 5 * 40), random(8, 40));
    let plain = Matrix::from_f32(5, 40, &w).unwrap();
    assert_same_bits(&linear_on(&device, &x, &rounded(5, 40, &w)), &linear_on(&device, &x, &plain), "40 columns");
    assert!(rounded(32, 64, &[1.0; 2048]).bytes() < Matrix::from_f32(32, 64, &[1.0; 2048]).unwrap().bytes() * 9 / 16);
}

#[test]
fn a_row_reads_back_within_half_a_step() {
    let (n, k) = (18, 96);
    let w = random_with_outliers(9, n * k);
    let mut out = vec![0.0; n * k];
    embed::embedding(&Device::cpu(1), &mut out, &rounded(n, k, &w), &Vec::from_iter(0..n as u32)).unwrap();
    for (found, expected) in out.chunks(32).zip(w.chunks(32)) {
        let most = expected.iter().fold(0f32, |largest, value| largest.max(value.abs())) / 16_380.0;
        assert!(found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() <= most));
    }
}
