//! Every operation against a naive reference in double precision, on every instruction set.

mod reference;

use lifelong_kernels::ops::matmul::Precision;
use lifelong_kernels::ops::{activation, attention, embed, kv, matmul, norm, pool, rope};
use lifelong_kernels::{BLOCK_TOKENS, Device, Format, KvCache, KvGeometry, KvType, Matrix};
use reference::*;

#[test]
fn linear_of_plain_weights() {
    for (n, k, rows) in [(5, 7, 3), (48, 384, 1), (100, 640, 9)] {
        let (w, x) = (random(1, n * k), random(2, rows * k));
        let expected = linear(&x, &w, k);
        let bytes = |convert: fn(f32) -> u16| w.iter().flat_map(|w| convert(*w).to_le_bytes()).collect::<Vec<u8>>();
        let f16 = Matrix::from_bytes(Format::F16, n, k, &bytes(|w| half::f16::from_f32(w).to_bits())).unwrap();
        let bf16 = Matrix::from_bytes(Format::BF16, n, k, &bytes(|w| half::bf16::from_f32(w).to_bits())).unwrap();
        let f32_bytes: Vec<u8> = w.iter().flat_map(|w| w.to_le_bytes()).collect();
        let from_bytes = Matrix::from_bytes(Format::F32, n, k, &f32_bytes).unwrap();
        // 11 and 8 significant bits: each weight is off by at most 2⁻¹² and 2⁻⁹ of itself.
        let cases = [(Matrix::from_f32(n, k, &w).unwrap(), 2e-6), (from_bytes, 2e-6), (f16, 2e-4), (bf16, 2e-3)];
        for device in devices(2) {
            for (matrix, tolerance) in &cases {
                let mut out = vec![0.0; rows * n];
                matmul::linear(&device, &mut out, &x, matrix).unwrap();
                let error = relative_error(&out, &expected);
                assert!(error < *tolerance, "{device:?} {matrix:?}: {error}");
                let bias = random(3, n);
                let mut biased = vec![0.0; rows * n];
                matmul::linear_bias(&device, &mut biased, &x, matrix, &bias).unwrap();
                let expected: Vec<f32> = out.iter().enumerate().map(|(index, y)| y + bias[index % n]).collect();
                assert_same_bits(&biased, &expected, "bias is added last");
            }
        }
    }
}

/// Activations are rounded to half a step of largest/254 in each group of 32, independently: against weights of size
/// w the error of a sum over k has standard deviation √k · w · largest / 254 / √3. Six of those is the bound.
fn quantised_bound(x: &[f32], w: &[f32], k: usize) -> f64 {
    let largest = x.chunks(32).map(|group| group.iter().fold(0f32, |a, b| a.max(b.abs()))).map(f64::from);
    let mean_square = largest.map(|value| value * value).sum::<f64>() / (x.len() / 32) as f64;
    let w_square = w.iter().map(|w| f64::from(*w).powi(2)).sum::<f64>() / w.len() as f64;
    6.0 * (k as f64 * w_square * mean_square / 3.0).sqrt() / 254.0
}

#[test]
fn linear_of_quantised_weights_is_as_close_as_its_activations_allow() {
    let formats = Format::ALL.into_iter().filter(|format| format.block_values() > 1);
    for (index, format) in formats.enumerate() {
        for (n, k, rows) in [(33, 256usize, 3), (48, 768, 2), (16, 576, 1), (20, 640, 5)] {
            if !k.is_multiple_of(format.block_values()) {
                continue;
            }
            let weights = random(10 + index as u64, n * k);
            let (bytes, read_back) = quantise(format, n, k, &weights);
            let matrix = Matrix::from_bytes(format, n, k, &bytes).unwrap();
            let x = random_with_outliers(20 + index as u64, rows * k);
            let expected = linear(&x, &read_back, k);
            for device in devices(2) {
                for (precision, finer) in [(Precision::Bits8, 1.0), (Precision::Bits16, 250.0)] {
                    let mut out = vec![0.0; rows * n];
                    matmul::linear_each(&device, &mut [(&mut out, &matrix)], &x, precision).unwrap();
                    let bound = quantised_bound(&x, &read_back, k) / finer;
                    for (found, expected) in out.iter().zip(&expected) {
                        let error = (f64::from(*found) - expected).abs();
                        assert!(error < bound, "{device:?} {format:?} {precision:?} k {k}: {error}, bound {bound}");
                    }
                }
            }
        }
    }
}

