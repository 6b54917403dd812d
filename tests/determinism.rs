//! A completion is a pure function of weights, tokens, sampling and seed: batch, cache, chunk, threads, instruction
//! set, order, late company, cancellation and preemption must not move a bit. Token ids and the bits of the
//! log-probabilities are compared, so a logit cannot change unseen. Names of the `dt-` and `sa-seed-` cases of the
//! published behaviour cases are given where a test covers one.

#[path = "support/mod.rs"]
mod models;
#[path = "support/engine.rs"]
mod support;

use std::sync::OnceLock;

use lifelong::engine::model::LoadedModel;
use lifelong::engine::request::{Piece, Request};
use lifelong::engine::sampling::Sampling;
use lifelong::engine::session::{EngineOptions, Session};
use lifelong::seed::Seed;
use lifelong_kernels::{Device, InstructionSet, KvType};
use support::{Outcome, Storage, TINY, Written, block_bytes, outcome, outcomes, probe, random_tokens, start};

fn model() -> LoadedModel {
    static MODEL: OnceLock<LoadedModel> = OnceLock::new();
    MODEL.get_or_init(|| Written::new(TINY, Storage::F32, 11).load(&Device::cpu(2))).clone()
}

/// Alone in the batch, nothing reused, a whole prompt in one chunk.
fn alone() -> EngineOptions {
    EngineOptions { max_batch: 1, prefill_chunk: 512, prefix_cache: false, ..EngineOptions::default() }
}

fn run(model: &LoadedModel, options: EngineOptions, requests: &[Request]) -> Vec<Outcome> {
    outcomes(&start(model, options).session(), requests)
}

/// Each request in an engine of its own.
fn fresh(model: &LoadedModel, requests: &[Request]) -> Vec<Outcome> {
    requests.iter().flat_map(|request| run(model, alone(), std::slice::from_ref(request))).collect()
}

/// Prompts of many lengths around block and chunk borders, greedy and drawn, some sharing a prefix.
fn requests() -> Vec<Request> {
    let mut stream = Seed(5).stream();
    let shared = random_tokens(&mut stream, 120);
    let lengths = [5, 33, 64, 17, 1, 16, 300, 97];
    let mut requests: Vec<Request> = (0u64..)
        .zip(lengths)
        .map(|(seed, length)| {
            let temperature = if seed % 2 == 0 { 0.8 } else { 0.0 };
            probe(random_tokens(&mut stream, length), temperature, 10 + 3 * seed as usize, seed)
        })
        .collect();
    for seed in 8..16 {
        let own = random_tokens(&mut stream, seed as usize - 7);
        requests.push(probe([shared.clone(), own].concat(), 1.0, 20, seed / 2));
    }
    requests
}

/// [`requests`] and what each gives in an engine of its own.
fn reference() -> &'static (Vec<Request>, Vec<Outcome>) {
    static REFERENCE: OnceLock<(Vec<Request>, Vec<Outcome>)> = OnceLock::new();
    REFERENCE.get_or_init(|| {
        let requests = requests();
        let outcomes = fresh(&model(), &requests);
        (requests, outcomes)
    })
}

#[test]
fn requests_differ_in_what_they_generate() {
    let (_, expected) = reference();
    let distinct: std::collections::BTreeSet<_> = expected.iter().map(|(tokens, ..)| &tokens[..10]).collect();
    assert_eq!(distinct.len(), expected.len(), "a test over equal outcomes would show nothing");
}

/// dt-batch-1-n, dt-chunked-prefill, dt-prefix-on-off (cold).
#[test]
fn batch_cache_and_chunk_do_not_matter() {
    let (requests, expected) = reference();
    for (max_batch, prefill_chunk) in [(1, 16), (2, 7), (3, 64), (7, 1), (8, 256), (32, 100)] {
        for prefix_cache in [false, true] {
            let options = EngineOptions { max_batch, prefix_cache, prefill_chunk, ..EngineOptions::default() };
            assert_eq!(&run(&model(), options.clone(), requests), expected, "{options:?}");
        }
    }
    for prefill_chunk in [1, 7, 16, 64, 128, 256, 300] {
        let options = EngineOptions { prefill_chunk, ..EngineOptions::default() };
        assert_eq!(&run(&model(), options.clone(), requests), expected, "{options:?}");
    }
}

