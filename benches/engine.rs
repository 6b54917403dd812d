//! Tokens per second of the whole engine on its real workloads: prefill, decoding at several batch sizes, and a small
//! transfer matrix with and without prefix sharing.
//!
//! ```text
//! cargo bench --bench engine                    # all of it
//! cargo bench --bench engine -- --quick         # fewer tokens and runs
//! cargo bench --bench engine -- matrix          # workloads whose name contains a word
//! ```
//!
//! Runs on SmolLM2-135M-Instruct when it is in the model cache (`lifelong models pull smollm2-135m-instruct`), else on
//! random weights of the same shape; the first line says which. Threads: `LIFELONG_BENCH_THREADS`, else all cores.

#[path = "../tests/support/mod.rs"]
mod models;
#[path = "../tests/support/engine.rs"]
mod support;

use std::time::Instant;

use lifelong::engine::model::{LoadedModel, load};
use lifelong::engine::request::Request;
use lifelong::engine::sampling::Sampling;
use lifelong::engine::session::{Engine, EngineOptions};
use lifelong::engine::stats::Stats;
use lifelong::seed::Seed;
use lifelong_kernels::Device;
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

/// How much of each workload to run.
#[derive(Clone, Copy)]
struct Scale {
    runs: usize,
    decode_tokens: usize,
    demonstrations: usize,
    targets: usize,
    seeds: usize,
    matrix_tokens: usize,
}

const FULL: Scale = Scale { runs: 5, decode_tokens: 64, demonstrations: 8, targets: 8, seeds: 5, matrix_tokens: 48 };
const QUICK: Scale = Scale { runs: 3, decode_tokens: 24, demonstrations: 2, targets: 4, seeds: 5, matrix_tokens: 16 };

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let scale = if arguments.iter().any(|argument| argument == "--quick") { QUICK } else { FULL };
    let filter = arguments.iter().find(|argument| !argument.starts_with("--")).cloned().unwrap_or_default();
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
    println!("{name} on {device:?}");
    println!("{:<34} {:>9} {:>19}  {:>8} {:>7} {:>6}", "workload", "tok/s", "(min … max)", "forward", "sample", "rest");
    let bench = Bench { model, scale, filter };
    bench.prefill();
    for batch in [1, 8, 32] {
        bench.decode(batch, Prompts::Own);
        bench.decode(batch, Prompts::Shared);
    }
    bench.matrix(true);
    bench.matrix(false);
}

#[derive(Clone, Copy, PartialEq)]
enum Prompts {
    Own,
    Shared,
}

struct Bench {
    model: LoadedModel,
    scale: Scale,
    filter: String,
}

impl Bench {
    /// One prompt of 512 tokens, nothing of it cached.
    fn prefill(&self) {
        let mut seed = 100;
        self.measure("prefill 512", self.scale.runs, |engine| {
            seed += 1;
            complete(engine, &[request(tokens(seed, 512), 1, 0)]);
            512
        });
    }

    /// A batch of requests behind 512 cached tokens: every step is one token a row.
    fn decode(&self, batch: usize, prompts: Prompts) {
        let prompt_of = |row: usize| match prompts {
            Prompts::Own => tokens(row as u64, 513),
            Prompts::Shared => {
                let mut prompt = tokens(0, 512);
                prompt.extend(tokens(1000 + row as u64, 1));
                prompt
            }
        };
        let requests = |count| (0..batch).map(|row| request(prompt_of(row), count, row as u64)).collect::<Vec<_>>();
        let (warm, timed) = (requests(1), requests(self.scale.decode_tokens));
        let kind = if prompts == Prompts::Own { "own" } else { "shared" };
        self.measure(&format!("decode b={batch} depth 512 {kind}"), self.scale.runs, |engine| {
            if engine.stats().steps == 0 {
                complete(engine, &warm);
            }
            let started = engine.stats();
            complete(engine, &timed);
            (engine.stats().generated_tokens - started.generated_tokens) as usize
        });
    }

