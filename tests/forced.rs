//! Log-probabilities of a given text: the bits that drawing it would have shown, whatever runs beside, and the numbers of
//! a reference implementation.

#[path = "support/mod.rs"]
mod models;
#[path = "support/engine.rs"]
mod support;

use std::path::Path;
use std::sync::OnceLock;

use lifelong::engine::error::Error;
use lifelong::engine::forced::{ForcedLogprobs, ForcedRequest};
use lifelong::engine::model::{LoadedModel, load};
use lifelong::engine::request::Request;
use lifelong::engine::session::{EngineOptions, Session};
use lifelong::engine::tokenizer::Specials;
use lifelong::seed::Seed;
use lifelong_kernels::{Device, InstructionSet};
use support::{Storage, TINY, Written, block_bytes, outcomes, probe, random_tokens, start};

fn model() -> LoadedModel {
    static MODEL: OnceLock<LoadedModel> = OnceLock::new();
    MODEL.get_or_init(|| Written::new(TINY, Storage::F32, 11).load(&Device::cpu(2))).clone()
}

fn alone() -> EngineOptions {
    EngineOptions { max_batch: 1, prefill_chunk: 512, prefix_cache: false, ..EngineOptions::default() }
}

/// Prompts that draw their own continuation, some behind one demonstration.
fn drawn() -> Vec<Request> {
    let mut stream = Seed(21).stream();
    let shared = random_tokens(&mut stream, 130);
    let lengths = [1, 15, 16, 17, 64, 200];
    let mut requests: Vec<Request> = (0..)
        .zip(lengths)
        .map(|(seed, length)| probe(random_tokens(&mut stream, length), 1.0, 9 + 11 * seed as usize, seed))
        .collect();
    for seed in 6..12 {
        let own = random_tokens(&mut stream, 3 * seed as usize - 10);
        requests.push(probe([shared.clone(), own].concat(), 1.0, 40, seed));
    }
    requests
}

/// What drawing showed: the forced request of each drawn completion, and the bits of its log-probabilities.
fn reference() -> &'static (Vec<ForcedRequest>, Vec<Vec<u32>>) {
    static REFERENCE: OnceLock<(Vec<ForcedRequest>, Vec<Vec<u32>>)> = OnceLock::new();
    REFERENCE.get_or_init(|| {
        let engine = start(&model(), EngineOptions::default());
        let mut forced = Vec::new();
        let mut bits = Vec::new();
        for request in drawn() {
            let prompt = request.tokens.clone();
            let completion = engine.session().complete(request).unwrap();
            bits.push(completion.logprobs.iter().map(|entry| entry.chosen.logprob.to_bits()).collect());
            forced.push(ForcedRequest { prompt, continuation: completion.tokens });
        }
        (forced, bits)
    })
}

fn force(session: &Session, requests: &[ForcedRequest]) -> Vec<Vec<u32>> {
    let mut all: Vec<Option<ForcedLogprobs>> = vec![None; requests.len()];
    for (index, found) in session.logprobs_all(requests.to_vec()) {
        all[index] = Some(found.unwrap());
    }
    all.into_iter().map(|found| found.unwrap().logprobs.iter().map(|logprob| logprob.to_bits()).collect()).collect()
}

#[test]
fn given_tokens_have_the_bits_that_drawing_them_showed() {
    let (requests, expected) = reference();
    assert!(expected.iter().map(Vec::len).sum::<usize>() > 400);
    for request in requests {
        let engine = start(&model(), alone());
        let index = requests.iter().position(|other| other == request).unwrap();
        assert_eq!(force(&engine.session(), std::slice::from_ref(request))[0], expected[index], "request {index}");
    }
}

#[test]
fn batch_cache_and_chunk_do_not_matter() {
    let (requests, expected) = reference();
    for (max_batch, prefill_chunk) in [(1, 16), (2, 7), (3, 64), (7, 1), (8, 256), (32, 100), (64, 2048)] {
        for prefix_cache in [false, true] {
            let options = EngineOptions { max_batch, prefix_cache, prefill_chunk, ..EngineOptions::default() };
            let engine = start(&model(), options.clone());
            assert_eq!(&force(&engine.session(), requests), expected, "{options:?}");
            // And again over a warm cache.
            assert_eq!(&force(&engine.session(), requests), expected, "warm, {options:?}");
        }
    }
}

#[test]
fn threads_and_instruction_sets_do_not_matter() {
    let (requests, expected) = reference();
    let written = Written::new(TINY, Storage::F32, 11);
    for threads in [1, 3] {
        for set in InstructionSet::ALL.into_iter().filter(|set| set.is_available()) {
            let model = written.load(&Device::cpu_with(threads, set).unwrap());
            let engine = start(&model, EngineOptions::default());
            assert_eq!(&force(&engine.session(), requests), expected, "{threads} threads, {set:?}");
        }
    }
}

/// Completions beside forced requests, on so few blocks that rows are preempted: both keep their bits.
#[test]
fn company_and_preemption_do_not_matter_to_either_kind() {
    let (requests, expected) = reference();
    let model = model();
    // Each grows to six blocks: together they need nearly twice what there is.
    let mut stream = Seed(22).stream();
    let completions: Vec<Request> = (0..6).map(|seed| probe(random_tokens(&mut stream, 14), 1.0, 80, seed)).collect();
    let alone = outcomes(&start(&model, EngineOptions::default()).session(), &completions);
    let block = block_bytes(&model);
    let options = EngineOptions { kv_memory_bytes: Some(20 * block), max_batch: 6, ..EngineOptions::default() };
    let engine = start(&model, options);
    let session = engine.session();
    std::thread::scope(|scope| {
        let drawing = scope.spawn(|| outcomes(&session, &completions));
        for _ in 0..3 {
            assert_eq!(&force(&session, requests), expected);
        }
        assert_eq!(drawing.join().unwrap(), alone);
    });
    assert!(engine.stats().preemptions > 0, "nothing was preempted");
}

