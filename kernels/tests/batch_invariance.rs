//! A row's bits are its own: they do not depend on the other rows, threads, chunks, block numbers or instruction set.

mod reference;

use lifelong_kernels::ops::attention::{self, AttentionShape};
use lifelong_kernels::ops::matmul::Precision;
use lifelong_kernels::ops::{activation, kv, matmul, norm, pool, rope};
use lifelong_kernels::{BLOCK_TOKENS, Device, Format, InstructionSet, KvCache, KvGeometry, KvType, Matrix, Segment};
use proptest::prelude::*;
use reference::*;

/// Every instruction set with 1, 2 and 3 threads.
fn all_devices() -> Vec<Device> {
    (1..=3).flat_map(devices).collect()
}

#[test]
fn linear_rows_alone_and_together() {
    for (index, format) in Format::ALL.into_iter().enumerate() {
        let (n, k, rows) = (44, 512, 33);
        let weights = random(200 + index as u64, n * k);
        let (bytes, _) = quantise(format, n, k, &weights);
        let matrix = Matrix::from_bytes(format, n, k, &bytes).unwrap();
        let x = random_with_outliers(220 + index as u64, rows * k);
        for precision in [Precision::Bits8, Precision::Bits16] {
            let mut alone = vec![0.0; rows * n];
            let first = &devices(1)[0];
            for (out, x) in alone.chunks_exact_mut(n).zip(x.chunks_exact(k)) {
                matmul::linear_each(first, &mut [(out, &matrix)], x, precision).unwrap();
            }
            for device in all_devices() {
                for count in [1, 3, 8, 15, 33] {
                    let mut out = vec![0.0; count * n];
                    matmul::linear_each(&device, &mut [(&mut out, &matrix)], &x[..count * k], precision).unwrap();
                    let what = format!("{device:?} {format:?} {precision:?} {count} rows");
                    assert_same_bits(&out, &alone[..count * n], &what);
                }
            }
        }
    }
}

/// Rows so wide that they are multiplied in several runs, and outputs so many that their lines are asked for.
#[test]
fn wide_rows_and_many_outputs_alone_and_together() {
    for (n, k, rows) in [(40, 16384, 70), (20_000, 64, 11)] {
        let (bytes, _) = quantise(Format::Q4_1, n, k, &random(250, n * k));
        let matrix = Matrix::from_bytes(Format::Q4_1, n, k, &bytes).unwrap();
        let x = random(251, rows * k);
        let mut alone = vec![0.0; rows * n];
        for (out, x) in alone.chunks_exact_mut(n).zip(x.chunks_exact(k)) {
            matmul::linear(&devices(1)[0], out, x, &matrix).unwrap();
        }
        for device in all_devices() {
            let mut out = vec![0.0; rows * n];
            matmul::linear(&device, &mut out, &x, &matrix).unwrap();
            assert_same_bits(&out, &alone, &format!("{device:?} [{n}, {k}]"));
        }
    }
}

#[test]
fn several_matrices_at_once_are_each_alone() {
    let (k, rows) = (256, 5);
    let x = random(240, rows * k);
    // Neighbours that share activations, and neighbours that do not.
    let formats = [Format::Q4_1, Format::Q5_1, Format::Q8_0, Format::Q6K, Format::F32, Format::BF16, Format::Q4_1];
    let shapes = [48, 16, 20, 40, 17, 64, 33];
    let matrices: Vec<Matrix> = formats
        .into_iter()
        .zip(shapes)
        .map(|(format, n)| {
            let (bytes, _) = quantise(format, n, k, &random(n as u64, n * k));
            Matrix::from_bytes(format, n, k, &bytes).unwrap()
        })
        .collect();
    for device in all_devices() {
        let mut outs: Vec<Vec<f32>> = shapes.iter().map(|n| vec![0.0; rows * n]).collect();
        let mut products: Vec<(&mut [f32], &Matrix)> = outs.iter_mut().map(Vec::as_mut_slice).zip(&matrices).collect();
        matmul::linear_each(&device, &mut products, &x, Precision::Bits8).unwrap();
        for (out, matrix) in outs.iter().zip(&matrices) {
            let mut alone = vec![0.0; out.len()];
            matmul::linear(&device, &mut alone, &x, matrix).unwrap();
            assert_same_bits(out, &alone, &format!("{device:?} {matrix:?}"));
        }
    }
}

