//! The engine on a GPU, run by the emulator: the tokens of the processor, alone and in any batch, whether a row is drawn where
//! its logits are or brought over for penalties and log-probabilities.
//!
//! Needs the feature `emulate`; without it the test prints that it was skipped.

#[path = "support/engine.rs"]
mod engine;

use engine::{Outcome, Storage, TINY, Written, outcomes, start};
use lifelong::engine::forced::ForcedRequest;
use lifelong::engine::request::Request;
use lifelong::engine::sampling::Sampling;
use lifelong::engine::session::{Engine, EngineOptions};
use lifelong::seed::Seed;
use lifelong_kernels::{Device, KvType, Launches, Launching};

/// Keys and values whose attention has the processor's bits.
const EXACT: Option<KvType> = Some(KvType::F32);

/// Prompts of several lengths, some with the same beginning, drawn in every way.
fn requests() -> Vec<Request> {
    let mut stream = Seed(5).stream();
    let shared = engine::random_tokens(&mut stream, 20);
    let base = Sampling { max_tokens: 5, ignore_eos: true, ..Sampling::default() };
    let warm = Sampling { temperature: 0.9, ..base.clone() };
    let ways = [
        base.clone(),
        warm.clone(),
        Sampling { top_k: 7, top_p: 0.9, ..warm.clone() },
        Sampling { min_p: 0.05, ..warm.clone() },
        Sampling { repetition_penalty: 1.3, presence_penalty: 0.2, ..warm.clone() },
        Sampling { logprobs: 2, ..warm },
    ];
    let request = |(index, sampling): (usize, Sampling)| {
        let own = engine::random_tokens(&mut stream, 3 + index * 4);
        let tokens = if index.is_multiple_of(2) { [shared.clone(), own].concat() } else { own };
        Request { tokens, sampling, seed: 40 + index as u64 }
    };
    ways.into_iter().enumerate().map(request).collect()
}

/// Tokens, texts and endings; the bits of log-probabilities may differ in the last place.
fn tokens(outcomes: &[Outcome]) -> Vec<Vec<u32>> {
    outcomes.iter().map(|outcome| outcome.0.clone()).collect()
}

