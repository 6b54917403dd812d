//! Models that a group of devices can hold in two and in four parts, and what must hold of each.

use lifelong_kernels::{BLOCK_TOKENS, Device, Format, KvCache, Segment, Values};
use lifelong_models::architecture::{Batch, Decoder, Scratch};
use lifelong_models::{Checkpoint, load_decoder};
use serde_json::{Value, json};

use super::{decode, draw};

/// A small model with drawn weights; its vocabulary and its feed-forward are no multiples of the parts.
pub struct Family {
    pub name: &'static str,
    present: &'static [&'static str],
    own: fn() -> Value,
}

impl Family {
    pub fn checkpoint(&self, format: Format) -> Checkpoint {
        let mut config = json!({
            "hidden_act": "silu", "rms_norm_eps": 1e-6, "vocab_size": 90, "max_position_embeddings": 256,
            "hidden_size": 64, "intermediate_size": 224, "num_hidden_layers": 2, "num_attention_heads": 8,
            "num_key_value_heads": 4, "head_dim": 16, "rope_theta": 10000.0, "tie_word_embeddings": false,
        });
        if let (Some(config), Value::Object(own)) = (config.as_object_mut(), (self.own)()) {
            config.extend(own);
        }
        Checkpoint::drawn(config, 5, format, self.present).unwrap()
    }
}

const HEAD: &[&str] = &["lm_head.weight"];

