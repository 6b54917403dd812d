//! A token's logits are a function of its prefix, bit for bit: whatever shares the step, however the prompt is cut,
//! with any number of threads.

mod shared;

use std::path::Path;

use lifelong_kernels::{BLOCK_TOKENS, Device, KvCache, Segment, Values};
use lifelong_models::architecture::{Batch, Decoder, Scratch};
use lifelong_models::{Checkpoint, Error, load_decoder, load_encoder};
use shared::{decode, draw};

fn checkpoint(name: &str) -> Checkpoint {
    Checkpoint::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)).unwrap()
}

const MODELS: [&str; 21] = [
    "llama-untied",
    "llama-bias-linear",
    "llama-tied-llama3",
    "llama-gguf-q8_0",
    "mistral-window",
    "qwen2-yarn-window",
    "qwen2-gguf-f16",
    "qwen3",
    "qwen3-fp8",
    "gemma3",
    "gemma3-gguf-q8_0",
    "smollm3",
    "phi3-longrope",
    "qwen3moe",
    "qwen3moe-stacked",
    "qwen3moe-gguf-q8_0",
    "gpt-oss",
    "gpt-oss-bf16",
    "qwen3_5-moe",
    "qwen3_5-dense",
    "qwen3_5-gguf-f16",
];

fn tokens(model: &dyn Decoder, seed: u64, len: usize) -> Vec<u32> {
    (0..len as u64).map(|at| (draw(seed, at) % model.geometry().vocab as u64) as u32).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn chunked_equals_whole_on_any_number_of_threads() {
    for name in MODELS {
        let model = load_decoder(&checkpoint(name), &Device::cpu(1)).unwrap();
        let tokens = tokens(model.as_ref(), 7, 50);
        let whole = bits(&decode::logits(model.as_ref(), &Device::cpu(1), &tokens, 50));
        for (chunk, threads) in [(1, 1), (3, 2), (16, 1), (17, 2), (50, 3)] {
            let found = decode::logits(model.as_ref(), &Device::cpu(threads), &tokens, chunk);
            assert_eq!(bits(&found), whole, "{name}, chunks of {chunk}, {threads} threads");
        }
    }
}

/// One request among many that are decoded together, prompts cut differently, blocks interleaved.
struct Request {
    tokens: Vec<u32>,
    blocks: Vec<u32>,
    done: usize,
    logits: Vec<f32>,
}

#[test]
fn a_batch_of_segments_equals_single_requests() {
    for name in MODELS {
        let device = Device::cpu(2);
        let model = load_decoder(&checkpoint(name), &device).unwrap();
        let lengths = [1usize, 5, 16, 33, 48, 20, 2];
        let mut next_block = 0;
        let mut requests: Vec<Request> = (lengths.iter().enumerate())
            .map(|(index, len)| {
                let blocks = (0..len.div_ceil(BLOCK_TOKENS) as u32)
                    .map(|_| {
                        next_block += 1;
                        64 - next_block
                    })
                    .collect();
                Request { tokens: tokens(model.as_ref(), index as u64, *len), blocks, done: 0, logits: Vec::new() }
            })
            .collect();
        let mut cache = KvCache::new(&device, model.geometry().kv(64)).unwrap();
        let (mut scratch, mut logits) = (Scratch::default(), Values::default());
        let mut step = 0;
        while requests.iter().any(|request| request.done < request.tokens.len()) {
            run_step(model.as_ref(), &device, &mut requests, &mut cache, &mut scratch, &mut logits, step);
            step += 1;
        }
        for request in &requests {
            let alone = decode::logits(model.as_ref(), &device, &request.tokens, request.tokens.len());
            assert_eq!(bits(&request.logits), bits(&alone), "{name}, {} tokens", request.tokens.len());
        }
    }
}

/// Advances every unfinished request by a drawn number of tokens.
fn run_step(
    model: &dyn Decoder,
    device: &Device,
    requests: &mut [Request],
    cache: &mut KvCache,
    scratch: &mut Scratch,
    logits: &mut Values,
    step: u64,
) {
    let (mut tokens, mut positions, mut segments, mut tables) = (vec![], vec![], vec![], vec![]);
    let mut rows = Vec::new();
    for (index, request) in requests.iter_mut().enumerate() {
        let left = request.tokens.len() - request.done;
        let take = left.min(draw(step, index as u64) as usize % 9);
        if take == 0 {
            continue;
        }
        let table = tables.len()..tables.len() + request.blocks.len();
        segments.push(Segment { query_start: tokens.len(), query_len: take, context_len: request.done, table });
        tables.extend(&request.blocks);
        rows.extend((0..take).map(|_| index));
        tokens.extend(&request.tokens[request.done..request.done + take]);
        positions.extend(request.done as u32..(request.done + take) as u32);
        request.done += take;
    }
    // Outputs may come in any order: ask backwards.
    let outputs: Vec<usize> = (0..tokens.len()).rev().collect();
    let batch =
        Batch { tokens: &tokens, positions: &positions, segments: &segments, tables: &tables, outputs: &outputs };
    model.forward(device, &batch, cache, scratch, logits).unwrap();
    let vocab = model.geometry().vocab;
    for (row, index) in rows.iter().enumerate() {
        let found = &logits[(outputs.len() - 1 - row) * vocab..][..vocab];
        requests[*index].logits.extend_from_slice(found);
    }
}

/// Enough rows that two and three threads take pieces of them through the layers: prompts from their first token and from
/// inside of a block on, and rows that decode.
#[test]
fn a_step_in_pieces_equals_a_whole_one() {
    const SEGMENTS: [(usize, usize); 7] = [(0, 60), (5, 40), (16, 16), (33, 1), (7, 1), (31, 1), (0, 30)];
    const BLOCKS: usize = 4;
    for name in MODELS {
        let found = [1, 2, 3].map(|threads| {
            let device = Device::cpu(threads);
            let model = load_decoder(&checkpoint(name), &device).unwrap();
            let mut cache = KvCache::new(&device, model.geometry().kv(SEGMENTS.len() * BLOCKS)).unwrap();
            let (mut scratch, mut logits) = (Scratch::default(), Values::default());
            let tables: Vec<u32> = (0..(SEGMENTS.len() * BLOCKS) as u32).rev().collect();
            // What is in the cache before the step, the step, and one row of each request behind it.
            [0, 1, 2].map(|step| {
                let (mut tokens, mut positions, mut segments) = (vec![], vec![], vec![]);
                for (index, (context, length)) in SEGMENTS.into_iter().enumerate() {
                    let (context_len, query_len) = [(0, context), (context, length), (context + length, 1)][step];
                    let text = self::tokens(model.as_ref(), index as u64, context_len + query_len);
                    let table = index * BLOCKS..(index + 1) * BLOCKS;
                    segments.push(Segment { query_start: tokens.len(), query_len, context_len, table });
                    tokens.extend(&text[context_len..]);
                    positions.extend(context_len as u32..(context_len + query_len) as u32);
                }
                segments.retain(|segment| segment.query_len > 0);
                let (segments, outputs) = (&segments, &Vec::from_iter(0..tokens.len()));
                let batch = Batch { tokens: &tokens, positions: &positions, segments, tables: &tables, outputs };
                model.forward(&device, &batch, &mut cache, &mut scratch, &mut logits).unwrap();
                bits(&logits)
            })
        });
        assert_eq!(found[0], found[1], "{name}, two threads");
        assert_eq!(found[0], found[2], "{name}, three threads");
    }
}

/// Whole blocks that another request computed, behind which two requests go different ways.
#[test]
fn a_prefix_in_the_cache_equals_one_that_is_computed() {
    for name in MODELS {
        let device = Device::cpu(2);
        let model = load_decoder(&checkpoint(name), &device).unwrap();
        let mut cache = KvCache::new(&device, model.geometry().kv(8)).unwrap();
        let (mut scratch, mut logits) = (Scratch::default(), Values::default());
        let prefix = 2 * BLOCK_TOKENS;
        let texts = [3, 4].map(|seed| {
            let mut text = tokens(model.as_ref(), 2, prefix);
            text.extend(tokens(model.as_ref(), seed, 20));
            text
        });
        // The first text from its start, then the second from where they part, then the first again.
        for (text, start, tables) in [(0, 0, [7, 6, 0, 1]), (1, prefix, [7, 6, 2, 3]), (0, prefix, [7, 6, 4, 5])] {
            let rows = &texts[text][start..];
            let positions: Vec<u32> = (start as u32..texts[text].len() as u32).collect();
            let outputs: Vec<usize> = (0..rows.len()).collect();
            let segments = [Segment { query_start: 0, query_len: rows.len(), context_len: start, table: 0..4 }];
            let batch =
                Batch { tokens: rows, positions: &positions, segments: &segments, tables: &tables, outputs: &outputs };
            model.forward(&device, &batch, &mut cache, &mut scratch, &mut logits).unwrap();
            let alone = decode::logits(model.as_ref(), &device, &texts[text], texts[text].len());
            let alone = &alone[start * model.geometry().vocab..];
            assert_eq!(bits(&logits), bits(alone), "{name}, text {text} from {start}");
        }
    }
}

#[test]
fn an_encoded_text_does_not_depend_on_its_neighbours() {
    for name in ["bert", "xlm-roberta", "mpnet", "qwen3-embedding"] {
        for threads in [1, 2, 3] {
            check_encoder_rows(name, &checkpoint(name), threads);
            check_encoder_rows(name, &checkpoint(name).rounded(), threads);
        }
    }
}

fn check_encoder_rows(name: &str, checkpoint: &Checkpoint, threads: usize) {
    let device = Device::cpu(threads);
    let model = load_encoder(checkpoint, &device).unwrap();
    let texts: Vec<Vec<u32>> =
        (1..=12).map(|len| (0..len * 3).map(|at| (draw(len, at) % 40) as u32).collect()).collect();
    let run = |texts: &[Vec<u32>], scratch: &mut Scratch| {
        let lengths: Vec<usize> = texts.iter().map(Vec::len).collect();
        let mut hidden = Values::default();
        model.forward(&device, &texts.concat(), &lengths, scratch, &mut hidden).unwrap();
        bits(&hidden)
    };
    let mut scratch = Scratch::default();
    let packed = run(&texts, &mut scratch);
    let alone: Vec<u32> = texts.iter().flat_map(|text| run(std::slice::from_ref(text), &mut scratch)).collect();
    assert_eq!(packed, alone, "{name}, {threads} threads");
}

#[test]
fn steps_that_cannot_run_say_why() {
    let device = Device::cpu(1);
    let model = load_decoder(&checkpoint("llama-untied"), &device).unwrap();
    let mut cache = KvCache::new(&device, model.geometry().kv(8)).unwrap();
    let mut run = |tokens: &[u32], positions: &[u32], outputs: &[usize]| {
        let segments = [Segment { query_start: 0, query_len: tokens.len(), context_len: 0, table: 0..1 }];
        let batch = Batch { tokens, positions, segments: &segments, tables: &[0], outputs };
        model.forward(&device, &batch, &mut cache, &mut Scratch::default(), &mut Values::default())
    };
    assert!(run(&[1, 2], &[0, 1], &[1]).is_ok());
    for (outcome, word) in [
        (run(&[1, 61], &[0, 1], &[1]), "token 61 of a vocabulary of 61"),
        (run(&[1, 2], &[0, 64], &[1]), "position 64"),
        (run(&[1, 2], &[0], &[1]), "1 positions for 2 tokens"),
        (run(&[1, 2], &[0, 1], &[2]), "output row 2"),
    ] {
        let error = outcome.unwrap_err();
        assert!(matches!(&error, Error::Batch(text) if text.contains(word)), "{error}");
    }
    let bert = load_encoder(&checkpoint("bert"), &device).unwrap();
    let encode = |tokens: &[u32], lengths: &[usize]| {
        bert.forward(&device, tokens, lengths, &mut Scratch::default(), &mut Values::default())
    };
    assert!(encode(&[1, 2], &[1, 1]).is_ok());
    assert!(matches!(encode(&[1, 2], &[1]), Err(Error::Batch(_))));
    assert!(matches!(encode(&[1, 2], &[0, 2]), Err(Error::Batch(_))));
    assert!(matches!(encode(&[1; 41], &[41]), Err(Error::Batch(text)) if text.contains("1 to 40")));
}
