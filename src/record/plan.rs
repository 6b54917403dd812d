//! What a run decided before it started counting: the pool, the voted relations and the sequences.
//!
//! The run writes each of these once into its folder (`pool.json`, `vote.json`, `sequences.json`); the report reads
//! them to know what every coordinate means and which units are still missing. Tasks are named by their index in
//! [`PoolPlan::tasks`], the same number that [`Coord`](super::Coord) carries.

use serde::{Deserialize, Serialize};

use super::TaskId;

/// File name of the [`PoolPlan`] in a run folder.
pub const POOL_FILE: &str = "pool.json";
/// File name of the tasks that the pool leaves out because nothing can pass them on this machine: a map from task to
/// reason. Absent where there are none.
pub const IGNORED_FILE: &str = "ignored.json";
/// File name of the [`VotePlan`] in a run folder.
pub const VOTE_FILE: &str = "vote.json";
/// File name of the [`SequencesPlan`] in a run folder.
pub const SEQUENCES_FILE: &str = "sequences.json";
/// File name of the [`LogprobPlan`] in a run folder.
pub const LOGPROB_FILE: &str = "logprob.json";
/// File name of the [`AttributionPlan`] in a run folder.
pub const ATTRIBUTION_FILE: &str = "attribution.json";

/// The tasks of a run and the models whose transfer matrix is measured on them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolPlan {
    /// Every candidate, in the benchmark's order. Coordinates index this list.
    pub tasks: Vec<PoolTask>,
    /// Indices, ascending, of the tasks that passed the headroom filter: only pairs of these are measured.
    pub kept: Vec<u32>,
    /// Models of the matrix, in the config's order: the MODEL of the stage `matrix/MODEL`. Empty: no matrix is run.
    pub models: Vec<String>,
    /// Seeds (attempts) of every matrix cell.
    pub seeds: u32,
}

/// One task of the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolTask {
    pub id: TaskId,
    pub family: Option<String>,
}

/// When the seeds of an ordered pair stop: once the sign of its gain is settled.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Stopping {
    /// Chance, at most, that a test on the seeds so far names the wrong sign of a pair's expected gain, in 0..0.5. At 0 a
    /// pair stops only when no outcome of its other seeds can change the sign of their mean.
    pub error_rate: f64,
    /// Seeds that every pair gets.
    pub least_seeds: u32,
}

impl Default for Stopping {
    fn default() -> Self {
        Stopping { error_rate: 0.05, least_seeds: 1 }
    }
}

/// What the stage `logprob` rates: the pairs of these models of the pool. Unit (0, j) is the reference of task j alone,
/// (i + 1, j) the same behind task i.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogprobPlan {
    pub models: Vec<String>,
    /// Pool indices, ascending.
    pub tasks: Vec<u32>,
}

/// Probes whose score is traced back to single experiences, by leaving each out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttributionPlan {
    /// Draws of a probe for each memory.
    pub draws: u32,
    /// By history and agent in the order of the sequences' plan, then by place.
    pub groups: Vec<AttributionGroup>,
}

/// The traced probes of one agent under one history: the stage `attribution/HISTORY/AGENT`, whose coordinates are the
/// index of the case, 0 for the whole memory or i + 1 for the memory without `left_out[i]`, and the draw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttributionGroup {
    pub history: String,
    pub agent: String,
    pub cases: Vec<AttributionCase>,
}

/// One traced probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttributionCase {
    pub sequence: u32,
    pub run: u32,
    /// Step of the probe, and of the earlier probe that it is compared with.
    pub probe: u32,
    pub earlier: u32,
    /// Scores that the run found at the two.
    pub score: f64,
    pub earlier_score: f64,
    /// Steps in between whose experiences are left out one at a time, ascending.
    pub left_out: Vec<u32>,
}

/// How experience with one task bears on another, as voted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Relation {
    Positive,
    Neutral,
    Negative,
    /// The voters disagree; never sampled.
    Mixed,
}

impl Relation {
    pub fn as_str(self) -> &'static str {
        match self {
            Relation::Positive => "positive",
            Relation::Neutral => "neutral",
            Relation::Negative => "negative",
            Relation::Mixed => "mixed",
        }
    }

    fn letter(relation: Option<Relation>) -> char {
        match relation {
            Some(Relation::Positive) => '+',
            Some(Relation::Neutral) => '0',
            Some(Relation::Negative) => '-',
            Some(Relation::Mixed) => '~',
            None => '.',
        }
    }

    fn from_letter(letter: char) -> Result<Option<Relation>, String> {
        match letter {
            '+' => Ok(Some(Relation::Positive)),
            '0' => Ok(Some(Relation::Neutral)),
            '-' => Ok(Some(Relation::Negative)),
            '~' => Ok(Some(Relation::Mixed)),
            '.' => Ok(None),
            other => Err(format!("expected one of `+ 0 - ~ .`, found `{other}`")),
        }
    }
}

/// What a voter's gain of a pair is measured by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VoteMeasure {
    /// The score behind the demonstration minus the score alone (PATH-Bench, transfer gain).
    #[default]
    Score,
    /// Mean log-probability of a token of the target's reference behind the demonstration, minus the same alone. It tells
    /// tasks apart that a weak backbone never solves.
    LogProbability,
    /// Mean log-probability behind the demonstration minus its median behind all of them. Any demonstration shows what an
    /// answer looks like and so makes the reference likelier; over the median, only what this one adds is left.
    LogProbabilityOverMedian,
}

