//! A text's vector is its own: the same bits alone, in any company and in any order.

mod support;

use std::path::Path;

use lifelong::engine::embed::{Embedder, Pooling, load_embedder};
use lifelong::engine::hub::{ModelFile, ModelFiles};
use lifelong::seed::Seed;
use lifelong_kernels::Device;
use serde_json::json;

fn load(name: &str, folder: &Path, threads: usize) -> Embedder {
    let wanted =
        ["1_Pooling/config.json", "config.json", "model.safetensors", "sentence_bert_config.json", "tokenizer.json"];
    let files = wanted.iter().filter(|file| folder.join(file).is_file()).map(|file| {
        let path = folder.join(file);
        let size = std::fs::metadata(&path).unwrap().len();
        ModelFile { name: file.to_string(), path, size, sha256: None, origin: "test".to_string() }
    });
    let files = ModelFiles { name: name.into(), kind: None, folder: folder.to_path_buf(), files: files.collect() };
    load_embedder(&files, &Device::cpu(threads)).unwrap()
}

/// The tiny BERT of the models crate with a tokenizer of single letters, at most `max_tokens` of them.
struct Tiny {
    folder: tempfile::TempDir,
}

impl Tiny {
    fn new(max_tokens: usize) -> Tiny {
        let folder = tempfile::tempdir().unwrap();
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/tests/golden/bert");
        for name in ["config.json", "model.safetensors"] {
            std::fs::copy(golden.join(name), folder.path().join(name)).unwrap();
        }
        let write = |name: &str, value: serde_json::Value| {
            std::fs::write(folder.path().join(name), value.to_string()).unwrap();
        };
        write("sentence_bert_config.json", json!({ "max_seq_length": max_tokens }));
        write("tokenizer.json", letters());
        Tiny { folder }
    }

    fn load(&self, threads: usize) -> Embedder {
        load("tiny-bert", self.folder.path(), threads)
    }
}

/// WordPiece over the letters a to z, framed as BERT frames.
fn letters() -> serde_json::Value {
    const SPECIALS: [&str; 4] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"];
    let pieces = ('a'..='z').map(String::from).chain(('a'..='z').map(|letter| format!("##{letter}")));
    let tokens = SPECIALS.iter().map(|special| special.to_string()).chain(pieces);
    let vocabulary: serde_json::Map<_, _> = tokens.enumerate().map(|(id, token)| (token, json!(id))).collect();
    let special = |id: usize| {
        json!({ "id": id, "content": SPECIALS[id], "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true })
    };
    let part = |name: &str| json!({ "SpecialToken": { "id": name, "type_id": 0 } });
    let text = json!({ "Sequence": { "id": "A", "type_id": 0 } });
    json!({
        "version": "1.0",
        // Files in the wild carry these; they must not reach the vectors.
        "truncation": { "direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0 },
        "padding": { "strategy": { "Fixed": 12 }, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
                     "pad_type_id": 0, "pad_token": "[PAD]" },
        "added_tokens": (0..4).map(special).collect::<Vec<_>>(),
        "normalizer": { "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                        "strip_accents": null, "lowercase": true },
        "pre_tokenizer": { "type": "BertPreTokenizer" },
        "post_processor": {
            "type": "TemplateProcessing", "single": [part("[CLS]"), text, part("[SEP]")],
            "pair": [part("[CLS]"), text, part("[SEP]")],
            "special_tokens": { "[CLS]": { "id": "[CLS]", "ids": [2], "tokens": ["[CLS]"] },
                                "[SEP]": { "id": "[SEP]", "ids": [3], "tokens": ["[SEP]"] } }
        },
        "decoder": { "type": "WordPiece", "prefix": "##", "cleanup": true },
        "model": { "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                   "max_input_chars_per_word": 100, "vocab": vocabulary }
    })
}

/// Texts of mixed length, the empty one among them.
fn texts(count: usize, longest: u64) -> Vec<String> {
    let mut stream = Seed(4).stream();
    let mut word = |length| (0..length).map(|_| char::from(b'a' + stream.below(26) as u8)).collect::<String>();
    let mut lengths = Seed(5).stream();
    let mut texts: Vec<String> = (1..count).map(|_| word(lengths.below(longest))).collect();
    texts.push(String::new());
    texts
}

fn bits(vectors: &[Vec<f32>]) -> Vec<Vec<u32>> {
    vectors.iter().map(|vector| vector.iter().map(|value| value.to_bits()).collect()).collect()
}

/// re-batch, re-batch-sort.
fn company_order_and_threads_do_not_matter(one: &Embedder, two: &Embedder, texts: &[String]) {
    let together = bits(&one.embed(texts).unwrap());
    for (text, expected) in texts.iter().zip(&together) {
        assert_eq!(&bits(&two.embed(std::slice::from_ref(text)).unwrap())[0], expected, "{text:?}");
    }
    for shuffle in 0..3 {
        let mut order: Vec<usize> = (0..texts.len()).collect();
        Seed(shuffle).stream().shuffle(&mut order);
        for batch in [7, texts.len()] {
            for indices in order.chunks(batch) {
                let some: Vec<String> = indices.iter().map(|&index| texts[index].clone()).collect();
                let vectors = bits(&two.embed(&some).unwrap());
                assert!(indices.iter().zip(&vectors).all(|(&index, vector)| vector == &together[index]));
            }
        }
    }
}

#[test]
fn vectors_of_a_tiny_model_do_not_see_their_batch() {
    let tiny = Tiny::new(40);
    company_order_and_threads_do_not_matter(&tiny.load(1), &tiny.load(2), &texts(64, 36));
}

/// re-empty-text.
#[test]
fn vectors_have_length_one_and_their_texts_order() {
    let embedder = Tiny::new(40).load(1);
    let texts = ["abc", "", " ", "xyz"].map(String::from);
    let vectors = embedder.embed(&texts).unwrap();
    for vector in &vectors {
        let length: f32 = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
        assert_eq!(vector.len(), embedder.dimensions());
        assert!((length - 1.0).abs() < 1e-6);
    }
    assert_eq!(bits(&vectors)[1], bits(&vectors)[2], "both are the empty frame");
    assert_ne!(bits(&vectors)[0], bits(&vectors)[3]);
    assert!(embedder.embed(&[]).unwrap().is_empty());
}

#[test]
fn long_texts_are_cut_at_the_models_limit_and_counted() {
    let embedder = Tiny::new(12).load(1);
    assert_eq!((embedder.max_tokens(), embedder.pooling()), (12, Pooling::Mean));
    let cut = embedder.embed(&["abcdefghijklmnop".to_string(), "abcdefghij".to_string()]).unwrap();
    assert_eq!(bits(&cut)[0], bits(&cut)[1], "ten letters fit between [CLS] and [SEP]");
    assert_eq!(embedder.truncated_texts(), 1);
}

#[test]
fn descriptor_names_model_weights_and_pooling() {
    let (short, long) = (Tiny::new(12).load(1), Tiny::new(40).load(1));
    assert!(short.descriptor().starts_with("tiny-bert ") && short.descriptor().contains("Mean"));
    assert_ne!(short.descriptor(), long.descriptor(), "another limit gives other vectors");
}

#[test]
fn vectors_of_real_weights_do_not_see_their_batch() {
    let Some(files) = support::model_files("all-minilm-l6-v2") else { return };
    let load = |threads| load_embedder(&files, &Device::cpu(threads)).unwrap();
    let (one, two) = (load(1), load(2));
    company_order_and_threads_do_not_matter(&one, &two, &texts(12, 60));
}
