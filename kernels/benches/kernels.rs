//! Times the operations on the shapes of real models: `cargo bench -p lifelong-kernels [-- PART OF A NAME …]`.
//!
//! Prints the median of repeated runs with the 10th and 90th percentile, and what the median means in GB/s of weights or
//! cache read and in GOP/s (a multiply and an add count as two), each with its share of what this machine can do at
//! most, which is measured first. `-- avx2` (or another instruction set) holds the processor to that set.

use std::hint::black_box;
use std::time::{Duration, Instant};

use lifelong_kernels::limits::Limits;
use lifelong_kernels::ops::{activation, attention, matmul, norm, rope};
use lifelong_kernels::{BLOCK_TOKENS, Device, Format, InstructionSet, KvCache, KvGeometry, KvType, Matrix, Segment};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let (sets, filter): (Vec<String>, Vec<String>) =
        words.into_iter().partition(|word| InstructionSet::ALL.iter().any(|set| set.name() == word));
    let set = InstructionSet::ALL.into_iter().find(|set| sets.iter().any(|name| name == set.name()));
    let set = set.unwrap_or(InstructionSet::best());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    for threads in if threads > 1 { vec![1, threads] } else { vec![1] } {
        let device = Device::cpu_with(threads, set).expect("the instruction set is one this processor has");
        let limits = Limits::measure(&device, LARGE_BYTES).expect("a processor can be measured");
        println!(
            "{device:?}; limits: {:.1} GOP/s of 8-bit products, {:.1} GOP/s of f32, {:.1} GB/s read",
            limits.integers * 1e-9,
            limits.floats * 1e-9,
            limits.read * 1e-9
        );
        let bench = Bench { device, limits, filter: filter.clone() };
        bench.matmuls();
        bench.attention();
        bench.elementwise();
    }
}

/// The area whose reading is the limit: about the packed weights of SmolLM2-135M.
const LARGE_BYTES: usize = 100 << 20;

struct Bench {
    device: Device,
    limits: Limits,
    filter: Vec<String>,
}

impl Bench {
    fn matmuls(&self) {
        let shapes = [
            ("smollm2 q4_1 qkv-o", Format::Q4_1, 576, 576, 30),
            ("smollm2 q4_1 up", Format::Q4_1, 1536, 576, 30),
            ("smollm2 q4_1 down", Format::Q4_1, 576, 1536, 30),
            ("smollm2 q8_0 head", Format::Q8_0, 49152, 576, 1),
            ("smollm2 q4_0 up", Format::Q4_0, 1536, 576, 30),
            ("smollm2 q8_0 up", Format::Q8_0, 1536, 576, 30),
            ("smollm2 bf16 up", Format::BF16, 1536, 576, 30),
            ("smollm2 f32 up", Format::F32, 1536, 576, 30),
            ("gemma q8_0 head", Format::Q8_0, 262_144, 640, 1),
            ("gemma q5_0 up", Format::Q5_0, 2048, 640, 18),
            ("gemma q4_k down", Format::Q4K, 640, 2048, 18),
            ("gemma q6_k down", Format::Q6K, 640, 2048, 18),
            ("minilm f32 qkv-o", Format::F32, 384, 384, 6),
            ("minilm f32 up", Format::F32, 1536, 384, 6),
            ("minilm f32 down", Format::F32, 384, 1536, 6),
            ("minilm rounded up", Format::F32, 1536, 384, 6),
            ("minilm rounded down", Format::F32, 384, 1536, 6),
            ("llama-8b bf16 qkv", Format::BF16, 4096, 4096, 1),
        ];
        for (name, format, n, k, layers) in shapes {
            if !self.wanted(name) {
                continue;
            }
            let is_rounded = name.contains("rounded");
            // As many matrices as the model has, so that a step finds them as cold as a real one does.
            let weights: Vec<Matrix> = (0..layers).map(|_| random_matrix(format, n, k, is_rounded)).collect();
            let bytes: usize = weights.iter().map(Matrix::bytes).sum();
            for rows in [1, 8, 32, 512] {
                let x: Vec<f32> = (0..rows * k).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
                let mut out = vec![0.0; rows * n];
                let time = measure(|| {
                    for w in &weights {
                        matmul::linear(&self.device, &mut out, black_box(&x), w).expect("shapes agree");
                    }
                });
                let operations = 2.0 * (n * k * rows * layers) as f64;
                // Products of 16 bits run at half the rate of those of 8.
                let operations = if is_rounded { 2.0 * operations } else { operations };
                let peak =
                    if format.block_values() == 1 && !is_rounded { self.limits.floats } else { self.limits.integers };
                self.print(&time, &format!("{name} [{n}, {k}] M={rows}"), (operations, peak), bytes as f64);
            }
        }
    }