/// Another cache type moves results, and then holds them.
#[test]
fn other_caches_do_not_depend_on_the_batch_either() {
    let (requests, default) = reference();
    for kv_type in [KvType::F32, KvType::F16, KvType::BF16] {
        let kv_type = Some(kv_type);
        let expected: Vec<Outcome> = requests
            .iter()
            .flat_map(|request| run(&model(), EngineOptions { kv_type, ..alone() }, std::slice::from_ref(request)))
            .collect();
        assert_ne!(&expected, default, "{kv_type:?} changes nothing");
        for (max_batch, prefill_chunk, prefix_cache) in [(8, 7, true), (32, 100, false)] {
            let options = EngineOptions { max_batch, prefill_chunk, prefix_cache, kv_type, ..EngineOptions::default() };
            assert_eq!(run(&model(), options.clone(), requests), expected, "{options:?}");
        }
    }
}

#[test]
fn threads_and_instruction_sets_do_not_matter() {
    let (requests, expected) = reference();
    let written = Written::new(TINY, Storage::F32, 11);
    for threads in [1, 2, 3] {
        for set in InstructionSet::ALL.into_iter().filter(|set| set.is_available()) {
            let model = written.load(&Device::cpu_with(threads, set).unwrap());
            assert_eq!(&run(&model, EngineOptions::default(), requests), expected, "{threads} threads, {set:?}");
        }
    }
}

/// dt-small-batch-kernel.
#[test]
fn small_batches_of_16_bit_weights_do_not_matter() {
    let model = Written::new(TINY, Storage::Bf16, 12).load(&Device::cpu(2));
    let requests = &requests()[..5];
    let expected = fresh(&model, requests);
    for max_batch in 1..=5 {
        let options = EngineOptions { max_batch, ..EngineOptions::default() };
        assert_eq!(run(&model, options, requests), expected, "batch {max_batch}");
    }
}

/// dt-batch-pos: the needle in every place among seven others.
#[test]
fn place_in_the_batch_does_not_matter() {
    let (requests, expected) = reference();
    let mut stream = Seed(6).stream();
    for place in 0..8 {
        let mut batch: Vec<Request> =
            (0..7).map(|mate| probe(random_tokens(&mut stream, 3 + 9 * mate), 0.9, 4 + mate, mate as u64)).collect();
        batch.insert(place, requests[3].clone());
        let options = EngineOptions { prefix_cache: false, ..EngineOptions::default() };
        assert_eq!(run(&model(), options, &batch)[place], expected[3], "place {place}");
    }
}

/// dt-batch-pos: a mate that came first is decoding when the needle joins, and ends before it.
#[test]
fn late_join_and_early_end_of_a_mate_do_not_matter() {
    let (requests, expected) = reference();
    let engine = start(&model(), EngineOptions::default());
    let session = engine.session();
    let mate =
        Request { sampling: Sampling { max_tokens: 300, ..requests[1].sampling.clone() }, ..requests[1].clone() };
    let mut early = session.stream(mate).unwrap();
    let ending =
        Request { sampling: Sampling { max_tokens: 3, ..requests[2].sampling.clone() }, ..requests[2].clone() };
    let ending = session.stream(ending).unwrap();
    assert!(matches!(early.next(), Some(Ok(Piece::Text(_)))), "the mate is decoding");
    assert_eq!(outcome(session.complete(requests[6].clone()).unwrap()), expected[6]);
    assert!(ending.last().is_some_and(|piece| matches!(piece, Ok(Piece::End(_)))));
    drop(early);
    assert_eq!(outcome(session.complete(requests[7].clone()).unwrap()), expected[7]);
}

/// dt-cancel.
#[test]
fn survivors_of_cancellation_are_undisturbed_and_blocks_come_back() {
    let (requests, expected) = reference();
    let model = model();
    let block = block_bytes(&model);
    let options = EngineOptions { kv_memory_bytes: Some(block * 70), ..EngineOptions::default() };
    let engine = start(&model, options);
    let session = engine.session();
    let mut survivors = Vec::new();
    let mut cancelled = Vec::new();
    for (index, request) in requests[..8].iter().enumerate() {
        if [1, 4, 7].contains(&index) {
            survivors.push((index, session.stream(request.clone()).unwrap()));
        } else {
            let sampling = Sampling { max_tokens: 200, ..request.sampling.clone() };
            cancelled.push(session.stream(Request { sampling, ..request.clone() }).unwrap());
        }
    }
    for (read, mut pieces) in cancelled.into_iter().enumerate() {
        for _ in 0..read {
            assert!(pieces.next().unwrap().is_ok());
        }
    }
    for (index, pieces) in survivors {
        let Some(Ok(Piece::End(completion))) = pieces.last() else { panic!("request {index} has no end") };
        assert_eq!(outcome(completion), expected[index]);
    }
    // A prompt that takes 31 of the blocks fits only when the cancelled ones are gone; two at once, twice over.
    let long = probe(random_tokens(&mut Seed(1).stream(), 490), 0.0, 4, 0);
    let batch = vec![long; 2];
    assert_eq!(outcomes(&session, &batch), fresh(&model, &batch));
    let stats = engine.stats();
    assert_eq!((stats.running, stats.waiting), (0, 0));
}

