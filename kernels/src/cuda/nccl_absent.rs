//! Stands in for NCCL in a build without the feature `cuda`: emulated GPUs exchange over the host's memory.

use crate::error::Result;

/// Ways that cannot exist in this build.
pub(crate) enum Links {}

impl Links {
    pub(super) fn between(_ordinals: &[usize]) -> Result<Self> {
        unreachable!("a build without a driver has no GPU with a number: our bug")
    }

    /// # Safety
    /// None is needed.
    pub(super) unsafe fn gather(&self, _rank: usize, _parts: u64, _count: usize, _stream: u64) -> Result<()> {
        match *self {}
    }

    pub(crate) fn cut(&self) {
        match *self {}
    }
}

pub(super) fn version() -> std::result::Result<String, String> {
    Err("a program without CUDA kernels looks for no NCCL".into())
}
