//! What a configuration means: dimensions, tied heads, rotary scaling, and errors that name the key.

mod shared;

use std::path::Path;
use std::sync::Arc;

use lifelong_kernels::Device;
use lifelong_kernels::ops::rope::RopeStyle;
use lifelong_models::architecture::Decoder;
use lifelong_models::config::{Rope, RopeScaling, Tying};
use lifelong_models::file::ModelFile;
use lifelong_models::gemma3::Gemma3Config;
use lifelong_models::{Checkpoint, Error, llama, load_decoder, load_encoder, mistral, phi3, qwen2, smollm3};
use serde_json::{Value, json};

/// A Llama of one layer that loads as it stands.
fn base_config() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1,
        "intermediate_size": 32, "vocab_size": 100, "max_position_embeddings": 64, "hidden_act": "silu"
    })
}

/// The tensors of that model but for embedding and head.
const LAYER: [(&str, &[usize]); 10] = [
    ("model.norm.weight", &[64]),
    ("model.layers.0.input_layernorm.weight", &[64]),
    ("model.layers.0.self_attn.q_proj.weight", &[64, 64]),
    ("model.layers.0.self_attn.k_proj.weight", &[64, 64]),
    ("model.layers.0.self_attn.v_proj.weight", &[64, 64]),
    ("model.layers.0.self_attn.o_proj.weight", &[64, 64]),
    ("model.layers.0.post_attention_layernorm.weight", &[64]),
    ("model.layers.0.mlp.gate_proj.weight", &[32, 64]),
    ("model.layers.0.mlp.up_proj.weight", &[32, 64]),
    ("model.layers.0.mlp.down_proj.weight", &[64, 32]),
];
const EMBEDDING: &str = "model.embed_tokens.weight";
const HEAD: &str = "lm_head.weight";

/// Opens [`base_config`] with `changes` on top and the given tensors beside the layer.
fn open(name: &str, changes: &Value, tensors: &[(&str, &[usize], f32)]) -> Checkpoint {
    let folder = shared::folder(&format!("model_config/{name}"));
    let mut config = base_config();
    for (key, value) in changes.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let layer = LAYER.iter().map(|(name, shape)| (*name, *shape, 0.5));
    let all: Vec<(&str, &[usize], f32)> = layer.chain(tensors.iter().copied()).collect();
    std::fs::write(folder.join("model.safetensors"), shared::safetensors(&all)).unwrap();
    Checkpoint::open(&folder).unwrap()
}

fn load(checkpoint: &Checkpoint) -> Result<Box<dyn Decoder>, Error> {
    load_decoder(checkpoint, &Device::cpu(1))
}

fn load_whole(name: &str, changes: Value) -> Result<Box<dyn Decoder>, Error> {
    load(&open(name, &changes, &[(EMBEDDING, &[100, 64], 0.5), (HEAD, &[100, 64], 0.25)]))
}

fn error_of(loaded: Result<Box<dyn Decoder>, Error>) -> Error {
    loaded.err().expect("an error")
}

#[test]
fn the_shared_cases_that_touch_these_architectures() {
    let Some(cases) = shared::cases("config") else { return };
    let ours = |case: &&Value| {
        let id = case["id"].as_str().unwrap();
        // Mixtures of experts come with their architectures.
        case["component"] == "model config" && !id.starts_with("cf-moe")
    };
    let mut count = 0;
    for case in cases.iter().filter(ours) {
        let id = case["id"].as_str().unwrap();
        match case["given"]["op"].as_str() {
            Some("inv_freq") => check_frequencies(&case["given"], &case["expect"]),
            Some(other) => panic!("{id}: unknown operation {other}"),
            None => check_model(id, &case["given"], &case["expect"]),
        }
        count += 1;
    }
    assert_eq!(count, 11);
}

