//! The Hugging Face cache on this disk, as other programs of the user have filled it; only read.
//!
//! ```text
//! CACHE/models--ORG--NAME/refs/BRANCH            text: a commit
//!                         snapshots/COMMIT/FILE  link to a blob
//! ```
//! Looked up by hand and not through `hf-hub`, whose lookup knows branches only and not commits, and which is absent
//! from a build without the `hub` feature.

use super::preset::is_inside;
use std::path::{Path, PathBuf};

/// The folder of a repository's snapshot at a branch or commit, when there is one.
pub(super) fn snapshot(cache: &Path, repository: &str, revision: &str) -> Option<PathBuf> {
    if !is_inside(repository) || !is_inside(revision) {
        return None;
    }
    let folder = cache.join(format!("models--{}", repository.replace('/', "--")));
    let commit = std::fs::read_to_string(folder.join("refs").join(revision))
        .map_or_else(|_| revision.to_string(), |commit| commit.trim().to_string());
    let snapshot = folder.join("snapshots").join(commit);
    snapshot.is_dir().then_some(snapshot)
}

/// A file of a repository at a branch or commit, when it is in the cache.
pub(super) fn find(cache: &Path, repository: &str, revision: &str, file: &str) -> Option<PathBuf> {
    let path = snapshot(cache, repository, revision)?.join(file);
    path.is_file().then_some(path)
}

/// Names of the files of a folder and of its folders, one level deep, sorted.
pub(super) fn list(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for name in entries(folder) {
        if folder.join(&name).is_dir() {
            names.extend(entries(&folder.join(&name)).map(|inner| format!("{name}/{inner}")));
        } else {
            names.push(name);
        }
    }
    names.retain(|name| folder.join(name).is_file());
    names.sort();
    names
}

fn entries(folder: &Path) -> impl Iterator<Item = String> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_by_branch_and_by_commit() {
        let cache = tempfile::tempdir().unwrap();
        let folder = cache.path().join("models--org--name");
        let commit = "a".repeat(40);
        std::fs::create_dir_all(folder.join("refs")).unwrap();
        std::fs::create_dir_all(folder.join("snapshots").join(&commit).join("sub")).unwrap();
        std::fs::write(folder.join("refs/main"), format!("{commit}\n")).unwrap();
        std::fs::write(folder.join("snapshots").join(&commit).join("sub/x.json"), "{}").unwrap();

        let expected = Some(folder.join("snapshots").join(&commit).join("sub/x.json"));
        assert_eq!(find(cache.path(), "org/name", "main", "sub/x.json"), expected);
        assert_eq!(find(cache.path(), "org/name", &commit, "sub/x.json"), expected);
        assert_eq!(find(cache.path(), "org/name", "main", "y.json"), None);
        assert_eq!(find(cache.path(), "org/other", "main", "sub/x.json"), None);
        assert_eq!(find(cache.path(), "org/name", "../../x", "sub/x.json"), None);
        assert_eq!(list(&snapshot(cache.path(), "org/name", "main").unwrap()), ["sub/x.json"]);
    }
}