/// Short prompts are admitted together and then outgrow the cache.
#[test]
fn preemption_and_eviction_do_not_matter() {
    let mut stream = Seed(10).stream();
    let shared = random_tokens(&mut stream, 20);
    let mut requests: Vec<Request> =
        (0..8).map(|seed| probe(random_tokens(&mut stream, 3 + seed), 0.9, 100, seed as u64)).collect();
    requests.extend((0..4).map(|seed| probe(shared.clone(), 0.9, 60, seed)));
    let model = model();
    let expected = fresh(&model, &requests);
    let block = block_bytes(&model);
    for (blocks, prefix_cache) in [(8, true), (8, false), (20, true), (33, true)] {
        // A budget need not be a whole number of blocks.
        let kv_memory_bytes = Some(block * blocks + block / 2);
        let engine = start(&model, EngineOptions { kv_memory_bytes, prefix_cache, ..EngineOptions::default() });
        for round in 0..2 {
            assert_eq!(outcomes(&engine.session(), &requests), expected, "{blocks} blocks, round {round}");
        }
        let stats = engine.stats();
        assert!(stats.preemptions > 0, "{blocks} blocks: {stats:?}");
        assert_eq!(stats.evictions > 0, prefix_cache, "{stats:?}");
    }
}

/// dt-prefix-aaba: A and B differ in the first token.
#[test]
fn repeated_prompts_see_no_old_keys() {
    let mut stream = Seed(7).stream();
    let a = probe(random_tokens(&mut stream, 100), 0.0, 12, 0);
    let mut b = a.clone();
    b.tokens[0] ^= 1;
    let expected = fresh(&model(), &[a.clone(), b.clone()]);
    assert_ne!(expected[0], expected[1]);
    let engine = start(&model(), EngineOptions::default());
    for (request, expected) in [(&a, &expected[0]), (&a, &expected[0]), (&b, &expected[1]), (&a, &expected[0])] {
        assert_eq!(&outcome(engine.session().complete(request.clone()).unwrap()), expected);
    }
}

/// dt-prefix-on-off (warm): hit = miss, and the hit is one.
#[test]
fn warm_cache_changes_usage_only() {
    let (requests, expected) = reference();
    let engine = start(&model(), EngineOptions::default());
    for round in 0..3 {
        assert_eq!(&outcomes(&engine.session(), requests), expected, "round {round}");
    }
    let reused = engine.session().complete(requests[6].clone()).unwrap().usage.reused;
    assert_eq!(reused, 288, "18 whole blocks of 300 tokens");
}

#[test]
fn order_of_the_plan_does_not_matter() {
    let (requests, expected) = reference();
    for shuffle in 0..4 {
        let mut order: Vec<usize> = (0..requests.len()).collect();
        Seed(shuffle).stream().shuffle(&mut order);
        let shuffled: Vec<Request> = order.iter().map(|&index| requests[index].clone()).collect();
        let options = EngineOptions { max_batch: 4, prefill_chunk: 48, ..EngineOptions::default() };
        for (place, outcome) in run(&model(), options, &shuffled).into_iter().enumerate() {
            assert_eq!(outcome, expected[order[place]], "shuffle {shuffle}");
        }
    }
}

/// dt-repeat: one request again and again under load.
#[test]
fn a_request_repeats_under_load() {
    let (requests, expected) = reference();
    let engine = start(&model(), EngineOptions::default());
    let mut stream = Seed(8).stream();
    let load: Vec<Request> =
        (0..45).map(|seed| probe(random_tokens(&mut stream, 40 + 5 * seed), 1.0, 30, seed as u64)).collect();
    let load = engine.session().complete_all(load);
    for _ in 0..20 {
        assert_eq!(outcome(engine.session().complete(requests[1].clone()).unwrap()), expected[1]);
    }
    assert_eq!(load.filter(|(_, completion)| completion.is_ok()).count(), 45);
}