fn check_frequencies(given: &Value, expect: &Value) {
    let number = |key: &str| given["rope_scaling"][key].as_f64().unwrap();
    let rope = Rope {
        base: given["rope_theta"].as_f64().unwrap(),
        rotary_dim: given["head_dim"].as_u64().unwrap() as usize,
        scaling: RopeScaling::Llama3 {
            factor: number("factor"),
            low_frequency_factor: number("low_freq_factor"),
            high_frequency_factor: number("high_freq_factor"),
            original_context: number("original_max_position_embeddings"),
        },
        style: RopeStyle::Halves,
    };
    let frequencies = rope.frequencies();
    assert_eq!(frequencies.len(), rope.rotary_dim / 2);
    for (pair, expected) in expect["inv_freq"].as_object().unwrap() {
        let (found, expected) = (frequencies[pair.parse::<usize>().unwrap()], expected.as_f64().unwrap());
        assert!((found - expected).abs() <= expect["rel_tolerance"].as_f64().unwrap() * expected, "{pair}: {found}");
    }
}

fn check_model(id: &str, given: &Value, expect: &Value) {
    let shape =
        |value: &Value| value.as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect::<Vec<_>>();
    let tensors: Vec<(String, Vec<usize>)> = match &given["tensors"] {
        Value::Array(names) => names.iter().map(|name| (name.as_str().unwrap().to_string(), vec![100, 64])).collect(),
        Value::Object(shapes) => shapes.iter().map(|(name, extents)| (name.clone(), shape(extents))).collect(),
        _ => vec![(EMBEDDING.to_string(), vec![100, 64]), (HEAD.to_string(), vec![100, 64])],
    };
    let tensors: Vec<(&str, &[usize], f32)> =
        tensors.iter().map(|(name, shape)| (name.as_str(), shape.as_slice(), 0.5)).collect();
    let checkpoint = open(id, &given["config"], &tensors);
    let loaded = load(&checkpoint);
    if expect["ok"] == true {
        let model = loaded.unwrap();
        if let Some(context) = expect["max_position_embeddings"].as_u64() {
            assert_eq!(model.geometry().context as u64, context, "{id}");
        }
        if expect["lm_head"] == "tied" {
            // 64 · 100 of the embedding, counted once.
            let layer: usize = LAYER.iter().map(|(_, shape)| shape.iter().product::<usize>()).sum();
            assert_eq!(model.geometry().parameters as usize, 6400 + layer, "{id}");
        }
        assert_eq!(expect.get("warn").is_some(), model.notes().iter().any(|note| note.contains(HEAD)), "{id}");
        return;
    }
    let error = error_of(loaded);
    let message = error.to_string();
    let expected = &expect["error"];
    match (expected["kind"].as_str().unwrap(), &error) {
        ("missing_tensor", Error::MissingTensor { tensor, .. }) => {
            assert_eq!(tensor.as_str(), expected["names"][0], "{id}")
        }
        ("config_error", Error::Config { key, .. }) => assert_eq!(key.as_str(), expected["key"], "{id}"),
        ("shape_mismatch", Error::ShapeMismatch { tensor, expected: wanted, found, .. }) => {
            let case = (expected["name"].as_str().unwrap(), shape(&expected["expected"]), shape(&expected["found"]));
            assert_eq!((tensor.as_str(), wanted.clone(), found.clone()), case, "{id}");
        }
        ("unsupported_architecture", Error::UnsupportedArchitecture { found, supported, .. }) => {
            assert_eq!(found.as_str(), expected["found"], "{id}");
            assert!(
                supported.iter().all(|name| message.contains(name)) && message.contains("LlamaForCausalLM"),
                "{id}"
            );
        }
        (kind, _) => panic!("{id}: expected {kind}, found {message}"),
    }
    for allowed in expected["allowed"].as_array().into_iter().flatten() {
        assert!(message.contains(allowed.as_str().unwrap()), "{id}: {message}");
    }
}

#[test]
fn a_tied_head_that_differs_is_an_error() {
    let tensors: [(&str, &[usize], f32); 2] = [(EMBEDDING, &[100, 64], 0.5), (HEAD, &[100, 64], 0.25)];
    let error = error_of(load(&open("tied-differs", &json!({ "tie_word_embeddings": true }), &tensors)));
    assert!(matches!(&error, Error::Config { key, .. } if key == "tie_word_embeddings"), "{error}");
    assert!(load(&open("untied", &json!({ "tie_word_embeddings": false }), &tensors)).is_ok());
}

