//! From a run folder to the numbers of its report.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::record::experiment::{MULTI_TASK_FILE, MultiTaskPlan, ORDERS_FILE, OrdersPlan, TRANSITIONS_FILE};
use crate::record::plan::{
    IGNORED_FILE, POOL_FILE, PoolPlan, SEQUENCES_FILE, SequencesPlan, Stopping, VOTE_FILE, VotePlan,
};
use crate::record::{AttemptRecord, Ending, Usage};
use crate::seed::Seed;
use crate::store::{self, Identity, Machine, RunId, RunReader, StageTime, TimingRecord, Totals};

use super::beside::{self, Beside};
use super::checks::{self, Checks};
use super::matrix::{self, ModelMatrix};
use super::multi_task::{self, MultiTask};
use super::orders::{self, Orders};
use super::sequence::{self, Sequences};
use super::transitions::{self, Transitions};
use super::voters::{self, Decided, VoterAgreement};

/// Everything the report shows.
pub struct ReportData {
    pub run_id: RunId,
    pub identity: Identity,
    /// What the run planned and how much of it is stored; incomplete parts are named in every output.
    pub completeness: Vec<Completeness>,
    /// Whether every planned unit is stored.
    pub is_complete: bool,
    /// Pieces of the record log that are not whole records; their units will be done again.
    pub damaged_pieces: usize,
    pub pool: Option<PoolPlan>,
    /// Tasks left out of the pool because nothing can pass them here, and why.
    pub ignored: BTreeMap<String, String>,
    pub matrices: Vec<ModelMatrix>,
    /// When the seeds of a pair stop, where the run says so.
    pub stopping: Option<Stopping>,
    pub vote: Option<VotePlan>,
    /// Each voter's agreement with the vote.
    pub voters: Vec<VoterAgreement>,
    pub decided: Option<Decided>,
    pub multi_task: Option<MultiTask>,
    pub sequences: Option<Sequences>,
    pub transitions: Option<Transitions>,
    pub orders: Option<Orders>,
    pub checks: Checks,
    pub beside: Beside,
    pub usage: Vec<StageUsage>,
    /// Calls that memories made to the backbone, by stage and purpose.
    pub memory_calls: Vec<MemoryCalls>,
    /// Sorted by coordinate.
    pub records: Vec<AttemptRecord>,
    pub timing: Timing,
}

/// How far one part of the run has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completeness {
    pub what: String,
    pub done: usize,
    /// `None` while it is not planned yet.
    pub of: Option<usize>,
}

impl Completeness {
    pub fn is_complete(&self) -> bool {
        self.of == Some(self.done)
    }
}

/// What one stage used, from its records alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageUsage {
    pub stage: String,
    pub attempts: usize,
    pub ungraded: usize,
    pub usage: Usage,
    /// How often each ending occurred, in the order of [`Ending`].
    pub endings: BTreeMap<Ending, usize>,
}

/// Calls of one purpose in one stage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryCalls {
    pub stage: String,
    pub purpose: String,
    pub calls: usize,
    /// Calls whose prompt did not fit the model's context, so that nothing was asked and the method's fallback applied.
    pub unasked: usize,
    /// Calls whose reply could not be read, so that the method's fallback applied.
    pub unread: usize,
    pub usage: Usage,
}

/// What depends on the clock and the machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timing {
    pub totals: Totals,
    pub machines: Vec<Machine>,
    pub stages: BTreeMap<String, StageTime>,
}

/// Records by stage, then by (sequence, step, attempt).
pub(super) type Stages<'a> = BTreeMap<&'a str, BTreeMap<(u32, u32, u32), &'a AttemptRecord>>;

