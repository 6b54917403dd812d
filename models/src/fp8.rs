//! Weights of 8-bit floats with a scale for each block of rows and columns, as Qwen and DeepSeek ship them.
//!
//! `NAME.weight` holds floats of four exponent and three mantissa bits, `NAME.weight_scale_inv` the factor of each block.
//! No kernel multiplies them as they are: a matrix becomes bfloat16 at load, which is what transformers computes with when
//! it reads such a checkpoint on a processor without these floats.
//!
//! Source: Micikevicius et al. 2022, "FP8 Formats for Deep Learning", §3, table 1; DeepSeek-AI 2024, "DeepSeek-V3 Technical
//! Report", §3.3.2.

use half::bf16;

use crate::checkpoint::{Checkpoint, Metadata};
use crate::config::{HuggingFace, problem};
use crate::error::{Error, Result};

/// The storage type of safetensors.
pub(crate) const TYPE: &str = "F8_E4M3";
/// What the name of a weight's scales ends in.
const SCALES: &str = "_scale_inv";

/// Whether a tensor is the scales of another one in the file, which is read with it.
pub(crate) fn is_scale(checkpoint: &Checkpoint, name: &str) -> bool {
    name.strip_suffix(SCALES).is_some_and(|weight| checkpoint.type_name(weight) == Some(TYPE))
}

/// The name of a weight's scales.
pub(crate) fn scale_name(weight: &str) -> String {
    format!("{weight}{SCALES}")
}

/// The extents of a block: `weight_block_size` of the configuration.
///
/// # Errors
/// [`Error::Config`] for a scheme of 8 bits without blocks, or with other floats.
pub(crate) fn block(checkpoint: &Checkpoint) -> Result<[usize; 2]> {
    const KEY: &str = "quantization_config";
    let Metadata::HuggingFace { path, config } = checkpoint.metadata()? else {
        return Err(problem(checkpoint.path(), KEY, "the key is missing"));
    };
    check(&HuggingFace { path, config })
}

/// As [`block`], of a configuration.
pub(crate) fn check(config: &HuggingFace) -> Result<[usize; 2]> {
    #[derive(serde::Deserialize)]
    struct Quantization {
        quant_method: String,
        fmt: Option<String>,
        weight_block_size: Option<[usize; 2]>,
    }
    const KEY: &str = "quantization_config";
    let found: Quantization = config.require(KEY)?;
    let is_known = found.quant_method == "fp8" && found.fmt.as_deref().is_none_or(|floats| floats == "e4m3");
    match found.weight_block_size.filter(|[rows, columns]| is_known && *rows > 0 && *columns > 0) {
        Some(block) => Ok(block),
        None => {
            let text = "only `fp8` weights of `e4m3` with a `weight_block_size` are read of those that a Python library \
                        quantised; use the original or a GGUF file";
            Err(problem(config.path, KEY, text))
        }
    }
}

/// The bytes of a matrix `[n, k]` in bfloat16; `scales` `[⌈n / rows⌉, ⌈k / columns⌉]` of the block `[rows, columns]`.
pub(crate) fn to_bf16(bytes: &[u8], k: usize, scales: &[f32], [rows, columns]: [usize; 2]) -> Vec<u8> {
    let table: Vec<f32> = (0..=255).map(number).collect();
    let across = k.div_ceil(columns);
    let mut out = Vec::with_capacity(bytes.len() * 2);
    for (row, bytes) in bytes.chunks_exact(k).enumerate() {
        let scales = &scales[row / rows * across..][..across];
        for (part, scale) in bytes.chunks(columns).zip(scales) {
            out.extend(part.iter().flat_map(|byte| bf16::from_f32(table[usize::from(*byte)] * scale).to_le_bytes()));
        }
    }
    out
}

/// The number of eight bits: sign, four bits of exponent biased by 7, three of mantissa; all ones are not a number.
fn number(bits: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(bits >> 3 & 15), f32::from(bits & 7));
    let magnitude = match (exponent, bits & 7) {
        (15, 7) => f32::NAN,
        (0, _) => mantissa * 2f32.powi(-9),
        _ => (8.0 + mantissa) * 2f32.powi(exponent - 10),
    };
    if bits & 128 == 0 { magnitude } else { -magnitude }
}

/// Where one stands, the other is read as another type or not at all.
pub(crate) fn check_scales(checkpoint: &Checkpoint, weight: &str) -> Result<String> {
    let name = scale_name(weight);
    if checkpoint.contains(&name) {
        return Ok(name);
    }
    let reason = format!("and `{weight}` is stored as {TYPE}: its numbers mean nothing without these scales");
    Err(Error::MissingTensor { path: checkpoint.path().to_path_buf(), tensor: name, reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_bits_are_the_floats_of_the_table() {
        let known = [(0x00, 0.0), (0x01, 0.001953125), (0x07, 0.013671875), (0x08, 0.015625), (0x38, 1.0)];
        for (bits, value) in known.into_iter().chain([(0x7e, 448.0), (0xfe, -448.0), (0xb9, -1.125)]) {
            assert_eq!(number(bits), value, "{bits:#04x}");
        }
        assert!(number(0x7f).is_nan() && number(0xff).is_nan());
    }

    #[test]
    fn each_block_has_its_scale_and_the_last_ones_are_cut() {
        // Rows 0 to 2 of three columns, blocks of two by two: scales [[1, 10], [100, 1000]].
        let found = to_bf16(&[0x38; 9], 3, &[1.0, 10.0, 100.0, 1000.0], [2, 2]);
        let values: Vec<f32> = found.chunks_exact(2).map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32()).collect();
        assert_eq!(values, [1.0, 1.0, 10.0, 1.0, 1.0, 10.0, 100.0, 100.0, 1000.0]);
    }
}
