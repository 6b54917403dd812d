//! Reads ggml's quantised blocks into one common form: small unsigned integers with a scale and a minimum.
//!
//! Source of the layouts: ggml-common.h and ggml-quants.c (`dequantize_row_*`) of `ggml-org/llama.cpp`.

use half::f16;

use super::format::Format;
use super::iq4;
use super::mxfp4;

/// Thirty-two consecutive weights of a row: `value = scale · (level − zero) + minimum`, where `zero` belongs to the
/// format and scale and minimum to each half of sixteen (equal halves where the format has blocks of 32).
#[derive(Clone, Copy, Default)]
pub(super) struct Group {
    pub(super) levels: [u8; 32],
    pub(super) scale: [f32; 2],
    pub(super) minimum: [f32; 2],
}

/// The level that stands for zero, before the minimum is added.
pub(super) fn zero_level(format: Format) -> i32 {
    match format {
        Format::Q4_0 => 8,
        Format::Q5_0 => 16,
        Format::Q3K => 4,
        Format::Q6K => 32,
        Format::Q8_0 | Format::Q8K => 128,
        Format::MXFP4 => mxfp4::ZERO,
        Format::IQ4_NL | Format::IQ4_XS => iq4::ZERO,
        _ => 0,
    }
}

/// Reads one block of the file into its groups (one for 32-value blocks, eight for 256-value blocks).
pub(super) fn read_block(format: Format, bytes: &[u8], groups: &mut [Group]) {
    match format {
        Format::Q4_0 => groups[0] = four_bits(&bytes[2..18], None, float(bytes, 0), 0.0),
        Format::Q4_1 => groups[0] = four_bits(&bytes[4..20], None, float(bytes, 0), float(bytes, 2)),
        Format::Q5_0 => groups[0] = four_bits(&bytes[6..22], Some(word(bytes, 2)), float(bytes, 0), 0.0),
        Format::Q5_1 => groups[0] = four_bits(&bytes[8..24], Some(word(bytes, 4)), float(bytes, 0), float(bytes, 2)),
        Format::Q8_0 => groups[0] = eight_bits(&bytes[2..34], float(bytes, 0)),
        Format::Q2K => read_q2k(bytes, groups),
        Format::Q3K => read_q3k(bytes, groups),
        Format::Q4K => read_q4k(bytes, groups),
        Format::Q5K => read_q5k(bytes, groups),
        Format::Q6K => read_q6k(bytes, groups),
        Format::Q8K => {
            let scale = f32::from_bits(word(bytes, 0));
            for (group, levels) in groups.iter_mut().zip(bytes[4..260].chunks_exact(32)) {
                *group = eight_bits(levels, scale);
            }
        }
        Format::MXFP4 => groups[0] = mxfp4::read(bytes),
        Format::IQ4_NL => groups[0] = iq4::read_nl(bytes),
        Format::IQ4_XS => iq4::read_xs(bytes, groups),
        Format::F32 | Format::F16 | Format::BF16 => unreachable!("plain formats have no blocks: our bug"),
    }
}

