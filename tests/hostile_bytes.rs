//! Seeded mutations of model files, templates and replies: no input panics, hangs or breaks what every outcome keeps.
//!
//! The same entries as the fuzz targets in `fuzz/`, for a stable compiler and a few seconds. A failure names the round;
//! the input is written to the temporary folder.

#[path = "../fuzz/entries.rs"]
mod entries;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use lifelong::seed::{Seed, Stream};

/// Longest that one input may take; a template may use up its work limit, which is about a second of a quiet machine.
const SLOWEST: Duration = Duration::from_secs(20);

fn drive(name: &str, entry: fn(&[u8]), corpus: &[Vec<u8>], words: &[&str], rounds: u64) {
    corpus.iter().for_each(|bytes| entry(bytes));
    for round in 0..rounds {
        let mut stream = Seed(round).derive(name, &[]).stream();
        let bytes = mutated(corpus, words, &mut stream);
        let begun = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| entry(&bytes)));
        let took = begun.elapsed();
        if outcome.is_err() || took > SLOWEST {
            let path = std::env::temp_dir().join(format!("lifelong-hostile-{name}-{round}"));
            std::fs::write(&path, &bytes).unwrap();
            panic!("{name}, round {round} ({took:?}): the input is {}", path.display());
        }
    }
}

/// One of the corpus after a few changes.
fn mutated(corpus: &[Vec<u8>], words: &[&str], stream: &mut Stream) -> Vec<u8> {
    let mut below = |count: usize| stream.below(count.max(1) as u64) as usize;
    let mut bytes = corpus[below(corpus.len())].clone();
    for _ in 0..1 + below(8) {
        let at = below(bytes.len() + 1);
        let end = at + below((bytes.len() - at).min(64) + 1);
        match below(9) {
            0 if at < bytes.len() => bytes[at] ^= 1 << below(8),
            1 if at < bytes.len() => bytes[at] = below(256) as u8,
            2 => drop(bytes.drain(at..end)),
            3 => bytes.truncate(at),
            4 => {
                let copy = bytes[at..end].to_vec();
                let to = below(bytes.len() + 1);
                bytes.splice(to..to, copy);
            }
            5 => {
                let extremes = [0u64, 1, 0x7f, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX, 1 << 40, u64::MAX / 8];
                let number = extremes[below(extremes.len())].to_le_bytes();
                let width = [1, 2, 4, 8][below(4)].min(bytes.len() - at);
                bytes[at..at + width].copy_from_slice(&number[..width]);
            }
            6 => {
                let other = &corpus[below(corpus.len())];
                let from = below(other.len() + 1);
                let part = other[from..(from + below(64)).min(other.len())].to_vec();
                bytes.splice(at..end, part);
            }
            7 if bytes.len() < 20_000 => {
                let part = bytes[at..end].repeat(1 + below(100));
                bytes.splice(at..at, part);
            }
            _ => drop(bytes.splice(at..at, words[below(words.len())].bytes().collect::<Vec<_>>())),
        }
    }
    bytes
}

/// A GGUF file with a vocabulary, a template and two tensors.
fn small_gguf() -> Vec<u8> {
    let mut bytes = b"GGUF".to_vec();
    let string = |bytes: &mut Vec<u8>, text: &str| {
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.as_bytes());
    };
    bytes.extend(3u32.to_le_bytes());
    bytes.extend(2u64.to_le_bytes());
    bytes.extend(9u64.to_le_bytes());
    for (key, text) in [
        ("general.architecture", "llama"),
        ("tokenizer.ggml.model", "gpt2"),
        ("tokenizer.ggml.pre", "smollm"),
        ("tokenizer.chat_template", "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"),
    ] {
        string(&mut bytes, key);
        bytes.extend(8u32.to_le_bytes());
        string(&mut bytes, text);
    }
    let tokens = ["<|end|>", "H", "e", "l", "o", "He", "1", "2", "3", "Ġ", "Ċ"];
    for (key, texts) in [("tokenizer.ggml.tokens", &tokens[..]), ("tokenizer.ggml.merges", &["H e"][..])] {
        string(&mut bytes, key);
        bytes.extend(9u32.to_le_bytes());
        bytes.extend(8u32.to_le_bytes());
        bytes.extend((texts.len() as u64).to_le_bytes());
        texts.iter().for_each(|text| string(&mut bytes, text));
    }
    string(&mut bytes, "tokenizer.ggml.token_type");
    bytes.extend(9u32.to_le_bytes());
    bytes.extend(5u32.to_le_bytes());
    bytes.extend((tokens.len() as u64).to_le_bytes());
    (0..tokens.len()).for_each(|id| bytes.extend((if id == 0 { 3i32 } else { 1 }).to_le_bytes()));
    for (key, number) in [("tokenizer.ggml.eos_token_id", 0u32), ("llama.block_count", 1)] {
        string(&mut bytes, key);
        bytes.extend(4u32.to_le_bytes());
        bytes.extend(number.to_le_bytes());
    }
    for (name, offset) in [("a", 0u64), ("b", 32)] {
        string(&mut bytes, name);
        bytes.extend(2u32.to_le_bytes());
        bytes.extend(2u64.to_le_bytes());
        bytes.extend(3u64.to_le_bytes());
        bytes.extend(0u32.to_le_bytes());
        bytes.extend(offset.to_le_bytes());
    }
    bytes.resize(bytes.len().next_multiple_of(32), 0);
    bytes.resize(bytes.len() + 64, 7);
    bytes
}

