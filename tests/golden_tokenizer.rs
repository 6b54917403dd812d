//! Tokenizers rebuilt from GGUF metadata equal the reference ones on a corpus of code, scripts, emoji and control
//! characters. `tests/golden/tokenizer/make.py` made the files.

mod support;

use std::path::{Path, PathBuf};

use lifelong::engine::hub::ModelFiles;
use lifelong::engine::tokenizer::{GgufVocabulary, PRE_TOKENIZERS, Specials, Tokenizer};
use lifelong_models::Checkpoint;
use proptest::prelude::*;
use serde::Deserialize;
use sha2::{Digest, Sha256};

#[derive(Deserialize)]
struct WholeVocabulary {
    parsed: Vec<Vec<u32>>,
    /// By index of the text, where it differs from `parsed`.
    #[serde(default)]
    literal: std::collections::BTreeMap<usize, Vec<u32>>,
}

#[derive(Deserialize)]
struct PreTokenizers {
    pre: std::collections::BTreeMap<String, Digests>,
}

#[derive(Deserialize)]
struct Digests {
    digests: String,
}

fn golden<T: for<'a> Deserialize<'a>>(name: &str) -> T {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tokenizer").join(name);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn texts() -> Vec<String> {
    golden("texts.json")
}

/// A file of a model preset, pulled when it is not there yet.
fn weights(preset: &str, name: &str) -> Option<PathBuf> {
    file(support::model_files(preset), name)
}

fn file(files: Option<ModelFiles>, name: &str) -> Option<PathBuf> {
    files?.files.into_iter().find(|file| file.name == name).map(|file| file.path)
}

fn rebuilt(path: &Path) -> Tokenizer {
    let checkpoint = Checkpoint::open(path).unwrap();
    let vocabulary = GgufVocabulary::read(checkpoint.gguf().unwrap()).unwrap().unwrap();
    Tokenizer::from_gguf(&vocabulary).unwrap()
}

#[test]
fn smollm2_from_gguf_encodes_like_the_reference() {
    let Some(path) = weights("smollm2-135m-instruct", "SmolLM2-135M-Instruct.Q4_1.gguf") else { return };
    let tokenizer = rebuilt(&path);
    let golden: WholeVocabulary = golden("smollm2.json");
    for (index, text) in texts().iter().enumerate() {
        let parsed = &golden.parsed[index];
        assert_eq!(tokenizer.encode(text, Specials::Parse), *parsed, "{text:?}");
        let literal = golden.literal.get(&index).unwrap_or(parsed);
        assert_eq!(tokenizer.encode(text, Specials::Literal), *literal, "{text:?} taken literally");
    }
    assert_eq!(tokenizer.encode("Hello world 12345", Specials::Parse)[..2], [19556, 905]);
}

#[test]
fn smollm2_from_gguf_knows_its_special_tokens() {
    let Some(path) = weights("smollm2-135m-instruct", "SmolLM2-135M-Instruct.Q4_1.gguf") else { return };
    let tokenizer = rebuilt(&path);
    assert_eq!(tokenizer.vocab_size(), 49152);
    assert_eq!((tokenizer.bos_id(), tokenizer.eos_id()), (Some(1), Some(2)));
    assert_eq!(tokenizer.eos_ids(), [0, 2]);
    assert_eq!((tokenizer.unknown_id(), tokenizer.padding_id()), (Some(0), Some(2)));
    assert_eq!(tokenizer.encode_prompt("hi", Specials::Parse), tokenizer.encode("hi", Specials::Parse), "no BOS");
    // Six control characters, and the first bytes of planes without assigned characters.
    assert_eq!(tokenizer.lost_bytes(), [0x04, 0x06, 0x13, 0x14, 0x16, 0x1d, 0xf1, 0xf2]);
    assert_eq!(tokenizer.digest(), rebuilt(&path).digest());
}

#[test]
fn no_text_makes_a_control_token_unless_asked_to() {
    let Some(path) = weights("smollm2-135m-instruct", "SmolLM2-135M-Instruct.Q4_1.gguf") else { return };
    let tokenizer = rebuilt(&path);
    for id in 0..17 {
        let text = tokenizer.token_text(id).unwrap().to_string();
        assert_eq!(tokenizer.encode(&text, Specials::Parse), [id]);
        let literal = tokenizer.encode(&text, Specials::Literal);
        assert!(literal.iter().all(|id| *id > 16), "{text} became {literal:?}");
        assert_eq!(tokenizer.decode(&literal), text);
    }
}

#[test]
fn gemma3_from_gguf_encodes_like_the_reference() {
    let Some(path) = file(support::local_model_files("gemma-3-270m"), "gemma-3-270m-q4_k_m.gguf") else { return };
    let tokenizer = rebuilt(&path);
    let golden: WholeVocabulary = golden("gemma3.json");
    let mut differing = Vec::new();
    for (text, expected) in texts().iter().zip(&golden.parsed) {
        let found = tokenizer.encode(text, Specials::Parse);
        if found != *expected {
            differing.push(format!("{text:?}\n  found    {found:?}\n  expected {expected:?}"));
        }
        // A blank and its sign are one to SentencePiece.
        if !text.contains(['<', '[', '▁']) {
            assert_eq!(tokenizer.decode(&found), *text);
        }
    }
    assert!(differing.is_empty(), "{} texts differ:\n{}", differing.len(), differing.join("\n"));
    assert_eq!(tokenizer.encode_prompt("hi", Specials::Parse)[0], tokenizer.bos_id().unwrap());
}

