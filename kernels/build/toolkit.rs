//! Finds NVIDIA's compiler and headers.

use std::path::PathBuf;

/// Environment variables that are read, for the names of folders but for the last.
pub const VARIABLES: [&str; 6] = ["NVCC", "CUDA_HOME", "CUDA_PATH", "PATH", "XDG_CACHE_HOME", TARGETS];
/// Chips to compile for instead of those of `nvcc.rs`, by number, with spaces between.
pub const TARGETS: &str = "LIFELONG_CUDA_ARCHS";

const HINT: &str = "run kernels/cuda/install-toolkit.sh, which needs Python alone, or set CUDA_HOME to a CUDA toolkit of \
                    version 13.0 or later";

/// The compiler: `NVCC`, `bin/nvcc` of `CUDA_HOME` and `CUDA_PATH`, `nvcc` on `PATH`, what `install-toolkit.sh` has
/// installed.
pub fn nvcc() -> Result<PathBuf, String> {
    if let Some(named) = variable("NVCC") {
        return match named.is_file() {
            true => Ok(named),
            false => Err(format!("NVCC names {}, which is no file; {HINT}", named.display())),
        };
    }
    let roots = roots().into_iter().map(|root| root.join("bin/nvcc"));
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&on_path).map(|folder| folder.join("nvcc")).collect::<Vec<_>>();
    let found = roots.chain(on_path).chain(installed().map(|root| root.join("bin/nvcc"))).find(|path| path.is_file());
    found.ok_or_else(|| format!("the feature `cuda` needs NVIDIA's compiler, and nvcc was not found; {HINT}"))
}

/// The folder of `cuda_fp16.h`.
#[cfg(feature = "emulate")]
pub fn headers() -> Result<PathBuf, String> {
    let beside_nvcc = nvcc().ok().and_then(|nvcc| Some(nvcc.parent()?.parent()?.to_path_buf()));
    let roots = roots().into_iter().chain(beside_nvcc).chain(installed());
    let found = roots.map(|root| root.join("include")).find(|folder| folder.join("cuda_fp16.h").is_file());
    found.ok_or_else(|| {
        let hint = HINT.replace("install-toolkit.sh", "install-toolkit.sh --headers");
        format!("the feature `emulate` needs NVIDIA's headers, and cuda_fp16.h was not found; {hint}")
    })
}

fn roots() -> Vec<PathBuf> {
    ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(variable).collect()
}

/// Where `install-toolkit.sh` installs when it is told nothing else.
fn installed() -> Option<PathBuf> {
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")))?;
    Some(cache.join("lifelong-toolkit"))
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}
