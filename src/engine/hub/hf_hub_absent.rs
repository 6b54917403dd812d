//! The hub in a build without the cargo feature `hub`: same signatures, one reason.

use super::Sources;
use super::error::Failure;
use super::preset::HubFile;
use super::progress::FileProgress;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::time::Duration;

const REASON: &str = "this program was built without the cargo feature `hub`";

pub(super) struct Hub<'a>(PhantomData<&'a Sources>);

pub(super) struct Download {
    pub(super) path: PathBuf,
    pub(super) resumed: bool,
}

pub(super) struct Listing {
    pub(super) commit: String,
    pub(super) files: Vec<String>,
}

pub(super) fn reach(_: &Sources, _: Duration) -> Result<(), String> {
    Err(REASON.into())
}

impl<'a> Hub<'a> {
    pub(super) fn new(_sources: &'a Sources, _folder: PathBuf) -> Hub<'a> {
        Hub(PhantomData)
    }

    pub(super) fn download(&self, _: &HubFile, _: &str, _: &FileProgress) -> Result<Download, Failure> {
        Err(Failure::source(REASON))
    }

    pub(super) fn list(&self, _: &HubFile) -> Result<Listing, Failure> {
        Err(Failure::source(REASON))
    }
}