/// When activations fit 8 bits exactly, nothing but f32 rounding is left: this catches a wrong zero or minimum.
#[test]
fn linear_of_quantised_weights_is_exact_for_8_bit_activations() {
    for (index, format) in Format::ALL.into_iter().filter(|format| format.block_values() > 1).enumerate() {
        let (n, k, rows) = (37, 512, 4);
        let (bytes, read_back) = quantise(format, n, k, &random(30 + index as u64, n * k));
        let matrix = Matrix::from_bytes(format, n, k, &bytes).unwrap();
        let mut x: Vec<f32> = random(40, rows * k).iter().map(|x| (x * 126.0).round() / 127.0).collect();
        x.chunks_exact_mut(32).for_each(|group| group[7] = 1.0);
        let expected = linear(&x, &read_back, k);
        for device in devices(1) {
            for precision in [Precision::Bits8, Precision::Bits16] {
                let mut out = vec![0.0; rows * n];
                matmul::linear_each(&device, &mut [(&mut out, &matrix)], &x, precision).unwrap();
                let error = relative_error(&out, &expected);
                assert!(error < 3e-6, "{device:?} {format:?} {precision:?}: {error}");
            }
        }
    }
}

/// What rounding to 8 bits leaves over is at most half a step, 128 of the finer units: one more than an 8-bit integer
/// holds.
#[test]
fn linear_of_16_bit_activations_holds_half_steps() {
    let (n, k) = (17, 64);
    for (index, format) in [Format::Q4_0, Format::Q4_1, Format::Q8_0].into_iter().enumerate() {
        let (bytes, read_back) = quantise(format, n, k, &random(45 + index as u64, n * k));
        let matrix = Matrix::from_bytes(format, n, k, &bytes).unwrap();
        // Halves between levels, those that go up and those that go down, of both signs.
        let mut x: Vec<f32> = (0..k).map(|i| (i as f32 - 32.0) + 0.5).collect();
        x.chunks_exact_mut(32).for_each(|group| group[7] = 127.0);
        let expected = linear(&x, &read_back, k);
        for device in devices(1) {
            let mut out = vec![0.0; n];
            matmul::linear_each(&device, &mut [(&mut out, &matrix)], &x, Precision::Bits16).unwrap();
            let error = relative_error(&out, &expected);
            assert!(error < 3e-4, "{device:?} {format:?}: {error}");
        }
    }
}

/// Any bytes are legal blocks; scales that are not finite are left out by construction of the bytes.
#[test]
fn embedding_reads_every_format_as_candle_does() {
    for (index, format) in Format::ALL.into_iter().enumerate() {
        let (n, k) = (40, 512);
        let weights = random(50 + index as u64, n * k);
        let (bytes, expected) = quantise(format, n, k, &weights);
        let table = Matrix::from_bytes(format, n, k, &bytes).unwrap();
        assert_eq!((table.rows(), table.columns(), table.format()), (n, k, format));
        let tokens = [39, 0, 17, 17];
        for device in devices(2) {
            let mut out = vec![0.0; tokens.len() * k];
            embed::embedding(&device, &mut out, &table, &tokens).unwrap();
            for (out, token) in out.chunks_exact(k).zip(tokens) {
                let expected: Vec<f64> = expected[token as usize * k..][..k].iter().map(|x| f64::from(*x)).collect();
                let error = relative_error(out, &expected);
                assert!(error < 2e-7, "{format:?} row {token}: {error}");
            }
        }
    }
}

