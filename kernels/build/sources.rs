//! Where the kernels' sources are and where what is made of them goes.

use std::path::PathBuf;

pub struct Sources {
    /// `kernels/cuda`
    pub folder: PathBuf,
    /// Its `.cu` files, sorted.
    pub kernels: Vec<PathBuf>,
    pub out: PathBuf,
}

impl Sources {
    pub fn here() -> Self {
        let variable = |name: &str| PathBuf::from(std::env::var_os(name).expect("cargo sets it"));
        let folder = variable("CARGO_MANIFEST_DIR").join("cuda");
        let entries = std::fs::read_dir(&folder).expect("the kernels' sources are in the repository");
        let mut kernels: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        kernels.retain(|path| path.extension().is_some_and(|extension| extension == "cu"));
        kernels.sort();
        Self { folder, kernels, out: variable("OUT_DIR") }
    }
}