    fn attention(&self) {
        let (heads, kv_heads, dim, layers) = (9, 3, 64, 30);
        let shape = attention::AttentionShape { heads, kv_heads, head_dim: dim, scale: 0.125, window: None };
        // (name, requests, new tokens each, cached tokens each, of them shared blocks)
        let cases = [
            ("prefill 256 at 0", 1, 256usize, 0usize, 0),
            ("prefill 256 at 512", 1, 256, 512, 0),
            ("prefill 512 at 1536", 1, 512, 1536, 0),
            ("decode 1 at 512", 1, 1, 511, 0),
            ("decode 32 at 512 alone", 32, 1, 511, 0),
            ("decode 32 at 512 sharing 480", 32, 1, 511, 30),
        ];
        let kinds = [(KvType::F16, "f16"), (KvType::I16, "i16")];
        for ((name, requests, fresh, cached, shared), (kv_type, kind)) in
            cases.into_iter().flat_map(|case| kinds.map(|kind| (case, kind)))
        {
            let name = format!("attention {name}, {kind}");
            if !self.wanted(&name) {
                continue;
            }
            let blocks_each = (cached + fresh).div_ceil(BLOCK_TOKENS);
            let mut tables = Vec::new();
            let segments: Vec<Segment> = (0..requests)
                .map(|request| {
                    let start = tables.len();
                    let own = (0..blocks_each)
                        .map(|block| if block < shared { block } else { request * blocks_each + block });
                    tables.extend(own.map(|block| block as u32));
                    let table = start..tables.len();
                    Segment { query_start: request * fresh, query_len: fresh, context_len: cached, table }
                })
                .collect();
            let geometry = KvGeometry {
                layers,
                blocks: requests * blocks_each,
                block_tokens: BLOCK_TOKENS,
                kv_heads,
                head_dim: dim,
                kv_type,
                state_layers: 0,
                state_values: 0,
            };
            let cache = filled_cache(&self.device, geometry);
            let q: Vec<f32> = (0..requests * fresh * heads * dim).map(|i| (i * 31 % 103) as f32 / 50.0 - 1.0).collect();
            let mut out = vec![0.0; q.len()];
            let time = measure(|| {
                for layer in 0..layers {
                    attention::paged(&self.device, &mut out, black_box(&q), &cache, layer, &segments, &tables, shape)
                        .expect("shapes agree");
                }
            });
            let pairs: usize = (0..fresh).map(|token| cached + token + 1).sum::<usize>() * requests;
            let operations = 4.0 * (pairs * heads * dim * layers) as f64;
            let tokens = requests * (cached + fresh);
            let bytes = (tokens * 2 * kv_heads * dim * 2 * layers) as f64;
            self.print(&time, &name, (operations, self.limits.floats), bytes);
        }
        let name = "bidirectional 32 × 63";
        if self.wanted(name) {
            let shape = attention::AttentionShape { heads: 12, kv_heads: 12, head_dim: 32, scale: 0.2, window: None };
            let lengths = [63; 32];
            let q: Vec<f32> = (0..63 * 32 * 384).map(|i| (i * 31 % 103) as f32 / 50.0 - 1.0).collect();
            let mut out = vec![0.0; q.len()];
            let time = measure(|| {
                attention::bidirectional(&self.device, &mut out, &q, &q, black_box(&q), &lengths, shape)
                    .expect("shapes agree");
            });
            let operations = 4.0 * (63 * 63 * 32 * 384) as f64;
            self.print(&time, &format!("attention {name}"), (operations, self.limits.floats), (q.len() * 12) as f64);
        }
    }

    fn elementwise(&self) {
        let (heads, dim) = (9, 64);
        let table = rope::RopeTable::new(dim, 512, 10_000.0);
        for rows in [1, 512] {
            let name = format!("rope [{rows}, {heads}, {dim}]");
            if self.wanted(&name) {
                let positions: Vec<u32> = (0..rows as u32).collect();
                let mut x: Vec<f32> = (0..rows * heads * dim).map(|i| (i * 31 % 103) as f32 / 50.0 - 1.0).collect();
                let time = measure(|| {
                    rope::rope(&self.device, black_box(&mut x), &positions, &table, heads, rope::RopeStyle::Halves)
                        .expect("shapes agree");
                });
                self.print(&time, &name, (3.0 * x.len() as f64, self.limits.floats), (x.len() * 8) as f64);
            }
        }
        for rows in [1, 256] {
            let x: Vec<f32> = (0..rows * 1536).map(|i| (i * 31 % 103) as f32 / 50.0 - 1.0).collect();
            let mut out = vec![0.0; x.len()];
            let name = format!("swiglu [{rows}, 1536]");
            if self.wanted(&name) {
                let time =
                    measure(|| activation::swiglu(&self.device, &mut out, &x, black_box(&x)).expect("shapes agree"));
                self.print(&time, &name, (x.len() as f64, self.limits.floats), (x.len() * 12) as f64);
            }
            let name = format!("gelu [{rows}, 1536]");
            if self.wanted(&name) {
                let time = measure(|| {
                    out.copy_from_slice(&x);
                    activation::gelu(&self.device, black_box(&mut out)).expect("shapes agree");
                });
                self.print(&time, &name, (x.len() as f64, self.limits.floats), (x.len() * 8) as f64);
            }
            let name = format!("rms_norm [{rows}, 1536]");
            if self.wanted(&name) {
                let weight = vec![1.0; 1536];
                let time = measure(|| {
                    norm::rms_norm(&self.device, &mut out, black_box(&x), &weight, 1e-5).expect("shapes agree")
                });
                self.print(&time, &name, (3.0 * x.len() as f64, self.limits.floats), (x.len() * 8) as f64);
            }
        }
    }

