//! The work folder of a job that has to do without a private root.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::Layer;
use super::protocol::Request;

/// A folder of the machine for a job that may have to do without a private root.
pub(super) struct BareFolder {
    pub path: PathBuf,
}

impl BareFolder {
    /// A folder owned by the job's user, where the request allows a job without a private root.
    pub fn make(request: &Request, owner: Option<u32>) -> io::Result<Option<BareFolder>> {
        if !request.allow_missing.contains(&Layer::Filesystem) {
            return Ok(None);
        }
        let path = tempfile::Builder::new().prefix("lifelong-job-").tempdir()?.keep();
        let folder = BareFolder { path };
        if let Some(owner) = owner {
            std::os::unix::fs::chown(&folder.path, Some(owner), Some(owner))?;
        }
        Ok(Some(folder))
    }
}

impl Drop for BareFolder {
    fn drop(&mut self) {
        make_removable(&self.path);
        // What cannot be removed now has no owner left that could.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// A job may have taken the rights off its own folders.
fn make_removable(folder: &Path) {
    let _ = fs::set_permissions(folder, fs::Permissions::from_mode(0o700));
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            make_removable(&entry.path());
        }
    }
}