#[test]
fn gguf_files() {
    let whole = small_gguf();
    let file = std::sync::Arc::new(lifelong_models::file::ModelFile::from_bytes("a.gguf".as_ref(), whole.clone()));
    let checkpoint = lifelong_models::Checkpoint::from_gguf(file).expect("the corpus is sound");
    assert_eq!(checkpoint.names().count(), 2);
    drive(
        "gguf",
        entries::gguf,
        &[whole],
        &["GGUF", "\0\0\0\0\0\0\0\0", "tokenizer.ggml.scores", "replit", "llama"],
        20_000,
    );
}

#[test]
fn torch_files() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("models/tests/golden/bge-m3");
    let corpus = ["sparse_linear.pt", "colbert_linear.pt"].map(|name| std::fs::read(folder.join(name)).unwrap());
    let words = ["PK\x03\x04", "PK\x01\x02", "ctorch\nHalfStorage\n", "data.pkl", "(", "t", "R", "Q", "u", "b", "."];
    drive("torch", entries::torch, &corpus, &words, 20_000);
}

#[test]
fn safetensors_files() {
    let file = |header: &str, data: usize| {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.resize(bytes.len() + data, 1);
        bytes
    };
    let corpus = [
        file(
            r#"{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"BF16","shape":[3],"data_offsets":[24,30]}}"#,
            30,
        ),
        file(r#"{"__metadata__":{"format":"pt"},"e":{"dtype":"I64","shape":[0],"data_offsets":[0,0]}}"#, 0),
    ];
    let words = ["\"dtype\"", "[18446744073709551615,2]", "F8_E4M3", "[[[[[[", "{\"a\":", "-1", "1e999", "\\ud800"];
    drive("safetensors", entries::safetensors, &corpus, &words, 20_000);
}

#[test]
fn tokenizer_files() {
    let added = r#"[{"id":0,"content":"<|end|>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}]"#;
    let whole = |normalizer: &str, pre: &str, post: &str, decoder: &str, model: &str| {
        format!(
            r#"{{"version":"1.0","truncation":null,"padding":null,"added_tokens":{added},"normalizer":{normalizer},"pre_tokenizer":{pre},"post_processor":{post},"decoder":{decoder},"model":{model}}}"#
        )
        .into_bytes()
    };
    let split = r#"{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"\\p{L}+|\\p{N}{1,3}|\\s+(?!\\S)"},"behavior":"Isolated","invert":false},{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}]}"#;
    let corpus = [
        whole(
            r#"{"type":"NFC"}"#,
            split,
            r#"{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<|end|>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{"<|end|>":{"id":"<|end|>","ids":[0],"tokens":["<|end|>"]}}}"#,
            r#"{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}"#,
            r#"{"type":"BPE","dropout":null,"unk_token":null,"fuse_unk":false,"byte_fallback":false,"ignore_merges":false,"vocab":{"<|end|>":0,"H":1,"e":2,"He":3,"l":4,"o":5,"1":6},"merges":[["H","e"]]}"#,
        ),
        whole(
            r#"{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,"strip_accents":null,"lowercase":true}"#,
            r#"{"type":"BertPreTokenizer"}"#,
            "null",
            r###"{"type":"WordPiece","prefix":"##","cleanup":true}"###,
            r###"{"type":"WordPiece","unk_token":"[UNK]","continuing_subword_prefix":"##","max_input_chars_per_word":100,"vocab":{"<|end|>":0,"[UNK]":1,"hello":2,"##o":3,"1":4}}"###,
        ),
        whole(
            r#"{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},{"type":"Replace","pattern":{"String":" "},"content":"▁"}]}"#,
            r#"{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true}"#,
            "null",
            r#"{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]}"#,
            r#"{"type":"Unigram","unk_id":1,"byte_fallback":true,"vocab":[["<|end|>",0.0],["<unk>",0.0],["▁Hello",-1.5],["o",-3.0],["<0x0A>",-9.0]]}"#,
        ),
        whole(
            r#"{"type":"Precompiled","precompiled_charsmap":"CAAAAAIAAAADAAAAYWJjAA=="}"#,
            r#"{"type":"Digits","individual_digits":true}"#,
            "null",
            r#"{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true}"#,
            r#"{"type":"WordLevel","unk_token":"<|end|>","vocab":{"<|end|>":0,"Hello":1}}"#,
        ),
    ];
    let words = [
        "null",
        "{}",
        "[]",
        "\"type\":\"Digits\"",
        "1e999",
        "-1",
        "4294967295",
        "\"(((((a*)*)*)*)*\"",
        "\\u0000",
        "▁",
        "\"special\":false",
    ];
    drive("tokenizer", entries::tokenizer, &corpus, &words, 6_000);
}

#[test]
fn chat_templates() {
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/template/golden.json");
    let golden: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(golden).unwrap()).unwrap();
    let templates = golden["templates"].as_object().unwrap().values();
    let corpus: Vec<Vec<u8>> = templates.map(|source| source.as_str().unwrap().as_bytes().to_vec()).collect();
    assert!(corpus.len() > 3);
    let words = [
        "{% for m in messages %}",
        "{% endfor %}",
        "{{",
        "}}",
        "{%-",
        "-%}",
        "{#",
        "#}",
        "| tojson(indent=4)",
        "~",
        "[::-1]",
        "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
        "range(99999)",
        "'x' * 999999999",
        "{% set ns.x = ns.x ~ ns.x %}",
        "raise_exception('no')",
        "namespace()",
        "{% generation %}",
        "| safe | int | list",
        ".__class__",
        "strftime_now('%Q')",
        "9999999999999999999",
    ];
    drive("template", entries::template, &corpus, &words, 4_000);
}