#[test]
fn minilm_from_its_file_encodes_like_the_reference() {
    let Some(path) = weights("all-minilm-l6-v2", "model.safetensors") else { return };
    let tokenizer = Tokenizer::from_folder(path.parent().unwrap()).unwrap();
    let golden: Digests = golden("minilm.json");
    for (text, expected) in texts().iter().zip(golden.digests.split(' ')) {
        let ids = tokenizer.encode_document(text, Specials::Parse);
        assert_eq!(digest(&ids), *expected, "{text:?} became {ids:?}");
    }
    assert_eq!(tokenizer.encode_document("Hello world", Specials::Literal), [101, 7592, 2088, 102], "no padding");
    let long = tokenizer.encode_document(&"word ".repeat(1000), Specials::Literal);
    assert_eq!(long.len(), 1002, "no truncation");
}

/// The first 8 hexadecimal digits of the SHA-256 of the ids, written with blanks between.
fn digest(ids: &[u32]) -> String {
    let listed = ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    Sha256::digest(listed)[..4].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The vocabulary of `pair_vocabulary` in `make.py`: two control tokens, all bytes, all pairs of bytes merged in a drawn
/// order, and two words that no merge makes.
fn pair_vocabulary(pre: &str) -> GgufVocabulary {
    let letters: Vec<char> = (0..=255).map(character_of).collect();
    let mut pairs: Vec<(char, char)> = letters.iter().flat_map(|a| letters.iter().map(|b| (*a, *b))).collect();
    let mut state: u32 = 1;
    for last in (1..pairs.len()).rev() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let other = (u64::from(state >> 8) * (last as u64 + 1)) >> 24;
        pairs.swap(last, other as usize);
    }
    let mut tokens: Vec<String> = vec!["<|start|>".to_string(), "<|end|>".to_string()];
    tokens.extend(letters.iter().map(char::to_string));
    tokens.extend(pairs.iter().map(|(a, b)| format!("{a}{b}")));
    tokens.extend(["Hello", "Ġquick"].map(String::from));
    GgufVocabulary {
        model: "gpt2".to_string(),
        pre: Some(pre.to_string()),
        token_types: (0..tokens.len()).map(|id| if id < 2 { 3 } else { 1 }).collect(),
        tokens,
        merges: pairs.iter().map(|(a, b)| format!("{a} {b}")).collect(),
        bos: Some(0),
        eos: Some(1),
        ..GgufVocabulary::default()
    }
}

/// GPT-2's table of printable characters for bytes.
fn character_of(byte: u8) -> char {
    let printable = |byte: &u8| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    if printable(&byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|other| !printable(other)).count();
    char::from_u32(0x100 + before as u32).unwrap()
}

#[test]
fn every_pre_tokenizer_cuts_like_the_reference() {
    let golden: PreTokenizers = golden("pretokenizers.json");
    let texts = texts();
    for entry in PRE_TOKENIZERS {
        let known: Vec<&str> = entry.names.iter().copied().filter(|name| golden.pre.contains_key(*name)).collect();
        assert_eq!(known.len(), 1, "one name of each group has a golden row: {:?}", entry.names);
        let tokenizer = Tokenizer::from_gguf(&pair_vocabulary(known[0])).unwrap();
        for (text, expected) in texts.iter().zip(golden.pre[known[0]].digests.split(' ')) {
            let ids = tokenizer.encode(text, Specials::Parse);
            assert_eq!(digest(&ids), *expected, "{}: {text:?} became {ids:?}", known[0]);
            if !entry.compose {
                assert_eq!(tokenizer.decode_with_specials(&ids), *text, "{}", known[0]);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_text_comes_back(texts in prop::collection::vec(any::<String>(), 8)) {
        let tokenizer = shared();
        for text in texts {
            prop_assert_eq!(tokenizer.decode(&tokenizer.encode(&text, Specials::Literal)), text.clone());
            let ids = tokenizer.encode(&text, Specials::Parse);
            let mut stream = tokenizer.decode_stream_with_specials();
            let streamed: String = ids.iter().map(|id| stream.push(*id)).collect();
            prop_assert_eq!(streamed, text);
        }
    }

    #[test]
    fn any_ids_stream_like_they_decode(ids in prop::collection::vec(0u32..66_000, 0..60)) {
        let tokenizer = shared();
        let mut stream = tokenizer.decode_stream();
        let streamed: String = ids.iter().map(|id| stream.push(*id)).collect();
        prop_assert_eq!(streamed, tokenizer.decode(&ids));
    }
}

fn shared() -> Tokenizer {
    static TOKENIZER: std::sync::OnceLock<Tokenizer> = std::sync::OnceLock::new();
    TOKENIZER.get_or_init(|| Tokenizer::from_gguf(&pair_vocabulary("smollm")).unwrap()).clone()
}

#[test]
fn white_space_beyond_the_matchers_limit_is_cut_like_shorter() {
    // Where the matcher gives up, the blanks and all of this are one piece, and a digit pairs with a letter.
    let tail = " the end. 12345 don't";
    for name in ["gpt-2", "dbrx"] {
        let tokenizer = Tokenizer::from_gguf(&pair_vocabulary(name)).unwrap();
        let words = tokenizer.encode(tail, Specials::Parse).len();
        for blanks in [" ".repeat(1_200_000), "\n \t ".repeat(120_000)] {
            // The text before a tail decides how the tail's own first blank is taken; the rest must not differ.
            let few: String = blanks.chars().take(1000).collect();
            let expected = tokenizer.encode(&format!("a{few}{tail}"), Specials::Parse);
            let found = tokenizer.encode(&format!("a{blanks}{tail}"), Specials::Parse);
            let last = words - 2;
            assert_eq!(found[found.len() - last..], expected[expected.len() - last..], "{name}");
            assert_eq!(tokenizer.decode(&found).len(), 1 + blanks.len() + tail.len());
        }
    }
}
