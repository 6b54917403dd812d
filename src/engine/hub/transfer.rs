//! Bytes from a source into an unfinished file, counted and hashed on the way.

use super::Digest;
use super::digest::Hasher;
use super::error::Failure;
use super::preset::PresetFile;
use super::progress::FileProgress;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// A file that is complete, but not yet under its final name.
pub(super) struct Finished {
    pub(super) path: PathBuf,
    pub(super) size: u64,
    pub(super) sha256: Digest,
}

/// An unfinished file that bytes are appended to.
pub(super) struct Sink<'a> {
    path: PathBuf,
    file: File,
    hasher: Hasher,
    progress: &'a FileProgress,
}

impl<'a> Sink<'a> {
    /// Starts an empty file in the working folder.
    ///
    /// # Errors
    /// A fatal failure when the file cannot be made.
    pub(super) fn create(working: &Path, progress: &'a FileProgress) -> Result<Sink<'a>, Failure> {
        let path = incoming(working);
        let file = File::create(&path).map_err(|error| Failure::storage("create", &path, error))?;
        Ok(Sink { path, file, hasher: Hasher::default(), progress })
    }

    /// Appends everything a reader gives. What cannot be read is the source's failure, what cannot be written ours.
    pub(super) fn append(&mut self, mut reader: impl Read) -> Result<(), Failure> {
        let mut buffer = vec![0; 1 << 20];
        loop {
            let read = match reader.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Failure::source(format!("cannot be read: {error}"))),
            };
            self.file.write_all(&buffer[..read]).map_err(|error| Failure::storage("write", &self.path, error))?;
            self.hasher.update(&buffer[..read]);
            self.progress.advance(read as u64);
        }
    }

    pub(super) fn finish(self) -> Finished {
        let (size, sha256) = self.hasher.finish();
        Finished { path: self.path, size, sha256 }
    }
}

impl Finished {
    /// Copies a file that may change later.
    pub(super) fn copy(working: &Path, from: &Path, progress: &FileProgress) -> Result<Finished, Failure> {
        let reader = File::open(from).map_err(|error| Failure::source(format!("cannot be opened: {error}")))?;
        let mut sink = Sink::create(working, progress)?;
        sink.append(reader)?;
        Ok(sink.finish())
    }

    /// Takes a second name of a file that is never changed in place, without copying its bytes; copies when the file
    /// system cannot do that.
    pub(super) fn link(working: &Path, from: &Path, progress: &FileProgress) -> Result<Finished, Failure> {
        let path = incoming(working);
        // A left-over of a pull that was killed.
        let _ = fs::remove_file(&path);
        match fs::hard_link(from, &path) {
            Ok(()) => Finished::measure(path),
            Err(_) => Finished::copy(working, from, progress),
        }
    }

    /// Reads a file that is in the working folder already.
    pub(super) fn measure(path: PathBuf) -> Result<Finished, Failure> {
        let (size, sha256) = Digest::of_file(&path).map_err(|error| Failure::storage("read", &path, error))?;
        Ok(Finished { path, size, sha256 })
    }

    /// Whether this is the file that is wanted: of the size the preset states, and of the digest `wanted`, when one
    /// is known. A file that is not is removed.
    pub(super) fn check(self, file: &PresetFile, wanted: Option<Digest>) -> Result<Finished, Failure> {
        let reason = match (file.size, wanted) {
            (Some(size), _) if size != self.size => format!("wrong size: expected {size} bytes, found {}", self.size),
            (_, Some(wanted)) if wanted != self.sha256 => {
                format!("wrong sha256: expected {wanted}, found {}", self.sha256)
            }
            _ => return Ok(self),
        };
        fs::remove_file(&self.path).map_err(|error| Failure::storage("remove", &self.path, error))?;
        Err(Failure::Source(reason))
    }
}

fn incoming(working: &Path) -> PathBuf {
    working.join("incoming")
}
