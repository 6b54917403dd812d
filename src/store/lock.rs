//! One writer a run folder.
//!
//! The lock is the kernel's (`flock`), so it ends with the process however that ends: a killed run leaves nothing that
//! has to be cleaned up by hand. A file that merely exists would.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use super::error::{Error, Result};

/// File name of the lock in a run folder.
pub(crate) const LOCK_FILE: &str = "run.lock";

/// Held while it lives.
#[derive(Debug)]
pub(crate) struct RunLock {
    file: File,
}

impl RunLock {
    /// # Errors
    /// [`Error::Locked`] with the process id of the holder.
    pub(crate) fn take(dir: &Path) -> Result<Self> {
        let path = dir.join(LOCK_FILE);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|source| Error::io("open", &path, source))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = file.read_to_string(&mut holder);
                return Err(Error::Locked { dir: dir.to_path_buf(), holder: holder.trim().to_string() });
            }
            Err(TryLockError::Error(source)) => return Err(Error::io("lock", &path, source)),
        }
        file.set_len(0)
            .and_then(|()| file.seek(SeekFrom::Start(0)))
            .and_then(|_| writeln!(file, "{}", std::process::id()))
            .map_err(|source| Error::io("write", &path, source))?;
        Ok(RunLock { file })
    }
}

impl Drop for RunLock {
    /// Closing would not be enough: a child process that is just being started shares the open file until it execs.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_writer_is_refused_with_the_holder_and_admitted_later() {
        let folder = tempfile::tempdir().unwrap();
        let first = RunLock::take(folder.path()).unwrap();
        let error = RunLock::take(folder.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("locked by process {}", std::process::id())), "{error}");
        drop(first);
        RunLock::take(folder.path()).unwrap();
    }
}
