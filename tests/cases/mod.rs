//! Finds the behaviour cases: `$LIFELONG_SHARED/cases`, or `../shared/cases` beside the repository.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// The cases of one file, or `None` with one `skipped:` line where the folder is absent.
pub fn load(file: &str) -> Option<Vec<Value>> {
    let shared = std::env::var_os("LIFELONG_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    let path = shared.join("cases").join(file);
    if !path.exists() {
        println!("skipped: {} is absent; set LIFELONG_SHARED to the folder that holds cases/", path.display());
        return None;
    }
    let text = std::fs::read_to_string(&path).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    Some(document["cases"].as_array().unwrap().clone())
}
