//! What a session promises beside equal bits: each request has its own result, nothing waits for ever, text streams
//! without half a stop text, and shared prompts are computed once.

#[path = "support/engine.rs"]
mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use lifelong::engine::error::Error;
use lifelong::engine::model::LoadedModel;
use lifelong::engine::planner::estimate_prefill;
use lifelong::engine::request::{Finish, Piece, Request};
use lifelong::engine::sampling::Sampling;
use lifelong::engine::session::EngineOptions;
use lifelong::engine::template::{ChatMessage, RenderOptions};
use lifelong::engine::tokenizer::Specials;
use lifelong::seed::Seed;
use lifelong_kernels::{Device, KvCache, Values};
use lifelong_models::{Batch, Decoder, Geometry, Scratch};
use support::{END, Storage, TINY, Written, block_bytes, outcome, outcomes, probe, random_tokens, start};

fn model() -> LoadedModel {
    static MODEL: OnceLock<LoadedModel> = OnceLock::new();
    MODEL.get_or_init(|| Written::new(TINY, Storage::F32, 11).load(&Device::cpu(1))).clone()
}

fn prompt(seed: u64, count: usize) -> Vec<u32> {
    random_tokens(&mut Seed(seed).stream(), count)
}

#[test]
fn invalid_requests_fail_alone_and_say_why() {
    let model = model();
    let block = block_bytes(&model);
    let engine = start(&model, EngineOptions { kv_memory_bytes: Some(8 * block), ..EngineOptions::default() });
    let good = probe(prompt(1, 20), 0.0, 5, 0);
    let with = |tokens: Vec<u32>, max_tokens| probe(tokens, 0.0, max_tokens, 0);
    let mut bad_sampling = good.clone();
    bad_sampling.sampling.top_p = 0.0;
    let requests = vec![
        good.clone(),
        with(vec![], 5),
        with(vec![1, 2, 320], 5),
        with(prompt(1, TINY.context), 5),
        with(prompt(1, 100), 29),
        bad_sampling,
        with(prompt(1, 100), 28),
    ];
    let mut found: Vec<_> = engine.session().complete_all(requests).collect();
    found.sort_by_key(|(index, _)| *index);
    let errors: Vec<Option<Error>> = found.into_iter().map(|(_, outcome)| outcome.err()).collect();
    assert_eq!(errors[0], None);
    assert_eq!(errors[1], Some(Error::EmptyPrompt));
    assert_eq!(errors[2], Some(Error::TokenOutOfVocabulary { token: 320, position: 2, vocabulary: 320 }));
    assert_eq!(errors[3], Some(Error::PromptTooLong { prompt: 512, context: 512 }));
    let Some(Error::KvBudget { needed_blocks: 9, budget_blocks: 8, .. }) = errors[4] else { panic!("{:?}", errors[4]) };
    assert!(errors[5].as_ref().is_some_and(|error| error.to_string().contains("`top_p`")));
    assert_eq!(errors[6], None, "what just fits runs");
}

