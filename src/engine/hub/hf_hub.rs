//! The Hugging Face hub, through the `hf-hub` crate: (repository, revision, file) in, a file in our working folder out.
//!
//! `hf-hub` 0.5 resumes by ranges, follows redirects and honours proxies, but has no time limit, checks no digest and
//! knows no `HF_TOKEN` and no `HF_HUB_OFFLINE`. So it writes into a folder of ours and never into the user's Hugging
//! Face cache, runs on a thread that is given up when it falls silent ([`watch`]), and what it brings is checked by
//! the caller.

mod reach;
mod watch;

use super::Sources;
use super::error::Failure;
use super::preset::{HubFile, is_inside};
use super::progress::FileProgress;
use hf_hub::api::sync::{ApiBuilder, ApiError, ApiRepo};
use hf_hub::{Repo, RepoType};
use std::cell::RefCell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use watch::{Cut, Event, Reason, watch};

/// How often a download that is cut off is taken up again, as long as each try brings something.
const RESUMES: usize = 5;

/// The hub during one pull.
pub(super) struct Hub<'a> {
    sources: &'a Sources,
    /// Unfinished downloads, in hf-hub's own layout.
    folder: PathBuf,
    /// Whether the hub answers at all; found out once, so that a model of many files waits once.
    reachable: RefCell<Option<Result<(), String>>>,
}

/// A file the hub gave.
pub(super) struct Download {
    /// Named by the hub's own tag for the content.
    pub(super) path: PathBuf,
    /// Whether part of it was there from before.
    pub(super) resumed: bool,
}

/// The files of a repository at a commit.
pub(super) struct Listing {
    pub(super) commit: String,
    pub(super) files: Vec<String>,
}

/// Whether the hub can be connected to within `limit`; behind a proxy that cannot be said, and counts as yes.
///
/// # Errors
/// The reason in words.
pub(super) fn reach(sources: &Sources, limit: Duration) -> Result<(), String> {
    let Sources { endpoint, offline, proxied, .. } = sources;
    if *offline {
        return Err("offline (HF_HUB_OFFLINE is set)".into());
    }
    if *proxied {
        return Ok(());
    }
    reach::connect(endpoint, limit).map_err(|reason| format!("cannot reach {endpoint}: {reason}"))
}