impl VoteMeasure {
    pub fn is_score(&self) -> bool {
        *self == VoteMeasure::Score
    }
}

/// The voted relation `V[i][j]` of every ordered pair, and who voted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VotePlan {
    /// Names of the voters: models, or groups of seeds of one model.
    pub voters: Vec<String>,
    #[serde(default, skip_serializing_if = "VoteMeasure::is_score")]
    pub by: VoteMeasure,
    pub relations: Relations,
}

/// A square of relations: `get(i, j)` is what experience with task i does to task j. `None` on the diagonal, for tasks
/// outside the headroom filter, and where nothing was graded.
///
/// Stored as one text a row, one letter a cell (`+ 0 - ~ .`), so that a person can read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct Relations {
    cells: Vec<Vec<Option<Relation>>>,
}

impl Relations {
    /// All pairs undecided.
    pub fn undecided(tasks: usize) -> Self {
        Relations { cells: vec![vec![None; tasks]; tasks] }
    }

    /// Number of tasks on each side.
    pub fn tasks(&self) -> usize {
        self.cells.len()
    }

    /// # Panics
    /// When an index is outside `0..tasks()`.
    pub fn get(&self, source: usize, target: usize) -> Option<Relation> {
        self.cells[source][target]
    }

    /// # Panics
    /// When an index is outside `0..tasks()`.
    pub fn set(&mut self, source: usize, target: usize, relation: Option<Relation>) {
        self.cells[source][target] = relation;
    }
}

impl From<Relations> for Vec<String> {
    fn from(relations: Relations) -> Vec<String> {
        relations.cells.iter().map(|row| row.iter().map(|cell| Relation::letter(*cell)).collect()).collect()
    }
}

impl TryFrom<Vec<String>> for Relations {
    type Error = String;

    fn try_from(rows: Vec<String>) -> Result<Self, String> {
        let mut cells = Vec::with_capacity(rows.len());
        for (index, row) in rows.iter().enumerate() {
            let row: Vec<Option<Relation>> = row.chars().map(Relation::from_letter).collect::<Result<_, _>>()?;
            if row.len() != rows.len() {
                return Err(format!("row {index}: expected {} letters, found {}", rows.len(), row.len()));
            }
            cells.push(row);
        }
        Ok(Relations { cells })
    }
}

/// All lifelong sequences of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SequencesPlan {
    /// The model every agent runs on.
    pub model: String,
    /// Agents in the config's order: the AGENT of the stage `sequence/HISTORY/AGENT`.
    pub agents: Vec<String>,
    /// The memory-free agent the others are compared with, when it is among `agents`.
    pub baseline: Option<String>,
    /// Repetitions of every sequence by every agent.
    pub runs: u32,
    pub histories: Vec<HistoryPlan>,
    /// Agents that live through fewer sequences, or are compared with another than the memory-free one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paired: Vec<PairedAgent>,
}

/// What is special about one agent of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairedAgent {
    pub agent: String,
    /// The agent it is compared with, sequence by sequence and run by run.
    pub against: Option<String>,
    /// Only the first this many sequences of each history are lived.
    pub sequences: Option<u32>,
}

impl SequencesPlan {
    /// The sequences of a history that an agent lives through: all of them, or the first few.
    pub fn lived<'a>(&self, history: &'a HistoryPlan, agent: &str) -> &'a [SequencePlan] {
        let limit = self.paired.iter().find(|paired| paired.agent == agent).and_then(|paired| paired.sequences);
        let all = history.sequences.as_slice();
        &all[..limit.map_or(all.len(), |limit| all.len().min(limit as usize))]
    }
}

/// The sequences of one kind of history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HistoryPlan {
    /// The HISTORY of the stage `sequence/HISTORY/AGENT`, for example `positive`.
    pub name: String,
    pub sequences: Vec<SequencePlan>,
}

/// One lifelong sequence around a probe task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SequencePlan {
    /// Pool index of the probe.
    pub probe: u32,
    /// Executions in order; the position is the step of the coordinate.
    pub steps: Vec<PlannedStep>,
}

/// One execution of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedStep {
    /// Pool index of the task.
    pub task: u32,
    pub kind: StepKind,
}

/// What a step of a sequence is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// First occurrence of the probe, before any experience.
    ColdProbe,
    WarmUp,
    /// Second occurrence of the probe, right after the warm-up.
    WarmProbe,
    Intervening,
    /// Every later occurrence of the probe.
    Probe,
}

impl StepKind {
    pub fn is_probe(self) -> bool {
        matches!(self, StepKind::ColdProbe | StepKind::WarmProbe | StepKind::Probe)
    }

    /// Only experience between the probes changes the memory.
    pub fn updates_memory(self) -> bool {
        !self.is_probe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relations_read_as_letters() {
        let mut relations = Relations::undecided(2);
        relations.set(0, 1, Some(Relation::Positive));
        relations.set(1, 0, Some(Relation::Mixed));
        let text = serde_json::to_string(&relations).unwrap();
        assert_eq!(text, r#"[".+","~."]"#);
        assert_eq!(serde_json::from_str::<Relations>(&text).unwrap(), relations);
    }

    #[test]
    fn a_ragged_or_foreign_square_is_refused() {
        assert!(serde_json::from_str::<Relations>(r#"[".+","~"]"#).unwrap_err().to_string().contains("row 1"));
        assert!(serde_json::from_str::<Relations>(r#"["x"]"#).unwrap_err().to_string().contains("found `x`"));
    }
}