/// Runs an operation on every device and on one row at a time.
fn check_rows(what: &str, width: usize, x: &[f32], run: impl Fn(&Device, &mut [f32], usize)) {
    let mut alone = x.to_vec();
    for (row, x) in alone.chunks_exact_mut(width).enumerate() {
        run(&devices(1)[0], x, row);
    }
    for device in all_devices() {
        let mut together = x.to_vec();
        run(&device, &mut together, 0);
        assert_same_bits(&together, &alone, &format!("{what} on {device:?}"));
    }
}

#[test]
fn elementwise_rows_alone_and_together() {
    let (rows, heads, dim) = (37, 5, 24);
    let width = heads * dim;
    let x = random_with_outliers(250, rows * width);
    let (weight, bias) = (random(251, width), random(252, width));
    check_rows("rms_norm", width, &x, |device, x, _| norm::rms_norm_in_place(device, x, &weight, 1e-5).unwrap());
    check_rows("layer_norm", width, &x, |device, x, _| {
        let input = x.to_vec();
        norm::layer_norm(device, x, &input, &weight, &bias, 1e-5).unwrap();
    });
    check_rows("gelu", width, &x, |device, x, _| activation::gelu(device, x).unwrap());
    check_rows("gelu_tanh", width, &x, |device, x, _| activation::gelu_tanh(device, x).unwrap());
    check_rows("swiglu", width, &x, |device, x, _| {
        let input = x.to_vec();
        activation::swiglu(device, x, &input, &input).unwrap();
    });
    let table = rope::RopeTable::new(dim, 1000, 10_000.0);
    for style in [rope::RopeStyle::Halves, rope::RopeStyle::Interleaved] {
        check_rows("rope", width, &x, |device, x, row| {
            let positions: Vec<u32> = (0..x.len() / width).map(|index| (row + index) as u32 * 23).collect();
            rope::rope(device, x, &positions, &table, heads, style).unwrap();
        });
    }
    check_rows("mean of one row", width, &x, |device, x, _| {
        let input = x.to_vec();
        pool::mean(device, x, &input, &vec![1; input.len() / width]).unwrap();
    });
}

/// One request: its keys, values and queries by position.
struct Request {
    length: usize,
    k: Vec<f32>,
    v: Vec<f32>,
    q: Vec<f32>,
}

const HEADS: usize = 6;
const KV_HEADS: usize = 2;
/// Floats and integers: attention over the two is different code.
const KINDS: [KvType; 2] = [KvType::F32, KvType::I16];

impl Request {
    fn new(seed: u64, length: usize, dim: usize) -> Self {
        let [k, v] = [0, 1].map(|kind| random(seed * 3 + kind, length * KV_HEADS * dim));
        Self { length, k, v, q: random(seed * 3 + 2, length * HEADS * dim) }
    }

    /// The attention of the tokens from `from` on, computed alone, on one thread, with blocks 0, 1, ….
    fn alone(&self, kv_type: KvType, dim: usize, from: usize, window: Option<usize>) -> Vec<f32> {
        let device = &devices(1)[0];
        let blocks = self.length.div_ceil(BLOCK_TOKENS);
        let mut cache = KvCache::new(device, geometry(kv_type, blocks, dim)).unwrap();
        let tables: Vec<u32> = (0..blocks as u32).collect();
        let whole = [segment(0, self.length, 0, 0..blocks)];
        kv::write(device, &mut cache, 0, &self.k, &self.v, &whole, &tables).unwrap();
        let mut out = Vec::new();
        for position in from..self.length {
            let q = &self.q[position * HEADS * dim..][..HEADS * dim];
            let mut row = vec![0.0; q.len()];
            let one = [segment(0, 1, position, 0..blocks)];
            attention::paged(device, &mut row, q, &cache, 0, &one, &tables, shape(dim, window)).unwrap();
            out.extend(row);
        }
        out
    }
}

