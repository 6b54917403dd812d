//! Imports point one way: every `use crate::` line of the library is one of the edges written in ARCHITECTURE.md.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Module → what it may import, lowest first. A new edge is a design decision: change ARCHITECTURE.md with it.
const EDGES: &[(&str, &[&str])] = &[
    ("seed", &[]),
    ("record", &[]),
    ("registry", &[]),
    ("reply", &["registry"]),
    ("sandbox", &[]),
    ("engine", &["seed", "registry", "reply"]),
    ("bench", &["seed", "engine"]),
    ("gpu_check", &["seed", "engine", "bench"]),
    ("metric", &["record", "seed"]),
    ("config", &["record", "registry", "engine"]),
    ("environment", &["record", "registry", "reply"]),
    ("scorer", &["record", "registry", "reply", "sandbox"]),
    ("benchmark", &["record", "registry", "reply", "seed"]),
    ("store", &["record"]),
    ("memory", &["record", "registry", "seed", "reply", "engine"]),
    ("policy", &["record", "registry", "seed", "engine"]),
    ("agent", &["record", "seed", "engine", "environment", "memory", "policy"]),
    (
        "run",
        &[
            "record",
            "registry",
            "seed",
            "config",
            "engine",
            "metric",
            "environment",
            "scorer",
            "benchmark",
            "store",
            "memory",
            "policy",
            "agent",
            "sandbox",
        ],
    ),
    ("report", &["record", "seed", "metric", "store"]),
    (
        "cli",
        &[
            "record",
            "registry",
            "seed",
            "config",
            "engine",
            "bench",
            "gpu_check",
            "metric",
            "environment",
            "scorer",
            "benchmark",
            "store",
            "memory",
            "policy",
            "run",
            "report",
            "reply",
            "sandbox",
        ],
    ),
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The first path segment after every `crate::` that is code (comments and doc links do not count), with `{a, b}`
/// lists opened.
fn imports(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let code: String = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    for rest in code.split("crate::").skip(1) {
        let list = match rest.strip_prefix('{') {
            Some(inner) => inner.split('}').next().unwrap_or("").split(',').map(str::trim).collect(),
            None => vec![rest],
        };
        for path in list {
            let name: String = path.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if !name.is_empty() {
                found.insert(name);
            }
        }
    }
    found
}

#[test]
fn imports_follow_the_layers() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    assert!(files.len() > 40, "expected the library's sources, found {} files", files.len());
    let mut wrong = Vec::new();
    for file in files {
        let relative = file.strip_prefix(&root).unwrap();
        let module = relative.components().next().unwrap().as_os_str().to_string_lossy();
        let module = module.trim_end_matches(".rs").to_string();
        if ["lib", "main"].contains(&module.as_str()) {
            continue;
        }
        let Some((_, allowed)) = EDGES.iter().find(|(name, _)| *name == module) else {
            wrong.push(format!("{}: module `{module}` has no rank", relative.display()));
            continue;
        };
        for import in imports(&fs::read_to_string(&file).unwrap()) {
            if import != module && !allowed.contains(&import.as_str()) {
                wrong.push(format!("{}: `{module}` may not import `{import}`", relative.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "imports against the layers:\n{}", wrong.join("\n"));
}

#[test]
fn every_edge_points_down() {
    for (index, (name, allowed)) in EDGES.iter().enumerate() {
        for import in *allowed {
            let position = EDGES.iter().position(|(other, _)| other == import).unwrap();
            assert!(position < index, "`{name}` imports `{import}`, which stands above it");
        }
    }
}

#[test]
fn kernels_and_models_do_not_know_the_program() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (krate, forbidden) in [("kernels", vec!["lifelong::", "lifelong_models"]), ("models", vec!["lifelong::"])] {
        let mut files = Vec::new();
        sources(&root.join(krate).join("src"), &mut files);
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            for name in &forbidden {
                assert!(!text.contains(name), "{} imports {name}", file.display());
            }
        }
    }
}

#[test]
fn cfg_cuda_appears_only_in_the_kernels() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for folder in ["src", "models/src"] {
        let mut files = Vec::new();
        sources(&root.join(folder), &mut files);
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            for feature in ["cuda", "emulate"] {
                let asks = text.contains(&format!("feature = \"{feature}\""));
                assert!(!asks, "{} decides on a device by `{feature}`", file.display());
            }
        }
    }
}