#[test]
fn replies() {
    let corpus: Vec<Vec<u8>> = [
        "<think>a</think>Text <tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1, \"y\": \"</tool_call>\"}}\n</tool_call> end",
        "<tool_call>\n<function=f>\n<parameter=x>\n3\n</parameter>\n<parameter=y>\n{\"a\": []}\n</parameter>\n</function>\n</tool_call>",
        "{\"name\": \"f\", \"parameters\": {\"x\": 1}}; {\"name\": \"look_up\", \"parameters\": {}} prose {x}",
        "<|python_tag|>[f(x=-1, y={'a': [True, None, 'é\\n']}), look_up()]<|eom_id|>",
        "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"x\": 1}}] [TOOL_CALLS]look_up[CALL_ID]1[ARGS]{}",
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"x\":1}<|call|>",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"x\": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "So ```json\n{\"a\": [1, 2]}\n``` \\boxed{\\frac{1}{2}} #### -1,234.5e3 The answer is (B).",
    ]
    .map(|reply| reply.as_bytes().to_vec())
    .to_vec();
    let words = [
        "<tool_call>",
        "</tool_call>",
        "<think>",
        "</think>",
        "<function=f>",
        "<parameter=x>",
        "</parameter>",
        "</function>",
        "[TOOL_CALLS]",
        "[ARGS]",
        "<|channel|>",
        "<|message|>",
        "<|end|>",
        "<|python_tag|>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
        "{\"name\":",
        "\"",
        "\\",
        "{",
        "[",
        "}",
        "]",
        "\\ud800",
        "```",
        "é",
        "f(x=",
        "1e999",
        "[[[[[[[[[[[[[[[[[[[[[[[[",
    ];
    drive("reply", entries::reply, &corpus, &words, 20_000);
}

/// Time is linear in the reply: marks that open and never close, repeated, in every dialect.
#[test]
fn long_replies_take_linear_time() {
    let parts = [
        "<tool_call>",
        "<tool_call>{\"",
        "<tool_call>{\"a\": [",
        "<tool_call>{\"name\": \"f\"}",
        "<think>",
        "</think>",
        "<function=f>",
        "<tool_call><function=f><parameter=x>",
        "<function=f><parameter=x>1</parameter>",
        "{\"name\": ",
        "{\"name\": \"f\", \"parameters\": {}};",
        "[f(x=",
        "[TOOL_CALLS][",
        "[TOOL_CALLS]f{",
        "[TOOL_CALLS]f[ARGS]{\"x\": \"",
        "<|channel|>",
        "<|channel|>final<|message|>",
        "<|channel|>commentary to=functions.f<|message|>{",
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}",
        "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"",
        "[",
        "{",
        "\\",
        "\"",
        "<tool_call>[\"</tool_call>",
        "<tool_call>{\"a\":[1,1,1,1,1,1,1,1]</tool_call>",
        "<function=",
    ];
    let tools = [lifelong::reply::tool_call::Tool { name: "f".into(), ..Default::default() }];
    let reading = lifelong::reply::tool_call::Reading { tools: &tools, ..Default::default() };
    for part in parts {
        let reply = part.repeat(2_000_000 / part.len());
        let begun = Instant::now();
        for dialect in lifelong::reply::tool_call::DIALECTS {
            dialect.read(&reply, &lifelong::reply::tool_call::Reading::default());
            dialect.read(&reply, &reading);
        }
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(20), "`{part}` repeated takes {took:?}");
    }
}