    /// Demonstrations of 400 tokens × targets of 150 × seeds.
    fn matrix(&self, is_shared: bool) {
        let Scale { demonstrations, targets, seeds, matrix_tokens, .. } = self.scale;
        let mut requests = Vec::new();
        for demonstration in 0..demonstrations as u64 {
            for target in 0..targets as u64 {
                for seed in 0..seeds as u64 {
                    let prompt = [tokens(demonstration, 400), tokens(100 + target, 150)].concat();
                    requests.push(request(prompt, matrix_tokens, seed));
                }
            }
        }
        let sharing = if is_shared { "prefix sharing" } else { "no sharing" };
        let name = format!("matrix {demonstrations}x{targets}x{seeds}x{matrix_tokens} {sharing}");
        let runs = if is_shared { self.scale.runs.min(3) } else { 1 };
        let options = EngineOptions { prefix_cache: is_shared, ..options() };
        if !name.contains(&self.filter) {
            return;
        }
        let mut samples = Vec::new();
        for _ in 0..runs {
            let engine = Engine::start(self.model.clone(), &options).expect("the engine starts");
            let started = Instant::now();
            complete(&engine, &requests);
            samples.push(Sample { tokens: requests.len() * matrix_tokens, seconds: started.elapsed().as_secs_f64() });
            if samples.len() == runs {
                let wall = samples[runs - 1].seconds;
                report(&name, &mut samples, wall, Stats::default(), engine.stats());
                let Stats { computed_tokens, reused_tokens, steps, preemptions, .. } = engine.stats();
                println!(
                    "    {:.1} s for {} completions; {computed_tokens} tokens computed in {steps} steps, \
                     {reused_tokens} prompt tokens reused, {preemptions} preemptions",
                    samples[samples.len() / 2].seconds,
                    requests.len(),
                );
            }
        }
    }

    /// Runs a workload on one engine, after a warm-up run.
    fn measure(&self, name: &str, runs: usize, mut workload: impl FnMut(&Engine) -> usize) {
        if !name.contains(&self.filter) {
            return;
        }
        let engine = Engine::start(self.model.clone(), &options()).expect("the engine starts");
        workload(&engine);
        let before = engine.stats();
        let mut samples: Vec<Sample> = (0..runs)
            .map(|_| {
                let started = Instant::now();
                let tokens = workload(&engine);
                Sample { tokens, seconds: started.elapsed().as_secs_f64() }
            })
            .collect();
        let wall = samples.iter().map(|sample| sample.seconds).sum();
        report(name, &mut samples, wall, before, engine.stats());
    }
}

struct Sample {
    tokens: usize,
    seconds: f64,
}

impl Sample {
    fn rate(&self) -> f64 {
        self.tokens as f64 / self.seconds
    }
}

/// Prints the median rate with its range, and where the `wall` seconds between the two counts went.
fn report(name: &str, samples: &mut [Sample], wall: f64, before: Stats, after: Stats) {
    samples.sort_by(|left, right| left.rate().total_cmp(&right.rate()));
    let (median, least, most) =
        (samples[samples.len() / 2].rate(), samples[0].rate(), samples[samples.len() - 1].rate());
    let forward = after.forward_seconds - before.forward_seconds;
    let sample = after.sample_seconds - before.sample_seconds;
    let share = |seconds: f64| 100.0 * seconds / wall;
    println!(
        "{name:<34} {median:>9.1} ({least:>8.1} … {most:>7.1})  {:>7.1}% {:>6.1}% {:>5.1}%",
        share(forward),
        share(sample),
        share((wall - forward - sample).max(0.0))
    );
}

/// The default, with a cache that holds every workload here and no more.
fn options() -> EngineOptions {
    EngineOptions { kv_memory_bytes: Some(2 << 30), ..EngineOptions::default() }
}

fn tokens(seed: u64, count: usize) -> Vec<u32> {
    let mut stream = Seed(seed).derive("bench", &[]).stream();
    (0..count).map(|_| 1000 + stream.below(48_000) as u32).collect()
}

fn request(tokens: Vec<u32>, max_tokens: usize, seed: u64) -> Request {
    let sampling = Sampling { temperature: 0.8, top_p: 0.95, max_tokens, ignore_eos: true, ..Sampling::default() };
    Request { tokens, sampling, seed }
}

fn complete(engine: &Engine, requests: &[Request]) {
    for (_, completion) in engine.session().complete_all(requests.to_vec()) {
        completion.expect("a completion");
    }
}
