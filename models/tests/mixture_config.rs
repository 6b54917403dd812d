//! What configurations of mixtures of experts and of linear attention must say, and what happens when they do not.

mod shared;

use std::path::Path;

use lifelong_kernels::Device;
use lifelong_models::{Checkpoint, Error, gpt_oss, load_decoder, qwen3_5, qwen3_moe};
use serde_json::{Value, json};

/// A checkpoint of `tests/golden` with other keys in its configuration; `null` takes a key away.
fn open(golden: &str, changes: &Value) -> Checkpoint {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(golden);
    let name: String = changes.to_string().chars().filter(char::is_ascii_alphanumeric).collect();
    let folder = shared::folder(&format!("mixture_config/{golden}-{name}"));
    let mut config: Value = serde_json::from_slice(&std::fs::read(from.join("config.json")).unwrap()).unwrap();
    for (key, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(config.as_object_mut().unwrap().remove(key)),
            value => config[key] = value.clone(),
        }
    }
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    std::fs::copy(from.join("model.safetensors"), folder.join("model.safetensors")).unwrap();
    Checkpoint::open(&folder).unwrap()
}

#[test]
fn what_cannot_be_computed_names_its_key() {
    for (golden, changes, words) in [
        ("qwen3moe", json!({"num_experts": null}), ["num_experts", "missing"]),
        ("qwen3moe", json!({"num_experts_per_tok": 7}), ["num_experts_per_tok", "expected 1 to 4"]),
        ("qwen3moe", json!({"moe_intermediate_size": null}), ["moe_intermediate_size", "missing"]),
        ("qwen3moe", json!({"hidden_act": "gelu"}), ["hidden_act", "silu"]),
        ("gpt-oss", json!({"rope_scaling": null}), ["rope_scaling", "must be stated"]),
        ("gpt-oss", json!({"quantization_config": {"quant_method": "awq"}}), ["quantization_config", "original"]),
        ("gpt-oss", json!({"layer_types": ["full_attention"]}), ["layer_types", "expected 2"]),
        (
            "qwen3_5-dense",
            json!({"layer_types": ["linear_attention", "chunked", "linear_attention"]}),
            ["layer_types", "chunked"],
        ),
        ("qwen3_5-dense", json!({"linear_num_value_heads": 3}), ["linear_num_value_heads", "multiple of the 2"]),
        ("qwen3_5-dense", json!({"linear_conv_kernel_dim": null}), ["linear_conv_kernel_dim", "missing"]),
        ("qwen3_5-dense", json!({"attention_bias": true}), ["attention_bias", "expected false"]),
    ] {
        let outcome = load_decoder(&open(golden, &changes), &Device::cpu(1));
        let message = outcome.err().expect("a configuration that cannot be honoured").to_string();
        assert!(words.iter().all(|word| message.contains(word)), "{golden} {changes}: {message}");
    }
}

#[test]
fn tensors_that_contradict_the_configuration_are_named() {
    for (golden, changes, tensor) in [
        ("qwen3moe", json!({"num_experts": 3}), "mlp.gate.weight"),
        ("qwen3moe", json!({"mlp_only_layers": []}), "layers.1.mlp.gate.weight"),
        ("gpt-oss", json!({"intermediate_size": 32}), "gate_up_proj_blocks"),
        ("gpt-oss-bf16", json!({"intermediate_size": 20}), "gate_up_proj"),
        ("qwen3_5-dense", json!({"linear_key_head_dim": 4}), "conv1d.weight"),
    ] {
        let error = load_decoder(&open(golden, &changes), &Device::cpu(1)).err().expect("a contradiction");
        assert!(matches!(error, Error::ShapeMismatch { .. } | Error::MissingTensor { .. }), "{error}");
        assert!(error.to_string().contains(tensor), "{golden} {changes}: {error}");
    }
}

#[test]
fn a_family_without_experts_refuses_them() {
    let changes = json!({"architectures": ["Qwen3ForCausalLM"]});
    let message = load_decoder(&open("qwen3moe", &changes), &Device::cpu(1)).err().expect("refused").to_string();
    assert!(message.contains("num_experts") && message.contains("not part of this architecture"), "{message}");
}

#[test]
fn dimensions_and_places_of_layers() {
    let none = json!({});
    let mixture = qwen3_moe::config(&open("qwen3moe", &none)).unwrap().mixture.unwrap();
    assert_eq!((mixture.experts, mixture.chosen, mixture.feed_forward), (4, 2, 12));
    assert_eq!(mixture.layers, [true, false]);
    let config = gpt_oss::config(&open("gpt-oss", &json!({"layer_types": null}))).unwrap();
    assert_eq!(config.windows, [Some(20), None]);
    let config = qwen3_5::config(&open("qwen3_5-dense", &none)).unwrap();
    assert_eq!(config.recurrence.unwrap().layers, [true, false, true]);
    assert_eq!((config.rope.rotary_dim, config.head_dim), (4, 16));
    // One layer of keys and values, two of states; three inputs of 64 channels and 4 states of 8 rows of 8 filled up to 16.
    let model = load_decoder(&open("qwen3_5-dense", &json!({"initializer_range": 0.1})), &Device::cpu(1)).unwrap();
    let geometry = model.geometry().kv(2);
    assert_eq!((geometry.layers, geometry.state_layers, geometry.state_values), (1, 2, 3 * 64 + 4 * 8 * 16));
    assert_eq!(geometry.bytes_per_block(), 16 * (16 + 16) * 4 + 2 * (3 * 64 + 4 * 8 * 16) * 4);
}