fn geometry(kv_type: KvType, blocks: usize, dim: usize) -> KvGeometry {
    KvGeometry {
        layers: 1,
        blocks,
        block_tokens: BLOCK_TOKENS,
        kv_heads: KV_HEADS,
        head_dim: dim,
        kv_type,
        state_layers: 0,
        state_values: 0,
    }
}

fn shape(dim: usize, window: Option<usize>) -> AttentionShape {
    AttentionShape { heads: HEADS, kv_heads: KV_HEADS, head_dim: dim, scale: 0.4, window }
}

/// A cache full of numbers that would show if a masked slot took part: none at all, or of integers in every other case large
/// ones, as no number has integers of zero.
fn dirty_cache(device: &Device, kv_type: KvType, blocks: usize, dim: usize) -> KvCache {
    let mut cache = KvCache::new(device, geometry(kv_type, blocks, dim)).unwrap();
    let tables: Vec<u32> = (0..blocks as u32).collect();
    let whole = [segment(0, blocks * BLOCK_TOKENS, 0, 0..blocks)];
    let dirt = match kv_type == KvType::F32 || blocks.is_multiple_of(2) {
        true => vec![f32::NAN; blocks * BLOCK_TOKENS * KV_HEADS * dim],
        false => random(399, blocks * BLOCK_TOKENS * KV_HEADS * dim).iter().map(|x| x * 1e30).collect(),
    };
    kv::write(device, &mut cache, 0, &dirt, &dirt, &whole, &tables).unwrap();
    cache
}

#[test]
fn attention_by_chunks_equals_attention_by_token() {
    let cases = [(64, None), (20, Some(33)), (8, Some(300))];
    for (kv_type, (dim, window)) in KINDS.into_iter().flat_map(|kv_type| cases.map(|case| (kv_type, case))) {
        // Over two splits of 256 positions; the last window is longer than one.
        let request = Request::new(300, 541, dim);
        let expected = request.alone(kv_type, dim, 0, window);
        let blocks = request.length.div_ceil(BLOCK_TOKENS);
        // Blocks in reverse: the numbers themselves mean nothing.
        let tables: Vec<u32> = (0..blocks as u32).rev().collect();
        for device in all_devices() {
            let fastest = device.instruction_set() == InstructionSet::best().name();
            for chunk in if fastest { vec![7, 100, 541] } else { vec![100] } {
                let mut cache = dirty_cache(&device, kv_type, blocks, dim);
                let mut out = vec![0.0; expected.len()];
                let mut start = 0;
                while start < request.length {
                    let count = chunk.min(request.length - start);
                    let fresh = [segment(0, count, start, 0..blocks)];
                    let kv_range = start * KV_HEADS * dim..(start + count) * KV_HEADS * dim;
                    let q_range = start * HEADS * dim..(start + count) * HEADS * dim;
                    let (k, v) = (&request.k[kv_range.clone()], &request.v[kv_range]);
                    kv::write(&device, &mut cache, 0, k, v, &fresh, &tables).unwrap();
                    let (out, q) = (&mut out[q_range.clone()], &request.q[q_range]);
                    attention::paged(&device, out, q, &cache, 0, &fresh, &tables, shape(dim, window)).unwrap();
                    start += count;
                }
                assert_same_bits(
                    &out,
                    &expected,
                    &format!("{device:?} {kv_type:?} chunks of {chunk}, window {window:?}"),
                );
            }
        }
    }
}