pub(super) fn float(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Low nibbles are values 0–15, high nibbles 16–31; bit `i` of `fifth` is worth 16 in value `i`.
pub(super) fn four_bits(nibbles: &[u8], fifth: Option<u32>, scale: f32, minimum: f32) -> Group {
    let mut levels = [0u8; 32];
    for (index, byte) in nibbles.iter().enumerate() {
        levels[index] = byte & 15;
        levels[index + 16] = byte >> 4;
    }
    if let Some(bits) = fifth {
        for (index, level) in levels.iter_mut().enumerate() {
            *level |= ((bits >> index) as u8 & 1) << 4;
        }
    }
    Group { levels, scale: [scale; 2], minimum: [minimum; 2] }
}

fn eight_bits(values: &[u8], scale: f32) -> Group {
    let mut levels = [0u8; 32];
    for (level, value) in levels.iter_mut().zip(values) {
        *level = value ^ 128;
    }
    Group { levels, scale: [scale; 2], minimum: [0.0; 2] }
}

/// 16 bytes (minimum, scale) nibbles · 64 bytes of 2-bit levels · scale f16 · minimum f16.
fn read_q2k(bytes: &[u8], groups: &mut [Group]) {
    let (scale, minimum) = (float(bytes, 80), float(bytes, 82));
    for (index, group) in groups.iter_mut().enumerate() {
        let packed = &bytes[16 + index / 4 * 32..][..32];
        let shift = index % 4 * 2;
        for (level, byte) in group.levels.iter_mut().zip(packed) {
            *level = byte >> shift & 3;
        }
        for half in 0..2 {
            let byte = bytes[index * 2 + half];
            group.scale[half] = scale * f32::from(byte & 15);
            group.minimum[half] = -(minimum * f32::from(byte >> 4));
        }
    }
}

/// 32 bytes of high bits · 64 bytes of low two bits · 12 bytes of sixteen 6-bit scales · scale f16.
fn read_q3k(bytes: &[u8], groups: &mut [Group]) {
    let scale = float(bytes, 108);
    let scales = &bytes[96..108];
    for (index, group) in groups.iter_mut().enumerate() {
        let packed = &bytes[32 + index / 4 * 32..][..32];
        let shift = index % 4 * 2;
        for (value, level) in group.levels.iter_mut().enumerate() {
            *level = packed[value] >> shift & 3 | (bytes[value] >> index & 1) << 2;
        }
        for half in 0..2 {
            let entry = index * 2 + half;
            let low = scales[entry % 8] >> (entry / 8 * 4) & 15;
            let high = scales[8 + entry % 4] >> (entry / 4 * 2) & 3;
            group.scale[half] = scale * (f32::from(low | high << 4) - 32.0);
            group.minimum[half] = 0.0;
        }
    }
}

/// Scale f16 · minimum f16 · 12 bytes of eight 6-bit (scale, minimum) pairs · 128 bytes of nibbles.
fn read_q4k(bytes: &[u8], groups: &mut [Group]) {
    for (index, group) in groups.iter_mut().enumerate() {
        let packed = &bytes[16 + index / 2 * 32..][..32];
        for (level, byte) in group.levels.iter_mut().zip(packed) {
            *level = byte >> (index % 2 * 4) & 15;
        }
        set_pair(group, bytes, index);
    }
}

/// As Q4_K, with 32 bytes of fifth bits before the nibbles.
fn read_q5k(bytes: &[u8], groups: &mut [Group]) {
    for (index, group) in groups.iter_mut().enumerate() {
        let packed = &bytes[48 + index / 2 * 32..][..32];
        for (value, level) in group.levels.iter_mut().enumerate() {
            *level = packed[value] >> (index % 2 * 4) & 15 | (bytes[16 + value] >> index & 1) << 4;
        }
        set_pair(group, bytes, index);
    }
}

fn set_pair(group: &mut Group, bytes: &[u8], index: usize) {
    let pairs = &bytes[4..16];
    let (scale, minimum) = if index < 4 {
        (pairs[index] & 63, pairs[index + 4] & 63)
    } else {
        (pairs[index + 4] & 15 | pairs[index - 4] >> 6 << 4, pairs[index + 4] >> 4 | pairs[index] >> 6 << 4)
    };
    group.scale = [float(bytes, 0) * f32::from(scale); 2];
    group.minimum = [-(float(bytes, 2) * f32::from(minimum)); 2];
}

/// 128 bytes of low nibbles · 64 bytes of high two bits · sixteen i8 scales · scale f16.
fn read_q6k(bytes: &[u8], groups: &mut [Group]) {
    let scale = float(bytes, 208);
    for (index, group) in groups.iter_mut().enumerate() {
        let (part, quarter) = (index / 4, index % 4);
        let low = &bytes[part * 64 + quarter % 2 * 32..][..32];
        let high = &bytes[128 + part * 32..][..32];
        for (value, level) in group.levels.iter_mut().enumerate() {
            *level = low[value] >> (quarter / 2 * 4) & 15 | (high[value] >> (quarter * 2) & 3) << 4;
        }
        for half in 0..2 {
            group.scale[half] = scale * f32::from(bytes[192 + index * 2 + half] as i8);
            group.minimum[half] = 0.0;
        }
    }
}
