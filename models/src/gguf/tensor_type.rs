//! The storage types of the ggml format: every one it has named, so that a file with a type we cannot use still opens
//! and the message says which tensor holds it.

use lifelong_kernels::Format;

/// One ggml storage type: `block` elements take `bytes` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorType {
    pub id: u32,
    pub name: &'static str,
    pub block: usize,
    pub bytes: usize,
    /// What our kernels call it; `None` when they have no such format.
    pub format: Option<Format>,
}

impl TensorType {
    /// The type with this number in the file.
    pub fn find(id: u32) -> Option<&'static TensorType> {
        TENSOR_TYPES.iter().find(|entry| entry.id == id)
    }

    /// Names of the types our kernels read.
    pub fn usable() -> Vec<String> {
        TENSOR_TYPES.iter().filter(|entry| entry.format.is_some()).map(|entry| entry.name.to_string()).collect()
    }
}

const fn usable(id: u32, name: &'static str, block: usize, bytes: usize, format: Format) -> TensorType {
    TensorType { id, name, block, bytes, format: Some(format) }
}

const fn named(id: u32, name: &'static str, block: usize, bytes: usize) -> TensorType {
    TensorType { id, name, block, bytes, format: None }
}

/// All types with a layout in `ggml.h` / `ggml-common.h` (ids 4, 5, 31–33 and 36–38 were withdrawn).
pub static TENSOR_TYPES: &[TensorType] = &[
    usable(0, "F32", 1, 4, Format::F32),
    usable(1, "F16", 1, 2, Format::F16),
    usable(2, "Q4_0", 32, 18, Format::Q4_0),
    usable(3, "Q4_1", 32, 20, Format::Q4_1),
    usable(6, "Q5_0", 32, 22, Format::Q5_0),
    usable(7, "Q5_1", 32, 24, Format::Q5_1),
    usable(8, "Q8_0", 32, 34, Format::Q8_0),
    // 36 bytes in current ggml (two f16), 40 in files of its first weeks (two f32); it is an activation format, never
    // met in a published file.
    named(9, "Q8_1", 32, 36),
    usable(10, "Q2_K", 256, 84, Format::Q2K),
    usable(11, "Q3_K", 256, 110, Format::Q3K),
    usable(12, "Q4_K", 256, 144, Format::Q4K),
    usable(13, "Q5_K", 256, 176, Format::Q5K),
    usable(14, "Q6_K", 256, 210, Format::Q6K),
    usable(15, "Q8_K", 256, 292, Format::Q8K),
    named(16, "IQ2_XXS", 256, 66),
    named(17, "IQ2_XS", 256, 74),
    named(18, "IQ3_XXS", 256, 98),
    named(19, "IQ1_S", 256, 50),
    usable(20, "IQ4_NL", 32, 18, Format::IQ4_NL),
    named(21, "IQ3_S", 256, 110),
    named(22, "IQ2_S", 256, 82),
    usable(23, "IQ4_XS", 256, 136, Format::IQ4_XS),
    named(24, "I8", 1, 1),
    named(25, "I16", 1, 2),
    named(26, "I32", 1, 4),
    named(27, "I64", 1, 8),
    named(28, "F64", 1, 8),
    named(29, "IQ1_M", 256, 56),
    usable(30, "BF16", 1, 2, Format::BF16),
    named(34, "TQ1_0", 256, 54),
    named(35, "TQ2_0", 256, 66),
    usable(39, "MXFP4", 32, 17, Format::MXFP4),
    named(40, "NVFP4", 64, 36),
    named(41, "Q1_0", 128, 18),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_names_are_unique() {
        for (index, entry) in TENSOR_TYPES.iter().enumerate() {
            let twins = TENSOR_TYPES[..index].iter().filter(|other| other.id == entry.id || other.name == entry.name);
            assert_eq!(twins.count(), 0, "{}", entry.name);
        }
    }
}
