//! Models in parts over a group of processors: the numbers of the whole but for the order of a sum, rows that do not move, and
//! models that cannot be split refused with the reason.

mod shared;

use std::path::Path;

use lifelong_kernels::{BLOCK_TOKENS, Device, Error as KernelError, Format, KvCache, Segment, Values};
use lifelong_models::architecture::{Batch, Scratch};
use lifelong_models::{Checkpoint, Error, load_decoder};
use serde_json::json;
use shared::split::{FAMILIES, WIDE, bits, group, parts_are_the_whole, rows_do_not_move, tokens};
use shared::{decode, draw};

/// A sum of parts, each rounded on its own, through two layers.
const SUMS: f32 = 1e-5;
/// An activation on the edge between two 8-bit levels may round the other way after that.
const FLIPPED: f32 = 2e-2;

fn cpus(count: usize) -> Device {
    group(count, |_| Device::cpu(1))
}

fn golden(name: &str) -> Checkpoint {
    Checkpoint::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)).unwrap()
}

#[test]
fn parts_have_the_logits_and_the_likeliest_tokens_of_the_whole() {
    for family in FAMILIES {
        for format in [Format::F32, Format::BF16] {
            let checkpoint = family.checkpoint(format);
            for count in [1, 2, 4] {
                let what = format!("{} {format:?} in {count} parts", family.name);
                parts_are_the_whole(&checkpoint, &cpus(count), &Device::cpu(1), SUMS, &what);
            }
        }
    }
}

/// Blocks of 32 and of 256 inputs, quantised at load.
#[test]
fn parts_of_quantised_weights_hold_the_blocks_of_the_whole() {
    for format in [Format::Q8_0, Format::Q4_0, Format::Q4K, Format::Q6K] {
        let checkpoint = WIDE.checkpoint(Format::F32).quantized(format).unwrap();
        let what = format!("{} {format:?} in 2 parts", WIDE.name);
        parts_are_the_whole(&checkpoint, &cpus(2), &Device::cpu(1), FLIPPED, &what);
    }
}

/// As many rows as one device alone would cut for its threads.
#[test]
fn members_with_threads_of_their_own_have_the_bits_of_members_without() {
    let checkpoint = golden("qwen3");
    for count in [1, 2] {
        let found = [1, 2].map(|threads| {
            let cpus = group(count, |_| Device::cpu(threads));
            let parts = load_decoder(&checkpoint, &cpus).unwrap();
            let vocab = parts.geometry().vocab;
            let tokens: Vec<u32> = (0..60).map(|at| (draw(8, at) % vocab as u64) as u32).collect();
            bits(&decode::logits(parts.as_ref(), &cpus, &tokens, 60))
        });
        assert_eq!(found[0], found[1], "{count} members");
    }
}

/// Files as they are published: biases everywhere, norms of heads, blocks of GGUF.
#[test]
fn files_are_split_as_drawn_weights_are() {
    for (name, tolerance) in [("llama-bias-linear", SUMS), ("qwen3", SUMS), ("qwen3-gguf-f16", SUMS)] {
        let (checkpoint, cpus) = (golden(name), cpus(2));
        let (parts, whole) =
            (load_decoder(&checkpoint, &cpus).unwrap(), load_decoder(&checkpoint, &Device::cpu(1)).unwrap());
        let vocab = whole.geometry().vocab;
        let tokens: Vec<u32> = (0..33).map(|at| (draw(7, at) % vocab as u64) as u32).collect();
        let found = decode::logits(parts.as_ref(), &cpus, &tokens, 33);
        let error = decode::error(&found, &decode::logits(whole.as_ref(), &Device::cpu(1), &tokens, 33), vocab);
        println!("{name}: relative error {error:.1e}");
        assert!(error <= tolerance, "{name}: relative error {error}");
        assert_eq!(parts.notes(), whole.notes(), "{name}");
    }
}

#[test]
fn a_row_does_not_depend_on_its_step() {
    for family in FAMILIES {
        for count in [2, 4] {
            rows_do_not_move(
                &family.checkpoint(Format::BF16),
                &cpus(count),
                &format!("{} in {count} parts", family.name),
            );
        }
    }
    rows_do_not_move(
        &WIDE.checkpoint(Format::F32).quantized(Format::Q4K).unwrap(),
        &cpus(2),
        "wide llama Q4K in 2 parts",
    );
}