#[test]
fn keys_that_would_change_numbers_are_refused_by_name() {
    let refused = [
        ("hidden_act", json!("gelu")),
        ("quantization_config", json!({ "quant_method": "gptq" })),
        ("num_key_value_heads", json!(3)),
        ("hidden_size", json!(0)),
        ("hidden_size", json!("64")),
        ("num_hidden_layers", json!(-1)),
        ("max_position_embeddings", json!(1u64 << 40)),
        ("rope_theta", json!(-5.0)),
    ];
    for (index, (name, value)) in refused.into_iter().enumerate() {
        let error = error_of(load_whole(&format!("refused-{index}"), json!({ name: value })));
        assert!(matches!(&error, Error::Config { key, .. } if key == name), "{name}: {error}");
    }
    let dynamic = json!({ "rope_scaling": { "type": "dynamic", "factor": 2.0 } });
    let message = error_of(load_whole("refused-scaling", dynamic)).to_string();
    assert!(message.contains("`dynamic`") && message.contains("llama3"), "{message}");
    let error = error_of(load_whole("no-factor", json!({ "rope_scaling": { "rope_type": "linear" } })));
    assert!(matches!(&error, Error::Config { key, .. } if key == "rope_scaling.factor"), "{error}");
}

#[test]
fn what_no_decoder_here_computes_is_refused_by_name() {
    let refused = [
        ("attn_logit_softcapping", json!(50.0)),
        ("final_logit_softcapping", json!(30.0)),
        ("use_bidirectional_attention", json!(true)),
        ("num_local_experts", json!(8)),
    ];
    for (index, (name, value)) in refused.into_iter().enumerate() {
        let error = error_of(load_whole(&format!("uncomputed-{index}"), json!({ name: value })));
        assert!(matches!(&error, Error::Config { key, .. } if key == name), "{name}: {error}");
    }
    let stated = json!({ "attn_logit_softcapping": null, "final_logit_softcapping": 0.0, "num_local_experts": 0 });
    assert!(load_whole("computed", stated).is_ok());
}

/// Opens [`base_config`] as another class, with embedding and head.
fn open_as(name: &str, class: &str, changes: Value) -> Checkpoint {
    let mut all = json!({ "architectures": [class], "num_key_value_heads": 4 });
    for (key, value) in changes.as_object().into_iter().flatten() {
        all[key] = value.clone();
    }
    open(name, &all, &[(EMBEDDING, &[100, 64], 0.5), (HEAD, &[100, 64], 0.5)])
}

#[test]
fn windows_are_where_the_family_puts_them() {
    let qwen2 = |name: &str, changes: Value| {
        qwen2::config(&open_as(name, "Qwen2ForCausalLM", changes)).map(|config| config.windows)
    };
    let sliding = json!({ "num_hidden_layers": 3, "sliding_window": 7, "max_window_layers": 2 });
    assert_eq!(qwen2("qwen2-off", sliding.clone()).unwrap(), [None; 3]);
    let mut on = sliding.clone();
    on["use_sliding_window"] = json!(true);
    assert_eq!(qwen2("qwen2-on", on.clone()).unwrap(), [None, None, Some(7)]);
    on["layer_types"] = json!(["sliding_attention", "full_attention", "full_attention"]);
    assert_eq!(qwen2("qwen2-types", on.clone()).unwrap(), [Some(7), None, None]);
    on["layer_types"] = json!(["sliding_attention", "linear_attention", "full_attention"]);
    let message = qwen2("qwen2-unknown", on.clone()).unwrap_err().to_string();
    assert!(message.contains("layer_types") && message.contains("linear_attention"), "{message}");
    on["layer_types"] = json!(["full_attention"]);
    let message = qwen2("qwen2-count", on).unwrap_err().to_string();
    assert!(message.contains("found 1 entries, expected 3"), "{message}");

    let mistral = |name: &str, changes: Value| mistral::config(&open_as(name, "MistralForCausalLM", changes)).unwrap();
    let absent = mistral("mistral-absent", json!({}));
    assert_eq!(absent.windows, [Some(4096)]);
    assert!(absent.notes.iter().any(|note| note.contains("`sliding_window` is absent: 4096")), "{:?}", absent.notes);
    assert_eq!(mistral("mistral-null", json!({ "sliding_window": null })).windows, [None]);
    assert_eq!(mistral("mistral-9", json!({ "sliding_window": 9 })).windows, [Some(9)]);
}

