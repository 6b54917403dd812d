//! IQ4_NL and IQ4_XS, which candle does not have: a plain writer and reader.

use half::f16;
use lifelong_kernels::Format;

const VALUES: [f32; 16] =
    [-127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0, 89.0, 113.0];

fn nearest(value: f32) -> u8 {
    let distance = |code: &usize| (VALUES[*code] - value).abs();
    (0..16).min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap() as u8
}

fn nibbles(values: &[f32], scale: f32) -> Vec<u8> {
    let code = |value: f32| nearest(if scale == 0.0 { 0.0 } else { value / scale });
    (0..16).map(|index| code(values[index]) | code(values[index + 16]) << 4).collect()
}

fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |largest, value| value.abs().max(largest))
}

pub fn quantise(format: Format, weights: &[f32]) -> Vec<u8> {
    match format {
        Format::IQ4_NL => weights
            .chunks_exact(32)
            .flat_map(|block| {
                let scale = f16::from_f32(largest(block) / 113.0);
                [scale.to_le_bytes().to_vec(), nibbles(block, scale.to_f32())].concat()
            })
            .collect(),
        _ => weights.chunks_exact(256).flat_map(xs_block).collect(),
    }
}

/// Scales of 6 bits, 32 standing for zero: here 33 to 63.
fn xs_block(block: &[f32]) -> Vec<u8> {
    let unit = f16::from_f32(largest(block) / 113.0 / 31.0);
    let groups: Vec<&[f32]> = block.chunks_exact(32).collect();
    let factor = |group: &&[f32]| (largest(group) / 113.0 / unit.to_f32()).round().clamp(1.0, 31.0) as u8;
    let factors: Vec<u8> = groups.iter().map(factor).collect();
    let high = factors.iter().enumerate().fold(0u16, |bits, (index, f)| bits | u16::from((f + 32) >> 4) << (2 * index));
    let low = factors.chunks(2).map(|pair| (pair[0] + 32) & 15 | ((pair[1] + 32) & 15) << 4);
    let mut bytes = [unit.to_le_bytes(), high.to_le_bytes()].concat();
    bytes.extend(low);
    for (group, factor) in groups.iter().zip(&factors) {
        bytes.extend(nibbles(group, unit.to_f32() * f32::from(*factor)));
    }
    bytes
}

pub fn dequantise(format: Format, bytes: &[u8]) -> Vec<f32> {
    let half = |block: &[u8], at: usize| u16::from_le_bytes([block[at], block[at + 1]]);
    let group = |nibbles: &[u8], scale: f32| -> Vec<f32> {
        let code = |index: usize| nibbles[index % 16] >> (index / 16 * 4) & 15;
        (0..32).map(|index| VALUES[usize::from(code(index))] * scale).collect()
    };
    match format {
        Format::IQ4_NL => {
            let block = |block: &[u8]| group(&block[2..], f16::from_bits(half(block, 0)).to_f32());
            bytes.chunks_exact(18).flat_map(block).collect()
        }
        _ => {
            let block = |block: &[u8]| {
                let (unit, high) = (f16::from_bits(half(block, 0)).to_f32(), half(block, 2));
                let read = |index: usize| {
                    let low = i32::from(block[4 + index / 2] >> (index % 2 * 4) & 15);
                    let factor = low + 16 * i32::from(high >> (2 * index) & 3) - 32;
                    group(&block[8 + 16 * index..][..16], unit * factor as f32)
                };
                (0..8).flat_map(read).collect::<Vec<f32>>()
            };
            bytes.chunks_exact(136).flat_map(block).collect()
        }
    }
}
