//! `lifelong bench` as a bench target, with what only a developer asks: random weights where the real ones are absent, and
//! the small transfer matrix with and without prefix sharing.
//!
//! ```text
//! cargo bench --bench engine                    # all of it
//! cargo bench --bench engine -- --quick         # fewer tokens and runs
//! cargo bench --bench engine -- decode          # the workload so named, or those whose name contains the word
//! ```
//!
//! Threads: `LIFELONG_BENCH_THREADS`, else all cores.

#[path = "../tests/support/mod.rs"]
mod models;
#[path = "../tests/support/engine.rs"]
mod support;

use lifelong::bench::{
    Kind, MATRIX_WITHOUT_SHARING, MatrixShape, Scale, WORKLOADS, Workload, chosen, header, limits_line, line,
    measure_completions,
};
use lifelong::engine::model::load;
use lifelong_kernels::Device;
use lifelong_kernels::limits::Limits;
use support::{Shape, Storage, Written};

/// SmolLM2-135M with an untied head.
const SMOLLM2: Shape = Shape {
    layers: 30,
    hidden: 576,
    heads: 9,
    kv_heads: 3,
    head_dim: 64,
    feed_forward: 1536,
    vocabulary: 49_152,
    context: 8192,
};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let scale = if arguments.iter().any(|argument| argument == "--quick") { Scale::QUICK } else { Scale::FULL };
    let word = arguments.iter().find(|argument| !argument.starts_with("--"));
    let threads = std::env::var("LIFELONG_BENCH_THREADS").ok().and_then(|text| text.parse().ok());
    let device = Device::cpu(threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)));
    let written;
    let (name, model) = match models::model_files("smollm2-135m-instruct") {
        Some(files) => ("SmolLM2-135M-Instruct Q4_1", load(&files, &device).expect("the model loads")),
        None => {
            written = Written::new(SMOLLM2, Storage::Bf16, 1);
            ("random weights of SmolLM2-135M's shape, BF16", written.load(&device))
        }
    };
    let small = Scale { matrix: MatrixShape::SMALL, ..scale };
    let list: Vec<Workload> = WORKLOADS.iter().copied().chain([MATRIX_SMALL, MATRIX_WITHOUT_SHARING]).collect();
    let weight_bytes = model.decoder.geometry().weight_bytes as usize;
    let limits = Limits::measure(&device, weight_bytes).expect("a processor can be measured");
    println!("{name} on {device:?}\n{}\n\n{}", limits_line(&limits), header());
    for workload in chosen(&list, word.map(String::as_str)).unwrap_or_else(|error| panic!("{error}")) {
        let is_small = [MATRIX_SMALL, MATRIX_WITHOUT_SHARING].contains(&workload);
        match workload.kind {
            Kind::Embed { .. } => {} // `lifelong bench --only embed`
            _ => {
                let scale = if is_small { &small } else { &scale };
                let measured = measure_completions(&model, workload, scale).expect("the workload runs");
                println!("{}", line(&measured, &limits));
            }
        }
    }
}

/// To set beside [`MATRIX_WITHOUT_SHARING`], of the same shape.
const MATRIX_SMALL: Workload = Workload { name: "matrix-small", kind: Kind::Matrix { prefix_cache: true } };