#[test]
fn norms() {
    for width in [64, 100, 576] {
        let (x, weight, bias) = (random_with_outliers(60, 3 * width), random(61, width), random(62, width));
        let rows = || x.chunks_exact(width).map(|row| row.iter().map(|x| f64::from(*x)).collect::<Vec<f64>>());
        let rms: Vec<f64> = rows()
            .flat_map(|row| {
                let scale = (row.iter().map(|x| x * x).sum::<f64>() / width as f64 + 1e-5).sqrt();
                row.into_iter().zip(&weight).map(move |(x, w)| x / scale * f64::from(*w)).collect::<Vec<_>>()
            })
            .collect();
        let centred: Vec<f64> = rows()
            .flat_map(|row| {
                let mean = row.iter().sum::<f64>() / width as f64;
                let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width as f64;
                let scale = (variance + 1e-12).sqrt();
                let affine = weight.iter().zip(&bias).map(|(w, b)| (f64::from(*w), f64::from(*b)));
                row.iter().zip(affine).map(|(x, (w, b))| (x - mean) / scale * w + b).collect::<Vec<_>>()
            })
            .collect();
        for device in devices(2) {
            let mut out = vec![0.0; x.len()];
            norm::rms_norm(&device, &mut out, &x, &weight, 1e-5).unwrap();
            assert!(relative_error(&out, &rms) < 1e-6, "{device:?} rms {width}");
            let mut in_place = x.clone();
            norm::rms_norm_in_place(&device, &mut in_place, &weight, 1e-5).unwrap();
            assert_same_bits(&in_place, &out, "rms in place");
            let (half, mut residual): (Vec<f32>, Vec<f32>) = x.iter().map(|x| (x * 0.5, x * 0.5)).unzip();
            let mut fused = vec![0.0; x.len()];
            norm::rms_norm_residual(&device, &mut residual, &mut fused, &half, &weight, 1e-5).unwrap();
            assert_same_bits(&fused, &out, "rms with residual");
            assert_same_bits(&residual, &x, "residual");
            norm::layer_norm(&device, &mut out, &x, &weight, &bias, 1e-12).unwrap();
            assert!(relative_error(&out, &centred) < 1e-6, "{device:?} layer norm {width}");
            let mut residual = half.clone();
            norm::layer_norm_residual(&device, &mut residual, &half, &weight, &bias, 1e-12).unwrap();
            assert_same_bits(&residual, &out, "layer norm with residual");
        }
    }
}

#[test]
fn activations() {
    let x: Vec<f32> =
        (-4000..4000).map(|i| i as f32 * 0.005).chain([-1e30, -200.0, -88.0, 88.0, 200.0, 1e30]).collect();
    let up = random(70, x.len());
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let tanh = |x: f64| x * sigmoid(2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x));
    for device in devices(2) {
        let close = |found: &[f32], expected: &dyn Fn(usize, f64) -> f64, what: &str| {
            for (index, (found, x)) in found.iter().zip(&x).enumerate() {
                let expected = expected(index, f64::from(*x));
                let error = (f64::from(*found) - expected).abs();
                assert!(error <= 2e-7 * expected.abs() + 2e-7, "{device:?} {what}({x}) = {found}, expected {expected}");
            }
        };
        let mut out = vec![0.0; x.len()];
        activation::swiglu(&device, &mut out, &x, &up).unwrap();
        close(&out, &|index, x| x * sigmoid(x) * f64::from(up[index]), "swiglu");
        activation::geglu_tanh(&device, &mut out, &x, &up).unwrap();
        close(&out, &|index, x| tanh(x) * f64::from(up[index]), "geglu");
        out.copy_from_slice(&x);
        activation::gelu_tanh(&device, &mut out).unwrap();
        close(&out, &|_, x| tanh(x), "gelu_tanh");
        out.copy_from_slice(&x);
        activation::gelu(&device, &mut out).unwrap();
        close(&out, &|_, x| 0.5 * x * (1.0 + erf(x / 2f64.sqrt())), "gelu");
    }
}

/// Taylor series near zero, continued fraction of erfc beyond (both to double precision).
fn erf(x: f64) -> f64 {
    let magnitude = x.abs();
    if magnitude < 2.5 {
        let (mut term, mut sum, mut n) = (x, x, 0.0);
        while f64::abs(term) > 1e-18 {
            n += 1.0;
            term *= -x * x / n;
            sum += term / (2.0 * n + 1.0);
        }
        return sum * 2.0 / std::f64::consts::PI.sqrt();
    }
    let tail = (1..60).rev().fold(magnitude, |below, n| magnitude + f64::from(n) / 2.0 / below);
    x.signum() * (1.0 - (-x * x).exp() / tail / std::f64::consts::PI.sqrt())
}

