//! The bytes of one model file, mapped rather than read: loading touches each page once, and processes that use the
//! same model share them.

use std::fs::File;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// A model file in memory, with the path it came from for messages.
#[derive(Debug)]
pub struct ModelFile {
    path: PathBuf,
    bytes: Bytes,
}

#[derive(Debug)]
enum Bytes {
    Mapped(memmap2::Mmap),
    Owned(Vec<u8>),
}

impl ModelFile {
    /// Maps a file.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be opened or mapped.
    pub fn open(path: &Path) -> Result<Self> {
        let io = |source| Error::Io { path: path.to_path_buf(), source };
        let file = File::open(path).map_err(io)?;
        // An empty file cannot be mapped everywhere; the readers report it as truncated.
        if file.metadata().map_err(io)?.len() == 0 {
            return Ok(ModelFile::from_bytes(path, Vec::new()));
        }
        // SAFETY: the map is read-only and private to this struct. Whoever truncates a model file while it is in use
        // ends the process (SIGBUS); model files are written once under a temporary name and then renamed, so the
        // program itself never does that.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(io)?;
        Ok(ModelFile { path: path.to_path_buf(), bytes: Bytes::Mapped(map) })
    }

    /// Bytes that are already in memory; `path` only names them in messages.
    pub fn from_bytes(path: &Path, bytes: Vec<u8>) -> Self {
        ModelFile { path: path.to_path_buf(), bytes: Bytes::Owned(bytes) }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Deref for ModelFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(map) => map,
            Bytes::Owned(bytes) => bytes,
        }
    }
}
