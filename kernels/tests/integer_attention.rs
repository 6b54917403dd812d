//! Attention over keys and values as integers ([`KvType::I16`]): what they stand for, how large they grow, and what is no number.

mod reference;

use lifelong_kernels::ops::attention::{self, AttentionShape};
use lifelong_kernels::ops::kv;
use lifelong_kernels::{BLOCK_TOKENS, Device, KvCache, KvGeometry, KvType};
use reference::*;

/// The attention of the last tokens of one request, as many as there are rows of `q`; blocks in reverse.
fn attend(device: &Device, kv_type: KvType, [q, k, v]: [&[f32]; 3], shape: AttentionShape) -> Vec<f32> {
    let AttentionShape { heads, kv_heads, head_dim, .. } = shape;
    let (length, rows) = (k.len() / (kv_heads * head_dim), q.len() / (heads * head_dim));
    let blocks = length.div_ceil(BLOCK_TOKENS);
    let tables: Vec<u32> = (0..blocks as u32).rev().collect();
    let geometry = KvGeometry {
        layers: 1,
        blocks,
        block_tokens: BLOCK_TOKENS,
        kv_heads,
        head_dim,
        kv_type,
        state_layers: 0,
        state_values: 0,
    };
    let mut cache = KvCache::new(device, geometry).unwrap();
    kv::write(device, &mut cache, 0, k, v, &[segment(0, length, 0, 0..blocks)], &tables).unwrap();
    let mut out = vec![0.0; q.len()];
    let last = [segment(0, rows, length - rows, 0..blocks)];
    attention::paged(device, &mut out, q, &cache, 0, &last, &tables, shape).unwrap();
    out
}

fn shape(heads: usize, head_dim: usize, scale: f32) -> AttentionShape {
    AttentionShape { heads, kv_heads: 1, head_dim, scale, window: None }
}

/// Keys, values and queries that are integers already, each head by its largest: what is left is the rounding of weights.
#[test]
fn attention_over_integers_is_attention_over_what_they_stand_for() {
    for (dim, most) in [(64, 5_792.0), (20, 10_362.0), (96, 4_729.0)] {
        let (heads, kv_heads, length) = (6, 3, 300usize);
        let round = |x: &[f32], most: f32| -> Vec<f32> {
            let head = |x: &[f32]| {
                let largest = x.iter().fold(0.0, |largest: f32, x| largest.max(x.abs()));
                let unit = if largest > 0.0 { f64::from(largest) / f64::from(most) } else { 1.0 };
                x.iter().map(|x| ((f64::from(*x) / unit).round_ties_even() * unit) as f32).collect::<Vec<f32>>()
            };
            x.chunks(dim).flat_map(head).collect()
        };
        let [mut k, mut v] = [120, 121].map(|seed| random_with_outliers(seed, length * kv_heads * dim));
        // A head of zeros, a weak one, one of a single number.
        k[..dim].fill(0.0);
        v[dim..2 * dim].iter_mut().for_each(|v| *v *= 1e-20);
        v[3 * dim + 1..4 * dim].fill(0.0);
        let q = random(122, 3 * heads * dim);
        let attend = |device: &Device, kv_type: KvType, q: &[f32], k: &[f32], v: &[f32]| {
            attend(
                device,
                kv_type,
                [q, k, v],
                AttentionShape { heads, kv_heads, head_dim: dim, scale: 0.3, window: None },
            )
        };
        let largest = v.iter().fold(0.0, |largest: f32, v| largest.max(v.abs()));
        let rounded = [round(&q, most), round(&k, most), round(&v, 4_095.0)];
        for device in devices(2) {
            let exact = attend(&device, KvType::F32, &q, &k, &v);
            let expected = attend(&device, KvType::F32, &rounded[0], &rounded[1], &rounded[2]);
            let found = attend(&device, KvType::I16, &q, &k, &v);
            let farthest =
                |a: &[f32], b: &[f32]| a.iter().zip(b).fold(0.0, |most: f32, (a, b)| most.max((a - b).abs()));
            let (error, rounding) = (farthest(&found, &expected), farthest(&found, &exact));
            // Half a step of each of the 16 weights of a block, at the most.
            assert!(error <= largest * 8.5 / 32_767.0, "{device:?}, {dim}: {error}, values up to {largest}");
            assert!(rounding > 0.0 && rounding < largest * 0.01, "{device:?}, {dim}: {rounding} from f32");
        }
    }
}

/// Every integer the largest there is, with one sign and with the other: no sum leaves 32 bits, on any instruction set.
#[test]
fn the_largest_integers_stay_within_their_sums() {
    for dim in [1, 16, 100, 128, 256, 512, 576] {
        for (sign_k, sign_v) in [(1.0, 1.0), (-1.0, 1.0), (1.0, -1.0), (-1.0, -1.0)] {
            let (q, k, v) = (vec![1.5; 5 * dim], vec![2.0 * sign_k; 40 * dim], vec![3.0 * sign_v; 40 * dim]);
            for device in devices(1) {
                let out = attend(&device, KvType::I16, [&q, &k, &v], shape(5, dim, 1.0 / dim as f32));
                let far = out.iter().map(|out| (out - 3.0 * sign_v).abs()).fold(0.0, f32::max);
                assert!(far < 1e-5, "{device:?}, {dim}, {sign_k}, {sign_v}: {far}");
            }
        }
    }
}

/// A number that is none is not hidden by a scale, wherever it stands and whatever it weighs.
#[test]
fn no_number_among_integers_is_no_number_in_the_output() {
    let dim = 20;
    let [q, k, v] = [(131, 3), (132, 33), (133, 33)].map(|(seed, rows)| random(seed, rows * dim));
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for (token, at) in [0, 7, 8, 15, 20, 32].into_iter().flat_map(|token| [(token, 0), (token, 19)]) {
            let place = token * dim + at;
            let with =
                |x: &[f32]| x.iter().enumerate().map(|(i, x)| if i == place { bad } else { *x }).collect::<Vec<_>>();
            for device in devices(1) {
                let of_value = attend(&device, KvType::I16, [&q, &k, &with(&v)], shape(3, dim, 0.2));
                assert!(of_value.iter().all(|out| out.is_nan()), "{device:?}, value {bad} of {token}: {of_value:?}");
                let of_key = attend(&device, KvType::I16, [&q, &with(&k), &v], shape(3, dim, 0.2));
                assert!(of_key.iter().all(|out| out.is_nan()), "{device:?}, key {bad} of {token}: {of_key:?}");
            }
        }
    }
}
