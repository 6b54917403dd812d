//! Lifelong sequences: each agent under each history, and what differs between them.

use std::collections::BTreeMap;

use crate::metric::{
    Interval, PathMetric, PathMetrics, PathSummary, difference_interval, mean, path_metrics, probe_curve, summarise,
};
use crate::record::plan::{HistoryPlan, SequencePlan, SequencesPlan, StepKind};
use crate::record::{AttemptRecord, Usage};
use crate::seed::Seed;

use super::data::Stages;

/// All sequences of a run.
pub struct Sequences {
    pub plan: SequencesPlan,
    /// By history, then agent, in the plan's order.
    pub cells: Vec<LifeCell>,
    pub contrasts: Vec<Contrast>,
}

/// One agent under one history.
pub struct LifeCell {
    pub history: String,
    pub agent: String,
    /// The memory-free agent.
    pub is_baseline: bool,
    /// By sequence, then run.
    pub lives: Vec<Vec<Life>>,
    /// One summary a [`PathMetric`], over complete lives.
    pub summaries: Vec<PathSummary>,
    /// Mean probe score relative to p_warm, from the second occurrence on.
    pub curve: Vec<CurvePoint>,
    /// Graded executions, and executions, of complete lives.
    pub graded: usize,
    pub executions: usize,
    /// Steps that are stored, and that the plan asks for.
    pub stored: usize,
    pub planned: usize,
    pub usage: Usage,
}

/// One run of one sequence.
pub struct Life {
    pub sequence: u32,
    pub run: u32,
    pub probe: u32,
    /// `None` while steps are missing.
    pub metrics: Option<PathMetrics>,
    pub cold: Option<f64>,
    pub warm: Option<f64>,
    /// Relative to p_warm, from the second occurrence on; empty while steps are missing.
    pub curve: Vec<Option<f64>>,
    pub stored: usize,
    pub planned: usize,
    pub usage: Usage,
}

/// A point of a probe trajectory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// 2 is the warm probe.
    pub occurrence: u32,
    pub summary: PathSummary,
    /// Whether every sequence of the history has this occurrence: only those are drawn.
    pub is_common: bool,
}

/// A difference of two cells in one metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Contrast {
    pub kind: ContrastKind,
    pub agent: String,
    pub metric: PathMetric,
    pub value: Option<f64>,
    pub interval: Option<Interval>,
    /// Sequences compared (the smaller side when they are not paired).
    pub sequences: usize,
    /// Whether the difference was taken sequence by sequence.
    pub is_paired: bool,
}

/// Which two cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContrastKind {
    /// The agent minus the memory-free agent, on the same sequences and runs.
    Baseline { history: String },
    /// The agent minus the one that the run file compares it with, on the same sequences and runs.
    Against { history: String, other: String },
    /// The agent under one history minus the same agent under another.
    Histories { left: String, right: String },
}

pub(super) fn build(plan: SequencesPlan, stages: &Stages<'_>, seed: Seed) -> Sequences {
    let mut cells = Vec::new();
    for history in &plan.histories {
        for agent in &plan.agents {
            cells.push(cell(&plan, history, agent, stages, seed));
        }
    }
    let mut sequences = Sequences { plan, cells, contrasts: Vec::new() };
    sequences.contrasts = contrasts(&sequences, seed);
    sequences
}

impl Sequences {
    /// # Panics
    /// When the plan has no such cell.
    pub fn cell(&self, history: &str, agent: &str) -> &LifeCell {
        let is_it = |cell: &&LifeCell| cell.history == history && cell.agent == agent;
        self.cells.iter().find(is_it).expect("every history of the plan has every agent")
    }
}

impl LifeCell {
    pub fn summary(&self, metric: PathMetric) -> PathSummary {
        let index = PathMetric::ALL.iter().position(|other| *other == metric).expect("ALL holds every metric");
        self.summaries[index]
    }

    /// Lives whose steps are all stored, and lives planned.
    pub fn complete_lives(&self) -> (usize, usize) {
        let lives = || self.lives.iter().flatten();
        (lives().filter(|life| life.metrics.is_some()).count(), lives().count())
    }

