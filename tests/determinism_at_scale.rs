//! A thousand prompts of 1 to 1500 tokens, through every kind of scheduling: token ids and the bits of the
//! log-probabilities must not move.
//!
//! Always run: twelve configurations in which the values of batch, cache and chunk all meet in pairs. On demand, all 144,
//! and twelve on real weights: `cargo test --release --test determinism_at_scale -- --ignored --nocapture`.

#[path = "support/mod.rs"]
mod models;
#[path = "support/engine.rs"]
mod support;

use lifelong::engine::model::{LoadedModel, load};
use lifelong::engine::request::Request;
use lifelong::engine::session::{Engine, EngineOptions};
use lifelong::seed::{Seed, Stream};
use lifelong_kernels::Device;
use support::{Outcome, Shape, Storage, TINY, Written, block_bytes, outcomes, probe, random_tokens, start};

const PROMPTS: usize = 1000;
const LONGEST: usize = 1500;
const SHAPE: Shape = Shape { context: 2048, ..TINY };

/// What the cache holds when the requests come.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cache {
    Off,
    Cold,
    /// All of these requests ran before.
    Warm,
    /// All of them ran before, in a cache that holds a hundredth of them.
    EvictedAndBack,
}

#[derive(Clone, Copy, Debug)]
struct Scheduling {
    max_batch: usize,
    threads: usize,
    cache: Cache,
    prefill_chunk: usize,
    /// Whether requests nobody asked about run in between.
    strangers: bool,
}

const BATCHES: [usize; 4] = [1, 3, 8, 32];
const CACHES: [Cache; 3] = [Cache::Cold, Cache::Warm, Cache::EvictedAndBack];
const CHUNKS: [usize; 3] = [16, 64, 512];

struct World {
    /// Of one and two threads.
    models: [LoadedModel; 2],
    requests: Vec<Request>,
    strangers: Vec<Request>,
    expected: Vec<Outcome>,
}

impl World {
    fn new() -> World {
        let written = Written::new(SHAPE, Storage::F32, 21);
        World::of([1, 2].map(|threads| written.load(&Device::cpu(threads))), PROMPTS)
    }

    fn of(models: [LoadedModel; 2], prompts: usize) -> World {
        let mut stream = Seed(22).stream();
        let prefixes: Vec<Vec<u32>> = (0..10).map(|_| random_tokens(&mut stream, 300)).collect();
        let requests: Vec<Request> = (0..prompts as u64).map(|seed| request(&mut stream, &prefixes, seed)).collect();
        let strangers = (0..prompts as u64 / 4).map(|seed| request(&mut stream, &prefixes, 5000 + seed)).collect();
        let mut world = World { models, requests, strangers, expected: Vec::new() };
        let alone = Scheduling { max_batch: 1, threads: 1, cache: Cache::Off, prefill_chunk: 512, strangers: false };
        world.expected = world.run(alone);
        world
    }

    /// The outcomes of all requests.
    fn run(&self, scheduling: Scheduling) -> Vec<Outcome> {
        let model = &self.models[scheduling.threads - 1];
        let block = block_bytes(model);
        let blocks = if scheduling.cache == Cache::EvictedAndBack { 200 } else { 40 * self.requests.len() as u64 };
        let options = EngineOptions {
            max_batch: scheduling.max_batch,
            prefill_chunk: scheduling.prefill_chunk,
            prefix_cache: scheduling.cache != Cache::Off,
            kv_memory_bytes: Some(blocks * block),
            ..EngineOptions::default()
        };
        let engine = start(model, options);
        if matches!(scheduling.cache, Cache::Warm | Cache::EvictedAndBack) {
            self.pass(&engine, false);
        }
        let before = engine.stats();
        let found = self.pass(&engine, scheduling.strangers);
        let after = engine.stats();
        let reused = (after.reused_tokens - before.reused_tokens) as f64;
        let share = reused / (after.prompt_tokens - before.prompt_tokens) as f64;
        let is_as_named = match scheduling.cache {
            Cache::Off => reused == 0.0,
            Cache::Cold => share < 0.5,
            Cache::Warm => share > 0.9 || scheduling.strangers && share > 0.6,
            Cache::EvictedAndBack => share < 0.5 && after.evictions > before.evictions,
        };
        assert!(is_as_named, "{share} of the prompts reused, {} evictions: {scheduling:?}", after.evictions);
        found
    }