#[test]
fn completions_are_those_of_the_processor_in_any_batch() {
    let device = match Device::emulated(0) {
        Ok(device) => device,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let written = Written::new(TINY, Storage::F32, 11);
    let requests = requests();
    let run = |device: &Device, max_batch: usize| {
        let options =
            EngineOptions { max_batch, kv_memory_bytes: Some(4 << 20), kv_type: EXACT, ..EngineOptions::default() };
        outcomes(&start(&written.load(device), options).session(), &requests)
    };
    let expected = run(&Device::cpu(1), 8);
    let together = run(&device, 8);
    assert_eq!(tokens(&together), tokens(&expected));
    assert_eq!(run(&device, 1), together, "alone and in a batch");
}

/// Left to itself a GPU keeps f16; integers it refuses before anything is computed.
#[test]
fn keys_and_values_are_f16_unless_asked_otherwise_and_never_integers() {
    let device = match Device::emulated(0) {
        Ok(device) => device,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let model = Written::new(TINY, Storage::F32, 11).load(&device);
    let options =
        |kv_type| EngineOptions { max_batch: 8, kv_memory_bytes: Some(4 << 20), kv_type, ..EngineOptions::default() };
    let run = |kv_type| outcomes(&start(&model, options(kv_type)).session(), &requests()[..2]);
    assert_eq!(run(None), run(Some(KvType::F16)));
    let refused = Engine::start(model.clone(), &options(Some(KvType::I16))).map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("kv_type") && refused.contains("i16") && refused.contains("on a GPU"), "{refused}");
}

/// Rows whose log-probabilities are asked for stand in the batches of rows that are drawn on the device.
#[test]
fn forced_tokens_have_the_processors_log_probabilities_beside_drawn_ones() {
    let device = match Device::emulated(0) {
        Ok(device) => device,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let written = Written::new(TINY, Storage::F32, 11);
    let requests = requests();
    let forced: Vec<ForcedRequest> = requests
        .iter()
        .map(|request| ForcedRequest { prompt: request.tokens.clone(), continuation: request.tokens[..3].to_vec() })
        .collect();
    let run = |device: &Device| {
        let options =
            EngineOptions { max_batch: 12, kv_memory_bytes: Some(4 << 20), kv_type: EXACT, ..EngineOptions::default() };
        let engine = start(&written.load(device), options);
        let session = engine.session();
        let asked = session.logprobs_all(forced.clone());
        let drawn = tokens(&outcomes(&session, &requests));
        let mut found: Vec<(usize, Vec<f32>)> = asked.map(|(index, found)| (index, found.unwrap().logprobs)).collect();
        found.sort_by_key(|(index, _)| *index);
        (drawn, found)
    };
    let (expected_drawn, expected) = run(&Device::cpu(1));
    let (drawn, found) = run(&device);
    assert_eq!(drawn, expected_drawn);
    assert_eq!(found.len(), forced.len());
    for ((index, found), (_, expected)) in found.iter().zip(&expected) {
        assert_eq!(found.len(), 3);
        let off = found.iter().zip(expected).map(|(found, expected)| (found - expected).abs()).fold(0.0, f32::max);
        assert!(off <= 1e-4, "request {index}: {found:?}, expected {expected:?}");
    }
}

/// The same model on several devices, fed from one plan.
#[test]
fn no_result_shows_how_many_gpus_there_are() {
    if let Err(reason) = Device::emulated(0) {
        return println!("skipped: {reason}");
    }
    let written = Written::new(TINY, Storage::F32, 11);
    let requests = requests();
    let run = |devices: usize| {
        let device = |number| Device::emulated(number as u64).unwrap();
        let models = (0..devices).map(|number| written.load(&device(number))).collect();
        let options = EngineOptions { max_batch: 2, kv_memory_bytes: Some(4 << 20), ..EngineOptions::default() };
        outcomes(&Engine::start_replicas(models, &options).unwrap().session(), &requests)
    };
    let alone = run(1);
    assert_eq!(run(2), alone);
    assert_eq!(run(3), alone);
}

/// One model in parts over two devices, and two copies of that.
#[test]
fn a_model_in_parts_draws_the_tokens_of_the_whole_in_any_batch() {
    if let Err(reason) = Device::emulated(0) {
        return println!("skipped: {reason}");
    }
    let written = Written::new(TINY, Storage::F32, 11);
    let requests = requests();
    let group = || {
        let gpus = [0, 1].map(|order| Device::emulated(order).unwrap());
        Device::group(gpus.to_vec()).unwrap()
    };
    let run = |copies: usize, max_batch: usize| {
        let models = (0..copies).map(|_| written.load(&group())).collect();
        let options =
            EngineOptions { max_batch, kv_memory_bytes: Some(4 << 20), kv_type: EXACT, ..EngineOptions::default() };
        outcomes(&Engine::start_replicas(models, &options).unwrap().session(), &requests)
    };
    let options =
        EngineOptions { max_batch: 8, kv_memory_bytes: Some(4 << 20), kv_type: EXACT, ..EngineOptions::default() };
    let whole = outcomes(&start(&written.load(&Device::cpu(1)), options).session(), &requests);
    let together = run(1, 8);
    assert_eq!(tokens(&together), tokens(&whole));
    assert_eq!(run(1, 1), together, "alone and in a batch");
    assert_eq!(run(2, 2), together, "two copies");
}

/// Kernels started in graphs: a whole run with requests that come and go, prompts in chunks, tables that grow block by block,
/// a cache that forgets; once cold and once on a warm cache.
#[test]
fn graphs_change_no_bit_of_a_whole_run() {
    let open = |launching: Launching| Device::emulated_with(0, launching);
    if let Err(reason) = open(Launching::Graphs) {
        return println!("skipped: {reason}");
    }
    let mut stream = Seed(8).stream();
    let shared = engine::random_tokens(&mut stream, 20);
    let request = |index: usize| {
        let own = engine::random_tokens(&mut stream, 3 + index * 7 % 23);
        let tokens = if index.is_multiple_of(2) { [shared.clone(), own].concat() } else { own };
        let logprobs = if index.is_multiple_of(3) { 2 } else { 0 };
        // From a few tokens to more than two blocks.
        let max_tokens = 4 + index * 11 % 37;
        let sampling = Sampling { temperature: 0.8, max_tokens, ignore_eos: true, logprobs, ..Sampling::default() };
        Request { tokens, sampling, seed: 70 + index as u64 }
    };
    let requests: Vec<Request> = (0..7).map(request).collect();
    let written = Written::new(TINY, Storage::F32, 11);
    let run = |device: &Device| {
        // Too few to keep what has been computed.
        let block_bytes = written.load(device).decoder.geometry().kv(1).bytes_per_block() as u64;
        let options = EngineOptions {
            max_batch: 4,
            prefill_chunk: 24,
            kv_memory_bytes: Some(12 * block_bytes),
            kv_type: EXACT,
            ..EngineOptions::default()
        };
        let engine = start(&written.load(device), options);
        let found = [(); 2].map(|()| outcomes(&engine.session(), &requests));
        (found, engine.stats())
    };
    let (expected, _) = run(&open(Launching::Direct).unwrap());
    let device = open(Launching::Graphs).unwrap();
    let (found, stats) = run(&device);
    assert_eq!(found, expected);
    let launches = device.launches();
    println!("{launches:?} in {} steps, {} blocks forgotten", stats.steps, stats.evictions);
    assert!(launches.graphs >= 2 && launches.repeats > 20 && launches.nodes_set > 0, "{launches:?}");
    assert_eq!((launches.refused, open(Launching::Direct).unwrap().launches()), (0, Launches::default()));
    assert!(stats.evictions > 0, "{stats:?}");
}