/// The bits are those of the number of parts: the same every time, whatever the threads of each.
#[test]
fn bits_depend_on_the_number_of_parts_alone() {
    let checkpoint = FAMILIES[0].checkpoint(Format::F32);
    let tokens = tokens(9, 40);
    let run = |count, threads| {
        let group = group(count, |_| Device::cpu(threads));
        bits(&decode::logits(load_decoder(&checkpoint, &group).unwrap().as_ref(), &group, &tokens, 40))
    };
    let two = run(2, 1);
    assert_eq!((run(2, 1), run(2, 3)), (two.clone(), two.clone()));
    assert_ne!(run(4, 1), two, "the order of a sum is another");
    let alone = bits(&decode::logits(
        load_decoder(&checkpoint, &Device::cpu(1)).unwrap().as_ref(),
        &Device::cpu(1),
        &tokens,
        40,
    ));
    assert_eq!(run(1, 1), alone);
}

#[test]
fn models_that_cannot_be_split_say_why() {
    let refused = |checkpoint: &Checkpoint, count: usize| {
        let error = load_decoder(checkpoint, &cpus(count)).map(|_| ()).unwrap_err();
        assert!(matches!(error, Error::Split { .. }), "{error}");
        error.to_string()
    };
    let error = refused(&FAMILIES[0].checkpoint(Format::F32), 3);
    assert!(error.contains("over 3 devices: its 4 key-value heads can be shared by 1, 2, 4 devices"), "{error}");
    for name in ["gpt-oss", "qwen3moe", "gemma3", "qwen3_5-dense"] {
        let error = refused(&golden(name), 2);
        assert!(error.contains("among those that are: llama, mistral, qwen2, qwen3, smollm3, phi3"), "{name}: {error}");
    }
    // Heads of 64 in blocks of 256: a half of two heads ends inside of one.
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-6,
        "vocab_size": 90, "max_position_embeddings": 256, "hidden_size": 256, "intermediate_size": 512,
        "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
        "rope_theta": 10000.0, "tie_word_embeddings": false,
    });
    let checkpoint = Checkpoint::drawn(config, 5, Format::F32, &["lm_head.weight"]).unwrap();
    let error = refused(&checkpoint.quantized(Format::Q4K).unwrap(), 2);
    assert!(error.contains("o_proj.weight` has 256 inputs in blocks of 256") && error.contains("0 to 128"), "{error}");
}

#[test]
fn a_cache_and_a_device_must_be_those_of_the_group() {
    let (checkpoint, cpus) = (FAMILIES[0].checkpoint(Format::F32), cpus(2));
    let model = load_decoder(&checkpoint, &cpus).unwrap();
    let tokens = tokens(1, 3);
    let segments = [Segment { query_start: 0, query_len: 3, context_len: 0, table: 0..1 }];
    let batch = Batch { tokens: &tokens, positions: &[0, 1, 2], segments: &segments, tables: &[0], outputs: &[2] };
    let run = |device: &Device, place: &Device, batch: &Batch| {
        let mut cache = KvCache::new(place, model.geometry().kv(2)).unwrap();
        model.forward(device, batch, &mut cache, &mut Scratch::default(), &mut Values::default())
    };
    run(&cpus, &cpus, &batch).unwrap();
    for (device, place) in [(&Device::cpu(1), &cpus), (&cpus, &Device::cpu(1))] {
        let error = run(device, place, &batch).unwrap_err();
        assert!(
            matches!(&error, Error::Kernel(KernelError::Group(text)) if text.contains("a model in 2 parts")),
            "{error}"
        );
    }
    // A step that no member can run fails once, as on one device, and the next one runs.
    let long = Batch { tables: &[7], ..batch };
    assert!(matches!(run(&cpus, &cpus, &long).unwrap_err(), Error::Kernel(KernelError::Index { .. })));
    run(&cpus, &cpus, &batch).unwrap();
    let geometry = model.geometry().kv(2);
    let mut cache = KvCache::new(&cpus, geometry).unwrap();
    assert_eq!((cache.geometry().kv_heads, cache.parts_mut().len()), (4, 2));
    assert!(cache.parts_mut().iter().all(|part| part.geometry().kv_heads == 2 && part.geometry().blocks == 2));
    assert_eq!(BLOCK_TOKENS * 2 * 2 * 2 * 16 * 4, cache.parts_mut()[0].geometry().bytes_per_block());
}