/// A head of its own and one that is tied, biases, norms of heads, a window, layers without rotation, fused projections.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "llama",
        present: HEAD,
        own: || json!({ "architectures": ["LlamaForCausalLM"], "model_type": "llama" }),
    },
    Family {
        name: "llama with biases",
        present: HEAD,
        own: || {
            json!({
                "architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": true, "mlp_bias": true,
                "intermediate_size": 52,
            })
        },
    },
    Family {
        name: "mistral",
        present: HEAD,
        own: || json!({ "architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 24 }),
    },
    Family {
        name: "qwen2",
        present: HEAD,
        own: || json!({ "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2" }),
    },
    Family {
        name: "qwen3",
        present: &[],
        own: || json!({ "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "tie_word_embeddings": true }),
    },
    Family {
        name: "smollm3",
        present: &[],
        own: || {
            json!({
                "architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3", "no_rope_layers": [1, 0],
                "no_rope_layer_interval": 2, "use_sliding_window": false, "tie_word_embeddings": true,
            })
        },
    },
    Family {
        name: "phi3",
        present: HEAD,
        own: || json!({ "architectures": ["Phi3ForCausalLM"], "model_type": "phi3" }),
    },
];

/// Wide enough for parts in blocks of 256.
pub const WIDE: Family = Family {
    name: "wide llama",
    present: HEAD,
    own: || {
        json!({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "intermediate_size": 768,
            "num_hidden_layers": 1, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64,
        })
    },
};

/// Devices of one kind as a group.
pub fn group(count: usize, device: impl Fn(usize) -> Device) -> Device {
    Device::group((0..count).map(device).collect()).unwrap()
}

pub fn tokens(seed: u64, len: usize) -> Vec<u32> {
    (0..len as u64).map(|at| (draw(seed, at) % 90) as u32).collect()
}

pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// The likeliest token behind a prompt, and behind that, `count` times, one token a step behind cached blocks.
pub fn greedy(model: &dyn Decoder, device: &Device, prompt: &[u32], count: usize) -> Vec<u32> {
    let blocks = (prompt.len() + count).div_ceil(BLOCK_TOKENS);
    let mut cache = KvCache::new(device, model.geometry().kv(blocks)).unwrap();
    let tables: Vec<u32> = (0..blocks as u32).collect();
    let (mut scratch, mut logits) = (Scratch::default(), Values::default());
    let (mut step, mut context, mut drawn) = (prompt.to_vec(), 0, Vec::new());
    for _ in 0..count {
        let (len, end) = (step.len(), context + step.len());
        let batch = Batch {
            tokens: &step,
            positions: &(context as u32..end as u32).collect::<Vec<_>>(),
            segments: &[Segment { query_start: 0, query_len: len, context_len: context, table: 0..blocks }],
            tables: &tables,
            outputs: &[len - 1],
        };
        model.forward(device, &batch, &mut cache, &mut scratch, &mut logits).unwrap();
        device.synchronize().unwrap();
        let best = decode::argmax(&logits) as u32;
        drawn.push(best);
        (step, context) = (vec![best], end);
    }
    drawn
}

/// The logits of a model in parts are those of the whole on one device of the same kind, and its likeliest tokens are.
pub fn parts_are_the_whole(checkpoint: &Checkpoint, group: &Device, alone: &Device, tolerance: f32, what: &str) {
    let (parts, whole) = (load_decoder(checkpoint, group).unwrap(), load_decoder(checkpoint, alone).unwrap());
    assert_eq!(parts.geometry(), whole.geometry(), "{what}");
    let tokens = tokens(7, 37);
    let found = decode::logits(parts.as_ref(), group, &tokens, 20);
    let expected = decode::logits(whole.as_ref(), alone, &tokens, 20);
    let error = decode::error(&found, &expected, whole.geometry().vocab);
    println!("{what}: relative error {error:.1e}");
    assert!(error <= tolerance, "{what}: relative error {error}, {tolerance} allowed");
    let prompt = &tokens[..19];
    assert_eq!(greedy(parts.as_ref(), group, prompt, 12), greedy(whole.as_ref(), alone, prompt, 12), "{what}");
}

/// A row of a model in parts has the same bits however the prompt is cut and whatever shares its step.
pub fn rows_do_not_move(checkpoint: &Checkpoint, group: &Device, what: &str) {
    let model = load_decoder(checkpoint, group).unwrap();
    let (model, vocab) = (model.as_ref(), model.geometry().vocab);
    let text = tokens(7, 35);
    let whole = bits(&decode::logits(model, group, &text, 35));
    for chunk in [1, 17] {
        assert_eq!(bits(&decode::logits(model, group, &text, chunk)), whole, "{what}, chunks of {chunk}");
    }
    let shared = tokens(3, BLOCK_TOKENS);
    let mut cache = KvCache::new(group, model.geometry().kv(8)).unwrap();
    let (mut scratch, mut logits) = (Scratch::default(), Values::default());
    let positions: Vec<u32> = (0..BLOCK_TOKENS as u32).collect();
    let segments = [Segment { query_start: 0, query_len: BLOCK_TOKENS, context_len: 0, table: 0..1 }];
    let batch = Batch { tokens: &shared, positions: &positions, segments: &segments, tables: &[5], outputs: &[] };
    model.forward(group, &batch, &mut cache, &mut scratch, &mut logits).unwrap();
    assert!(logits.is_empty());
    // Three requests in one step, two of them behind the same cached block.
    let own = [4, 5, 6].map(|seed| tokens(seed, 9));
    let (contexts, tables) = ([BLOCK_TOKENS, BLOCK_TOKENS, 0], [0..2, 2..4, 4..5]);
    let segment =
        |(index, table)| Segment { query_start: index * 9, query_len: 9, context_len: contexts[index], table };
    let segments: Vec<Segment> = tables.into_iter().enumerate().map(segment).collect();
    let positions: Vec<u32> = contexts.iter().flat_map(|context| *context as u32..*context as u32 + 9).collect();
    let outputs: Vec<usize> = (0..27).collect();
    let batch = Batch {
        tokens: &own.concat(),
        positions: &positions,
        segments: &segments,
        tables: &[5, 2, 5, 7, 1],
        outputs: &outputs,
    };
    model.forward(group, &batch, &mut cache, &mut scratch, &mut logits).unwrap();
    group.synchronize().unwrap();
    for (index, own) in own.iter().enumerate() {
        let text = [&shared[..contexts[index]], own].concat();
        let alone = decode::logits_from(model, group, &text, text.len(), contexts[index]);
        assert_eq!(bits(&logits[index * 9 * vocab..][..9 * vocab]), bits(&alone), "{what}, request {index} of a step");
    }
}
