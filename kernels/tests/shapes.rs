//! Wrong operands are refused before anything is written, with a message that names them.

mod reference;

use lifelong_kernels::ops::attention::{self, AttentionShape};
use lifelong_kernels::ops::{activation, embed, kv, matmul, norm, pool, rope};
use lifelong_kernels::{BLOCK_TOKENS, Device, Error, Format, KvCache, KvGeometry, KvType, Matrix};
use reference::segment;

fn message<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn matrices() {
    assert_eq!(
        message(Matrix::from_bytes(Format::Q4K, 2, 576, &[])),
        "matrix [2, 576] cannot be stored as Q4K: its rows are cut into blocks of 256 values"
    );
    assert_eq!(
        message(Matrix::from_bytes(Format::Q8_0, 2, 64, &[0; 10])),
        "matrix: `bytes` holds 10 values, expected 136 = n 2 × bytes a row 68"
    );
    assert_eq!(message(Matrix::from_f32(2, 3, &[0.0; 5])), "matrix: `weights` holds 5 values, expected 6 = n 2 × k 3");
    assert_eq!(message(Matrix::from_f32(0, 3, &[])), "matrix: [0, 3] has no elements");
}

#[test]
fn products_and_embeddings() {
    let device = Device::cpu(1);
    let matrix = Matrix::from_f32(4, 3, &[1.0; 12]).unwrap();
    let mut out = [7.0; 8];
    assert_eq!(
        message(matmul::linear(&device, &mut out, &[0.0; 7], &matrix)),
        "linear: `x` holds 7 values, which is not a whole number of rows of 3"
    );
    assert_eq!(
        message(matmul::linear(&device, &mut out, &[0.0; 3], &matrix)),
        "linear: `out` holds 8 values, expected 4 = tokens 1 × n 4"
    );
    assert!(matmul::linear_bias(&device, &mut out, &[0.0; 6], &matrix, &[0.0; 3]).is_err());
    assert_eq!(
        message(embed::embedding(&device, &mut out[..6], &matrix, &[0, 9])),
        "embedding: token 9 is out of range, there are 4"
    );
    assert_eq!(out, [7.0; 8]);
}

#[test]
fn rows() {
    let device = Device::cpu(1);
    assert!(norm::rms_norm(&device, &mut [0.0; 4], &[0.0; 4], &[1.0; 3], 1e-5).is_err());
    assert!(norm::layer_norm(&device, &mut [0.0; 4], &[0.0; 4], &[1.0; 4], &[1.0; 3], 1e-5).is_err());
    assert!(norm::rms_norm(&device, &mut [0.0; 4], &[0.0; 4], &[], 1e-5).is_err());
    assert!(activation::swiglu(&device, &mut [0.0; 4], &[0.0; 4], &[0.0; 3]).is_err());
    let table = rope::RopeTable::new(4, 10, 1e4);
    assert_eq!(
        message(rope::rope(&device, &mut [0.0; 4], &[10], &table, 1, rope::RopeStyle::Halves)),
        "rope: position 10 is out of range, there are 10"
    );
    assert!(rope::rope(&device, &mut [0.0; 2], &[1], &table, 1, rope::RopeStyle::Halves).is_err());
    assert_eq!(
        message(pool::mean(&device, &mut [0.0; 4], &[0.0; 4], &[2, 0])),
        "mean: text 1 has no tokens, so there is nothing to pool"
    );
    assert!(pool::last(&device, &mut [0.0; 2], &[0.0; 5], &[2]).is_err());
}

