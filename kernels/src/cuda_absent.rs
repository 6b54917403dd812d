//! Stands in for the GPU in a build without the feature `cuda`: nothing here can be constructed.

use crate::error::{Error, Result};

/// A GPU that cannot exist in this build.
pub(crate) enum Cuda {}

impl Cuda {
    pub(crate) fn new(ordinal: usize) -> Result<Self> {
        let problem = format!("device {ordinal} asked of a program built without the feature `cuda`");
        Err(Error::Cuda(problem + "; build with `--features cuda` or use the cpu"))
    }

    pub(crate) fn name(&self) -> &'static str {
        match *self {}
    }

    pub(crate) fn refuse<T>(&self, _op: &'static str) -> Result<T> {
        match *self {}
    }
}
