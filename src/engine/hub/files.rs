//! The result of resolving a model: files on this disk, each with its digest.

use super::repository::TORCH;
use super::{Digest, Error, Kind};
use std::path::{Path, PathBuf};

/// One file of a model, on this disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFile {
    /// The file's name within the model: `1_Pooling/config.json`.
    pub name: String,
    pub path: PathBuf,
    /// Bytes.
    pub size: u64,
    /// Known for files that were pulled; `None` for files the user named by path, which are hashed on demand.
    pub sha256: Option<Digest>,
    /// Which source gave it.
    pub origin: String,
}

/// A model's files, complete and verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFiles {
    /// Preset name, `ORG/NAME`, or the file or folder name.
    pub name: String,
    /// What the preset says it is; `None` without a preset.
    pub kind: Option<Kind>,
    /// The folder the names are relative to.
    pub folder: PathBuf,
    /// Sorted by name.
    pub files: Vec<ModelFile>,
}

impl ModelFiles {
    /// What to open as a checkpoint: the GGUF file, or the folder with safetensors and `config.json`.
    ///
    /// # Errors
    /// [`Error::NotAModel`] when there are several GGUF files or no weights at all.
    pub fn checkpoint(&self) -> Result<&Path, Error> {
        let not_a_model = |problem: String| Error::NotAModel { place: self.folder.display().to_string(), problem };
        let gguf: Vec<&ModelFile> = self.with_extension("gguf").collect();
        match gguf.as_slice() {
            [file] => Ok(&file.path),
            [] if self.files.len() == 1 && self.with_extension("safetensors").count() == 1 => Ok(&self.files[0].path),
            [] if self.with_extension("safetensors").next().is_some() => Ok(&self.folder),
            [] if self.files.iter().any(|file| file.name == TORCH) => Ok(&self.folder),
            [] => Err(not_a_model(format!("expected a .gguf file, .safetensors files or {TORCH}, found none of them"))),
            several => {
                let names: Vec<&str> = several.iter().map(|file| file.name.as_str()).collect();
                Err(not_a_model(format!("several GGUF files ({}); name one of them", names.join(", "))))
            }
        }
    }

    /// Whether any file holds weights.
    pub fn has_weights(&self) -> bool {
        let is_weights = |file: &ModelFile| file.name == TORCH || file.name.ends_with(".safetensors");
        self.files.iter().any(is_weights) || self.with_extension("gguf").next().is_some()
    }

    /// One digest for the whole model: over each file's name and sha256, in order of names. Files named by path are
    /// read for it.
    ///
    /// # Errors
    /// [`Error::Storage`] when such a file cannot be read.
    pub fn digest(&self) -> Result<Digest, Error> {
        let mut text = String::new();
        for file in &self.files {
            let sha256 = match file.sha256 {
                Some(known) => known,
                None => Digest::of_file(&file.path).map_err(|error| Error::storage("read", &file.path, error))?.1,
            };
            text.push_str(&format!("{sha256}  {}\n", file.name));
        }
        Ok(Digest::of(text.as_bytes()))
    }

    /// Bytes of all files.
    pub fn size(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }

    fn with_extension<'a>(&'a self, extension: &'a str) -> impl Iterator<Item = &'a ModelFile> {
        self.files.iter().filter(move |file| file.path.extension().is_some_and(|found| found == extension))
    }
}
