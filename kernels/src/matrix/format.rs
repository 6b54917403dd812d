//! The storage formats of weights in model files.

/// How a file stores a weight: plain numbers, or ggml's blocks of small integers with shared scales.
///
/// Source: ggml-common.h of `ggml-org/llama.cpp` defines the block layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(non_camel_case_types)]
pub enum Format {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
    Q8K,
    MXFP4,
    IQ4_NL,
    IQ4_XS,
}

impl Format {
    /// Every format, in ggml's order.
    pub const ALL: [Format; 17] = [
        Format::F32,
        Format::F16,
        Format::BF16,
        Format::Q4_0,
        Format::Q4_1,
        Format::Q5_0,
        Format::Q5_1,
        Format::Q8_0,
        Format::Q2K,
        Format::Q3K,
        Format::Q4K,
        Format::Q5K,
        Format::Q6K,
        Format::Q8K,
        Format::MXFP4,
        Format::IQ4_NL,
        Format::IQ4_XS,
    ];

    /// Values in one block of a row; rows hold whole blocks.
    pub fn block_values(self) -> usize {
        match self {
            Format::F32 | Format::F16 | Format::BF16 => 1,
            Format::Q4_0 | Format::Q4_1 | Format::Q5_0 | Format::Q5_1 | Format::Q8_0 => 32,
            Format::MXFP4 | Format::IQ4_NL => 32,
            Format::Q2K | Format::Q3K | Format::Q4K | Format::Q5K | Format::Q6K | Format::Q8K | Format::IQ4_XS => 256,
        }
    }

    /// Bits of a level once it is packed: 4 where nothing is lost by it, else 8.
    pub(super) fn packed_bits(self) -> usize {
        if matches!(self, Format::Q4_0 | Format::Q4_1 | Format::Q4K) { 4 } else { 8 }
    }

    /// Scales that 32 consecutive values of a row have once they are packed.
    pub(super) fn scales_in_a_group(self) -> usize {
        if matches!(self, Format::Q2K | Format::Q3K | Format::Q6K | Format::Q8K) { 2 } else { 1 }
    }

    pub(super) fn has_minima(self) -> bool {
        matches!(self, Format::Q4_1 | Format::Q5_1 | Format::Q2K | Format::Q4K | Format::Q5K)
    }

    /// Whether an `f16` holds every scale and minimum of a group: the exponents of MXFP4 reach further.
    pub(super) fn has_half_scales(self) -> bool {
        self.block_values() == 32 && self != Format::MXFP4
    }

    /// Bytes of one block in a file.
    pub fn block_bytes(self) -> usize {
        match self {
            Format::F32 => 4,
            Format::F16 | Format::BF16 => 2,
            Format::Q4_0 => 18,
            Format::Q4_1 => 20,
            Format::Q5_0 => 22,
            Format::Q5_1 => 24,
            Format::Q8_0 => 34,
            Format::Q2K => 84,
            Format::Q3K => 110,
            Format::Q4K => 144,
            Format::Q5K => 176,
            Format::Q6K => 210,
            Format::Q8K => 292,
            Format::MXFP4 => 17,
            Format::IQ4_NL => 18,
            Format::IQ4_XS => 136,
        }
    }
}