impl ReportData {
    /// # Errors
    /// When the folder's files cannot be read or contradict each other.
    pub fn build(reader: &RunReader) -> store::Result<ReportData> {
        let manifest = reader.manifest();
        let seed = Seed(manifest.seed());
        let (records, damage) = reader.records()?;
        let pool: Option<PoolPlan> = reader.plan(POOL_FILE)?;
        let vote: Option<VotePlan> = reader.plan(VOTE_FILE)?;
        let sequences_plan: Option<SequencesPlan> = reader.plan(SEQUENCES_FILE)?;

        let mut stages: Stages<'_> = BTreeMap::new();
        for record in &records {
            let coord = &record.coord;
            let stage = stages.entry(coord.stage.as_str()).or_default();
            stage.insert((coord.sequence, coord.step, coord.attempt), record);
        }
        let stopping = manifest.identity.config.pointer("/matrix/stopping");
        let stopping = stopping.and_then(|rule| serde_json::from_value::<Stopping>(rule.clone()).ok());
        let is_headroom_given = manifest.identity.config.pointer("/matrix/headroom/scores").is_some();
        let asked = matrix::Asked { stopping, is_headroom_given };
        let build = |pool| matrix::build(pool, asked, vote.as_ref(), &stages, seed);
        let matrices = pool.as_ref().map(build).unwrap_or_default();
        let sequences = sequences_plan.map(|plan| sequence::build(plan, &stages, seed));
        let ballot = pool.as_ref().zip(vote.as_ref());
        let voters = ballot.map(|(pool, vote)| voters::agreements(pool, vote, &stages, seed)).unwrap_or_default();
        let decided = ballot.map(|(pool, vote)| voters::decided(pool, vote, seed));
        let multi_task: Option<MultiTaskPlan> = reader.plan(MULTI_TASK_FILE)?;
        let multi_task = multi_task.map(|plan| multi_task::build(plan, &stages, seed));
        let transitions: Option<SequencesPlan> = reader.plan(TRANSITIONS_FILE)?;
        let transitions = transitions.map(|plan| transitions::build(plan, &stages, seed));
        let orders: Option<OrdersPlan> = reader.plan(ORDERS_FILE)?;
        let orders = orders.map(|plan| orders::build(plan, &stages, seed));
        let checks = checks::check(sequences.as_ref(), transitions.as_ref().map(|found| &found.plan), &stages)
            .map_err(|reason| store::Error::Malformed { path: reader.dir().join(store::ATTEMPTS_FILE), reason })?;
        let mut completeness = completeness(&manifest.identity.config, &matrices, vote.is_some(), sequences.as_ref());
        completeness.extend(experiments(
            &manifest.identity.config,
            multi_task.as_ref(),
            transitions.as_ref(),
            orders.as_ref(),
        ));
        let mut data = ReportData {
            run_id: manifest.run_id.clone(),
            identity: manifest.identity.clone(),
            is_complete: false,
            completeness,
            damaged_pieces: damage.len(),
            usage: usage(&stages),
            memory_calls: memory_calls(&stages),
            timing: timing(&reader.timing()?),
            pool,
            ignored: reader.plan(IGNORED_FILE)?.unwrap_or_default(),
            matrices,
            stopping,
            vote,
            voters,
            decided,
            multi_task,
            sequences,
            transitions,
            orders,
            checks,
            beside: Beside::default(),
            records: Vec::new(),
        };
        data.beside = beside::build(reader, &data, &stages)?;
        data.completeness.extend(beside::completeness(&data.beside));
        data.is_complete = data.completeness.iter().all(Completeness::is_complete);
        data.records = records;
        Ok(data)
    }

    /// The key of the run's draws.
    pub fn seed(&self) -> Seed {
        Seed(self.identity.config.get("seed").and_then(Value::as_u64).unwrap_or_default())
    }

    /// A text of the config, `None` where it has none.
    pub fn config_text(&self, key: &str) -> Option<&str> {
        self.identity.config.get(key).and_then(Value::as_str)
    }

    /// Name of the run.
    pub fn name(&self) -> &str {
        self.config_text("name").unwrap_or("run")
    }

    /// How a task is called in tables: its id, or its index when the pool is not known.
    pub fn task_name(&self, index: u32) -> String {
        let task = self.pool.as_ref().and_then(|pool| pool.tasks.get(index as usize));
        task.map_or_else(|| format!("task {index}"), |task| task.id.to_string())
    }

    /// Family of a task, where it has one.
    pub fn family(&self, index: u32) -> Option<&str> {
        self.pool.as_ref()?.tasks.get(index as usize)?.family.as_deref()
    }
}

