//! A model of every kind of architecture, small enough for an emulator, with what is special about each: windows, sinks, scaled
//! contexts, experts, states, heads of several sizes. Weights are drawn.

use lifelong_kernels::Format;
use lifelong_models::{Checkpoint, Result};
use serde_json::{Value, json};

/// A small model.
pub(super) struct Family {
    pub name: &'static str,
    /// Ends of the names of optional tensors that are there.
    present: &'static [&'static str],
    config: fn() -> Value,
}

impl Family {
    /// The same weights every time.
    pub fn checkpoint(&self, format: Format) -> Result<Checkpoint> {
        Checkpoint::drawn((self.config)(), 5, format, self.present)
    }
}

const HEAD: &[&str] = &["lm_head.weight"];

pub(super) const DECODERS: &[Family] = &[
    Family { name: "llama", present: HEAD, config: llama },
    Family { name: "mistral", present: HEAD, config: mistral },
    Family { name: "qwen2", present: HEAD, config: qwen2 },
    Family { name: "qwen3", present: &[], config: qwen3 },
    Family { name: "qwen3moe", present: &[], config: qwen3_moe },
    Family {
        name: "gpt-oss",
        present: &["lm_head.weight", "mlp.router.weight", "mlp.experts.gate_up_proj"],
        config: gpt_oss,
    },
    Family { name: "qwen35moe", present: HEAD, config: qwen3_5 },
    Family { name: "gemma3", present: &[], config: gemma3 },
    Family { name: "smollm3", present: &[], config: smollm3 },
    Family { name: "phi3", present: HEAD, config: phi3 },
];

pub(super) const ENCODERS: &[Family] = &[
    Family { name: "bert", present: &[], config: bert },
    Family { name: "xlm-roberta", present: &[], config: xlm_roberta },
    Family { name: "mpnet", present: &[], config: mpnet },
];

/// The keys that most families share, and those of one.
fn with(own: Value) -> Value {
    let mut config = json!({
        "hidden_act": "silu", "rms_norm_eps": 1e-6, "vocab_size": 320, "max_position_embeddings": 640,
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "rope_theta": 10000.0, "tie_word_embeddings": false,
    });
    if let (Some(config), Value::Object(own)) = (config.as_object_mut(), own) {
        config.extend(own);
    }
    config
}

fn llama() -> Value {
    with(json!({ "architectures": ["LlamaForCausalLM"], "model_type": "llama", "head_dim": 64 }))
}

fn mistral() -> Value {
    with(
        json!({ "architectures": ["MistralForCausalLM"], "model_type": "mistral", "head_dim": 16, "sliding_window": 24 }),
    )
}

fn qwen2() -> Value {
    with(json!({
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "num_key_value_heads": 1,
        "rope_scaling": { "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 160 },
    }))
}

fn qwen3() -> Value {
    with(json!({
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 32, "attention_bias": false,
        "tie_word_embeddings": true,
    }))
}

fn qwen3_moe() -> Value {
    with(json!({
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "head_dim": 16, "attention_bias": false,
        "moe_intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 2, "norm_topk_prob": true,
        "mlp_only_layers": [1], "decoder_sparse_step": 1, "tie_word_embeddings": true,
    }))
}

fn gpt_oss() -> Value {
    with(json!({
        "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "head_dim": 16, "intermediate_size": 32,
        "num_local_experts": 4, "num_experts_per_tok": 2, "rope_theta": 150000.0,
        "rope_scaling": {
            "rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false,
            "original_max_position_embeddings": 160,
        },
        "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 20, "swiglu_limit": 7.0,
        "attention_bias": true, "swiglu_alpha": 1.702,
    }))
}

fn qwen3_5() -> Value {
    let text = with(json!({
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "attention_bias": false,
        "layer_types": ["linear_attention", "full_attention"],
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
        "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2,
        "rope_parameters": {
            "rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25, "mrope_section": [2, 1, 1],
            "mrope_interleaved": true,
        },
    }));
    json!({
        "architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe", "text_config": text,
    })
}

fn gemma3() -> Value {
    with(json!({
        "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "hidden_activation": "gelu_pytorch_tanh",
        "num_hidden_layers": 3, "head_dim": 32, "query_pre_attn_scalar": 24, "sliding_window": 20,
        "sliding_window_pattern": 3, "rope_theta": 1e6, "rope_local_base_freq": 10000.0,
        "attn_logit_softcapping": null, "final_logit_softcapping": null, "tie_word_embeddings": true,
    }))
}

fn smollm3() -> Value {
    with(json!({
        "architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3", "rope_theta": 5e6, "no_rope_layers": [1, 0],
        "no_rope_layer_interval": 2, "attention_bias": false, "mlp_bias": false, "use_sliding_window": false,
        "sliding_window": null, "tie_word_embeddings": true,
    }))
}

fn phi3() -> Value {
    with(json!({
        "architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "max_position_embeddings": 2560,
        "original_max_position_embeddings": 640, "partial_rotary_factor": 0.75,
        "rope_scaling": {
            "rope_type": "longrope", "short_factor": [1.0, 1.1, 1.25, 1.5, 2.0, 3.0],
            "long_factor": [4.0, 4.4, 5.0, 6.0, 8.0, 12.0], "original_max_position_embeddings": 640,
        },
        "sliding_window": 20,
    }))
}

fn encoder(own: Value) -> Value {
    let mut config = json!({
        "vocab_size": 320, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
        "max_position_embeddings": 170, "hidden_act": "gelu", "layer_norm_eps": 1e-5,
    });
    if let (Some(config), Value::Object(own)) = (config.as_object_mut(), own) {
        config.extend(own);
    }
    config
}

fn bert() -> Value {
    encoder(json!({
        "architectures": ["BertModel"], "model_type": "bert", "type_vocab_size": 2,
        "position_embedding_type": "absolute", "pad_token_id": 0,
    }))
}

fn xlm_roberta() -> Value {
    encoder(json!({
        "architectures": ["XLMRobertaForMaskedLM"], "model_type": "xlm-roberta", "type_vocab_size": 1, "pad_token_id": 2,
        "bos_token_id": 0, "eos_token_id": 1,
    }))
}

fn mpnet() -> Value {
    encoder(json!({
        "architectures": ["MPNetForMaskedLM"], "model_type": "mpnet", "pad_token_id": 1, "bos_token_id": 0,
        "eos_token_id": 2, "relative_attention_num_buckets": 32,
    }))
}

#[cfg(test)]
mod tests {
    use lifelong_kernels::Device;
    use lifelong_models::{load_decoder, load_encoder};

    use super::*;

    #[test]
    fn every_family_loads_without_a_file() {
        let device = Device::cpu(1);
        for family in DECODERS {
            let loaded = load_decoder(&family.checkpoint(Format::BF16).unwrap(), &device);
            let model = loaded.unwrap_or_else(|error| panic!("{}: {error}", family.name));
            assert!(model.geometry().parameters > 30_000, "{}", family.name);
        }
        for family in ENCODERS {
            let loaded = load_encoder(&family.checkpoint(Format::F32).unwrap(), &device);
            loaded.unwrap_or_else(|error| panic!("{}: {error}", family.name));
        }
    }
}
