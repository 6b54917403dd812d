//! What the two containers call the parts of a decoder.

use crate::checkpoint::Checkpoint;

/// Names of parts. Those of a layer stand behind the layer's own name, see [`Names::layer`].
#[derive(Debug, Clone)]
pub(crate) struct Names {
    pub embedding: String,
    pub norm: String,
    pub head: String,
    layers: String,
    pub attention_norm: &'static str,
    pub query: &'static str,
    pub key: &'static str,
    pub value: &'static str,
    pub output: &'static str,
    /// Query, key and value in one, where a model has them so; likewise `gate_up`.
    pub qkv: &'static str,
    pub query_norm: &'static str,
    pub key_norm: &'static str,
    /// The sinks of the heads; a tensor's whole name.
    pub sinks: &'static str,
    pub mlp_norm: &'static str,
    pub gate: &'static str,
    pub up: &'static str,
    pub down: &'static str,
    pub gate_up: &'static str,
}

impl Names {
    /// The names that a checkpoint uses.
    pub fn of(checkpoint: &Checkpoint) -> Self {
        if checkpoint.gguf().is_some() { Self::gguf(checkpoint) } else { Self::hugging_face(checkpoint) }
    }

    /// A part of one layer.
    pub fn layer(&self, layer: usize, part: &str) -> String {
        format!("{}.{layer}.{part}", self.layers)
    }

    fn gguf(checkpoint: &Checkpoint) -> Self {
        // gpt-oss files name the norm before the experts by what it stands behind.
        let before_mlp = checkpoint.contains("blk.0.ffn_norm.weight");
        Names {
            embedding: "token_embd".into(),
            norm: "output_norm".into(),
            head: "output".into(),
            layers: "blk".into(),
            attention_norm: "attn_norm",
            query: "attn_q",
            key: "attn_k",
            value: "attn_v",
            output: "attn_output",
            qkv: "attn_qkv",
            query_norm: "attn_q_norm",
            key_norm: "attn_k_norm",
            sinks: "attn_sinks.weight",
            mlp_norm: if before_mlp { "ffn_norm" } else { "post_attention_norm" },
            gate: "ffn_gate",
            up: "ffn_up",
            down: "ffn_down",
            gate_up: "ffn_up",
        }
    }

    fn hugging_face(checkpoint: &Checkpoint) -> Self {
        // Multimodal checkpoints keep the language model one level down; which level changed with transformers 4.52.
        const NESTED: [(&str, &str); 2] =
            [("model.language_model", "lm_head"), ("language_model.model", "language_model.lm_head")];
        let nested = NESTED.iter().find(|(stem, _)| checkpoint.contains(&format!("{stem}.embed_tokens.weight")));
        let (stem, head) = nested.unwrap_or(&("model", "lm_head"));
        // Embedding models are saved without the language model around them.
        let is_bare = checkpoint.contains("embed_tokens.weight");
        let name = |part: &str| if is_bare { part.to_string() } else { format!("{stem}.{part}") };
        Names {
            embedding: name("embed_tokens"),
            norm: name("norm"),
            head: head.to_string(),
            layers: name("layers"),
            attention_norm: "input_layernorm",
            query: "self_attn.q_proj",
            key: "self_attn.k_proj",
            value: "self_attn.v_proj",
            output: "self_attn.o_proj",
            qkv: "self_attn.qkv_proj",
            query_norm: "self_attn.q_norm",
            key_norm: "self_attn.k_norm",
            sinks: "self_attn.sinks",
            mlp_norm: "post_attention_layernorm",
            gate: "mlp.gate_proj",
            up: "mlp.up_proj",
            down: "mlp.down_proj",
            gate_up: "mlp.gate_up_proj",
        }
    }
}
