//! What the experiments around the sequences decided before they started counting. Written once into the run folder,
//! like the plans of [`plan`](super::plan); tasks are named by their index in the pool.

use serde::{Deserialize, Serialize};

/// File name of the [`MultiTaskPlan`] in a run folder.
pub const MULTI_TASK_FILE: &str = "multi_task.json";
/// File name of the transitions in a run folder: a [`SequencesPlan`](super::plan::SequencesPlan) whose histories are the
/// four conditions.
pub const TRANSITIONS_FILE: &str = "transitions.json";
/// File name of the [`OrdersPlan`] in a run folder.
pub const ORDERS_FILE: &str = "orders.json";

/// Prefixes of several demonstrations in front of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MultiTaskPlan {
    /// The model that is asked; its zero-shot scores in the matrix are the baseline.
    pub model: String,
    /// Seeds of every prefix: those of the matrix.
    pub seeds: u32,
    pub lengths: Vec<u32>,
    /// Pool indices of the targets.
    pub targets: Vec<u32>,
    /// Prefixes of each target, length and kind.
    pub sequences: u32,
    pub prefixes: Vec<PrefixPlan>,
}

/// The demonstrations in front of one target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrefixPlan {
    pub kind: PrefixKind,
    /// Index of the target in [`MultiTaskPlan::targets`].
    pub target: u32,
    /// Which of the target's prefixes of this kind and length.
    pub sequence: u32,
    /// Pool indices, in the order shown.
    pub shown: Vec<u32>,
}

/// Where a prefix's tasks come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrefixKind {
    /// Sources that help the target.
    Positive,
    /// Sources that mislead it.
    Negative,
    /// Any other task.
    Random,
}

impl PrefixKind {
    pub const ALL: [PrefixKind; 3] = [PrefixKind::Positive, PrefixKind::Negative, PrefixKind::Random];

    pub fn as_str(self) -> &'static str {
        match self {
            PrefixKind::Positive => "positive",
            PrefixKind::Negative => "negative",
            PrefixKind::Random => "random",
        }
    }
}

impl MultiTaskPlan {
    /// The stage of a kind and length, `multi_task/KIND/N`.
    pub fn stage(kind: PrefixKind, length: u32) -> String {
        format!("multi_task/{}/{length}", kind.as_str())
    }

    /// The `sequence` of a prefix's coordinate.
    pub fn sequence_of(&self, prefix: &PrefixPlan) -> u32 {
        prefix.target * self.sequences + prefix.sequence
    }
}

/// The same tasks in several orders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrdersPlan {
    /// The model every agent runs on.
    pub model: String,
    pub agents: Vec<String>,
    pub runs: u32,
    pub paths: Vec<PathPlan>,
}

/// One order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathPlan {
    pub name: String,
    /// Pool indices in the order learned.
    pub tasks: Vec<u32>,
}

impl OrdersPlan {
    /// The stage of a path and agent, `orders/PATH/AGENT`.
    pub fn stage(path: &str, agent: &str) -> String {
        format!("orders/{path}/{agent}")
    }
}
