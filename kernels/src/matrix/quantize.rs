//! Weights into the blocks of a file: what `--quantize` does to a checkpoint at load.
//!
//! Formats of 32 values are what the `gguf` package writes, byte for byte. Those of 256 are written by searches of our own
//! for the factors with the least squared error; ggml's weigh the squares, so its bytes are others and its error a little
//! larger.
//!
//! Source of the layouts: as in `blocks.rs`.

use half::f16;

use super::format::Format;
use crate::error::{Error, Result};

/// The formats that can be written.
pub const QUANTIZABLE: [Format; 5] = [Format::Q8_0, Format::Q6K, Format::Q5K, Format::Q4K, Format::Q4_0];

/// Rows `[n, k]` in the blocks of `format`.
///
/// # Errors
/// [`Error::Blocks`] when `k` is not a whole number of blocks; [`Error::Shape`] for a format that is none of
/// [`QUANTIZABLE`].
pub fn quantize(format: Format, n: usize, k: usize, values: &[f32]) -> Result<Vec<u8>> {
    let block = format.block_values();
    if !QUANTIZABLE.contains(&format) {
        let problem = format!("{format:?} asked for, weights are written as one of {QUANTIZABLE:?}");
        return Err(Error::Shape { op: "quantize", problem });
    }
    if !k.is_multiple_of(block) {
        return Err(Error::Blocks { format, rows: n, columns: k, block });
    }
    crate::error::check_length("quantize", "values", values.len(), &[("n", n), ("k", k)])?;
    let mut bytes = Vec::with_capacity(values.len() / block * format.block_bytes());
    for values in values.chunks_exact(block) {
        match format {
            Format::Q8_0 => write_q8_0(&mut bytes, values),
            Format::Q4_0 => write_q4_0(&mut bytes, values),
            Format::Q6K => write_q6k(&mut bytes, values),
            Format::Q5K => write_q45k(&mut bytes, values, 31),
            _ => write_q45k(&mut bytes, values, 15),
        }
    }
    Ok(bytes)
}

fn push_half(bytes: &mut Vec<u8>, value: f32) -> f32 {
    let half = f16::from_f32(value);
    bytes.extend(half.to_le_bytes());
    half.to_f32()
}

/// `1 / x`, and 0 of 0.
fn inverse(x: f32) -> f32 {
    if x == 0.0 { 0.0 } else { 1.0 / x }
}

/// The value of largest magnitude, the first of equals.
fn extreme(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |extreme: f32, value| if value.abs() > extreme.abs() { *value } else { extreme })
}

fn write_q8_0(bytes: &mut Vec<u8>, values: &[f32]) {
    let scale = extreme(values).abs() / 127.0;
    let factor = inverse(scale);
    push_half(bytes, scale);
    bytes.extend(values.iter().map(|value| (value * factor).round() as i8 as u8));
}

fn write_q4_0(bytes: &mut Vec<u8>, values: &[f32]) {
    let scale = extreme(values) / -8.0;
    let factor = inverse(scale);
    push_half(bytes, scale);
    let level = |value: f32| (value * factor + 8.5).clamp(0.0, 15.0) as u8;
    bytes.extend((0..16).map(|index| level(values[index]) | level(values[index + 16]) << 4));
}

/// Q4_K (`most` 15) and Q5_K (31): eight groups of 32 with a 6-bit scale and minimum each.
fn write_q45k(bytes: &mut Vec<u8>, values: &[f32], most: i32) {
    let fits: Vec<(f32, f32)> = values.chunks_exact(32).map(|group| fit_with_minimum(group, most)).collect();
    let largest = |of: fn(&(f32, f32)) -> f32| fits.iter().map(of).fold(0.0, f32::max);
    let scale = push_half(bytes, largest(|fit| fit.0) / 63.0);
    let minimum = push_half(bytes, largest(|fit| fit.1) / 63.0);
    let six_bits = |value: f32, unit: f32| (value * inverse(unit)).round().clamp(0.0, 63.0) as u8;
    let pairs: Vec<(u8, u8)> =
        fits.iter().map(|(group, low)| (six_bits(*group, scale), six_bits(*low, minimum))).collect();
    let packed = |index: usize| match index {
        0..4 => pairs[index].0 | pairs[index + 4].0 >> 4 << 6,
        4..8 => pairs[index - 4].1 | pairs[index].1 >> 4 << 6,
        _ => pairs[index - 4].0 & 15 | (pairs[index - 4].1 & 15) << 4,
    };
    bytes.extend((0..12).map(packed));
    let levels: Vec<u8> = values
        .iter()
        .enumerate()
        .map(|(index, value)| {
            let (group, low) = pairs[index / 32];
            let (group, low) = (scale * f32::from(group), minimum * f32::from(low));
            ((value + low) * inverse(group)).round().clamp(0.0, most as f32) as u8
        })
        .collect();
    if most == 31 {
        let fifth = |value: usize| (0..8).fold(0, |bits, group| bits | (levels[group * 32 + value] >> 4) << group);
        bytes.extend((0..32).map(fifth));
    }
    for pair in levels.chunks_exact(64) {
        bytes.extend((0..32).map(|index| pair[index] & 15 | (pair[index + 32] & 15) << 4));
    }
}

