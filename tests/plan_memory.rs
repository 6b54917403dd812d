//! A plan of many requests costs what its prompts cost: weights, the stated KV budget and 200 MB are enough for 100 000.
//!
//! Linux only, since `/proc` says what a process holds. The whole plan:
//! `cargo test --release --test plan_memory -- --ignored --nocapture`.
#![cfg(target_os = "linux")]

#[path = "support/engine.rs"]
mod support;

use lifelong::engine::request::Request;
use lifelong::engine::sampling::Sampling;
use lifelong::engine::session::{Engine, EngineOptions};
use lifelong::seed::Seed;
use lifelong_kernels::Device;
use support::{Storage, TINY, Written, random_tokens, start};

const MB: u64 = 1_000_000;

/// Above weights and KV cache.
const ALLOWED: u64 = 200 * MB;
const WHOLE_PLAN: usize = 100_000;

/// What a request may cost when a hundred thousand are allowed [`ALLOWED`], a quarter of which is for everything else.
const PER_REQUEST: u64 = ALLOWED / 4 * 3 / WHOLE_PLAN as u64;

/// What a step needs more of when the requests are more, once for all of them.
const SLACK: u64 = 2 * MB;

const KV_BYTES: u64 = 4 * MB;

/// Pairs of demonstrations and targets with five seeds each, as in a transfer matrix: 150 tokens, 4 of them generated.
fn plan(count: usize) -> Vec<Request> {
    const SEEDS: usize = 5;
    const TARGETS: usize = 40;
    let tokens = |seed: usize, count| random_tokens(&mut Seed(seed as u64).stream(), count);
    let sampling = Sampling { temperature: 0.8, top_p: 0.95, max_tokens: 4, ignore_eos: true, ..Sampling::default() };
    (0..count)
        .map(|index| {
            let (pair, seed) = (index / SEEDS, index % SEEDS);
            let prompt = [tokens(1_000 + pair / TARGETS, 100), tokens(pair % TARGETS, 46)].concat();
            Request { tokens: prompt, sampling: sampling.clone(), seed: seed as u64 }
        })
        .collect()
}

/// A number of bytes that the kernel keeps of this process.
fn status(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_start_matches(':').trim().strip_suffix("kB").unwrap().trim().parse::<u64>().unwrap() * 1024
}

fn engine() -> (Engine, u64) {
    let model = Written::new(TINY, Storage::F32, 3).load(&Device::cpu(2));
    let weights = model.decoder.geometry().weight_bytes;
    (start(&model, EngineOptions { kv_memory_bytes: Some(KV_BYTES), ..EngineOptions::default() }), weights)
}

fn complete(engine: &Engine, requests: Vec<Request>) {
    let count = requests.len();
    let ended = engine.session().complete_all(requests).inspect(|(_, completion)| {
        assert_eq!(completion.as_ref().unwrap().tokens.len(), 4);
    });
    assert_eq!(ended.count(), count);
}

#[test]
fn thousands_of_requests_cost_little_more_than_their_prompts() {
    let (engine, _) = engine();
    // Touches the whole cache and every buffer of a full batch.
    complete(&engine, plan(500));
    let before = status("VmRSS");
    // Starts the peak anew from what is held now.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    const REQUESTS: usize = 8_000;
    complete(&engine, plan(REQUESTS));
    let grown = status("VmHWM").saturating_sub(before);
    println!("{REQUESTS} requests: {:.2} MB more at the peak", grown as f64 / MB as f64);
    assert!(grown <= SLACK + REQUESTS as u64 * PER_REQUEST, "{grown} bytes for {REQUESTS} requests");
}

#[test]
#[ignore = "100 000 requests take minutes"]
fn a_hundred_thousand_requests_fit_beside_weights_and_cache() {
    let (engine, weights) = engine();
    complete(&engine, plan(WHOLE_PLAN));
    let peak = status("VmHWM");
    println!(
        "{WHOLE_PLAN} requests: {:.1} MB at the peak, of them {:.1} MB weights and {:.1} MB cache",
        peak as f64 / MB as f64,
        weights as f64 / MB as f64,
        KV_BYTES as f64 / MB as f64
    );
    assert!(peak <= weights + KV_BYTES + ALLOWED, "{peak} bytes");
}