#[test]
fn many_threads_at_once_get_their_own_completions() {
    let (requests, expected) = reference();
    let engine = start(&model(), EngineOptions { max_batch: 5, ..EngineOptions::default() });
    std::thread::scope(|scope| {
        for index in 0..requests.len() {
            let session: Session = engine.session();
            scope.spawn(move || {
                assert_eq!(outcome(session.complete(requests[index].clone()).unwrap()), expected[index]);
            });
        }
    });
}

/// sa-seed-mate, sa-seed-order, sa-seed-first-use.
#[test]
fn a_seed_decides_its_own_draws_alone() {
    let prompt = random_tokens(&mut Seed(9).stream(), 20);
    let request = probe(prompt.clone(), 0.8, 16, 42);
    let expected = &fresh(&model(), std::slice::from_ref(&request))[0];
    for mates in [vec![], vec![probe(prompt.clone(), 0.8, 16, 7)], vec![probe(prompt.clone(), 1.0, 9, 42)]] {
        for max_batch in [1, 3, 16] {
            for place in [0, mates.len()] {
                let mut batch = mates.clone();
                batch.insert(place, request.clone());
                let options = EngineOptions { max_batch, ..EngineOptions::default() };
                let engine = start(&model(), options);
                for use_of_seed in 0..3 {
                    assert_eq!(&outcomes(&engine.session(), &batch)[place], expected, "use {use_of_seed}");
                }
            }
        }
    }
}

/// sa-seed-n.
#[test]
fn samples_of_one_request_differ_and_repeat_as_a_set() {
    let request = probe(random_tokens(&mut Seed(9).stream(), 20), 1.0, 16, 5);
    let engine = start(&model(), EngineOptions::default());
    let first = outcomes(&engine.session(), &request.samples(4));
    assert_eq!(outcomes(&engine.session(), &request.samples(4)), first);
    for (index, outcome) in first.iter().enumerate() {
        assert!(!first[..index].contains(outcome));
    }
}

/// sa-seed-unset: two seeds from the system differ, and the seed that a completion names gives it again.
#[test]
fn a_seed_from_the_system_is_named_and_repeats() {
    let prompt = random_tokens(&mut Seed(9).stream(), 20);
    let unset = || probe(prompt.clone(), 1.0, 24, lifelong::engine::request::system_seed());
    let engine = start(&model(), EngineOptions::default());
    let first = engine.session().complete(unset()).unwrap();
    let second = engine.session().complete(unset()).unwrap();
    assert_ne!(first.tokens, second.tokens);
    let again = engine.session().complete(probe(prompt.clone(), 1.0, 24, first.seed)).unwrap();
    assert_eq!(outcome(again), outcome(first));
}

/// The same on real quantised weights, where they are on this disk.
#[test]
fn real_weights_batch_cache_chunk_and_threads_do_not_matter() {
    let Some(files) = models::model_files("smollm2-135m-instruct") else { return };
    let mut stream = Seed(3).stream();
    let shared: Vec<u32> = (0..40).map(|_| 1000 + stream.below(40_000) as u32).collect();
    let requests: Vec<Request> = (0..8)
        .map(|seed: u64| {
            let own = (0..1 + 5 * seed).map(|_| 1000 + stream.below(40_000) as u32);
            probe(shared.iter().copied().chain(own).collect(), if seed.is_multiple_of(2) { 0.0 } else { 0.8 }, 6, seed)
        })
        .collect();
    let load = |threads| lifelong::engine::model::load(&files, &Device::cpu(threads)).unwrap();
    let (one, two) = (load(1), load(2));
    let expected = fresh(&one, &requests[..3]);
    for (model, max_batch, prefill_chunk, prefix_cache) in
        [(&one, 8, 16, true), (&two, 32, 256, true), (&two, 8, 256, false), (&two, 3, 7, true)]
    {
        let options = EngineOptions {
            max_batch,
            prefill_chunk,
            prefix_cache,
            kv_memory_bytes: Some(64 << 20),
            ..EngineOptions::default()
        };
        assert_eq!(run(model, options.clone(), &requests)[..3], expected, "{options:?}");
    }
}