#[test]
fn caches() {
    let device = Device::cpu(1);
    let geometry = KvGeometry {
        layers: 1,
        blocks: 3,
        block_tokens: BLOCK_TOKENS,
        kv_heads: 1,
        head_dim: 4,
        kv_type: KvType::F32,
        state_layers: 0,
        state_values: 0,
    };
    assert_eq!(KvCache::bytes_per_block(&geometry), 16 * (4 + 16) * 4);
    assert!(KvCache::new(&device, KvGeometry { block_tokens: 32, ..geometry }).is_err());
    assert!(KvCache::new(&device, KvGeometry { kv_heads: 0, ..geometry }).is_err());
    let mut cache = KvCache::new(&device, geometry).unwrap();
    let mut write = |tokens: usize, segment, tables: &[u32], layer| {
        let rows = vec![0.0; tokens * 4];
        kv::write(&device, &mut cache, layer, &rows, &rows, &[segment], tables)
    };
    assert_eq!(
        message(write(17, segment(0, 17, 0, 0..1), &[0], 0)),
        "kv write: segment 0: 17 tokens need 2 blocks, its table has 1"
    );
    assert_eq!(message(write(1, segment(0, 1, 0, 0..1), &[3], 0)), "kv write: block 3 is out of range, there are 3");
    assert_eq!(message(write(1, segment(0, 1, 0, 0..1), &[0], 1)), "kv write: layer 1 is out of range, there are 1");
    assert!(write(1, segment(0, 2, 0, 0..1), &[0], 0).is_err());
    assert!(write(1, segment(0, 1, 0, 0..2), &[0], 0).is_err());
    assert!(kv::copy_block(&device, &mut cache, 0, 3).is_err());
    let shape = AttentionShape { heads: 2, kv_heads: 1, head_dim: 4, scale: 1.0, window: None };
    let mut out = [0.0; 8];
    let one = [segment(0, 1, 0, 0..1)];
    let mut paged = |shape| attention::paged(&device, &mut out, &[0.0; 8], &cache, 0, &one, &[0], shape);
    assert!(paged(shape).is_ok());
    assert!(paged(AttentionShape { head_dim: 8, ..shape }).is_err());
    assert!(paged(AttentionShape { heads: 3, kv_heads: 2, ..shape }).is_err());
    assert!(paged(AttentionShape { window: Some(0), ..shape }).is_err());
    let two = [segment(0, 1, 0, 0..1), segment(0, 1, 0, 0..1)];
    let overlapping = attention::paged(&device, &mut out, &[0.0; 8], &cache, 0, &two, &[0], shape);
    assert!(message(overlapping).contains("segment 1: rows 0..1 are not inside the free packed rows 1..1"));
}

#[test]
fn empty_steps_do_nothing() {
    let device = Device::cpu(2);
    let matrix = Matrix::from_f32(4, 3, &[1.0; 12]).unwrap();
    matmul::linear(&device, &mut [], &[], &matrix).unwrap();
    let quantised = Matrix::from_bytes(Format::Q8_0, 4, 32, &[0; 4 * 34]).unwrap();
    matmul::linear(&device, &mut [], &[], &quantised).unwrap();
    embed::embedding(&device, &mut [], &matrix, &[]).unwrap();
    norm::rms_norm(&device, &mut [], &[], &[1.0; 4], 1e-5).unwrap();
    pool::mean(&device, &mut [], &[], &[]).unwrap();
    let shape = AttentionShape { heads: 2, kv_heads: 1, head_dim: 4, scale: 1.0, window: None };
    attention::bidirectional(&device, &mut [], &[], &[], &[], &[], shape).unwrap();
    let geometry = KvGeometry {
        layers: 1,
        blocks: 1,
        block_tokens: BLOCK_TOKENS,
        kv_heads: 1,
        head_dim: 4,
        kv_type: KvType::F32,
        state_layers: 0,
        state_values: 0,
    };
    let cache = KvCache::new(&device, geometry).unwrap();
    attention::paged(&device, &mut [], &[], &cache, 0, &[], &[], shape).unwrap();
    let table = rope::RopeTable::new(4, 10, 1e4);
    rope::rope(&device, &mut [], &[], &table, 2, rope::RopeStyle::Halves).unwrap();
}
