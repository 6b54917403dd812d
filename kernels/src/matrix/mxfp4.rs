//! MXFP4: floats of four bits with a power of two for 32 of them.
//!
//! A nibble holds a sign, two exponent bits and one of mantissa: 0, ½, 1, 1½, 2, 3, 4 and 6. A level is twice the number and 12
//! more, so products stay those of integers. Packed, the nibbles stay what they are and the scales one byte, 4¼ bits a
//! weight, and a kernel looks the levels up; a matrix with a scale that is no normal number, which no published one has, takes
//! a byte a level.
//!
//! Source: Rouhani et al. 2023, "OCP Microscaling Formats (MX) Specification", §5.2, §5.3.3 and §5.4.1.

use super::blocks::{Group, four_bits};

/// The level that stands for zero.
pub(super) const ZERO: i32 = 12;

/// The levels of the sixteen nibbles.
pub(crate) const LEVELS: [u8; 16] = [12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0];

/// Scale, worth `2^(byte − 127)` (255 is not a number) · 16 bytes of nibbles, as in Q4_0.
pub(super) fn read(bytes: &[u8]) -> Group {
    let scale = match bytes[0] {
        // Half of 2^(byte − 127); the two smallest are below the normal numbers.
        byte @ 0..2 => f32::from_bits(1 << (21 + byte)),
        255 => f32::NAN,
        byte => power(byte),
    };
    let mut group = four_bits(&bytes[1..17], None, scale, 0.0);
    for level in &mut group.levels {
        *level = LEVELS[usize::from(*level)];
    }
    group
}

/// Whether [`power`] holds for the scale of every block.
pub(super) fn has_plain_scales(blocks: &[u8]) -> bool {
    blocks.chunks_exact(17).fold(true, |plain, block| plain & (2..255).contains(&block[0]))
}

/// What a byte of scale makes of a level: `2^(byte − 128)`, half of the number's; 0 for the bytes 0 and 1.
pub(super) fn power(byte: u8) -> f32 {
    f32::from_bits(u32::from(byte.saturating_sub(1)) << 23)
}

/// The byte whose [`power`] this is.
pub(super) fn exponent(power: f32) -> u8 {
    (power.to_bits() >> 23) as u8 + 1
}

/// The nibble of a level; of the two zeros the one without a sign.
pub(super) fn code(level: u8) -> u8 {
    LEVELS.iter().position(|known| *known == level).unwrap_or_default() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_exponents_are_those_of_their_levels_and_powers() {
        for nibble in 0..16u8 {
            let level = LEVELS[usize::from(nibble)];
            assert_eq!(LEVELS[usize::from(code(level))], level);
            assert_eq!(code(level), if nibble == 8 { 0 } else { nibble });
        }
        for byte in 2..255u8 {
            assert_eq!((exponent(power(byte)), power(byte)), (byte, 2f32.powi(i32::from(byte) - 128)));
        }
        assert_eq!((power(0), power(1)), (0.0, 0.0));
    }
}