/// The prompt of a matrix's pair is computed once for its seeds and its reference.
#[test]
fn a_reference_behind_a_prompt_that_was_attempted_computes_only_itself() {
    let model = model();
    let engine = start(&model, EngineOptions::default());
    let session = engine.session();
    let prompt = random_tokens(&mut Seed(3).stream(), 160);
    session.complete(probe(prompt.clone(), 1.0, 2, 0)).unwrap();
    let before = engine.stats();
    let found = session.logprobs(ForcedRequest { prompt, continuation: vec![5; 10] }).unwrap();
    let after = engine.stats();
    // Nine blocks of the prompt are reused; its last 16 tokens and nine of the continuation are computed.
    assert_eq!((found.usage.prompt, found.usage.reused, found.usage.generated), (160, 144, 0));
    assert_eq!(after.computed_tokens - before.computed_tokens, 16 + 9);
    assert_eq!(
        (after.finished_requests, after.generated_tokens),
        (before.finished_requests + 1, before.generated_tokens)
    );
}

#[test]
fn what_cannot_be_rated_fails_alone_and_says_why() {
    let model = model();
    let block = block_bytes(&model);
    let engine = start(&model, EngineOptions { kv_memory_bytes: Some(16 * block), ..EngineOptions::default() });
    let request = |prompt: usize, continuation: usize| ForcedRequest {
        prompt: vec![1; prompt],
        continuation: vec![2; continuation],
    };
    let foreign = ForcedRequest { prompt: vec![1; 4], continuation: vec![2, 400] };
    let requests = vec![
        request(20, 5),
        request(0, 5),
        request(20, 0),
        request(500, 13),
        foreign,
        request(200, 57),
        request(200, 56),
    ];
    let mut found: Vec<_> = engine.session().logprobs_all(requests).collect();
    found.sort_by_key(|(index, _)| *index);
    let errors: Vec<Option<Error>> = found.into_iter().map(|(_, outcome)| outcome.err()).collect();
    assert_eq!(errors[0], None);
    assert_eq!(errors[1], Some(Error::EmptyPrompt));
    assert_eq!(errors[2], Some(Error::EmptyContinuation));
    assert_eq!(errors[3], Some(Error::ContinuationTooLong { prompt: 500, continuation: 13, context: 512 }));
    assert_eq!(errors[4], Some(Error::TokenOutOfVocabulary { token: 400, position: 5, vocabulary: 320 }));
    assert!(matches!(errors[5], Some(Error::KvBudget { needed_blocks: 17, budget_blocks: 16, .. })), "{:?}", errors[5]);
    assert_eq!(errors[6], None, "what just fits runs");
}

#[test]
fn dropping_the_iterator_cancels_the_rest() {
    let engine = start(&model(), EngineOptions { max_batch: 1, ..EngineOptions::default() });
    let session = engine.session();
    let requests: Vec<ForcedRequest> =
        (0..200).map(|seed| ForcedRequest { prompt: vec![seed; 300], continuation: vec![1; 100] }).collect();
    let mut found = session.logprobs_all(requests);
    assert!(found.next().is_some());
    drop(found);
    session.complete(probe(vec![7; 20], 0.0, 2, 0)).unwrap();
    assert!(engine.stats().finished_requests < 100, "{:?}", engine.stats());
}

/// Nats a token.
const MOST_OFF: f64 = 0.1;

/// Log-probabilities of transformers in float32 over the same weights; the file says how it was made.
#[test]
fn smollm2_agrees_with_transformers() {
    #[derive(serde::Deserialize)]
    struct Golden {
        cases: Vec<Case>,
    }
    #[derive(serde::Deserialize)]
    struct Case {
        prompt: String,
        continuation: String,
        tokens: Vec<u32>,
        reference: Vec<f64>,
        llama_cpp: Vec<f64>,
    }
    let Some(files) = models::model_files("smollm2-135m-instruct") else { return };
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/forced/smollm2.json");
    let golden: Golden = serde_json::from_slice(&std::fs::read(golden).unwrap()).unwrap();
    let engine = start(&load(&files, &Device::cpu(2)).unwrap(), EngineOptions::default());
    let session = engine.session();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (mut ours_off, mut theirs_off) = (0.0f64, 0.0f64);
    for case in &golden.cases {
        let tokenizer = session.tokenizer();
        let continuation = tokenizer.encode(&case.continuation, Specials::Literal);
        assert_eq!(continuation, case.tokens, "{:?}", case.continuation);
        let prompt = tokenizer.encode(&case.prompt, Specials::Parse);
        let found = session.logprobs(ForcedRequest { prompt, continuation }).unwrap();
        let expected = mean(&case.reference);
        println!(
            "{} tokens: mean {:.4}, float32 {expected:.4}, llama.cpp {:.4}",
            case.tokens.len(),
            found.mean(),
            mean(&case.llama_cpp)
        );
        ours_off = ours_off.max((found.mean() - expected).abs());
        theirs_off = theirs_off.max((mean(&case.llama_cpp) - expected).abs());
    }
    println!("furthest from float32: {ours_off:.4} nats a token, llama.cpp {theirs_off:.4}");
    // Quantised weights in 8- and 16-bit products against float32.
    assert!(ours_off < MOST_OFF && ours_off < theirs_off, "a mean is off by {ours_off}, llama.cpp's by {theirs_off}");
}
