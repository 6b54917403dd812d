//! An append-only file of checked lines: reading it, and mending it before the first append.
//!
//! Only the byte 0x0A ends a line. Before a log is written to again, whatever is not a whole record is moved to a side
//! file (`….damaged`), so that the log holds whole records only and nothing is lost; the units whose records were
//! damaged are simply done again. Line order is the order of arrival and means nothing: readers sort by coordinate.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::record::Coord;

use super::error::{Error, Result};
use super::files::sync_folder;
use super::line::{self, Check};

/// A piece of a log that is not a whole record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// 1-based line of the file as it was found.
    pub line: u64,
    pub why: String,
    pub bytes: Vec<u8>,
    /// The unit it belonged to, where that can still be read: it will be done again.
    pub coord: Option<Coord>,
}

/// What was found in a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    pub damage: Vec<Damage>,
    /// Lines that held all their records and only lacked a newline.
    pub repaired: u64,
}

impl Findings {
    pub fn is_clean(&self) -> bool {
        self.damage.is_empty() && self.repaired == 0
    }
}

/// Where a whole record lies in its file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Location {
    pub(crate) offset: u64,
    pub(crate) length: usize,
    pub(crate) check: Check,
}

/// Calls `each` with every whole record in file order. A missing file is an empty log.
pub(crate) fn scan<T: DeserializeOwned>(
    path: &Path,
    mut each: impl FnMut(T, Location) -> Result<()>,
) -> Result<Findings> {
    let mut findings = Findings::default();
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(findings),
        Err(source) => return Err(Error::io("open", path, source)),
    };
    let mut reader = BufReader::with_capacity(1 << 20, file);
    let mut buffer = Vec::new();
    let (mut offset, mut number) = (0u64, 0u64);
    loop {
        buffer.clear();
        let length = reader.read_until(b'\n', &mut buffer).map_err(|source| Error::io("read", path, source))?;
        if length == 0 {
            return Ok(findings);
        }
        number += 1;
        let is_ended = buffer.last() == Some(&b'\n');
        let content = if is_ended { &buffer[..length - 1] } else { &buffer[..] };
        let reading = line::read::<T>(content);
        if reading.faults.is_empty() && (reading.records.len() != 1 || !is_ended) {
            findings.repaired += 1;
        }
        for fault in reading.faults {
            let bytes = content[fault.range].to_vec();
            let why = if is_ended { fault.why } else { format!("{} (last line, never finished)", fault.why) };
            findings.damage.push(Damage { line: number, why, coord: readable_coord(&bytes), bytes });
        }
        for whole in reading.records {
            let start = offset + whole.range.start as u64;
            each(whole.record, Location { offset: start, length: whole.range.len(), check: whole.check })?;
        }
        offset += length as u64;
    }
}

/// Makes a log consist of the given whole records only, one a line, after keeping aside what was damaged.
pub(crate) fn mend(path: &Path, findings: &Findings, mut whole: Vec<Location>) -> Result<()> {
    keep_aside(path, &findings.damage)?;
    whole.sort_by_key(|location| location.offset);
    rewrite(path, &whole)
}

/// Opens a mended log for appending.
pub(crate) fn open(path: &Path) -> Result<File> {
    let is_new = !path.exists();
    let file = OpenOptions::new()
        .append(true)
        .read(true)
        .create(true)
        .open(path)
        .map_err(|source| Error::io("open", path, source))?;
    if is_new {
        sync_folder(path)?;
    }
    Ok(file)
}

/// The side file that keeps what was cut out of a log.
pub(crate) fn damaged_name(path: &Path) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    path.with_file_name(format!("{name}.damaged"))
}

fn keep_aside(path: &Path, damage: &[Damage]) -> Result<()> {
    if damage.is_empty() {
        return Ok(());
    }
    let aside = damaged_name(path);
    let failed = |source| Error::io("write", &aside, source);
    let mut file = OpenOptions::new().append(true).create(true).open(&aside).map_err(failed)?;
    for piece in damage {
        file.write_all(&piece.bytes).and_then(|()| file.write_all(b"\n")).map_err(failed)?;
    }
    file.sync_all().map_err(failed)?;
    sync_folder(&aside)
}

/// Copies the whole records, one a line, to a new file that then takes the log's name.
fn rewrite(path: &Path, whole: &[Location]) -> Result<()> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let partial = path.with_file_name(format!(".{name}.partial"));
    let source = File::open(path).map_err(|source| Error::io("open", path, source))?;
    let failed = |source| Error::io("write", &partial, source);
    let mut out = BufWriter::new(File::create(&partial).map_err(failed)?);
    for location in whole {
        let bytes = read_at(&source, path, *location)?;
        out.write_all(&bytes).and_then(|()| out.write_all(b"\n")).map_err(failed)?;
    }
    let file = out.into_inner().map_err(|error| failed(error.into_error()))?;
    file.sync_all().map_err(failed)?;
    std::fs::rename(&partial, path).map_err(|source| Error::io("rename into place", path, source))?;
    sync_folder(path)
}

/// The bytes of one record's line, without the newline.
pub(crate) fn read_at(file: &File, path: &Path, location: Location) -> Result<Vec<u8>> {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0u8; location.length];
    file.read_exact_at(&mut bytes, location.offset).map_err(|source| Error::io("read", path, source))?;
    Ok(bytes)
}

/// The coordinate in a damaged piece, when that part of it is still whole.
fn readable_coord(bytes: &[u8]) -> Option<Coord> {
    const KEY: &[u8] = b"\"coord\":";
    let at = bytes.windows(KEY.len()).position(|window| window == KEY)? + KEY.len();
    serde_json::Deserializer::from_slice(&bytes[at..]).into_iter::<Coord>().next()?.ok()
}