/// A layer of Gemma 3 needs other tensors; its configuration is read without them.
#[test]
fn gemma3_says_what_each_kind_of_layer_does() {
    let read = |name: &str, changes: Value| {
        let mut all =
            json!({ "hidden_activation": "gelu_pytorch_tanh", "num_hidden_layers": 7, "sliding_window": 512 });
        for (key, value) in changes.as_object().into_iter().flatten() {
            all[key] = value.clone();
        }
        Gemma3Config::from_checkpoint(&open_as(name, "Gemma3ForCausalLM", all))
    };
    let Gemma3Config { decoder, local_rope } = read("gemma3-defaults", json!({})).unwrap();
    let local = Some(512);
    assert_eq!(decoder.windows, [local, local, local, local, local, None, local]);
    assert_eq!((decoder.head_dim, decoder.kv_heads, decoder.score_scale), (256, 4, 1.0 / 16.0));
    assert_eq!((decoder.rope.base, local_rope.base, decoder.norm.offset), (1e6, 1e4, 1.0));
    assert_eq!(decoder.tying, Tying::Tied);

    let older = json!({ "rope_theta": 1e6, "rope_local_base_freq": 5e3, "query_pre_attn_scalar": 168,
        "rope_scaling": { "rope_type": "linear", "factor": 8.0 } });
    let newer = json!({ "query_pre_attn_scalar": 168, "rope_parameters": {
        "full_attention": { "rope_type": "linear", "factor": 8.0, "rope_theta": 1e6 },
        "sliding_attention": { "rope_type": "default", "rope_theta": 5e3 } } });
    let (older, newer) = (read("gemma3-older", older).unwrap(), read("gemma3-newer", newer).unwrap());
    assert_eq!((&older.decoder.rope, &older.local_rope), (&newer.decoder.rope, &newer.local_rope));
    assert_eq!(older.decoder.rope.scaling, RopeScaling::Linear { factor: 8.0 });
    assert_eq!((older.local_rope.base, &older.local_rope.scaling), (5e3, &RopeScaling::None));
    assert_eq!(older.decoder.score_scale, 1.0 / 168f32.sqrt());

    for (key, value) in [
        ("sliding_window", json!(null)),
        ("sliding_window_pattern", json!(0)),
        ("query_pre_attn_scalar", json!(-1)),
        ("hidden_activation", json!("gelu")),
        ("final_logit_softcapping", json!(30.0)),
        ("use_bidirectional_attention", json!(true)),
    ] {
        let error = read("gemma3-refused", json!({ key: value })).unwrap_err();
        assert!(matches!(&error, Error::Config { key: found, .. } if found == key), "{key}: {error}");
    }
}

