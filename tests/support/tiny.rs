//! Golden checkpoints of the models crate with a tokenizer of single letters beside them.

use std::path::Path;

use serde_json::json;

/// A copy of a golden checkpoint of the models crate, and a tokenizer.
pub fn with_tokenizer(name: &str, tokenizer: &serde_json::Value) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/tests/golden").join(name);
    for entry in std::fs::read_dir(&golden).unwrap().map(Result::unwrap) {
        if entry.path().is_file() {
            std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
        } else {
            let inner = folder.path().join(entry.file_name());
            std::fs::create_dir(&inner).unwrap();
            std::fs::copy(entry.path().join("config.json"), inner.join("config.json")).unwrap();
        }
    }
    std::fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    folder
}

/// WordPiece over the letters a to z behind four special tokens, of which `first` and `last` frame a text.
pub fn letters(specials: [&str; 4], first: Option<usize>, last: usize) -> serde_json::Value {
    let pieces = ('a'..='z').map(String::from).chain(('a'..='z').map(|letter| format!("##{letter}")));
    let tokens = specials.iter().map(|special| special.to_string()).chain(pieces);
    let vocabulary: serde_json::Map<_, _> = tokens.enumerate().map(|(id, token)| (token, json!(id))).collect();
    let special = |id: usize| {
        json!({ "id": id, "content": specials[id], "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true })
    };
    let part = |id: usize| json!({ "SpecialToken": { "id": specials[id], "type_id": 0 } });
    let text = json!({ "Sequence": { "id": "A", "type_id": 0 } });
    let single: Vec<serde_json::Value> = first.map(part).into_iter().chain([text, part(last)]).collect();
    let framing: serde_json::Map<_, _> = (0..4)
        .map(|id| (specials[id].into(), json!({ "id": specials[id], "ids": [id], "tokens": [specials[id]] })))
        .collect();
    json!({
        "version": "1.0",
        // Files in the wild carry these; they must not reach the vectors.
        "truncation": { "direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0 },
        "padding": { "strategy": { "Fixed": 12 }, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
                     "pad_type_id": 0, "pad_token": specials[0] },
        "added_tokens": (0..4).map(special).collect::<Vec<_>>(),
        "normalizer": { "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                        "strip_accents": null, "lowercase": true },
        "pre_tokenizer": { "type": "BertPreTokenizer" },
        "post_processor": {
            "type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": framing
        },
        "decoder": { "type": "WordPiece", "prefix": "##", "cleanup": true },
        "model": { "type": "WordPiece", "unk_token": specials[1], "continuing_subword_prefix": "##",
                   "max_input_chars_per_word": 100, "vocab": vocabulary }
    })
}