    fn pass(&self, engine: &Engine, strangers: bool) -> Vec<Outcome> {
        if !strangers {
            return outcomes(&engine.session(), &self.requests);
        }
        // A stranger before every fourth.
        let mut mixed = Vec::new();
        for (index, request) in self.requests.iter().enumerate() {
            mixed.extend((index % 4 == 0).then(|| self.strangers[index / 4].clone()));
            mixed.push(request.clone());
        }
        let all = outcomes(&engine.session(), &mixed).into_iter().enumerate();
        all.filter(|(index, _)| index % 5 != 0).map(|(_, outcome)| outcome).collect()
    }

    #[track_caller]
    fn check(&self, scheduling: Scheduling) {
        let found = self.run(scheduling);
        let differ = found.iter().zip(&self.expected).filter(|(found, expected)| found != expected).count();
        assert!(
            differ == 0 && found.len() == self.requests.len(),
            "{differ} of {} differ under {scheduling:?}",
            found.len()
        );
    }
}

/// A length whose logarithm is uniform; every third begins with one of the prefixes.
fn request(stream: &mut Stream, prefixes: &[Vec<u32>], seed: u64) -> Request {
    let length = (LONGEST as f64).powf(stream.next_f64()).round() as usize;
    let mut tokens = random_tokens(stream, length);
    if seed.is_multiple_of(3) {
        let prefix = &prefixes[stream.below(prefixes.len() as u64) as usize];
        let shared = length.min(prefix.len());
        tokens[..shared].copy_from_slice(&prefix[..shared]);
    }
    let temperature = if seed.is_multiple_of(2) { 0.9 } else { 0.0 };
    probe(tokens, temperature, 1 + stream.below(12) as usize, seed)
}

#[test]
fn every_two_settings_meet() {
    let world = World::new();
    let distinct: std::collections::BTreeSet<_> = world.expected.iter().map(|(.., bits)| bits).collect();
    assert!(distinct.len() > PROMPTS * 9 / 10, "a test over equal outcomes would show nothing: {}", distinct.len());
    for (index, max_batch) in BATCHES.into_iter().enumerate() {
        for (turn, cache) in CACHES.into_iter().enumerate() {
            let prefill_chunk = CHUNKS[(index + turn) % 3];
            let (threads, strangers) = (1 + (index + turn) % 2, (index / 2 + turn) % 2 == 0);
            world.check(Scheduling { max_batch, threads, cache, prefill_chunk, strangers });
        }
    }
}

#[test]
#[ignore = "all 144 configurations take several minutes"]
fn all_settings_meet() {
    let world = World::new();
    for max_batch in BATCHES {
        for cache in CACHES {
            for prefill_chunk in CHUNKS {
                for threads in [1, 2] {
                    for strangers in [false, true] {
                        world.check(Scheduling { max_batch, threads, cache, prefill_chunk, strangers });
                    }
                }
            }
        }
        println!("batch {max_batch}: 36 configurations, no difference");
    }
}

/// Where the arithmetic is that of quantised weights and of rows of 576. Sixty prompts, since each configuration computes all
/// of them: `cargo test --release --test determinism_at_scale -- --ignored --nocapture real_weights`.
#[test]
#[ignore = "real weights take minutes"]
fn real_weights_meet_the_corners() {
    let Some(files) = models::model_files("smollm2-135m-instruct") else { return };
    let world = World::of([1, 2].map(|threads| load(&files, &Device::cpu(threads)).unwrap()), 60);
    for max_batch in [1, 32] {
        for cache in CACHES {
            for prefill_chunk in [16, 512] {
                // The threads and strangers of both halves, so that each meets each batch, cache and chunk.
                let is_odd = (max_batch == 32) ^ (prefill_chunk == 512);
                let (threads, strangers) = if is_odd { (1, true) } else { (2, false) };
                let started = std::time::Instant::now();
                world.check(Scheduling { max_batch, threads, cache, prefill_chunk, strangers });
                let seconds = started.elapsed().as_secs_f64();
                println!(
                    "batch {max_batch}, {cache:?}, chunk {prefill_chunk}, {threads} threads: no difference, {seconds:.0} s"
                );
            }
        }
    }
}
