//! One engine over the same model on several devices: no result shows how many there are.

#[path = "support/engine.rs"]
mod engine;

use engine::{Storage, TINY, Written, outcome, outcomes, probe, random_tokens};
use lifelong::engine::error::Error;
use lifelong::engine::forced::ForcedRequest;
use lifelong::engine::request::Request;
use lifelong::engine::session::{Engine, EngineOptions, Session};
use lifelong::seed::Seed;
use lifelong_kernels::Device;

fn start(written: &Written, replicas: usize) -> Engine {
    let models = (0..replicas).map(|_| written.load(&Device::cpu(1))).collect();
    let options = EngineOptions { max_batch: 3, kv_memory_bytes: Some(2 << 20), ..EngineOptions::default() };
    Engine::start_replicas(models, &options).unwrap()
}

/// Prompts in groups behind shared prefixes.
fn requests() -> Vec<Request> {
    let mut stream = Seed(9).stream();
    let prefixes: Vec<Vec<u32>> = (0..4).map(|_| random_tokens(&mut stream, 40)).collect();
    let request = |index: usize| {
        let own = random_tokens(&mut stream, 3 + index % 9);
        probe([prefixes[index % 4].clone(), own].concat(), 0.8, 6, index as u64)
    };
    (0..26).map(request).collect()
}

#[test]
fn no_result_shows_how_many_devices_there_are() {
    let written = Written::new(TINY, Storage::F32, 4);
    let requests = requests();
    let expected = outcomes(&start(&written, 1).session(), &requests);
    for replicas in [2, 3, 40] {
        let engine = start(&written, replicas);
        assert_eq!(outcomes(&engine.session(), &requests), expected, "{replicas} replicas");
        let stats = engine.stats();
        assert_eq!((stats.finished_requests, stats.running, stats.waiting), (26, 0, 0));
        // Every replica that has work makes steps of its own: together more than one would.
        assert!(stats.generated_tokens == 26 * 6);
    }
}

/// The bits of each request's log-probabilities.
fn forced_bits(session: &Session, requests: &[ForcedRequest]) -> Vec<Vec<u32>> {
    let mut all = vec![Vec::new(); requests.len()];
    for (index, found) in session.logprobs_all(requests.to_vec()) {
        all[index] = found.unwrap().logprobs.iter().map(|logprob| logprob.to_bits()).collect();
    }
    all
}

/// A call of given texts is shared out as one that draws is, also beside one.
#[test]
fn log_probabilities_do_not_show_it_either_and_every_device_computes_some() {
    let written = Written::new(TINY, Storage::F32, 4);
    let drawn = requests();
    let forced: Vec<ForcedRequest> = drawn
        .iter()
        .enumerate()
        .map(|(index, request)| {
            let continuation = request.tokens.iter().rev().take(1 + index % 11).copied().collect();
            ForcedRequest { prompt: request.tokens.clone(), continuation }
        })
        .collect();
    let alone = start(&written, 1);
    let expected = forced_bits(&alone.session(), &forced);
    assert!(expected.iter().zip(&forced).all(|(bits, request)| bits.len() == request.continuation.len()));
    let expected_drawn = outcomes(&alone.session(), &drawn);
    for replicas in [2, 3, 40] {
        let engine = start(&written, replicas);
        assert_eq!(forced_bits(&engine.session(), &forced), expected, "{replicas} replicas");
        let busy = engine.stats_of_each().iter().filter(|stats| stats.computed_tokens > 0).count();
        // One of forty has less than a request.
        assert!(busy >= replicas.min(20), "{busy} of {replicas} replicas computed something");
        let session = engine.session();
        let asked = session.logprobs_all(forced.clone());
        assert_eq!(outcomes(&session, &drawn), expected_drawn, "{replicas} replicas, beside given texts");
        assert_eq!(asked.count(), forced.len());
    }
}

#[test]
fn calls_of_one_request_take_turns_and_dropped_ones_are_cancelled_everywhere() {
    let written = Written::new(TINY, Storage::F32, 4);
    let requests = requests();
    let expected = outcomes(&start(&written, 1).session(), &requests);
    let engine = start(&written, 2);
    let session = engine.session();
    drop(session.complete_all(requests.clone()));
    for (request, expected) in requests.iter().zip(&expected) {
        assert_eq!(&outcome(session.complete(request.clone()).unwrap()), expected);
    }
}

#[test]
fn an_engine_needs_a_model() {
    let error = Engine::start_replicas(Vec::new(), &EngineOptions::default()).map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::Option { option: "replicas", .. }), "{error}");
}
