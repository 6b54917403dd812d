//! Compiles the kernels of `cuda/`: for GPUs with the feature `cuda`, for the emulator with `emulate`, not at all without.

mod emulator;
mod nvcc;
mod toolkit;

use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=build");
    let (cuda, emulate) = (has("CUDA"), has("EMULATE"));
    if !cuda && !emulate {
        return;
    }
    println!("cargo::rerun-if-changed=cuda");
    for variable in toolkit::VARIABLES.iter().chain(&[nvcc::TARGETS_VARIABLE]) {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    let sources = Sources::here();
    let outcome = match cuda {
        true => nvcc::compile(&sources),
        false => Ok(()),
    };
    let outcome = outcome.and_then(|()| if emulate { emulator::compile(&sources) } else { Ok(()) });
    if let Err(problem) = outcome {
        // Cargo prints what a failed build script wrote to stderr.
        eprintln!("error: {problem}");
        std::process::exit(1);
    }
}

fn has(feature: &str) -> bool {
    std::env::var_os(format!("CARGO_FEATURE_{feature}")).is_some()
}

/// Where things are.
struct Sources {
    /// `kernels/cuda`
    folder: PathBuf,
    /// Its `.cu` files, sorted.
    kernels: Vec<PathBuf>,
    out: PathBuf,
}

impl Sources {
    fn here() -> Self {
        let variable = |name: &str| PathBuf::from(std::env::var_os(name).expect("cargo sets it"));
        let folder = variable("CARGO_MANIFEST_DIR").join("cuda");
        let entries = std::fs::read_dir(&folder).expect("the kernels' sources are in the repository");
        let mut kernels: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        kernels.retain(|path| path.extension().is_some_and(|extension| extension == "cu"));
        kernels.sort();
        Self { folder, kernels, out: variable("OUT_DIR") }
    }
}

/// The name of a family of kernels.
fn stem(path: &Path) -> &str {
    path.file_stem().and_then(|stem| stem.to_str()).expect("kernel files have plain names")
}