/// One line for each part that the config asks for.
fn completeness(
    config: &Value,
    matrices: &[ModelMatrix],
    has_vote: bool,
    sequences: Option<&Sequences>,
) -> Vec<Completeness> {
    let asks_for = |stage: &str| config.get(stage).is_some_and(|value| !value.is_null());
    let mut parts = Vec::new();
    let mut part = |what: String, done, of| parts.push(Completeness { what, done, of });
    if asks_for("matrix") && matrices.is_empty() {
        part("matrix: pool and headroom filter".into(), 0, None);
    }
    for matrix in matrices {
        part(format!("matrix {}: attempts", matrix.model), matrix.stored, Some(matrix.planned));
    }
    if asks_for("vote") {
        part("vote".into(), usize::from(has_vote), Some(1));
    }
    match sequences {
        None if asks_for("sequence") => part("sequences: plan".into(), 0, None),
        None => {}
        Some(sequences) => {
            for cell in &sequences.cells {
                part(format!("{} history, {}: steps", cell.history, cell.agent), cell.stored, Some(cell.planned));
            }
        }
    }
    parts
}

/// As [`completeness`], of the experiments around the sequences.
fn experiments(
    config: &Value,
    multi_task: Option<&MultiTask>,
    transitions: Option<&Transitions>,
    orders: Option<&Orders>,
) -> Vec<Completeness> {
    let asks_for = |stage: &str| config.get(stage).is_some_and(|value| !value.is_null());
    let mut parts = Vec::new();
    let mut part = |what: String, done, of| parts.push(Completeness { what, done, of });
    match multi_task {
        Some(found) => part("multi-task prefixes: attempts".into(), found.stored, Some(found.planned)),
        None if asks_for("multi_task") => part("multi-task prefixes: plan".into(), 0, None),
        None => {}
    }
    match transitions {
        Some(found) => {
            for (agent, stored, planned) in &found.progress {
                part(format!("transitions, {agent}: steps"), *stored, Some(*planned));
            }
        }
        None if asks_for("transitions") => part("transitions: plan".into(), 0, None),
        None => {}
    }
    match orders {
        Some(found) => {
            for cell in &found.cells {
                part(format!("{}, {}: attempts", cell.path, cell.agent), cell.stored, Some(cell.planned));
            }
        }
        None if asks_for("orders") => part("task orders: plan".into(), 0, None),
        None => {}
    }
    parts
}

fn usage(stages: &Stages<'_>) -> Vec<StageUsage> {
    stages
        .iter()
        .map(|(stage, records)| {
            let mut total = Usage::default();
            let mut endings = BTreeMap::new();
            for record in records.values() {
                total += record.attempt.usage;
                *endings.entry(record.attempt.ending).or_insert(0) += 1;
            }
            let ungraded = records.values().filter(|record| record.score.graded().is_none()).count();
            StageUsage { stage: stage.to_string(), attempts: records.len(), ungraded, usage: total, endings }
        })
        .collect()
}

fn memory_calls(stages: &Stages<'_>) -> Vec<MemoryCalls> {
    let mut counted: BTreeMap<(&str, &str), MemoryCalls> = BTreeMap::new();
    for (stage, records) in stages {
        for call in records.values().flat_map(|record| record.memory_work.calls()) {
            let entry = counted.entry((stage, call.purpose.as_str())).or_default();
            entry.calls += 1;
            entry.unasked += usize::from(!call.is_asked());
            entry.unread += usize::from(call.is_asked() && !call.is_read);
            entry.usage += call.usage;
        }
    }
    counted
        .into_iter()
        .map(|((stage, purpose), calls)| MemoryCalls { stage: stage.into(), purpose: purpose.into(), ..calls })
        .collect()
}

fn timing(log: &[TimingRecord]) -> Timing {
    let machines = log.iter().filter_map(|record| match record {
        TimingRecord::Segment { machine, .. } => Some(machine.clone()),
        TimingRecord::Unit { .. } => None,
    });
    Timing { totals: store::totals(log), machines: machines.collect(), stages: store::stage_times(log) }
}