    /// One value a sequence: the mean over its complete runs.
    fn per_sequence(&self, metric: PathMetric) -> Vec<Option<f64>> {
        let of_life = |life: &Life| life.metrics.and_then(|metrics| metrics.get(metric));
        self.lives.iter().map(|runs| mean(&runs.iter().filter_map(of_life).collect::<Vec<_>>())).collect()
    }
}

fn cell(plan: &SequencesPlan, history: &HistoryPlan, agent: &str, stages: &Stages<'_>, seed: Seed) -> LifeCell {
    let empty = BTreeMap::new();
    let records = stages.get(format!("sequence/{}/{agent}", history.name).as_str()).unwrap_or(&empty);
    let lives: Vec<Vec<Life>> = plan
        .lived(history, agent)
        .iter()
        .zip(0u32..)
        .map(|(planned, sequence)| (0..plan.runs).map(|run| life(planned, sequence, run, records)).collect())
        .collect();

    let key = |table: &str, row: u32| seed.derive(&format!("bootstrap/{table}/{}/{agent}", history.name), &[row]);
    let summaries = PathMetric::ALL
        .iter()
        .zip(0u32..)
        .map(|(metric, row)| {
            let of_life = |life: &Life| life.metrics.and_then(|metrics| metrics.get(*metric));
            summarise(&table(&lives, of_life), key("metrics", row))
        })
        .collect();
    let complete = || lives.iter().flatten().filter_map(|life| life.metrics);
    let mut usage = Usage::default();
    lives.iter().flatten().for_each(|life| usage += life.usage);
    LifeCell {
        history: history.name.clone(),
        agent: agent.to_string(),
        is_baseline: plan.baseline.as_deref() == Some(agent),
        summaries,
        curve: curve(history, &lives, |occurrence| key("probes", occurrence)),
        graded: complete().map(|metrics| metrics.graded).sum(),
        executions: complete().map(|metrics| metrics.of).sum(),
        stored: lives.iter().flatten().map(|life| life.stored).sum(),
        planned: lives.iter().flatten().map(|life| life.planned).sum(),
        usage,
        lives,
    }
}

fn life(planned: &SequencePlan, sequence: u32, run: u32, records: &BTreeMap<(u32, u32, u32), &AttemptRecord>) -> Life {
    let stored: Vec<(StepKind, &AttemptRecord)> = planned
        .steps
        .iter()
        .zip(0u32..)
        .filter_map(|(step, index)| Some((step.kind, *records.get(&(sequence, index, run))?)))
        .collect();
    let executions: Vec<(StepKind, Option<f64>)> =
        stored.iter().map(|(kind, record)| (*kind, record.score.graded())).collect();
    let is_complete = stored.len() == planned.steps.len();
    let first = |wanted| executions.iter().find(|(kind, _)| *kind == wanted).and_then(|(_, score)| *score);
    let mut usage = Usage::default();
    stored.iter().for_each(|(_, record)| usage += record.attempt.usage);
    Life {
        sequence,
        run,
        probe: planned.probe,
        metrics: is_complete.then(|| path_metrics(&executions)),
        cold: first(StepKind::ColdProbe),
        warm: first(StepKind::WarmProbe),
        curve: if is_complete { probe_curve(&executions) } else { Vec::new() },
        stored: stored.len(),
        planned: planned.steps.len(),
        usage,
    }
}

/// `values[sequence][run]`.
fn table(lives: &[Vec<Life>], value: impl Fn(&Life) -> Option<f64>) -> Vec<Vec<Option<f64>>> {
    lives.iter().map(|runs| runs.iter().map(&value).collect()).collect()
}

fn curve(history: &HistoryPlan, lives: &[Vec<Life>], key: impl Fn(u32) -> Seed) -> Vec<CurvePoint> {
    let probes = |sequence: &SequencePlan| sequence.steps.iter().filter(|step| step.kind.is_probe()).count();
    let most = history.sequences.iter().map(probes).max().unwrap_or(0) as u32;
    let common = history.sequences.iter().map(probes).min().unwrap_or(0) as u32;
    (2..=most)
        .map(|occurrence| CurvePoint {
            occurrence,
            summary: summarise(
                &table(lives, |life| life.curve.get(occurrence as usize - 2).copied().flatten()),
                key(occurrence),
            ),
            is_common: occurrence <= common,
        })
        .collect()
}

