//! A model's folder in the cache: its lock, its receipt, and the working folder that final names never see.
//!
//! ```text
//! HOME/models/NAME/
//!   model.safetensors     final names: verified, never written in place
//!   1_Pooling/config.json
//!   .receipt.json         digest, size, modification time and origin of each file that was verified
//!   .lock                 held while pulling
//!   .part/                everything unfinished; on the same file system, so that a rename publishes
//! ```
//!
//! The receipt spares hashing gigabytes at every start: a file whose size and modification time are as recorded is
//! taken at its recorded digest, anything else is read again.

use super::error::Error;
use super::preset::PresetFile;
use super::{Digest, ModelFile, ModelFiles, Progress, Sources};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

const RECEIPT: &str = ".receipt.json";

/// A model's folder in the cache.
pub(super) struct ModelFolder {
    name: String,
    path: PathBuf,
}

/// What was verified, by file name.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct Receipt {
    pub(super) files: BTreeMap<String, Verified>,
}

/// A file as it was when its digest was verified.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Verified {
    pub(super) sha256: Digest,
    pub(super) size: u64,
    modified_ns: u64,
    pub(super) origin: String,
}

/// Held while a model's folder changes; released when dropped or when the process ends in any way.
pub(super) struct Lock(#[expect(dead_code, reason = "the open file is the lock")] File);

impl ModelFolder {
    pub(super) fn new(sources: &Sources, name: &str) -> ModelFolder {
        ModelFolder { name: name.into(), path: sources.home.join("models").join(name) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where a file is once it is verified.
    pub(super) fn final_path(&self, file: &str) -> PathBuf {
        self.path.join(file)
    }

    /// The folder for everything unfinished; made when missing.
    pub(super) fn working(&self) -> Result<PathBuf, Error> {
        let path = self.path.join(".part");
        fs::create_dir_all(&path).map_err(|error| Error::storage("create", &path, error))?;
        Ok(path)
    }

    /// Forgets unfinished downloads.
    pub(super) fn clear_working(&self) {
        // Left-overs cost space only; the next pull that finishes clears them.
        let _ = fs::remove_dir_all(self.path.join(".part"));
    }

    /// Takes the folder's lock, waiting for another process if need be.
    pub(super) fn lock(&self, sources: &Sources) -> Result<Lock, Error> {
        fs::create_dir_all(&self.path).map_err(|error| Error::storage("create", &self.path, error))?;
        let path = self.path.join(".lock");
        let file = File::create(&path).map_err(|error| Error::storage("create", &path, error))?;
        match file.try_lock() {
            Ok(()) => return Ok(Lock(file)),
            Err(TryLockError::WouldBlock) => {
                sources.progress.note(&format!("another process is pulling {}; waiting for it", self.name));
            }
            Err(TryLockError::Error(error)) => return Err(Error::storage("lock", &path, error)),
        }
        file.lock().map_err(|error| Error::storage("lock", &path, error))?;
        Ok(Lock(file))
    }

    /// The receipt, or an empty one when there is none that can be read: files are then hashed again.
    pub(super) fn receipt(&self) -> Receipt {
        self.read_json(RECEIPT).unwrap_or_default()
    }

    pub(super) fn write_receipt(&self, receipt: &Receipt) -> Result<(), Error> {
        self.write_json(RECEIPT, receipt)
    }

    /// One of the folder's own notes; `None` when it is missing or unreadable.
    pub(super) fn read_json<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_slice(&fs::read(self.path.join(name)).ok()?).ok()
    }

    /// Replaces a note as a whole; the caller holds the lock.
    pub(super) fn write_json(&self, name: &str, value: &impl Serialize) -> Result<(), Error> {
        let (unfinished, path) = (self.working()?.join("note"), self.path.join(name));
        let write = || -> io::Result<()> {
            serde_json::to_writer_pretty(File::create(&unfinished)?, value)?;
            fs::rename(&unfinished, &path)
        };
        write().map_err(|error| Error::storage("write", &path, error))
    }

    /// What the receipt says about a file, when the file is still as it was and is the one the preset wants.
    pub(super) fn recorded<'a>(&self, file: &PresetFile, receipt: &'a Receipt) -> Option<&'a Verified> {
        let verified = receipt.files.get(&file.name)?;
        let wanted = file.sha256.is_none_or(|sha256| sha256 == verified.sha256);
        (wanted && stamp(&self.final_path(&file.name)).ok()? == (verified.size, verified.modified_ns))
            .then_some(verified)
    }

    /// Every file of a model by its receipt, without hashing; `None` when any is missing or has changed.
    pub(super) fn complete(&self, files: &[PresetFile]) -> Option<ModelFiles> {
        let receipt = self.receipt();
        let mut files = files
            .iter()
            .map(|file| {
                let verified = self.recorded(file, &receipt)?;
                Some(ModelFile {
                    name: file.name.clone(),
                    path: self.final_path(&file.name),
                    size: verified.size,
                    sha256: Some(verified.sha256),
                    origin: verified.origin.clone(),
                })
            })
            .collect::<Option<Vec<ModelFile>>>()?;
        files.sort_by(|left, right| left.name.cmp(&right.name));
        Some(ModelFiles { name: self.name.clone(), kind: None, folder: self.path.clone(), files })
    }

    /// Gives a verified file its final name, durably, and describes it for the receipt.
    pub(super) fn publish(&self, file: &str, finished: &Path, sha256: Digest, origin: &str) -> Result<Verified, Error> {
        let target = self.final_path(file);
        let publish = || -> io::Result<Verified> {
            let folder = target.parent().unwrap_or(&self.path);
            fs::create_dir_all(folder)?;
            File::open(finished)?.sync_all()?;
            fs::rename(finished, &target)?;
            File::open(folder)?.sync_all()?;
            describe(&target, sha256, origin)
        };
        publish().map_err(|error| Error::storage("publish", &target, error))
    }

    /// Reads a file that the receipt does not vouch for, and describes it when it is what the preset, or else the
    /// receipt, wants. A file that is something else is removed: it may have the final name no longer.
    pub(super) fn verify_again(
        &self,
        file: &PresetFile,
        receipt: &Receipt,
        progress: Progress,
    ) -> Result<Option<Verified>, Error> {
        let path = self.final_path(&file.name);
        if !path.exists() {
            return Ok(None);
        }
        let storage = |action, error| Error::storage(action, &path, error);
        let (_, found) = Digest::of_file(&path).map_err(|error| storage("read", error))?;
        let recorded = receipt.files.get(&file.name);
        let wanted = file.sha256.or(recorded.map(|verified| verified.sha256));
        if wanted.is_some_and(|wanted| wanted != found) {
            progress.note(&format!("{} has another sha256 than it should ({found}); removed", path.display()));
            fs::remove_file(&path).map_err(|error| storage("remove", error))?;
            return Ok(None);
        }
        let origin = recorded.map_or("found in the model cache", |verified| &verified.origin);
        describe(&path, found, origin).map(Some).map_err(|error| storage("read", error))
    }
}

fn describe(path: &Path, sha256: Digest, origin: &str) -> io::Result<Verified> {
    let (size, modified_ns) = stamp(path)?;
    Ok(Verified { sha256, size, modified_ns, origin: origin.into() })
}

/// Size and modification time (nanoseconds since 1970) of a regular file.
fn stamp(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::metadata(path)?;
    let modified = metadata.modified()?.duration_since(UNIX_EPOCH).map_err(io::Error::other)?;
    Ok((metadata.len(), u64::try_from(modified.as_nanos()).map_err(io::Error::other)?))
}