#[test]
fn rotations() {
    let (heads, dim, positions) = (3, 64, [0u32, 5, 511]);
    let x = random(80, positions.len() * heads * dim);
    for rotary in [64, 40] {
        let table = rope::RopeTable::new(rotary, 512, 10_000.0);
        for style in [rope::RopeStyle::Halves, rope::RopeStyle::Interleaved] {
            let mut expected: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
            for (index, head) in expected.chunks_exact_mut(dim).enumerate() {
                for pair in 0..rotary / 2 {
                    let (a, b) = match style {
                        rope::RopeStyle::Halves => (pair, pair + rotary / 2),
                        rope::RopeStyle::Interleaved => (2 * pair, 2 * pair + 1),
                    };
                    let angle =
                        f64::from(positions[index / heads]) * 10_000f64.powf(-2.0 * pair as f64 / rotary as f64);
                    let (first, second) = (head[a], head[b]);
                    head[a] = first * angle.cos() - second * angle.sin();
                    head[b] = second * angle.cos() + first * angle.sin();
                }
            }
            for device in devices(2) {
                let mut out = x.clone();
                rope::rope(&device, &mut out, &positions, &table, heads, style).unwrap();
                let error = relative_error(&out, &expected);
                assert!(error < 2e-7, "{device:?} {style:?} {rotary}: {error}");
            }
        }
    }
}

#[test]
fn paged_attention() {
    // Lengths on both sides of a block border, three requests, blocks scattered over the pool.
    for (heads, kv_heads, dim, window) in [(6, 2, 64, None), (4, 1, 40, Some(20)), (2, 2, 8, None)] {
        let shape = attention::AttentionShape { heads, kv_heads, head_dim: dim, scale: 0.3, window };
        let lengths = [1, 16, 45];
        let fresh = [1, 3, 45];
        let geometry = KvGeometry {
            layers: 2,
            blocks: 12,
            block_tokens: BLOCK_TOKENS,
            kv_heads,
            head_dim: dim,
            kv_type: KvType::F32,
            state_layers: 0,
            state_values: 0,
        };
        let tables = [7, 3, 9, 1, 11];
        let ranges = [0..1, 1..2, 2..5];
        let width = kv_heads * dim;
        for device in devices(2) {
            let mut cache = KvCache::new(&device, geometry).unwrap();
            let keys: Vec<Vec<f32>> = (0..3).map(|i| random(90 + i as u64, lengths[i] * width)).collect();
            let values: Vec<Vec<f32>> = (0..3).map(|i| random(95 + i as u64, lengths[i] * width)).collect();
            for i in 0..3 {
                let whole = [segment(0, lengths[i], 0, ranges[i].clone())];
                kv::write(&device, &mut cache, 1, &keys[i], &values[i], &whole, &tables).unwrap();
            }
            let mut start = 0;
            let segments: Vec<_> = (0..3)
                .map(|i| {
                    start += fresh[i];
                    segment(start - fresh[i], fresh[i], lengths[i] - fresh[i], ranges[i].clone())
                })
                .collect();
            let q = random(99, start * heads * dim);
            let mut out = vec![0.0; q.len()];
            attention::paged(&device, &mut out, &q, &cache, 1, &segments, &tables, shape).unwrap();
            for (i, segment) in segments.iter().enumerate() {
                for token in 0..segment.query_len {
                    let end = segment.context_len + token + 1;
                    let begin = end.saturating_sub(window.unwrap_or(end));
                    for head in 0..heads {
                        let at = ((segment.query_start + token) * heads + head) * dim;
                        let rows = |x: &[f32]| {
                            let from = |p| (p * kv_heads + head / (heads / kv_heads)) * dim;
                            (begin..end).map(|p| x[from(p)..][..dim].to_vec()).collect::<Vec<_>>()
                        };
                        let expected = attend(&q[at..][..dim], &rows(&keys[i]), &rows(&values[i]), 0.3f32.into());
                        let error = relative_error(&out[at..][..dim], &expected);
                        assert!(error < 1e-5, "{device:?} request {i} token {token} head {head}: {error}");
                    }
                }
            }
        }
    }
}

