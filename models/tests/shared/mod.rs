//! What several test files of this crate need: the shared behaviour cases and a place for files.
#![allow(dead_code)]

pub mod candle;
pub mod decode;
pub mod greedy;
pub mod split;

use std::path::{Path, PathBuf};

use serde_json::Value;

/// The cases of one family, from `LIFELONG_SHARED` or the folder `shared` beside the repository; prints one line and
/// returns `None` when neither exists.
pub fn cases(family: &str) -> Option<Vec<Value>> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let shared = std::env::var_os("LIFELONG_SHARED").map_or(beside, PathBuf::from);
    let path = shared.join("cases").join(format!("{family}.json"));
    let Ok(text) = std::fs::read_to_string(&path) else {
        eprintln!("skipped: {} is absent (set LIFELONG_SHARED)", path.display());
        return None;
    };
    let file: Value = serde_json::from_str(&text).expect("the cases are JSON");
    Some(file["cases"].as_array().expect("a list of cases").clone())
}

/// An empty folder of this test's own.
pub fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder under the target folder");
    folder
}

/// Decodes standard base64 with padding.
pub fn base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::new();
    let (mut bits, mut held) = (0u32, 0);
    for symbol in text.bytes().filter(|symbol| *symbol != b'=') {
        let value = ALPHABET.iter().position(|known| *known == symbol).expect("base64");
        bits = bits << 6 | value as u32;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    bytes
}

/// A small counter-based generator (SplitMix64 over the index): tests draw by position, not by order.
pub fn draw(seed: u64, index: u64) -> u64 {
    let mut x = seed.wrapping_add(index.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// A safetensors file of F32 tensors with every element `fill`.
pub fn safetensors(tensors: &[(&str, &[usize], f32)]) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    let mut data: Vec<u8> = Vec::new();
    for (name, shape, fill) in tensors {
        let begin = data.len();
        data.extend((0..shape.iter().product::<usize>()).flat_map(|_| fill.to_le_bytes()));
        let entry = serde_json::json!({ "dtype": "F32", "shape": shape, "data_offsets": [begin, data.len()] });
        header.insert(name.to_string(), entry);
    }
    let header = Value::Object(header).to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

/// A file of real weights: under `LIFELONG_TEST_MODELS`, else in the model cache of the program. Prints one line and
/// returns `None` when neither holds it.
pub fn weights(folder_hint: &str, file: &str) -> Option<PathBuf> {
    let env = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let cache = env("LIFELONG_HOME").or_else(|| env("XDG_CACHE_HOME").map(|cache| cache.join("lifelong")));
    let cache = cache.or_else(|| env("HOME").map(|home| home.join(".cache/lifelong")));
    let roots = [env("LIFELONG_TEST_MODELS"), cache];
    let found = roots.into_iter().flatten().find_map(|root| find(&root, folder_hint, file, 4));
    if found.is_none() {
        assert!(std::env::var_os("LIFELONG_TEST_STRICT").is_none(), "no {file} of {folder_hint}");
        eprintln!("skipped: no {file} of {folder_hint} (pull the model, or set LIFELONG_TEST_MODELS)");
    }
    found
}

/// The first file of this name, by sorted paths, under a folder whose name holds the hint.
fn find(folder: &Path, hint: &str, file: &str, depth: usize) -> Option<PathBuf> {
    let here = folder.join(file);
    let hinted = folder.file_name().is_some_and(|name| name.to_string_lossy().to_lowercase().contains(hint));
    if hinted && here.is_file() {
        return Some(here);
    }
    let mut inner: Vec<PathBuf> =
        std::fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    inner.retain(|path| path.is_dir() && depth > 0);
    inner.sort();
    inner.iter().find_map(|path| find(path, hint, file, depth - 1))
}
