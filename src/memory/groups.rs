//! The memory behind group self-consistency: recent successes dealt into groups, one prompt a group
//! (LifelongAgentBench §4.4). The vote itself is the policy `group_self_consistency`.

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use super::{Block, Context, Handles, Memory, MemoryMethod, Placement, Recall, Resolved, options, success};
use crate::record::{Experience, TaskView};
use crate::registry::Registered;

pub struct Groups;

/// Options of `[[agents]]` with `memory = "groups"`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct Options {
    /// G: how many prompts are voted over, besides the one without experience.
    groups: usize,
    /// S: how many successes each prompt shows.
    size: usize,
    placement: Placement,
}

impl Default for Options {
    fn default() -> Self {
        Options { groups: 8, size: 1, placement: Placement::BeforeQuestion }
    }
}

impl Registered for Groups {
    fn name(&self) -> &str {
        "groups"
    }
    fn about(&self) -> &str {
        "recent successes dealt into groups, one prompt a group, for group self-consistency"
    }
    fn source(&self) -> &str {
        "LifelongAgentBench §4.4, group self-consistency"
    }
}

impl MemoryMethod for Groups {
    fn create(&self, table: &toml::Table) -> anyhow::Result<Box<dyn Memory>> {
        Ok(Box::new(Deck { options: Options::read(table)?, state: Vec::new() }))
    }

    fn resolve(&self, table: &toml::Table) -> anyhow::Result<Resolved> {
        Ok(Resolved { needs_feedback: true, ..Resolved::of(&Options::read(table)?)? })
    }
}

impl Options {
    fn read(table: &toml::Table) -> anyhow::Result<Options> {
        let options: Options = options("groups", table)?;
        ensure!(options.groups > 0 && options.size > 0, "memory `groups`: `groups` and `size` must be at least 1");
        Ok(options)
    }
}

struct Deck {
    options: Options,
    /// Every success, oldest first, without bound: the published state.
    state: Vec<success::Success>,
}

impl Memory for Deck {
    fn recall(&self, _task: &TaskView, _handles: &Handles<'_>) -> anyhow::Result<Recall> {
        let newest: Vec<&success::Success> =
            self.state.iter().rev().take(self.options.groups * self.options.size).collect();
        let contexts = newest
            .chunks(self.options.size)
            .map(|group| {
                let blocks: Vec<Block> = group.iter().map(|success| success.block()).collect();
                Context { placement: self.options.placement, preamble: success::PREAMBLE.into(), blocks }
            })
            .collect();
        Ok(Recall { contexts, ..Recall::default() })
    }

    fn learn(&mut self, experience: &Experience, _handles: &Handles<'_>) -> anyhow::Result<()> {
        self.state.extend(success::Success::of(experience));
        Ok(())
    }

    fn save(&self) -> Vec<u8> {
        serde_json::to_vec(&self.state).expect("plain data always encodes")
    }

    fn load(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.state = serde_json::from_slice(bytes).context("saved state of memory `groups`")?;
        Ok(())
    }

    fn stop_strings(&self) -> Vec<String> {
        vec![success::TURN_MARKER.to_string()]
    }
}
