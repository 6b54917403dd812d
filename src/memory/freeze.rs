//! A memory that can be held as it is: it still recalls, and learns nothing, until it is released.

use super::{Handles, Memory, Recall};
use crate::record::{Experience, TaskView};

/// Any memory behind a switch.
pub struct Freezable {
    inner: Box<dyn Memory>,
    is_frozen: bool,
}

impl Freezable {
    pub fn new(inner: Box<dyn Memory>) -> Freezable {
        Freezable { inner, is_frozen: false }
    }

    pub fn freeze(&mut self) {
        self.is_frozen = true;
    }

    pub fn unfreeze(&mut self) {
        self.is_frozen = false;
    }
}

impl Memory for Freezable {
    fn recall(&self, task: &TaskView, handles: &Handles<'_>) -> anyhow::Result<Recall> {
        self.inner.recall(task, handles)
    }

    fn learn(&mut self, experience: &Experience, handles: &Handles<'_>) -> anyhow::Result<()> {
        if self.is_frozen { Ok(()) } else { self.inner.learn(experience, handles) }
    }

    fn save(&self) -> Vec<u8> {
        self.inner.save()
    }

    fn load(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.inner.load(bytes)
    }

    fn stop_strings(&self) -> Vec<String> {
        self.inner.stop_strings()
    }
}