#[test]
fn yarn_extends_the_context_and_keeps_the_fast_pairs() {
    let scaling = json!({ "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768 });
    let changes = json!({ "max_position_embeddings": 32768, "rope_theta": 1e6, "rope_scaling": scaling,
        "num_key_value_heads": 4, "head_dim": 128 });
    let config = qwen2::config(&open_as("yarn", "Qwen2ForCausalLM", changes)).unwrap();
    assert_eq!(config.context, 131_072);
    assert!((config.rope.magnitude() - (0.1 * 4f64.ln() + 1.0)).abs() < 1e-12);
    let (scaled, plain) = (config.rope.frequencies(), lifelong_kernels::ops::rope::rope_frequencies(128, 1e6));
    // A pair turns 32 times over 32 768 positions at 2 · 64 · ln(32 768 / 64π) / 2 ln 10⁶ = 23.6, once at 39.7.
    assert_eq!(scaled[..24], plain[..24]);
    assert!(scaled[24] < plain[24] && scaled[39] > plain[39] / 4.0);
    assert!(scaled[40..].iter().zip(&plain[40..]).all(|(scaled, plain)| (scaled * 4.0 / plain - 1.0).abs() < 1e-12));
    let unsaid = json!({ "rope_scaling": { "type": "yarn" } });
    let error = error_of(load_whole("yarn-factor", unsaid));
    assert!(matches!(&error, Error::Config { key, .. } if key == "rope_scaling.factor"), "{error}");
}

#[test]
fn longrope_ends_at_the_original_context_and_says_so() {
    let read = |name: &str, factors: usize| {
        let scaling =
            json!({ "type": "longrope", "short_factor": vec![1.5; factors], "long_factor": vec![9.0; factors] });
        let changes = json!({ "max_position_embeddings": 131072, "original_max_position_embeddings": 4096,
            "partial_rotary_factor": 0.75, "rope_scaling": scaling });
        phi3::config(&open_as(name, "Phi3ForCausalLM", changes))
    };
    // Heads of 16 values, 12 of them rotated.
    let config = read("longrope", 6).unwrap();
    assert_eq!((config.context, config.rope.rotary_dim), (4096, 12));
    assert!(config.notes.iter().any(|note| note.contains("contexts end at 4096 of 131072")), "{:?}", config.notes);
    assert!((config.rope.magnitude() - (1.0 + 32f64.ln() / 4096f64.ln()).sqrt()).abs() < 1e-12);
    let message = read("longrope-short", 5).unwrap_err().to_string();
    assert!(
        message.contains("rope_scaling.short_factor") && message.contains("found 5 divisors, expected 6"),
        "{message}"
    );
}

#[test]
fn smollm3_names_the_layers_without_positions() {
    let read = |name: &str, changes: Value| smollm3::config(&open_as(name, "SmolLM3ForCausalLM", changes));
    let layers = |value: Value| json!({ "num_hidden_layers": 4, "no_rope_layers": value });
    assert_eq!(read("smollm3", layers(json!(null))).unwrap().rotated, [true, true, true, false]);
    assert_eq!(read("smollm3-listed", layers(json!([0, 1, 1, 1]))).unwrap().rotated, [false, true, true, true]);
    let message = read("smollm3-count", layers(json!([0, 1]))).unwrap_err().to_string();
    assert!(message.contains("`no_rope_layers`: found 2 entries, expected 4"), "{message}");
}

#[test]
fn rope_parameters_of_newer_files_mean_the_same() {
    let scaling = json!({ "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16 });
    let mut newer = scaling.clone();
    newer["rope_theta"] = json!(5e5);
    let rope = |name: &str, changes: Value| {
        let checkpoint = open(name, &changes, &[(EMBEDDING, &[100, 64], 0.5), (HEAD, &[100, 64], 0.5)]);
        llama::config(&checkpoint).unwrap().rope
    };
    let older = rope("older", json!({ "rope_scaling": scaling, "rope_theta": 5e5 }));
    assert_eq!(rope("newer", json!({ "rope_parameters": newer })), older);
    assert_eq!(older.base, 5e5);
    assert!(matches!(older.scaling, RopeScaling::Llama3 { .. }));
}

#[test]
fn a_tensor_without_a_use_is_an_error_and_a_buffer_is_not() {
    let embedding: (&str, &[usize], f32) = (EMBEDDING, &[100, 64], 0.5);
    let head: (&str, &[usize], f32) = (HEAD, &[100, 64], 0.5);
    let norm: (&str, &[usize], f32) = ("model.layers.0.self_attn.q_norm.weight", &[16], 0.5);
    let error = error_of(load(&open("variant", &json!({}), &[embedding, head, norm])));
    assert!(matches!(&error, Error::UnknownTensors { tensors, .. } if tensors == &[norm.0]), "{error}");
    let buffer: (&str, &[usize], f32) = ("model.layers.0.self_attn.rotary_emb.inv_freq", &[8], 0.5);
    assert!(load(&open("buffer", &json!({}), &[embedding, head, buffer])).is_ok());
}

#[test]
fn weights_that_are_not_numbers_and_defaults_are_noted() {
    let tensors: [(&str, &[usize], f32); 2] = [(EMBEDDING, &[100, 64], f32::NAN), (HEAD, &[100, 64], 0.5)];
    let model = load(&open("nan", &json!({}), &tensors)).unwrap();
    let notes = model.notes().join("\n");
    assert!(notes.contains("non-finite weight in `model.embed_tokens.weight`"), "{notes}");
    assert!(notes.contains("`rms_norm_eps` is absent: 1e-6"), "{notes}");
    assert_eq!(notes.matches("non-finite").count(), 1, "{notes}");
}

#[test]
fn a_model_of_the_other_kind_is_refused() {
    let tensors: [(&str, &[usize], f32); 2] = [(EMBEDDING, &[100, 64], 0.5), (HEAD, &[100, 64], 0.5)];
    let message = load_encoder(&open("kind", &json!({}), &tensors), &Device::cpu(1)).err().unwrap().to_string();
    assert!(message.contains("llama") && message.contains("bert"), "{message}");
    let message = error_of(load_whole("kind-bert", json!({ "architectures": ["BertModel"] }))).to_string();
    assert!(message.contains("encoder"), "{message}");
}

#[test]
fn weights_without_a_configuration_say_which_file_is_missing() {
    let folder = shared::folder("model_config/bare");
    std::fs::write(folder.join("model.safetensors"), shared::safetensors(&[("a", &[1], 0.0)])).unwrap();
    let message = error_of(load(&Checkpoint::open(&folder).unwrap())).to_string();
    assert!(message.contains("config.json"), "{message}");
}

/// A GGUF file of one string and some integers.
fn gguf(pairs: &[(&str, u32)]) -> Checkpoint {
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3u32.to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    bytes.extend((pairs.len() as u64 + 1).to_le_bytes());
    let string = |bytes: &mut Vec<u8>, text: &str| {
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.as_bytes());
    };
    string(&mut bytes, "general.architecture");
    bytes.extend(8u32.to_le_bytes());
    string(&mut bytes, "llama");
    for (key, value) in pairs {
        string(&mut bytes, key);
        bytes.extend(4u32.to_le_bytes());
        bytes.extend(value.to_le_bytes());
    }
    Checkpoint::from_gguf(Arc::new(ModelFile::from_bytes(Path::new("made.gguf"), bytes))).unwrap()
}

#[test]
fn an_absurd_layer_count_in_gguf_is_an_error_that_names_it() {
    let keys = ["embedding_length", "attention.head_count", "feed_forward_length", "vocab_size", "context_length"];
    let keys: Vec<String> = keys.iter().map(|key| format!("llama.{key}")).collect();
    let mut pairs: Vec<(&str, u32)> = keys.iter().map(|key| (key.as_str(), 32)).collect();
    pairs.push(("llama.block_count", u32::MAX));
    let error = error_of(load(&gguf(&pairs)));
    assert!(matches!(&error, Error::Config { key, .. } if key == "llama.block_count"), "{error}");
    let message = error_of(load(&gguf(&[]))).to_string();
    assert!(message.contains("llama.embedding_length") && message.contains("missing"), "{message}");
}

#[test]
fn the_shared_case_of_an_absurd_layer_count() {
    let Some(cases) = shared::cases("model_files") else { return };
    let case = cases.iter().find(|case| case["id"] == "mf-blocks").unwrap();
    let bytes = shared::base64(case["given"]["bytes_b64"].as_str().unwrap());
    let checkpoint = Checkpoint::from_gguf(Arc::new(ModelFile::from_bytes(Path::new("a.gguf"), bytes))).unwrap();
    assert!(matches!(error_of(load(&checkpoint)), Error::Config { .. } | Error::MissingTensor { .. }));
}