#[test]
fn options_out_of_range_are_named() {
    for (options, name) in [
        (EngineOptions { max_batch: 0, ..EngineOptions::default() }, "max_batch"),
        (EngineOptions { prefill_chunk: 0, ..EngineOptions::default() }, "prefill_chunk"),
        (EngineOptions { kv_memory_bytes: Some(100), ..EngineOptions::default() }, "kv_memory_bytes"),
    ] {
        let error = lifelong::engine::session::Engine::start(model(), &options).err().unwrap();
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn context_is_filled_to_the_last_token() {
    let engine = start(&model(), EngineOptions::default());
    let completion = engine.session().complete(probe(prompt(2, 500), 1.0, 1000, 0)).unwrap();
    assert_eq!(completion.finish, Finish::Context);
    assert_eq!((completion.tokens.len(), completion.usage.generated), (12, 12));
}

#[test]
fn no_tokens_asked_for_is_an_empty_completion() {
    let engine = start(&model(), EngineOptions::default());
    let completion = engine.session().complete(probe(prompt(2, 30), 0.0, 0, 3)).unwrap();
    assert_eq!((completion.tokens.len(), completion.finish, completion.seed), (0, Finish::Length, 3));
    assert_eq!(engine.stats().steps, 0);
}

/// Bytes as text: the reply to this prompt is printable enough to cut.
#[test]
fn stop_text_ends_the_text_before_it_and_streaming_shows_nothing_of_it() {
    let engine = start(&model(), EngineOptions::default());
    let session = engine.session();
    let free = probe(prompt(3, 20), 1.0, 60, 1);
    let text = session.complete(free.clone()).unwrap().text;
    let characters: Vec<char> = text.chars().collect();
    let stop: String = characters[20..24].iter().collect();
    let before = &text[..text.find(&stop).unwrap()];

    let mut stopped = free.clone();
    stopped.sampling.stop = vec!["not in it".to_string(), stop.clone()];
    let mut shown = String::new();
    for piece in session.stream(stopped).unwrap() {
        match piece.unwrap() {
            Piece::Text(text) => {
                shown.push_str(&text);
                assert!(before.starts_with(&shown), "{shown:?} shows a part of {stop:?}");
            }
            Piece::End(completion) => {
                assert_eq!(completion.text, before);
                assert_eq!(completion.finish, Finish::StopString(stop.clone()));
            }
        }
    }
    assert_eq!(shown, before);
}

#[test]
fn pieces_join_to_the_text_and_the_end_comes_once() {
    let engine = start(&model(), EngineOptions::default());
    let request = probe(prompt(4, 20), 1.0, 80, 1);
    let pieces: Vec<Piece> = engine.session().stream(request.clone()).unwrap().collect::<Result<_, _>>().unwrap();
    let (Some(Piece::End(completion)), texts) = (pieces.last(), &pieces[..pieces.len() - 1]) else { panic!() };
    let joined: String =
        texts.iter().map(|piece| if let Piece::Text(text) = piece { text.as_str() } else { "" }).collect();
    assert_eq!(joined, completion.text);
    assert_eq!(engine.session().tokenizer().decode(&completion.tokens), completion.text);
    assert_eq!(outcome(engine.session().complete(request).unwrap()), outcome(completion.clone()));
}

#[test]
fn stop_tokens_and_end_tokens_end_and_are_left_out() {
    let engine = start(&model(), EngineOptions::default());
    let session = engine.session();
    let free = probe(prompt(5, 20), 1.0, 40, 1);
    let tokens = session.complete(free.clone()).unwrap().tokens;
    let mut stopped = free.clone();
    stopped.sampling.stop_tokens = vec![tokens[10]];
    let completion = session.complete(stopped).unwrap();
    let first = tokens.iter().position(|token| *token == tokens[10]).unwrap();
    assert_eq!(completion.tokens, tokens[..first]);
    assert_eq!(completion.finish, Finish::StopToken(tokens[10]));
    assert_eq!(completion.usage.generated, first + 1);

    let mut ending = model();
    assert_eq!(ending.eos, [END], "config.json and the tokenizer name the same one");
    ending.eos = vec![tokens[10]];
    let engine = start(&ending, EngineOptions::default());
    let honouring = Request { sampling: Sampling { ignore_eos: false, ..free.sampling.clone() }, ..free.clone() };
    assert_eq!(engine.session().complete(honouring).unwrap().finish, Finish::Eos(tokens[10]));
    assert_eq!(engine.session().complete(free).unwrap().tokens, tokens);
}

/// The work of a transfer matrix is the tree's, as the planner says before it starts.
#[test]
fn shared_prompts_are_computed_once() {
    let mut requests = Vec::new();
    for demonstration in 0..3 {
        for target in 0..4 {
            for seed in 0..5 {
                let tokens = [prompt(demonstration, 100), prompt(50 + target, 37)].concat();
                requests.push(probe(tokens, 0.8, 3, seed));
            }
        }
    }
    let estimate = estimate_prefill(&requests);
    assert_eq!(estimate.prompt_tokens, 60 * 137);
    for (max_batch, prefill_chunk) in [(64, 256), (7, 32)] {
        let engine = start(&model(), EngineOptions { max_batch, prefill_chunk, ..EngineOptions::default() });
        outcomes(&engine.session(), &requests);
        let stats = engine.stats();
        assert_eq!(stats.computed_tokens, estimate.computed_tokens + 60 * 2, "two of three drawn tokens are computed");
        assert_eq!(stats.reused_tokens, estimate.prompt_tokens - estimate.computed_tokens);
        assert_eq!((stats.prompt_tokens, stats.generated_tokens, stats.finished_requests), (60 * 137, 180, 60));
    }
}

#[test]
fn requests_that_wait_together_share_steps() {
    let requests: Vec<Request> = (0..16).map(|seed| probe(prompt(seed, 10), 0.0, 20, seed)).collect();
    let engine = start(&model(), EngineOptions { prefill_chunk: 160, ..EngineOptions::default() });
    outcomes(&engine.session(), &requests);
    assert_eq!(engine.stats().steps, 20);
}

/// A decoder that misbehaves in one given forward pass.
struct Faulty {
    inner: Arc<dyn Decoder>,
    steps: AtomicUsize,
    at: usize,
    fault: Fault,
}

enum Fault {
    Panic,
    /// In the logits of this output row.
    Nan(usize),
    Refuse,
}

impl Decoder for Faulty {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn notes(&self) -> &[String] {
        self.inner.notes()
    }

    fn forward(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        cache: &mut KvCache,
        scratch: &mut Scratch,
        logits: &mut Values,
    ) -> lifelong_models::Result<()> {
        self.inner.forward(device, batch, cache, scratch, logits)?;
        if self.steps.fetch_add(1, Ordering::Relaxed) == self.at {
            match self.fault {
                Fault::Panic => panic!("the test's decoder panics"),
                Fault::Nan(row) => logits[row * self.geometry().vocab + 7] = f32::NAN,
                Fault::Refuse => return Err(lifelong_models::Error::Batch("the test's decoder refuses".to_string())),
            }
        }
        Ok(())
    }
}

fn faulty(at: usize, fault: Fault) -> LoadedModel {
    let sound = model();
    let decoder = Faulty { inner: sound.decoder.clone(), steps: AtomicUsize::new(0), at, fault };
    LoadedModel { decoder: Arc::new(decoder), ..sound }
}

#[test]
fn logits_that_are_not_finite_fail_their_request_alone() {
    let requests: Vec<Request> = (0..3).map(|seed| probe(prompt(seed, 10 + seed as usize), 0.8, 8, seed)).collect();
    let expected = outcomes(&start(&model(), EngineOptions::default()).session(), &requests);
    let engine = start(&faulty(4, Fault::Nan(1)), EngineOptions::default());
    let mut failed = Vec::new();
    for (index, completion) in engine.session().complete_all(requests.clone()) {
        match completion {
            Ok(completion) => assert_eq!(outcome(completion), expected[index]),
            Err(error) => failed.push((index, error)),
        }
    }
    let [(index, Error::NonFiniteLogits { prompt, position, .. })] = failed.as_slice() else { panic!("{failed:?}") };
    assert_eq!((*prompt, *position), (requests[*index].tokens.len(), 4));
    assert_eq!(outcomes(&engine.session(), &requests), expected, "the engine goes on");
}

#[test]
fn failed_forward_pass_fails_its_rows_and_the_engine_goes_on() {
    let requests: Vec<Request> = (0..3).map(|seed| probe(prompt(seed, 10), 0.8, 8, seed)).collect();
    let engine = start(&faulty(2, Fault::Refuse), EngineOptions::default());
    let errors = engine.session().complete_all(requests.clone()).filter(|(_, completion)| {
        completion.as_ref().is_err_and(|error| error.to_string().contains("the test's decoder refuses"))
    });
    assert_eq!(errors.count(), 3);
    let expected = outcomes(&start(&model(), EngineOptions::default()).session(), &requests);
    assert_eq!(outcomes(&engine.session(), &requests), expected);
}

#[test]
fn panic_is_an_error_at_every_waiting_and_later_request() {
    let engine = start(&faulty(3, Fault::Panic), EngineOptions { max_batch: 2, ..EngineOptions::default() });
    let session = engine.session();
    let requests: Vec<Request> = (0..6).map(|seed| probe(prompt(seed, 10), 0.8, 8, seed)).collect();
    let is_told = |error: &Error| error.to_string().contains("the test's decoder panics");
    let mut pieces = session.stream(requests[0].clone()).unwrap();
    let errors: Vec<_> =
        session.complete_all(requests.clone()).map(|(_, completion)| completion.unwrap_err()).collect();
    assert_eq!(errors.len(), 6);
    assert!(errors.iter().all(is_told), "{errors:?}");
    assert!(pieces.any(|piece| piece.is_err_and(|error| is_told(&error))));
    assert!(is_told(&session.complete(requests[0].clone()).unwrap_err()));
    assert_eq!(session.complete_all(requests).count(), 6, "later requests are answered too");
}

#[test]
fn dropped_engine_ends_what_waits() {
    let engine = start(&model(), EngineOptions { max_batch: 1, ..EngineOptions::default() });
    let session = engine.session();
    let requests: Vec<Request> = (0..50).map(|seed| probe(prompt(seed, 100), 0.8, 300, seed)).collect();
    let completions = session.complete_all(requests);
    drop(engine);
    assert!(completions.filter(|(_, completion)| completion.is_err()).count() > 0);
    let error = session.complete(probe(prompt(1, 5), 0.0, 1, 0)).unwrap_err();
    assert!(matches!(error, Error::Stopped { .. }), "{error}");
}

/// Of a plan much longer than the batch most requests are not even queued: they are cancelled with the rest.
#[test]
fn cancelled_plan_leaves_nothing_to_do() {
    let engine = start(&model(), EngineOptions { max_batch: 1, ..EngineOptions::default() });
    let session = engine.session();
    let requests: Vec<Request> = (0..100).map(|seed| probe(prompt(seed, 20), 0.8, 20, seed)).collect();
    let mut completions = session.complete_all(requests);
    completions.next().unwrap().1.unwrap();
    drop(completions);
    session.complete(probe(prompt(1, 5), 0.0, 1, 0)).unwrap();
    let stats = engine.stats();
    assert!(stats.finished_requests < 101 && stats.waiting == 0, "{stats:?}");
}

#[test]
fn model_without_a_chat_template_says_so_and_takes_plain_prompts() {
    let engine = start(&model(), EngineOptions::default());
    let session = engine.session();
    assert!(!session.has_template());
    let error = session.render(&[ChatMessage::new("user", "hi")], &RenderOptions::default()).unwrap_err();
    assert!(error.to_string().contains("chat template"), "{error}");
    assert_eq!(session.tokenizer().encode("hi<|endoftext|>", Specials::Parse), [104, 105, END]);
    assert_eq!(session.context(), TINY.context);
}
