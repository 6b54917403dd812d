//! Experience replay: the last N successes, oldest first (LifelongAgentBench §4.3).

use std::collections::VecDeque;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use super::{Block, Context, Handles, Memory, MemoryMethod, Placement, Recall, Resolved, options, success};
use crate::record::{Experience, TaskView};
use crate::registry::Registered;

pub struct Replay;

/// Options of `[[agents]]` with `memory = "replay"`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct Options {
    /// How many successes are kept; the paper's tables use 1, 4, 16 and 64.
    n: usize,
    placement: Placement,
}

impl Default for Options {
    fn default() -> Self {
        Options { n: 3, placement: Placement::BeforeQuestion }
    }
}

impl Registered for Replay {
    fn name(&self) -> &str {
        "replay"
    }
    fn about(&self) -> &str {
        "the last n attempts that were finished and correct, oldest first"
    }
    fn source(&self) -> &str {
        "LifelongAgentBench §4.3, experience replay"
    }
}

impl MemoryMethod for Replay {
    fn create(&self, table: &toml::Table) -> anyhow::Result<Box<dyn Memory>> {
        Ok(Box::new(Queue { options: Options::read(table)?, state: VecDeque::new() }))
    }

    fn resolve(&self, table: &toml::Table) -> anyhow::Result<Resolved> {
        Ok(Resolved { needs_feedback: true, ..Resolved::of(&Options::read(table)?)? })
    }
}

impl Options {
    fn read(table: &toml::Table) -> anyhow::Result<Options> {
        let options: Options = options("replay", table)?;
        ensure!(options.n > 0, "memory `replay`: `n` must be at least 1, found 0 (use memory `none`)");
        Ok(options)
    }
}

struct Queue {
    options: Options,
    state: VecDeque<success::Success>,
}

impl Memory for Queue {
    fn recall(&self, _task: &TaskView, _handles: &Handles<'_>) -> anyhow::Result<Recall> {
        // When the prompt must be shortened the oldest goes first.
        let blocks: Vec<Block> = self.state.iter().map(|success| success.block()).collect();
        Ok(Recall::of(Context { placement: self.options.placement, preamble: success::PREAMBLE.into(), blocks }))
    }

    fn learn(&mut self, experience: &Experience, _handles: &Handles<'_>) -> anyhow::Result<()> {
        if let Some(success) = success::Success::of(experience) {
            self.state.push_back(success);
            while self.state.len() > self.options.n {
                self.state.pop_front();
            }
        }
        Ok(())
    }

    fn save(&self) -> Vec<u8> {
        serde_json::to_vec(&self.state).expect("plain data always encodes")
    }

    fn load(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.state = serde_json::from_slice(bytes).context("saved state of memory `replay`")?;
        Ok(())
    }

    fn stop_strings(&self) -> Vec<String> {
        vec![success::TURN_MARKER.to_string()]
    }
}
