//! The bits themselves: results stored by one version must be met by the next, on every machine.
//!
//! A change here changes every stored completion. When it is meant, print the new digests (the failure shows them), raise
//! `ARITHMETIC` and say in the changelog that results move.

mod reference;

use lifelong_kernels::ops::matmul::Precision;
use lifelong_kernels::ops::{activation, attention, kv, matmul, norm, rope};
use lifelong_kernels::{BLOCK_TOKENS, Device, Format, KvCache, KvGeometry, KvType, Matrix};
use reference::*;

/// FNV-1a over the bits.
fn digest(values: &[f32]) -> u64 {
    let bytes = values.iter().flat_map(|value| value.to_bits().to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[track_caller]
fn assert_digest(what: &str, expected: u64, run: impl Fn(&Device) -> Vec<f32>) {
    for device in devices(2) {
        let found = digest(&run(&device));
        assert!(found == expected, "{what} on {device:?}: digest {found:#018x}, expected {expected:#018x}");
    }
}

/// Blocks whose factors are small and finite, the same on every machine.
fn block_bytes(format: Format, n: usize, k: usize) -> Vec<u8> {
    let size = n * (k / format.block_values()) * format.block_bytes();
    (0..size as u64).map(|index| (index.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as u8 & 0x3b).collect()
}

#[test]
fn products() {
    let (n, k, rows) = (40, 512, 11);
    let expected = [
        (Format::F32, 0x6743_0130_cd36_2071),
        (Format::F16, 0xa35d_6139_fa39_8c82),
        (Format::BF16, 0x1a21_9625_9905_52a9),
        (Format::Q4_0, 0xa65b_ff63_5a34_bd78),
        (Format::Q4_1, 0xfe7c_bf51_cf3b_9e84),
        (Format::Q5_0, 0x193b_a809_fb4a_82cf),
        (Format::Q5_1, 0x785a_bd87_abae_e58d),
        (Format::Q8_0, 0x6a46_c05e_95ee_7cdd),
        (Format::Q2K, 0x2a97_2a9e_a228_0b96),
        (Format::Q3K, 0xaaca_8ece_8db6_0007),
        (Format::Q4K, 0x12c1_aefc_89d1_26cc),
        (Format::Q5K, 0x1ff2_a922_6611_d2ed),
        (Format::Q6K, 0x6551_e6d7_3761_b946),
        (Format::Q8K, 0x28bd_d393_712e_64e0),
    ];
    let x = random(400, rows * k);
    for (format, expected) in expected {
        let matrix = Matrix::from_bytes(format, n, k, &block_bytes(format, n, k)).unwrap();
        assert_digest(&format!("{format:?}"), expected, |device| {
            let mut out = vec![0.0; rows * n];
            matmul::linear(device, &mut out, &x, &matrix).unwrap();
            out
        });
    }
}

#[test]
fn products_of_16_bit_activations() {
    let (n, k, rows) = (40, 512, 11);
    let expected = [
        (Format::Q4_0, 0xed92_9a36_fe95_4d40),
        (Format::Q4_1, 0xca4f_5df2_7fe2_c387),
        (Format::Q8_0, 0x7d24_9d39_f800_4fa2),
        (Format::Q4K, 0x9953_60d1_4741_b041),
        (Format::Q6K, 0x4872_efb2_d177_6a13),
    ];
    let x = random(401, rows * k);
    for (format, expected) in expected {
        let matrix = Matrix::from_bytes(format, n, k, &block_bytes(format, n, k)).unwrap();
        assert_digest(&format!("{format:?}"), expected, |device| {
            let mut out = vec![0.0; rows * n];
            matmul::linear_each(device, &mut [(&mut out, &matrix)], &x, Precision::Bits16).unwrap();
            out
        });
    }
}

#[test]
fn products_of_rounded_weights() {
    let (n, k, rows) = (40, 384, 11);
    let (w, x) = (random(402, n * k), random_with_outliers(403, rows * k));
    let bytes: Vec<u8> = w.iter().flat_map(|w| w.to_le_bytes()).collect();
    assert_digest("16-bit weights", 0x2248_eaca_250e_da23, |device| {
        let matrix = Matrix::rounded_on(device, Format::F32, n, k, &bytes).unwrap();
        let mut out = vec![0.0; rows * n];
        matmul::linear(device, &mut out, &x, &matrix).unwrap();
        out
    });
}

#[test]
fn rows() {
    let (width, rows) = (72, 5);
    let x = random_with_outliers(410, rows * width);
    let (weight, bias) = (random(411, width), random(412, width));
    assert_digest("rms_norm", 0xaf69_03b4_e5ba_9136, |device| {
        let mut out = vec![0.0; x.len()];
        norm::rms_norm(device, &mut out, &x, &weight, 1e-5).unwrap();
        out
    });
    assert_digest("layer_norm", 0xd25c_8145_0855_4dec, |device| {
        let mut out = vec![0.0; x.len()];
        norm::layer_norm(device, &mut out, &x, &weight, &bias, 1e-5).unwrap();
        out
    });
    assert_digest("swiglu", 0x6fab_071e_d890_2854, |device| {
        let mut out = vec![0.0; x.len()];
        activation::swiglu(device, &mut out, &x, &x).unwrap();
        out
    });
    assert_digest("gelu", 0xd879_6b12_c5f9_f6a7, |device| {
        let mut out = x.clone();
        activation::gelu(device, &mut out).unwrap();
        out
    });
    let table = rope::RopeTable::new(24, 100, 10_000.0);
    assert_digest("rope", 0x0cd7_2d41_c0f7_709b, |device| {
        let mut out = x.clone();
        rope::rope(device, &mut out, &[0, 1, 17, 50, 99], &table, 3, rope::RopeStyle::Halves).unwrap();
        out
    });
}

#[test]
fn attention_over_two_splits() {
    let (heads, kv_heads, dim, length) = (4, 2, 24, 300);
    let blocks = 300usize.div_ceil(BLOCK_TOKENS);
    let geometry = |kv_type| KvGeometry {
        layers: 1,
        blocks,
        block_tokens: BLOCK_TOKENS,
        kv_heads,
        head_dim: dim,
        kv_type,
        state_layers: 0,
        state_values: 0,
    };
    let shape = attention::AttentionShape { heads, kv_heads, head_dim: dim, scale: 0.2, window: None };
    let [k, v] = [420, 421].map(|seed| random(seed, length * kv_heads * dim));
    let q = random(422, 2 * heads * dim);
    let tables: Vec<u32> = (0..blocks as u32).collect();
    let attend = |device: &Device, kv_type| {
        let mut cache = KvCache::new(device, geometry(kv_type)).unwrap();
        kv::write(device, &mut cache, 0, &k, &v, &[segment(0, length, 0, 0..blocks)], &tables).unwrap();
        let mut out = vec![0.0; q.len()];
        let last = [segment(0, 2, length - 2, 0..blocks)];
        attention::paged(device, &mut out, &q, &cache, 0, &last, &tables, shape).unwrap();
        out
    };
    assert_digest("paged attention", 0xa95b_daed_2e16_2e7b, |device| attend(device, KvType::F32));
    assert_digest("paged attention over integers", 0xb772_41aa_c277_373e, |device| attend(device, KvType::I16));
}