    /// `operations`: how many, and the limit they are measured against.
    fn print(&self, time: &Time, name: &str, (operations, peak): (f64, f64), bytes: f64) {
        let seconds = time.median.as_secs_f64();
        let (rate, read) = (operations / seconds, bytes / seconds);
        println!(
            "{name:44} {:>9.1} µs ({:.1}–{:.1})  {:7.1} GOP/s {:3.0} %  {:6.1} GB/s {:3.0} %",
            seconds * 1e6,
            time.low.as_secs_f64() * 1e6,
            time.high.as_secs_f64() * 1e6,
            rate * 1e-9,
            100.0 * rate / peak,
            read * 1e-9,
            100.0 * read / self.limits.read
        );
    }

    fn wanted(&self, name: &str) -> bool {
        self.filter.is_empty() || self.filter.iter().any(|part| name.contains(part.as_str()))
    }
}

/// Weights about one, or bytes that are valid blocks with small finite factors.
fn random_matrix(format: Format, n: usize, k: usize, is_rounded: bool) -> Matrix {
    if format.block_values() == 1 {
        let value = |i: usize| (i.wrapping_mul(2_654_435_761) % 1009) as f32 / 504.0 - 1.0;
        let bytes: Vec<u8> = match format {
            Format::F32 => (0..n * k).flat_map(|i| value(i).to_le_bytes()).collect(),
            Format::F16 => (0..n * k).flat_map(|i| half::f16::from_f32(value(i)).to_le_bytes()).collect(),
            _ => (0..n * k).flat_map(|i| half::bf16::from_f32(value(i)).to_le_bytes()).collect(),
        };
        let matrix = match is_rounded {
            true => Matrix::rounded_on(&Device::cpu(1), format, n, k, &bytes),
            false => Matrix::from_bytes(format, n, k, &bytes),
        };
        return matrix.expect("the size is computed from the shape");
    }
    let size = n * (k / format.block_values()) * format.block_bytes();
    let mut bytes: Vec<u8> = (0..size).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    // A high byte of an f16 or f32 below 0x3c keeps any factor small, wherever the block holds it.
    bytes.iter_mut().for_each(|byte| *byte &= 0x3b);
    Matrix::from_bytes(format, n, k, &bytes).expect("the size is computed from the shape")
}

fn filled_cache(device: &Device, geometry: KvGeometry) -> KvCache {
    let mut cache = KvCache::new(device, geometry).expect("extents are positive");
    let tokens = geometry.blocks * BLOCK_TOKENS;
    let values: Vec<f32> =
        (0..tokens * geometry.kv_heads * geometry.head_dim).map(|i| (i * 29 % 97) as f32 / 48.0 - 1.0).collect();
    let tables: Vec<u32> = (0..geometry.blocks as u32).collect();
    let whole = [Segment { query_start: 0, query_len: tokens, context_len: 0, table: 0..tables.len() }];
    for layer in 0..geometry.layers {
        lifelong_kernels::ops::kv::write(device, &mut cache, layer, &values, &values, &whole, &tables)
            .expect("the table covers all tokens");
    }
    cache
}

struct Time {
    low: Duration,
    median: Duration,
    high: Duration,
}

/// Runs for about half a second after a warm-up.
fn measure(mut run: impl FnMut()) -> Time {
    run();
    let begin = Instant::now();
    let mut times = Vec::new();
    while times.len() < 10 || (begin.elapsed() < Duration::from_millis(500) && times.len() < 2000) {
        let start = Instant::now();
        run();
        times.push(start.elapsed());
    }
    times.sort_unstable();
    Time { low: times[times.len() / 10], median: times[times.len() / 2], high: times[times.len() * 9 / 10] }
}