/// Requests with a common prefix, in one step: blocks shared or private, in any order.
#[test]
fn attention_over_shared_blocks_equals_private_blocks() {
    let (dim, shared_blocks, count) = (32, 18, 7);
    let mut requests: Vec<Request> =
        (0..count).map(|i| Request::new(310 + i, shared_blocks * BLOCK_TOKENS + 5 * i as usize + 1, dim)).collect();
    let prefix = shared_blocks * BLOCK_TOKENS * KV_HEADS * dim;
    let (first, rest) = requests.split_first_mut().unwrap();
    for request in rest {
        request.k[..prefix].copy_from_slice(&first.k[..prefix]);
        request.v[..prefix].copy_from_slice(&first.v[..prefix]);
    }
    for (kv_type, shared) in KINDS.into_iter().flat_map(|kv_type| [(kv_type, true), (kv_type, false)]) {
        let alone = |request: &Request| request.alone(kv_type, dim, request.length - 1, None);
        let expected: Vec<Vec<f32>> = requests.iter().map(alone).collect();
        let mut tables = Vec::new();
        let mut used = shared_blocks as u32;
        let mut segments = Vec::new();
        for (index, request) in requests.iter().enumerate() {
            let start = tables.len();
            for block in 0..request.length.div_ceil(BLOCK_TOKENS) {
                let reuse = shared && block < shared_blocks;
                tables.push(if reuse { block as u32 } else { used });
                used += u32::from(!reuse);
            }
            segments.push(segment(index, 1, request.length - 1, start..tables.len()));
        }
        for device in all_devices() {
            let mut cache = dirty_cache(&device, kv_type, used as usize, dim);
            for (request, own) in requests.iter().zip(&segments) {
                let whole = [Segment { query_start: 0, query_len: request.length, context_len: 0, ..own.clone() }];
                kv::write(&device, &mut cache, 0, &request.k, &request.v, &whole, &tables).unwrap();
            }
            let q: Vec<f32> =
                requests.iter().flat_map(|request| request.q[(request.length - 1) * HEADS * dim..].to_vec()).collect();
            let mut out = vec![0.0; q.len()];
            attention::paged(&device, &mut out, &q, &cache, 0, &segments, &tables, shape(dim, None)).unwrap();
            assert_same_bits(&out, &expected.concat(), &format!("{device:?} {kv_type:?}, shared {shared}"));
        }
    }
}

/// Pieces with blocks of their own, which threads write side by side, and pieces that meet inside of a block.
#[test]
fn keys_and_values_written_in_pieces_serve_as_those_written_at_once() {
    let dim = 20;
    let request = Request::new(340, 75, dim);
    let tables = [3, 1, 4, 0, 2];
    for (kv_type, cuts) in
        KINDS.into_iter().flat_map(|kv_type| [[0, 16, 48, 64, 75], [0, 37, 38, 54, 75]].map(|c| (kv_type, c)))
    {
        let expected = request.alone(kv_type, dim, 74, None);
        let pieces = cuts.array_windows().map(|[start, end]| [segment(0, end - start, *start, 0..5)]);
        let pieces: Vec<[Segment; 1]> = pieces.collect();
        for device in all_devices() {
            let mut cache = dirty_cache(&device, kv_type, 5, dim);
            let rows: Vec<kv::NewRows<'_>> = (cuts.array_windows().zip(&pieces))
                .map(|([start, end], segments)| {
                    let own = start * KV_HEADS * dim..end * KV_HEADS * dim;
                    kv::NewRows { k: &request.k[own.clone()], v: &request.v[own], segments }
                })
                .collect();
            kv::write_pieces(&device, &mut cache, 0, &rows, &tables).unwrap();
            let mut out = vec![0.0; expected.len()];
            let (q, last) = (&request.q[74 * HEADS * dim..], [segment(0, 1, 74, 0..5)]);
            attention::paged(&device, &mut out, q, &cache, 0, &last, &tables, shape(dim, None)).unwrap();
            assert_same_bits(&out, &expected, &format!("{device:?} {kv_type:?}, pieces {cuts:?}"));
        }
    }
}

#[test]
fn a_copied_block_serves_as_the_original() {
    let (dim, device) = (16, Device::cpu(1));
    let request = Request::new(330, 20, dim);
    for kv_type in KINDS {
        let expected = request.alone(kv_type, dim, 19, None);
        let mut cache = dirty_cache(&device, kv_type, 4, dim);
        kv::write(&device, &mut cache, 0, &request.k, &request.v, &[segment(0, 20, 0, 0..2)], &[0, 1]).unwrap();
        kv::copy_block(&device, &mut cache, 1, 3).unwrap();
        let mut out = vec![0.0; expected.len()];
        let (q, last) = (&request.q[19 * HEADS * dim..], [segment(0, 1, 19, 0..2)]);
        attention::paged(&device, &mut out, q, &cache, 0, &last, &[0, 3], shape(dim, None)).unwrap();
        assert_same_bits(&out, &expected, &format!("copied block of {kv_type:?}"));
    }
}