/// Windows that end inside a split of 256 keys, on its border, and span several; heads as wide as Gemma's.
#[test]
fn windows_over_a_long_context() {
    let (heads, kv_heads, dim, length) = (4, 1, 256, 1100);
    let blocks = usize::div_ceil(length, BLOCK_TOKENS);
    let geometry = KvGeometry {
        layers: 1,
        blocks,
        block_tokens: BLOCK_TOKENS,
        kv_heads,
        head_dim: dim,
        kv_type: KvType::F32,
        state_layers: 0,
        state_values: 0,
    };
    let tables: Vec<u32> = (0..blocks as u32).rev().collect();
    let [keys, values] = [110, 111].map(|seed| random(seed, length * dim));
    // The last tokens alone are asked for: context and step meet inside every window.
    let fresh = 3;
    let q = random(112, fresh * heads * dim);
    for device in devices(2) {
        let mut cache = KvCache::new(&device, geometry).unwrap();
        kv::write(&device, &mut cache, 0, &keys, &values, &[segment(0, length, 0, 0..blocks)], &tables).unwrap();
        for window in [1, 17, 256, 512, 844, 1099, 5000] {
            let shape =
                attention::AttentionShape { heads, kv_heads, head_dim: dim, scale: 0.0625, window: Some(window) };
            let segments = [segment(0, fresh, length - fresh, 0..blocks)];
            let mut out = vec![0.0; q.len()];
            attention::paged(&device, &mut out, &q, &cache, 0, &segments, &tables, shape).unwrap();
            for (token, head) in (0..fresh).flat_map(|token| (0..heads).map(move |head| (token, head))) {
                let end = length - fresh + token + 1;
                let seen = end.saturating_sub(window)..end;
                let rows = |x: &[f32]| seen.clone().map(|p| x[p * dim..][..dim].to_vec()).collect::<Vec<_>>();
                let at = (token * heads + head) * dim;
                let expected = attend(&q[at..][..dim], &rows(&keys), &rows(&values), 0.0625);
                let error = relative_error(&out[at..][..dim], &expected);
                assert!(error < 1e-5, "{device:?} window {window} token {token} head {head}: {error}");
            }
        }
    }
}

/// A cache of a shorter type gives the bits of an `f32` cache that was written rounded numbers.
#[test]
fn short_caches_are_f32_caches_of_rounded_numbers() {
    let (heads, kv_heads, dim, length) = (6, 2, 40, 300usize);
    let shape = attention::AttentionShape { heads, kv_heads, head_dim: dim, scale: 0.2, window: None };
    let blocks = length.div_ceil(BLOCK_TOKENS) + 1;
    let tables: Vec<u32> = (1..=blocks as u32 - 1).rev().collect();
    let [mut k, mut v] = [110, 111].map(|seed| random_with_outliers(seed, length * kv_heads * dim));
    (k[7], v[2000]) = (1e-7, -3e-6);
    v[11] = 1e9;
    let q = random(112, 3 * heads * dim);
    let f16 = |x: &f32| half::f16::from_f32(x.clamp(-65504.0, 65504.0)).to_f32();
    let bf16 = |x: &f32| half::bf16::from_f32(*x).to_f32();
    let attend = |device: &Device, kv_type: KvType, k: &[f32], v: &[f32]| {
        let geometry = KvGeometry {
            layers: 2,
            blocks,
            block_tokens: BLOCK_TOKENS,
            kv_heads,
            head_dim: dim,
            kv_type,
            state_layers: 0,
            state_values: 0,
        };
        let mut cache = KvCache::new(device, geometry).unwrap();
        kv::write(device, &mut cache, 1, k, v, &[segment(0, length, 0, 0..blocks - 1)], &tables).unwrap();
        // The last block's keys and values live in a copy.
        let mut tables = tables.clone();
        kv::copy_block(device, &mut cache, tables[blocks - 2], 0).unwrap();
        tables[blocks - 2] = 0;
        let mut out = vec![0.0; q.len()];
        let last = [segment(0, 3, length - 3, 0..blocks - 1)];
        attention::paged(device, &mut out, &q, &cache, 1, &last, &tables, shape).unwrap();
        out
    };
    for device in devices(2) {
        let exact = attend(&device, KvType::F32, &k, &v);
        for (kv_type, round) in [(KvType::F16, &f16 as &dyn Fn(&f32) -> f32), (KvType::BF16, &bf16)] {
            let rounded = [&k, &v].map(|x| x.iter().map(round).collect::<Vec<f32>>());
            let expected = attend(&device, KvType::F32, &rounded[0], &rounded[1]);
            let found = attend(&device, kv_type, &k, &v);
            assert_same_bits(&found, &expected, &format!("{device:?} {kv_type:?}"));
            assert!(found != exact, "{kv_type:?} rounds nothing");
        }
    }
}

