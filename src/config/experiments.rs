//! The stages beside the matrix, the vote and the sequences: the experiments that PATH-Bench puts around them.

use anyhow::{bail, ensure};
use serde::{Deserialize, Serialize};

use super::run::ensure_distinct;
use super::{AgentConfig, RunConfig};

/// Whether a vote made of single demonstrations still tells the direction when many stand together (PATH-Bench,
/// appendix B; figure 7).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MultiTaskConfig {
    /// Targets, drawn among the tasks with both positive and negative sources; the paper takes 50.
    pub targets: u32,
    /// Demonstrations in one prompt.
    pub lengths: Vec<u32>,
    /// Prefixes of each target, length and kind; the paper takes 3.
    pub sequences: u32,
}

impl Default for MultiTaskConfig {
    fn default() -> Self {
        MultiTaskConfig { targets: 50, lengths: vec![3, 6, 9, 12], sequences: 3 }
    }
}

/// Probe, interval, probe, interval, probe, each interval wholly positive or negative (PATH-Bench §4.2; figure 5).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TransitionsConfig {
    /// Matched sequences; the paper takes 30.
    pub sequences: u32,
    /// Runs of each sequence with other draws; the paper takes 5.
    pub runs: u32,
    /// Tasks of one interval; the paper takes 5.
    pub interval: u32,
    /// Agents by name; when absent all that are not compared with another (`agents.against`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<String>>,
}

impl Default for TransitionsConfig {
    fn default() -> Self {
        TransitionsConfig { sequences: 30, runs: 5, interval: 5, agents: None }
    }
}

/// The same tasks in several orders, every task attempted again after every one that was learned (PATH-Bench, appendix
/// A; figure 1).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OrdersConfig {
    /// Tasks, drawn from those with headroom; the paper takes 50.
    pub tasks: u32,
    /// Orders of them; the paper takes 2.
    pub paths: u32,
    /// Runs of each order with other draws; the paper takes 3.
    pub runs: u32,
    /// Agents by name; when absent all that are not compared with another (`agents.against`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<String>>,
}

impl Default for OrdersConfig {
    fn default() -> Self {
        OrdersConfig { tasks: 50, paths: 2, runs: 3, agents: None }
    }
}

impl MultiTaskConfig {
    fn check(&self) -> anyhow::Result<()> {
        at_least_one("multi_task", &[("targets", self.targets), ("sequences", self.sequences)])?;
        ensure!(!self.lengths.is_empty(), "`multi_task.lengths` must hold at least one length, found none");
        let rises = self.lengths.windows(2).all(|pair| pair[0] < pair[1]);
        ensure!(
            rises && self.lengths[0] > 0,
            "`multi_task.lengths` must be above 0 and grow, found {:?}",
            self.lengths
        );
        Ok(())
    }
}

impl TransitionsConfig {
    fn check(&self) -> anyhow::Result<()> {
        at_least_one("transitions", &[("sequences", self.sequences), ("runs", self.runs), ("interval", self.interval)])
    }
}

impl OrdersConfig {
    fn check(&self) -> anyhow::Result<()> {
        at_least_one("orders", &[("paths", self.paths), ("runs", self.runs)])?;
        ensure!(self.tasks >= 2, "`orders.tasks` must be at least 2, found {}", self.tasks);
        Ok(())
    }
}

impl RunConfig {
    /// The agents of a stage: those that it lists, else all that are not compared with another.
    pub fn agents_of(&self, listed: Option<&Vec<String>>) -> Vec<String> {
        let is_plain = |agent: &&AgentConfig| agent.against.is_none();
        listed.cloned().unwrap_or_else(|| self.agents.iter().filter(is_plain).map(|agent| agent.name.clone()).collect())
    }

    pub(super) fn check_experiments(&self) -> anyhow::Result<()> {
        if let Some(multi_task) = &self.multi_task {
            ensure!(self.vote.is_some(), "`[multi_task]` tests voted relations: add a `[vote]` table");
            multi_task.check()?;
        }
        let mut stages = Vec::new();
        if let Some(transitions) = &self.transitions {
            ensure!(self.vote.is_some(), "`[transitions]` samples by voted relations: add a `[vote]` table");
            transitions.check()?;
            stages.push(("transitions", &transitions.agents));
        }
        if let Some(orders) = &self.orders {
            orders.check()?;
            stages.push(("orders", &orders.agents));
        }
        for (stage, listed) in stages {
            let agents = self.agents_of(listed.as_ref());
            ensure!(!agents.is_empty(), "`[{stage}]` needs at least one `[[agents]]` table without `against`");
            ensure_distinct(&format!("{stage}.agents"), agents.iter())?;
            if let Some(stranger) = agents.iter().find(|name| self.agents.iter().all(|agent| agent.name != **name)) {
                bail!("`{stage}.agents` names `{stranger}`, which no `[[agents]]` table does");
            }
        }
        Ok(())
    }
}

fn at_least_one(table: &str, keys: &[(&str, u32)]) -> anyhow::Result<()> {
    for (key, value) in keys {
        ensure!(*value > 0, "`{table}.{key}` must be at least 1, found 0");
    }
    Ok(())
}
