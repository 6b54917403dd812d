//! The memory-free agent: what every method is compared with.

use super::{Handles, Memory, MemoryMethod, Recall, Resolved, options};
use crate::record::{Experience, TaskView};
use crate::registry::Registered;

pub struct None;

impl Registered for None {
    fn name(&self) -> &str {
        "none"
    }
    fn about(&self) -> &str {
        "remembers nothing: the memory-free baseline"
    }
    fn source(&self) -> &str {
        "PATH-Bench, memory-free agent"
    }
}

impl MemoryMethod for None {
    fn create(&self, table: &toml::Table) -> anyhow::Result<Box<dyn Memory>> {
        options::<NoOptions>(self.name(), table)?;
        Ok(Box::new(Empty))
    }

    fn resolve(&self, table: &toml::Table) -> anyhow::Result<Resolved> {
        Resolved::of(&options::<NoOptions>(self.name(), table)?)
    }
}

#[derive(serde::Deserialize, serde::Serialize, Default)]
#[serde(deny_unknown_fields)]
struct NoOptions {}

struct Empty;

impl Memory for Empty {
    fn recall(&self, _task: &TaskView, _handles: &Handles<'_>) -> anyhow::Result<Recall> {
        Ok(Recall::default())
    }

    fn learn(&mut self, _experience: &Experience, _handles: &Handles<'_>) -> anyhow::Result<()> {
        Ok(())
    }

    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    fn load(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        anyhow::ensure!(bytes.is_empty(), "memory `none` holds nothing, found a saved state of {} bytes", bytes.len());
        Ok(())
    }
}
