//! The 4-bit formats whose levels are not evenly spaced: IQ4_NL and IQ4_XS.
//!
//! A nibble names one of sixteen fixed integers of 8 bits. Packed, it becomes that integer: the products then are those of
//! Q8_0, at its memory rather than half of it.
//!
//! Source: `block_iq4_nl`, `block_iq4_xs` and `kvalues_iq4nl` in ggml-common.h of `ggml-org/llama.cpp`.

use super::blocks::{Group, float, four_bits};

/// What the nibbles stand for.
const VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// The level that stands for zero.
pub(super) const ZERO: i32 = 128;

/// Scale f16 · 16 bytes of nibbles, as in Q4_0.
pub(super) fn read_nl(bytes: &[u8]) -> Group {
    group(&bytes[2..18], float(bytes, 0))
}

/// Scale f16 · high two bits of eight scales · low four bits of them · 128 bytes of nibbles, 16 a group.
pub(super) fn read_xs(bytes: &[u8], groups: &mut [Group]) {
    let scale = float(bytes, 0);
    let high = u16::from_le_bytes([bytes[2], bytes[3]]);
    for (index, out) in groups.iter_mut().enumerate() {
        let low = bytes[4 + index / 2] >> (index % 2 * 4) & 15;
        let factor = i32::from(low) + i32::from(high >> (2 * index) & 3) * 16 - 32;
        *out = group(&bytes[8 + index * 16..][..16], scale * factor as f32);
    }
}

fn group(nibbles: &[u8], scale: f32) -> Group {
    let mut group = four_bits(nibbles, None, scale, 0.0);
    for level in &mut group.levels {
        *level = VALUES[usize::from(*level)] as u8 ^ 128;
    }
    group
}
