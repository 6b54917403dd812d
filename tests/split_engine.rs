//! An engine over a model in parts: the tokens of the whole, in any batch, over any number of copies, and a cache by what each
//! device has.

#[path = "support/engine.rs"]
mod engine;

use engine::{Outcome, Storage, TINY, Written, block_bytes, outcome, outcomes, probe, random_tokens, start};
use lifelong::engine::error::Error;
use lifelong::engine::request::Request;
use lifelong::engine::session::{Engine, EngineOptions};
use lifelong::seed::Seed;
use lifelong_kernels::Device;

fn group() -> Device {
    Device::group(vec![Device::cpu(1), Device::cpu(1)]).unwrap()
}

/// Prompts in groups behind shared prefixes, the likeliest tokens and drawn ones.
fn requests() -> Vec<Request> {
    let mut stream = Seed(9).stream();
    let prefixes: Vec<Vec<u32>> = (0..3).map(|_| random_tokens(&mut stream, 40)).collect();
    let request = |index: usize| {
        let own = random_tokens(&mut stream, 3 + index % 9);
        let temperature = if index.is_multiple_of(2) { 0.0 } else { 0.8 };
        probe([prefixes[index % 3].clone(), own].concat(), temperature, 6, index as u64)
    };
    (0..18).map(request).collect()
}

fn tokens(outcomes: &[Outcome]) -> Vec<Vec<u32>> {
    outcomes.iter().map(|outcome| outcome.0.clone()).collect()
}

#[test]
fn completions_are_those_of_the_whole_in_any_batch_and_over_any_copies() {
    let written = Written::new(TINY, Storage::F32, 4);
    let requests = requests();
    let options = |max_batch| EngineOptions { max_batch, kv_memory_bytes: Some(2 << 20), ..EngineOptions::default() };
    let whole = outcomes(&start(&written.load(&Device::cpu(1)), options(8)).session(), &requests);
    let run = |copies: usize, options: EngineOptions| {
        let models = (0..copies).map(|_| written.load(&group())).collect();
        outcomes(&Engine::start_replicas(models, &options).unwrap().session(), &requests)
    };
    let parts = run(1, options(8));
    assert_eq!(tokens(&parts), tokens(&whole));
    assert_eq!(run(1, options(1)), parts, "alone and in a batch");
    assert_eq!(
        run(1, EngineOptions { prefill_chunk: 7, prefix_cache: false, ..options(3) }),
        parts,
        "chunks, no prefixes"
    );
    assert_eq!(run(2, options(4)), parts, "two copies");
}

/// Each of two devices keeps half of every block, so the same memory on each holds twice as many.
#[test]
fn the_cache_is_counted_by_device() {
    let written = Written::new(TINY, Storage::F32, 4);
    let block = block_bytes(&written.load(&Device::cpu(1)));
    let budget = |device: &Device| {
        let options = EngineOptions { kv_memory_bytes: Some(3 * block), ..EngineOptions::default() };
        let engine = start(&written.load(device), options);
        let long = probe(vec![1; 200], 0.0, 4, 1);
        match engine.session().complete(long).unwrap_err() {
            Error::KvBudget { budget_blocks, needed_blocks, needed_bytes, .. } => {
                (budget_blocks, needed_bytes / needed_blocks as u64)
            }
            other => panic!("{other}"),
        }
    };
    assert_eq!(budget(&Device::cpu(1)), (3, block));
    assert_eq!(budget(&group()), (6, block / 2));
    let one = EngineOptions { kv_memory_bytes: Some(block / 2), ..EngineOptions::default() };
    let error = Engine::start(written.load(&Device::cpu(1)), &one).map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::Option { option: "kv_memory_bytes", .. }), "{error}");
    let engine = start(&written.load(&group()), one);
    assert_eq!(outcome(engine.session().complete(probe(vec![1; 9], 0.0, 4, 1)).unwrap()).0.len(), 4);
}