fn contrasts(sequences: &Sequences, seed: Seed) -> Vec<Contrast> {
    let plan = &sequences.plan;
    let mut contrasts = Vec::new();
    for history in &plan.histories {
        let Some(baseline) = &plan.baseline else { break };
        for agent in plan.agents.iter().filter(|agent| *agent != baseline) {
            let (cell, baseline) = (sequences.cell(&history.name, agent), sequences.cell(&history.name, baseline));
            let kind = ContrastKind::Baseline { history: history.name.clone() };
            contrasts.extend(PathMetric::ALL.map(|metric| against(cell, baseline, &kind, metric, seed)));
        }
    }
    for history in &plan.histories {
        for paired in &plan.paired {
            let Some(other) = &paired.against else { continue };
            let (cell, of) = (sequences.cell(&history.name, &paired.agent), sequences.cell(&history.name, other));
            let kind = ContrastKind::Against { history: history.name.clone(), other: other.clone() };
            contrasts.extend(PathMetric::ALL.map(|metric| against(cell, of, &kind, metric, seed)));
        }
    }
    for (index, left) in plan.histories.iter().enumerate() {
        for right in &plan.histories[index + 1..] {
            let is_paired = probes(left) == probes(right);
            for agent in &plan.agents {
                let (left, right) = (sequences.cell(&left.name, agent), sequences.cell(&right.name, agent));
                contrasts.extend(PathMetric::ALL.map(|metric| between(left, right, metric, is_paired, seed)));
            }
        }
    }
    contrasts
}

fn probes(history: &HistoryPlan) -> Vec<u32> {
    history.sequences.iter().map(|sequence| sequence.probe).collect()
}

/// Run by run on the same sequences, then over runs, then over sequences.
fn against(cell: &LifeCell, other: &LifeCell, kind: &ContrastKind, metric: PathMetric, seed: Seed) -> Contrast {
    let of_life = |life: &Life| life.metrics.and_then(|metrics| metrics.get(metric));
    let differences: Vec<Vec<Option<f64>>> = cell
        .lives
        .iter()
        .zip(&other.lives)
        .map(|(ours, theirs)| {
            let difference = |(ours, theirs): (&Life, &Life)| Some(of_life(ours)? - of_life(theirs)?);
            ours.iter().zip(theirs).map(difference).collect()
        })
        .collect();
    let purpose = match kind {
        ContrastKind::Against { other, .. } => format!("bootstrap/pair/{}/{}/{other}", cell.history, cell.agent),
        _ => format!("bootstrap/contrast/{}/{}", cell.history, cell.agent),
    };
    let summary = summarise(&differences, seed.derive(&purpose, &[metric as u32]));
    Contrast {
        kind: kind.clone(),
        agent: cell.agent.clone(),
        metric,
        value: summary.value,
        interval: summary.interval,
        sequences: summary.sequences,
        is_paired: true,
    }
}

/// Sequence by sequence when both histories have the same probe at every index, else between independent groups.
fn between(left: &LifeCell, right: &LifeCell, metric: PathMetric, is_paired: bool, seed: Seed) -> Contrast {
    let purpose = format!("bootstrap/histories/{}/{}/{}", left.history, right.history, left.agent);
    let key = seed.derive(&purpose, &[metric as u32]);
    let (lefts, rights) = (left.per_sequence(metric), right.per_sequence(metric));
    let (value, interval, sequences) = if is_paired {
        let pairs = lefts.iter().zip(&rights);
        let differences: Vec<Vec<Option<f64>>> =
            pairs.map(|(left, right)| vec![left.zip(*right).map(|(left, right)| left - right)]).collect();
        let summary = summarise(&differences, key);
        (summary.value, summary.interval, summary.sequences)
    } else {
        let (lefts, rights): (Vec<f64>, Vec<f64>) =
            (lefts.into_iter().flatten().collect(), rights.into_iter().flatten().collect());
        let value = mean(&lefts).zip(mean(&rights)).map(|(left, right)| left - right);
        (value, difference_interval(&lefts, &rights, key), lefts.len().min(rights.len()))
    };
    let kind = ContrastKind::Histories { left: left.history.clone(), right: right.history.clone() };
    Contrast { kind, agent: left.agent.clone(), metric, value, interval, sequences, is_paired }
}
