//! The reading side of a run folder: for reports, also while the run is still going on. Changes nothing, takes no lock.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::record::{AttemptRecord, Coord};

use super::error::{Error, Result};
use super::line::Check;
use super::log::{self, Damage};
use super::manifest::Manifest;
use super::run::{ATTEMPTS_FILE, duplicate, read_manifest, read_plan};
use super::timing::{TIMING_FILE, TimingRecord};

/// A run folder as it is now.
pub struct RunReader {
    dir: PathBuf,
    manifest: Manifest,
}

impl RunReader {
    /// # Errors
    /// [`Error::NoRun`] when there is no manifest.
    pub fn open(dir: &Path) -> Result<RunReader> {
        let manifest = read_manifest(dir)?.ok_or_else(|| Error::NoRun { dir: dir.to_path_buf() })?;
        Ok(RunReader { dir: dir.to_path_buf(), manifest })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Every whole record, sorted by coordinate, and what was not whole.
    ///
    /// # Errors
    /// [`Error::DuplicateResult`], [`Error::Io`].
    pub fn records(&self) -> Result<(Vec<AttemptRecord>, Vec<Damage>)> {
        let path = self.dir.join(ATTEMPTS_FILE);
        let mut records: BTreeMap<Coord, (AttemptRecord, Check)> = BTreeMap::new();
        let findings = log::scan::<AttemptRecord>(&path, |record, location| {
            match records.get(&record.coord) {
                Some((first, check)) if *check != location.check => return Err(duplicate(&path, first, &record)),
                Some(_) => {}
                None => drop(records.insert(record.coord.clone(), (record, location.check))),
            }
            Ok(())
        })?;
        Ok((records.into_values().map(|(record, _)| record).collect(), findings.damage))
    }

    /// The timing log in file order; damaged lines are passed over.
    pub fn timing(&self) -> Result<Vec<TimingRecord>> {
        let mut lines = Vec::new();
        log::scan::<TimingRecord>(&self.dir.join(TIMING_FILE), |record, _| {
            lines.push(record);
            Ok(())
        })?;
        Ok(lines)
    }

    /// A plan file of the run; `None` when the run has not come that far.
    ///
    /// # Errors
    /// [`Error::Malformed`] when it is not of type `T`.
    pub fn plan<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let Some(bytes) = read_plan(&self.dir, name)? else { return Ok(None) };
        serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| Error::Malformed { path: self.dir.join(name), reason: error.to_string() })
    }
}
