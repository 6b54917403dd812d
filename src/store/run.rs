//! The writing side of a run folder: created or continued, appended to, closed by being dropped.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::record::{AttemptRecord, Coord};

use super::error::{Error, Result};
use super::files::{is_partial, write_atomic};
use super::line;
use super::lock::{LOCK_FILE, RunLock};
use super::log::{self, Findings, Location};
use super::manifest::{MANIFEST_FILE, Manifest};
use super::timing::{Machine, TIMING_FILE, TimingRecord, UnitTiming};
use super::writer::{Index, Outcome, Tail, Writer, lock};

/// File name of the record log in a run folder.
pub const ATTEMPTS_FILE: &str = "attempts.jsonl";

/// A run folder open for writing. Shared by reference between all threads of a run.
pub struct RunStore {
    dir: PathBuf,
    index: Index,
    /// For reading records back; appends never move what lies before them.
    records: File,
    started: Instant,
    findings: Findings,
    is_continued: bool,
    /// Before the lock in drop order: the last bytes are written while the folder is still ours.
    writer: Writer,
    _lock: RunLock,
}

impl RunStore {
    /// Creates the folder of a new run, or opens the folder of the same run to continue it.
    ///
    /// Damage from a crash is mended first, see [`RunStore::findings`]; `machine` is noted in the timing log.
    ///
    /// # Errors
    /// [`Error::ManifestDiffers`] when the folder holds another run, [`Error::Locked`] when another process writes to
    /// it, [`Error::NotARun`] when it holds something else, [`Error::DuplicateResult`] when two lines contradict each
    /// other, [`Error::Io`].
    pub fn create_or_open(dir: &Path, manifest: &Manifest, machine: Machine) -> Result<RunStore> {
        fs::create_dir_all(dir).map_err(|source| Error::io("create", dir, source))?;
        check_is_run_or_empty(dir)?;
        let run_lock = RunLock::take(dir)?;
        let is_continued = settle_manifest(dir, manifest)?;

        let path = dir.join(ATTEMPTS_FILE);
        let (mut index, findings) = load_index(&path)?;
        if !findings.is_clean() {
            log::mend(&path, &findings, index.into_values().collect())?;
            index = load_index(&path)?.0;
        }
        let file = log::open(&path)?;
        let records = File::open(&path).map_err(|source| Error::io("open", &path, source))?;
        let index: Index = Arc::new(Mutex::new(index));

        let timing_path = dir.join(TIMING_FILE);
        mend_timing(&timing_path)?;
        let timing_file = log::open(&timing_path)?;
        let writer = Writer::start(tail(path, file)?, tail(timing_path, timing_file)?, Arc::clone(&index))?;
        let store = RunStore {
            dir: dir.to_path_buf(),
            index,
            records,
            started: Instant::now(),
            findings,
            is_continued,
            writer,
            _lock: run_lock,
        };
        store.write_timing(&TimingRecord::Segment { started: jiff::Timestamp::now(), machine });
        Ok(store)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether the folder already held this run.
    pub fn is_continued(&self) -> bool {
        self.is_continued
    }

    /// What was damaged in the record log and has been mended; the units it names will be done again.
    pub fn findings(&self) -> &Findings {
        &self.findings
    }

    /// Number of units done.
    pub fn len(&self) -> usize {
        lock(&self.index).len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the unit is done.
    pub fn has(&self, coord: &Coord) -> bool {
        lock(&self.index).contains_key(coord)
    }

    /// The record of a unit that is done.
    pub fn get(&self, coord: &Coord) -> Result<Option<AttemptRecord>> {
        let location = lock(&self.index).get(coord).copied();
        location.map(|location| self.read(location)).transpose()
    }

    /// Every record, sorted by coordinate.
    pub fn records(&self) -> Result<Vec<AttemptRecord>> {
        let locations: Vec<Location> = lock(&self.index).values().copied().collect();
        locations.into_iter().map(|location| self.read(location)).collect()
    }

    /// Stores one finished attempt. When this returns `Ok`, the record is on the disk.
    ///
    /// Appending the same record again is fine and changes nothing.
    ///
    /// # Errors
    /// [`Error::DuplicateResult`] when the unit has another result, [`Error::Stopped`] when the disk refused (full,
    /// gone): the record then does not count and the same command can continue the run later.
    pub fn append(&self, record: AttemptRecord) -> Result<()> {
        if let Some(grade) = record.score.graded()
            && !(0.0..=1.0).contains(&grade)
        {
            return Err(Error::Unstorable {
                coord: record.coord,
                reason: format!("a score of {grade} is not in 0..=1"),
            });
        }
        let (line, check) = line::encode(&record)
            .map_err(|error| Error::Unstorable { coord: record.coord.clone(), reason: error.to_string() })?;
        match self.writer.append(record.coord.clone(), line, check)? {
            Outcome::Durable => Ok(()),
            Outcome::Contradicts(location) => {
                let first = self.read(location)?;
                Err(duplicate(&self.dir.join(ATTEMPTS_FILE), &first, &record))
            }
        }
    }

    /// Notes what a unit cost. Written soon, not awaited, and never part of the results.
    pub fn note(&self, coord: &Coord, timing: UnitTiming) {
        let at_s = self.started.elapsed().as_secs_f64();
        self.write_timing(&TimingRecord::Unit { coord: coord.clone(), timing, at_s });
    }

    /// Stores a file of the run's plan. The first call writes it; every later one, also after a restart, must bring
    /// the same bytes.
    ///
    /// # Errors
    /// [`Error::PlanDiffers`] with the place of the first difference.
    pub fn put_once(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = plan_path(&self.dir, name)?;
        match fs::read(&path) {
            Ok(stored) if stored == bytes => Ok(()),
            Ok(stored) => Err(plan_differs(path, &stored, bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => write_atomic(&path, bytes),
            Err(source) => Err(Error::io("read", &path, source)),
        }
    }

    /// A file stored by [`RunStore::put_once`].
    pub fn get_once(&self, name: &str) -> Result<Option<Vec<u8>>> {
        read_plan(&self.dir, name)
    }

    fn read(&self, location: Location) -> Result<AttemptRecord> {
        let path = self.dir.join(ATTEMPTS_FILE);
        let bytes = log::read_at(&self.records, &path, location)?;
        let whole = line::read::<AttemptRecord>(&bytes).records.pop();
        whole.map(|whole| whole.record).ok_or_else(|| Error::Malformed {
            path,
            reason: format!("the record at byte {} changed under the running program", location.offset),
        })
    }

    fn write_timing(&self, record: &TimingRecord) {
        match line::encode(record) {
            Ok((line, _)) => self.writer.note(line),
            Err(error) => tracing::warn!(%error, "a timing line was not written"),
        }
    }
}

/// A folder may be started in when it is empty but for what a crash at the very beginning leaves.
fn check_is_run_or_empty(dir: &Path) -> Result<()> {
    if dir.join(MANIFEST_FILE).exists() {
        return Ok(());
    }
    for entry in fs::read_dir(dir).map_err(|source| Error::io("read", dir, source))? {
        let entry = entry.map_err(|source| Error::io("read", dir, source))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name != LOCK_FILE && !is_partial(&name) {
            return Err(Error::NotARun { dir: dir.to_path_buf(), found: name });
        }
    }
    Ok(())
}

/// Writes the manifest of a new run, or compares with the stored one. True when the run is continued.
fn settle_manifest(dir: &Path, manifest: &Manifest) -> Result<bool> {
    let Some(stored) = read_manifest(dir)? else {
        let mut text = serde_json::to_string_pretty(manifest).expect("a manifest holds only JSON values and text keys");
        text.push('\n');
        write_atomic(&dir.join(MANIFEST_FILE), text.as_bytes())?;
        return Ok(false);
    };
    let differences = stored.identity.differences(&manifest.identity);
    if differences.is_empty() {
        return Ok(true);
    }
    Err(Error::ManifestDiffers { dir: dir.to_path_buf(), differences })
}

pub(crate) fn read_manifest(dir: &Path) -> Result<Option<Manifest>> {
    let path = dir.join(MANIFEST_FILE);
    match fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| Error::Malformed { path, reason: error.to_string() }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::io("read", &path, source)),
    }
}

pub(crate) fn read_plan(dir: &Path, name: &str) -> Result<Option<Vec<u8>>> {
    let path = plan_path(dir, name)?;
    match fs::read(&path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::io("read", &path, source)),
    }
}

/// Reads a record log into an index, refusing contradictions and passing over repetitions.
fn load_index(path: &Path) -> Result<(BTreeMap<Coord, Location>, Findings)> {
    let mut index: BTreeMap<Coord, Location> = BTreeMap::new();
    let findings = log::scan::<AttemptRecord>(path, |record, location| {
        let Some(first) = index.get(&record.coord).copied() else {
            index.insert(record.coord, location);
            return Ok(());
        };
        if first.check == location.check {
            return Ok(());
        }
        let file = File::open(path).map_err(|source| Error::io("open", path, source))?;
        let bytes = log::read_at(&file, path, first)?;
        match line::read::<AttemptRecord>(&bytes).records.pop() {
            Some(first) => Err(duplicate(path, &first.record, &record)),
            None => Err(Error::Malformed { path: path.to_path_buf(), reason: "changed while it was read".into() }),
        }
    })?;
    Ok((index, findings))
}

fn mend_timing(path: &Path) -> Result<()> {
    let mut whole = Vec::new();
    let findings = log::scan::<TimingRecord>(path, |_, location| {
        whole.push(location);
        Ok(())
    })?;
    if findings.is_clean() { Ok(()) } else { log::mend(path, &findings, whole) }
}

pub(crate) fn duplicate(path: &Path, first: &AttemptRecord, second: &AttemptRecord) -> Error {
    let show = |record: &AttemptRecord| {
        format!(
            "task {}, {:?}, answer {:?}, {} tokens generated, last reply {:?}",
            record.task,
            record.score,
            record.attempt.answer,
            record.attempt.usage.generated_tokens,
            record.attempt.reply()
        )
    };
    Error::DuplicateResult {
        path: path.to_path_buf(),
        coord: second.coord.clone(),
        first: show(first),
        second: show(second),
    }
}

fn plan_path(dir: &Path, name: &str) -> Result<PathBuf> {
    let is_plain = !name.is_empty()
        && !name.starts_with('.')
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || "._-".contains(letter));
    let is_ours = [MANIFEST_FILE, ATTEMPTS_FILE, TIMING_FILE, LOCK_FILE].contains(&name);
    if is_plain && !is_ours { Ok(dir.join(name)) } else { Err(Error::BadPlanName { name: name.to_string() }) }
}

fn plan_differs(path: PathBuf, stored: &[u8], given: &[u8]) -> Error {
    let at = stored.iter().zip(given).take_while(|(left, right)| left == right).count();
    let around = |bytes: &[u8]| {
        let from = at.saturating_sub(20).min(bytes.len());
        let to = (at + 40).min(bytes.len());
        format!("{:?}", String::from_utf8_lossy(&bytes[from..to]))
    };
    Error::PlanDiffers { at, expected: around(stored), found: around(given), path }
}

fn tail(path: PathBuf, file: File) -> Result<Tail> {
    let length = file.metadata().map_err(|source| Error::io("read", &path, source))?.len();
    Ok(Tail { path, file, length })
}