/// Q6_K: sixteen groups of 16 with an 8-bit scale each, no minima.
fn write_q6k(bytes: &mut Vec<u8>, values: &[f32]) {
    let fits: Vec<f32> = values.chunks_exact(16).map(fit_around_zero).collect();
    let scale = f16::from_f32(extreme(&fits) / -128.0);
    let unit = scale.to_f32();
    let factors: Vec<i8> = fits.iter().map(|fit| (fit * inverse(unit)).round().clamp(-128.0, 127.0) as i8).collect();
    let levels: Vec<u8> = values
        .iter()
        .enumerate()
        .map(|(index, value)| {
            let group = unit * f32::from(factors[index / 16]);
            ((value * inverse(group)).round().clamp(-32.0, 31.0) + 32.0) as u8
        })
        .collect();
    for half in levels.chunks_exact(128) {
        bytes.extend((0..64).map(|index| half[index] & 15 | (half[index + 64] & 15) << 4));
    }
    for half in levels.chunks_exact(128) {
        let high = |index: usize| (0..4).fold(0, |bits, part| bits | half[part * 32 + index] >> 4 << (2 * part));
        bytes.extend((0..32).map(high));
    }
    bytes.extend(factors.iter().map(|factor| *factor as u8));
    bytes.extend(scale.to_le_bytes());
}

/// Scale and minimum, both 0 or above, with which `scale · level − minimum` for levels 0 to `most` comes closest in squares:
/// the best of the least-squares solutions for levels that a few ranges give.
fn fit_with_minimum(values: &[f32], most: i32) -> (f32, f32) {
    const RANGES: i32 = 21;
    let low = values.iter().copied().fold(0.0, f32::min);
    let high = values.iter().copied().fold(0.0, f32::max);
    if high - low == 0.0 {
        return (0.0, 0.0);
    }
    let count = values.len() as f64;
    let sum: f64 = values.iter().map(|value| f64::from(*value)).sum();
    let error = |scale: f64, minimum: f64, level: &dyn Fn(f32) -> f64| -> f64 {
        values.iter().map(|value| (scale * level(*value) + minimum - f64::from(*value)).powi(2)).sum()
    };
    let level_of = |factor: f32| move |value: f32| f64::from(((value - low) * factor).round().clamp(0.0, most as f32));
    // The whole range, evenly.
    let (scale, minimum) = (f64::from((high - low) / most as f32), f64::from(low));
    let mut best = (error(scale, minimum, &level_of(most as f32 / (high - low))), scale, minimum);
    for range in 0..RANGES {
        let level = level_of((most as f32 - 1.0 + 0.1 * range as f32) / (high - low));
        let (mut levels, mut squares, mut products) = (0.0, 0.0, 0.0);
        for value in values {
            let level = level(*value);
            levels += level;
            squares += level * level;
            products += level * f64::from(*value);
        }
        let determinant = count * squares - levels * levels;
        let minimum = (squares * sum - levels * products) / determinant;
        let (scale, minimum) = match determinant > 0.0 && minimum <= 0.0 {
            true => ((count * products - sum * levels) / determinant, minimum),
            false if squares > 0.0 => (products / squares, 0.0),
            false => continue,
        };
        let error = error(scale, minimum, &level);
        if scale > 0.0 && error < best.0 {
            best = (error, scale, minimum);
        }
    }
    (best.1 as f32, -best.2 as f32)
}

/// The scale with which `scale · level` for levels −32 to 31 comes closest in squares; negative when the value of largest
/// magnitude is positive, as there is one more level below zero.
fn fit_around_zero(values: &[f32]) -> f32 {
    const RANGES: i32 = 9;
    let extreme = extreme(values);
    if extreme == 0.0 {
        return 0.0;
    }
    let mut best = (f64::NEG_INFINITY, 0.0);
    for range in -RANGES..=RANGES {
        let factor = -(32.0 + 0.1 * range as f32) / extreme;
        let (mut squares, mut products) = (0.0, 0.0);
        for value in values {
            let level = f64::from((value * factor).round().clamp(-32.0, 31.0));
            squares += level * level;
            products += level * f64::from(*value);
        }
        // What the best scale for these levels takes off the squared error.
        if squares > 0.0 && products * products / squares > best.0 {
            best = (products * products / squares, products / squares);
        }
    }
    best.1 as f32
}