#[test]
fn texts_alone_and_together() {
    let (dim, lengths) = (32, [3usize, 40, 1, 300, 63]);
    let total: usize = lengths.iter().sum();
    let [q, k, v] =
        [(HEADS, 340), (KV_HEADS, 341), (KV_HEADS, 342)].map(|(heads, seed)| random(seed, total * heads * dim));
    let mut alone = Vec::new();
    let mut start = 0;
    for length in lengths {
        let part = |x: &[f32], heads: usize| x[start * heads * dim..(start + length) * heads * dim].to_vec();
        let mut out = vec![0.0; length * HEADS * dim];
        let (q, k, v) = (part(&q, HEADS), part(&k, KV_HEADS), part(&v, KV_HEADS));
        attention::bidirectional(&devices(1)[0], &mut out, &q, &k, &v, &[length], shape(dim, None)).unwrap();
        alone.extend(out);
        start += length;
    }
    for device in all_devices() {
        let mut out = vec![0.0; q.len()];
        attention::bidirectional(&device, &mut out, &q, &k, &v, &lengths, shape(dim, None)).unwrap();
        assert_same_bits(&out, &alone, &format!("{device:?}"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Any mixture of prefill and decode segments in one step equals each token by itself.
    #[test]
    fn a_packed_step_equals_its_tokens_alone(
        parts in prop::collection::vec((0usize..70, 1usize..40), 1..6),
        window in prop::option::of(1usize..80),
        kv_type in prop::sample::select(KINDS.to_vec()),
        seed in 0u64..1000,
    ) {
        let dim = 12;
        let device = Device::cpu(2);
        let requests: Vec<Request> =
            parts.iter().enumerate().map(|(i, (old, new))| Request::new(seed * 10 + i as u64, old + new, dim)).collect();
        let blocks: usize = requests.iter().map(|request| request.length.div_ceil(BLOCK_TOKENS)).sum();
        let mut cache = dirty_cache(&device, kv_type, blocks, dim);
        // Blocks are dealt in a scrambled order.
        let mut tables: Vec<u32> = (0..blocks as u32).collect();
        tables.sort_by_key(|block| block.wrapping_mul(2_654_435_761).rotate_left(seed as u32 % 32));
        let (mut table, mut row) = (0, 0);
        let (mut segments, mut q, mut expected) = (Vec::new(), Vec::new(), Vec::new());
        for (request, (old, new)) in requests.iter().zip(&parts) {
            let end = table + request.length.div_ceil(BLOCK_TOKENS);
            let whole = [segment(0, request.length, 0, table..end)];
            kv::write(&device, &mut cache, 0, &request.k, &request.v, &whole, &tables).unwrap();
            segments.push(segment(row, *new, *old, table..end));
            q.extend_from_slice(&request.q[old * HEADS * dim..]);
            expected.extend(request.alone(kv_type, dim, *old, window));
            (table, row) = (end, row + new);
        }
        let mut out = vec![0.0; q.len()];
        attention::paged(&device, &mut out, &q, &cache, 0, &segments, &tables, shape(dim, window)).unwrap();
        assert_same_bits(&out, &expected, "packed step");
    }

    /// Any shape of any format gives each row the bits it has alone.
    #[test]
    fn a_product_equals_its_rows_alone(
        format in prop::sample::select(Format::ALL.to_vec()),
        n in 1usize..70,
        groups in 1usize..4,
        rows in 1usize..20,
        seed in 0u64..1000,
    ) {
        let k = groups * format.block_values().max(8);
        let (bytes, _) = quantise(format, n, k, &random(seed, n * k));
        let matrix = Matrix::from_bytes(format, n, k, &bytes).unwrap();
        let x = random(seed + 1, rows * k);
        let device = Device::cpu(2);
        let (mut together, mut alone) = (vec![0.0; rows * n], vec![0.0; rows * n]);
        matmul::linear(&device, &mut together, &x, &matrix).unwrap();
        for (out, x) in alone.chunks_exact_mut(n).zip(x.chunks_exact(k)) {
            matmul::linear(&device, out, x, &matrix).unwrap();
        }
        assert_same_bits(&together, &alone, "product");
    }
}