#[test]
fn bidirectional_attention() {
    let (heads, dim, lengths) = (3, 32, [1usize, 17, 40]);
    let total = lengths.iter().sum::<usize>();
    let shape = attention::AttentionShape { heads, kv_heads: heads, head_dim: dim, scale: 0.2, window: None };
    let [q, k, v] = [100, 101, 102].map(|seed| random(seed, total * heads * dim));
    for device in devices(2) {
        let mut out = vec![0.0; q.len()];
        attention::bidirectional(&device, &mut out, &q, &k, &v, &lengths, shape).unwrap();
        let mut start = 0;
        for length in lengths {
            for (token, head) in (0..length).flat_map(|token| (0..heads).map(move |head| (token, head))) {
                let rows = |x: &[f32]| {
                    let from = |t: usize| ((start + t) * heads + head) * dim;
                    (0..length).map(|t| x[from(t)..][..dim].to_vec()).collect::<Vec<_>>()
                };
                let at = ((start + token) * heads + head) * dim;
                let expected = attend(&q[at..][..dim], &rows(&k), &rows(&v), 0.2f32.into());
                let error = relative_error(&out[at..][..dim], &expected);
                assert!(error < 1e-5, "{device:?} length {length} token {token}: {error}");
            }
            start += length;
        }
    }
}

#[test]
fn bidirectional_attention_with_a_bias_by_distance() {
    let (heads, dim, lengths) = (3, 20, [1usize, 17, 40]);
    let total = lengths.iter().sum::<usize>();
    let shape = attention::AttentionShape { heads, kv_heads: heads, head_dim: dim, scale: 0.2, window: None };
    let [q, k, v] = [103, 104, 105].map(|seed| random(seed, total * heads * dim));
    let of = |head: usize, distance: isize| (head as f32 + 1.0) * (distance as f32 * 0.7).sin();
    let bias = attention::DistanceBias::new(heads, 40, of);
    for device in devices(2) {
        let mut out = vec![0.0; q.len()];
        attention::bidirectional_biased(&device, &mut out, &q, &k, &v, &lengths, shape, &bias).unwrap();
        let mut start = 0;
        for length in lengths {
            let mut alone = vec![0.0; length * heads * dim];
            let [q, k, v] = [&q, &k, &v].map(|x| &x[start * heads * dim..][..length * heads * dim]);
            let out = &out[start * heads * dim..][..length * heads * dim];
            attention::bidirectional_biased(&device, &mut alone, q, k, v, &[length], shape, &bias).unwrap();
            assert_eq!(alone, out, "{device:?}: packed and alone differ");
            for (token, head) in (0..length).flat_map(|token| (0..heads).map(move |head| (token, head))) {
                let row = |x: &[f32], t: usize| x[(t * heads + head) * dim..][..dim].to_vec();
                let query: Vec<f64> = row(q, token).iter().map(|q| f64::from(*q)).collect();
                let scores: Vec<f64> = (0..length)
                    .map(|t| {
                        let dot: f64 = query.iter().zip(row(k, t)).map(|(q, k)| q * f64::from(k)).sum();
                        dot * f64::from(0.2f32) + f64::from(of(head, t as isize - token as isize))
                    })
                    .collect();
                let sum: f64 = scores.iter().map(|score| score.exp()).sum();
                let mut expected = vec![0.0f64; dim];
                for (t, score) in scores.iter().enumerate() {
                    let weight = score.exp() / sum;
                    expected.iter_mut().zip(row(v, t)).for_each(|(e, v)| *e += weight * f64::from(v));
                }
                let error = relative_error(&row(out, token), &expected);
                assert!(error < 1e-5, "{device:?} length {length} token {token}: {error}");
            }
            start += length;
        }
    }
    let mut out = vec![0.0; 41 * heads * dim];
    let rows = vec![0.0; out.len()];
    let device = &devices(1)[0];
    let error =
        attention::bidirectional_biased(device, &mut out, &rows, &rows, &rows, &[41], shape, &bias).unwrap_err();
    assert!(error.to_string().contains("reach 40"), "{error}");
}

#[test]
fn pooling() {
    let device = lifelong_kernels::Device::cpu(1);
    let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 9.0];
    let mut out = [0.0; 4];
    pool::mean(&device, &mut out, &x, &[1, 3]).unwrap();
    assert_eq!(out, [1.0, 2.0, 5.0, 19.0 / 3.0]);
    pool::cls(&device, &mut out, &x, &[1, 3]).unwrap();
    assert_eq!(out, [1.0, 2.0, 3.0, 4.0]);
    pool::last(&device, &mut out, &x, &[1, 3]).unwrap();
    assert_eq!(out, [1.0, 2.0, 7.0, 9.0]);
    let mut rows = [3.0, 4.0, 0.0, 0.0];
    pool::l2_normalize(&device, &mut rows, 2).unwrap();
    assert_eq!(rows, [0.6, 0.8, 0.0, 0.0]);
}
