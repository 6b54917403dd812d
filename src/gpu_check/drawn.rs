//! Models with drawn weights, as the engine takes them.

use lifelong_kernels::Device;
use lifelong_models::{Checkpoint, load_decoder};
use serde_json::{Value, json};

use crate::engine::model::LoadedModel;
use crate::engine::tokenizer::Tokenizer;

/// A drawn model with a tokenizer of bytes: token i is byte i, and the rest of its vocabulary has no text.
pub(super) fn load(checkpoint: &Checkpoint, device: &Device) -> anyhow::Result<LoadedModel> {
    Ok(LoadedModel {
        name: "drawn".to_string(),
        digest: "drawn".to_string(),
        decoder: load_decoder(checkpoint, device)?.into(),
        device: device.clone(),
        tokenizer: Tokenizer::from_bytes(bytes().to_string().as_bytes())?,
        template: None,
        eos: Vec::new(),
    })
}

/// A byte-level tokenizer without merges.
fn bytes() -> Value {
    let vocabulary: serde_json::Map<String, Value> =
        (0..256u32).map(|byte| (character(byte).to_string(), json!(byte))).collect();
    let byte_level = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true });
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
        "pre_tokenizer": byte_level, "decoder": byte_level, "added_tokens": [],
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocabulary, "merges": [],
        },
    })
}

/// The printable character that byte-level vocabularies write for each byte (Radford et al. 2019, `bytes_to_unicode`): itself,
/// or the next one from 256 on.
fn character(byte: u32) -> char {
    let is_printable = |byte: u32| (33..=126).contains(&byte) || (161..=172).contains(&byte) || byte >= 174;
    let code =
        if is_printable(byte) { byte } else { 256 + (0..byte).filter(|byte| !is_printable(*byte)).count() as u32 };
    char::from_u32(code).expect("no surrogate is that low")
}