impl<'a> Hub<'a> {
    pub(super) fn new(sources: &'a Sources, folder: PathBuf) -> Hub<'a> {
        Hub { sources, folder, reachable: RefCell::new(None) }
    }

    /// Downloads one file, taking up an earlier partial download where there is one.
    ///
    /// # Errors
    /// A source failure when the hub is offline, unreachable, silent, or refuses; a fatal one when our disk is full
    /// or may not be written.
    pub(super) fn download(&self, file: &HubFile, name: &str, progress: &FileProgress) -> Result<Download, Failure> {
        if !is_inside(&file.repo) || !is_inside(name) {
            return Err(Failure::source(format!("`{}` cannot have a file `{name}`", file.repo)));
        }
        self.check_reachable()?;
        let mut resumed = self.has_partial(file);
        for _ in 0..RESUMES {
            let cut = match self.download_once(file, name, progress) {
                Ok(path) => return Ok(Download { path, resumed }),
                Err(cut) => cut,
            };
            if resumed && matches!(cut.reason, Reason::Api(ApiError::InvalidResume)) {
                // The partial file is longer than the file: it is something else.
                self.forget(file);
                resumed = false;
                continue;
            }
            match (cut.received, self.explain(cut, file)) {
                (1.., Failure::Source(reason)) => {
                    self.sources.progress.note(&format!("{name}: {reason}; resuming"));
                    resumed = true;
                }
                (_, failure) => return Err(failure),
            }
        }
        Err(Failure::source(format!("cut off {RESUMES} times; the next pull goes on from there")))
    }

    /// Lists the files of a repository.
    ///
    /// # Errors
    /// As [`Hub::download`].
    pub(super) fn list(&self, file: &HubFile) -> Result<Listing, Failure> {
        self.check_reachable()?;
        let repo = self.repo(file).map_err(Failure::source)?;
        let answer = self.sources.timeouts.answer;
        let info = watch(answer, answer, |_| {}, move |_| repo.info()).map_err(|cut| self.explain(cut, file))?;
        Ok(Listing { commit: info.sha, files: info.siblings.into_iter().map(|sibling| sibling.rfilename).collect() })
    }

    fn download_once(&self, file: &HubFile, name: &str, progress: &FileProgress) -> Result<PathBuf, Cut> {
        self.release_locks(file);
        let repo = self.repo(file)?;
        let mut position = 0;
        let told = |event| match event {
            Event::Start(bytes) => {
                position = bytes;
                progress.set(position);
            }
            Event::Bytes(bytes) => {
                position += bytes;
                progress.set(position);
            }
        };
        let timeouts = self.sources.timeouts;
        let name = name.to_string();
        let work = move |events| repo.download_with_progress(&name, events);
        let pointer = watch(timeouts.answer, timeouts.stall, told, work)?;
        Ok(take_blob(&pointer).map_err(ApiError::IoError)?)
    }

    fn repo(&self, file: &HubFile) -> Result<ApiRepo, ApiError> {
        let repo = Repo::with_revision(file.repo.clone(), RepoType::Model, file.revision.clone());
        let api = ApiBuilder::new()
            .with_endpoint(self.sources.endpoint.clone())
            .with_cache_dir(self.folder.clone())
            .with_token(self.sources.token.as_ref().map(|token| token.reveal().to_string()))
            .with_user_agent("lifelong", env!("CARGO_PKG_VERSION"))
            .build()?;
        Ok(api.repo(repo))
    }

    fn check_reachable(&self) -> Result<(), Failure> {
        let mut reachable = self.reachable.borrow_mut();
        reachable.get_or_insert_with(|| self.try_to_reach()).clone().map_err(Failure::Source)
    }

    fn try_to_reach(&self) -> Result<(), String> {
        reach(self.sources, self.sources.timeouts.connect)
    }

    /// What a cut means: for the caller the reason in words, for later files whether to ask the hub at all.
    fn explain(&self, cut: Cut, file: &HubFile) -> Failure {
        let reason = match cut.reason {
            Reason::Api(ApiError::IoError(error)) if is_ours(&error) => {
                return Failure::storage("write", &self.folder, error);
            }
            Reason::Api(error) => error.to_string(),
            Reason::Died => "hf-hub ended without an answer".into(),
            Reason::Silent(time) => {
                let reason = format!("{} sent nothing for {} s", self.sources.endpoint, time.as_secs_f32());
                if cut.received == 0 {
                    *self.reachable.borrow_mut() = Some(Err(reason.clone()));
                }
                reason
            }
        };
        Failure::Source(match http_status(&reason) {
            Some(status @ (401 | 403)) => format!(
                "{} does not exist or is gated (http status {status}); accept its licence on the hub, then set HF_TOKEN",
                file.repo
            ),
            Some(404) => format!("{file} has no such file (http status 404)"),
            _ => reason,
        })
    }

    /// Where hf-hub keeps the repository's files in our working folder.
    fn repo_folder(&self, file: &HubFile) -> PathBuf {
        self.folder.join(Repo::model(file.repo.clone()).folder_name())
    }

    fn has_partial(&self, file: &HubFile) -> bool {
        self.blobs(file, "part").next().is_some()
    }

    /// hf-hub locks each blob, and a thread that was given up holds its lock while its connection lasts. The model
    /// folder's own lock is ours, and a thread that was given up writes nothing more, so its lock guards nothing.
    fn release_locks(&self, file: &HubFile) {
        for lock in self.blobs(file, "lock") {
            // What stays is reported by hf-hub when it is in the way.
            let _ = fs::remove_file(lock);
        }
    }

    fn blobs(&self, file: &HubFile, extension: &'static str) -> impl Iterator<Item = PathBuf> {
        let entries = fs::read_dir(self.repo_folder(file).join("blobs")).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(move |path| path.extension().is_some_and(|found| found == extension))
    }

    fn forget(&self, file: &HubFile) {
        // What cannot be removed now is found again by the next try.
        let _ = fs::remove_dir_all(self.repo_folder(file));
    }
}

/// The blob behind a pointer. The pointer goes: the blob is about to move, and hf-hub would stumble over a dead link.
fn take_blob(pointer: &Path) -> io::Result<PathBuf> {
    let blob = pointer.canonicalize()?;
    fs::remove_file(pointer)?;
    Ok(blob)
}

/// Whether an input-output error is about our disk rather than the network.
fn is_ours(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | PermissionDenied | ReadOnlyFilesystem)
}

/// The status in an HTTP error's words; hf-hub hands the error on as text only, as far as its users can see.
fn http_status(reason: &str) -> Option<u16> {
    let (_, rest) = reason.split_once("http status: ")?;
    rest.get(..3)?.parse().ok()
}
