//! Writing a small file so that a reader, or the next start after a crash, sees the old one or the new one, never half.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::error::{Error, Result};

/// Replaces `path` by `bytes`: a temporary name beside it, flush to the disk, rename, flush of the folder.
///
/// The temporary name is fixed, so that a crash leaves at most one such file, which the next write reuses; callers are
/// the single writer of their folder.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<()> {
    let partial = partial_name(path);
    let mut file = File::create(&partial).map_err(|source| Error::io("create", &partial, source))?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    if let Err(source) = written {
        let _ = fs::remove_file(&partial);
        return Err(Error::io("write", path, source));
    }
    fs::rename(&partial, path).map_err(|source| Error::io("rename into place", path, source))?;
    sync_folder(path)
}

/// Whether a file name is one that [`write_atomic`] may leave behind in a crash.
pub(crate) fn is_partial(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(".partial")
}

/// Makes a new or renamed entry of a folder survive a power cut.
pub(crate) fn sync_folder(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|source| Error::io("flush", folder, source))
}

fn partial_name(path: &Path) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    path.with_file_name(format!(".{name}.partial"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_whole_and_leaves_nothing_beside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        write_atomic(&path, b"one").unwrap();
        write_atomic(&path, b"two!").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two!");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_write_keeps_the_old_file_and_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        fs::create_dir(folder.path().join(".a.json.partial")).unwrap();
        fs::write(&path, b"old").unwrap();
        let error = write_atomic(&path, b"new").unwrap_err().to_string();
        assert!(error.contains("a.json"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
    }
}
