//! A backbone that answers in channels, through a whole run: its answers are stored, its marks are not.

use std::path::Path;
use std::process::Command;

use serde_json::{Map, Value, json};

/// What follows each token, whatever stands before: the reply to a prompt that ends with `assistant`.
const CHAIN: [(&str, &str); 5] = [
    ("assistant", "<|channel|>"),
    ("<|channel|>", "final"),
    ("final", "<|message|>"),
    ("<|message|>", "forty"),
    ("forty", "<|return|>"),
];
const SPECIALS: [&str; 8] =
    ["<pad>", "<unk>", "<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|return|>", "<|call|>"];
const WORDS: [&str; 8] = ["user", "system", "assistant", "final", "forty", "a", "b", "c"];

/// A Llama that is a table: each token is an axis of its own, attention and feed-forward add nothing, and the output
/// projection of an axis points at the token that follows.
fn write(folder: &Path) {
    let names: Vec<&str> = SPECIALS.iter().chain(&WORDS).copied().collect();
    let (vocabulary, id) = (names.len(), |name: &str| names.iter().position(|known| *known == name).unwrap());
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "num_hidden_layers": 1, "hidden_size": vocabulary,
        "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": vocabulary, "intermediate_size": vocabulary,
        "vocab_size": vocabulary, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": false, "eos_token_id": [id("<|return|>"), id("<|call|>")],
    });
    let square = |value: &dyn Fn(usize, usize) -> f32| -> Vec<f32> {
        (0..vocabulary * vocabulary).map(|at| value(at / vocabulary, at % vocabulary)).collect()
    };
    let nothing = square(&|_, _| 0.0);
    let follows = |next: usize, token: usize| CHAIN.iter().any(|(from, to)| id(from) == token && id(to) == next);
    let layer = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"];
    let layer = layer.iter().chain(&["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]);
    let mut tensors: Vec<(String, Vec<f32>)> =
        layer.map(|name| (format!("model.layers.0.{name}.weight"), nothing.clone())).collect();
    tensors.push(("model.embed_tokens.weight".into(), square(&|row, column| f32::from(row == column))));
    tensors.push(("lm_head.weight".into(), square(&|next, token| if follows(next, token) { 9.0 } else { 0.0 })));
    for norm in ["layers.0.input_layernorm", "layers.0.post_attention_layernorm", "norm"] {
        tensors.push((format!("model.{norm}.weight"), vec![1.0; vocabulary]));
    }
    let (mut header, mut data) = (Map::new(), Vec::new());
    for (name, values) in tensors {
        let start = data.len();
        data.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        let shape = if values.len() == vocabulary { vec![vocabulary] } else { vec![vocabulary, vocabulary] };
        header.insert(name, json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, data.len()] }));
    }
    let header = Value::Object(header).to_string();
    let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat();
    std::fs::write(folder.join("model.safetensors"), file).unwrap();
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let special = |(id, name): (usize, &&str)| {
        json!({ "id": id, "content": name, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
                "special": true })
    };
    let vocabulary: Map<String, Value> =
        names.iter().enumerate().map(|(id, name)| (name.to_string(), json!(id))).collect();
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
        "added_tokens": SPECIALS.iter().enumerate().map(special).collect::<Vec<_>>(),
        "pre_tokenizer": { "type": "BertPreTokenizer" },
        "decoder": { "type": "WordPiece", "prefix": "##", "cleanup": false },
        "model": { "type": "WordPiece", "unk_token": "<unk>", "continuing_subword_prefix": "##",
                   "max_input_chars_per_word": 100, "vocab": vocabulary }
    });
    std::fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let template = "{% for message in messages %}<|start|>{{ message.role }}<|message|>{{ message.content }}<|end|>\
                    {% endfor %}<|start|>assistant{# <|channel|> #}";
    std::fs::write(folder.join("chat_template.jinja"), template).unwrap();
}

#[test]
fn a_run_grades_the_answer_of_a_backbone_that_answers_in_channels() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let run = format!(
        "name = \"channels\"\nseed = 1\n[models]\nbackbones = ['{}']\n[sampling]\nmax_tokens = 20\n\
         [benchmark]\nname = \"kata\"\nlimit = 3\n[matrix]\nseeds = 2\n",
        folder.path().display()
    );
    let (file, out) = (folder.path().join("run.toml"), folder.path().join("out"));
    std::fs::write(&file, run).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_lifelong"))
        .args(["run", file.to_str().unwrap(), "--out", out.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let attempts = std::fs::read_to_string(out.join("attempts.jsonl")).unwrap();
    assert!(attempts.lines().count() >= 6, "{attempts}");
    for line in attempts.lines() {
        assert!(line.contains("\"forty\""), "the reply is what stands on the final channel: {line}");
        assert!(!line.contains("<|channel|>") && !line.contains("finalforty"), "{line}");
    }
}
