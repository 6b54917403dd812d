//! Classic task-matrix metrics of agents that learned the same tasks in several orders, and how their ranks move
//! (PATH-Bench, figure 1). Not the probe metrics of the same names.

use crate::metric::{Interval, TaskMatrix, kendall_tau_b, mean, mean_interval, ranks, task_matrix};
use crate::record::experiment::{OrdersPlan, PathPlan};
use crate::seed::Seed;

use super::data::Stages;

/// All of the stage.
pub struct Orders {
    pub plan: OrdersPlan,
    /// By path, then agent.
    pub cells: Vec<OrderCell>,
    /// One entry a [`MatrixMetric`].
    pub rankings: Vec<Ranking>,
}

/// One agent on one path.
#[derive(Clone, Debug, PartialEq)]
pub struct OrderCell {
    pub path: String,
    pub agent: String,
    /// By run; `None` while an attempt is missing or ungraded.
    pub runs: Vec<Option<TaskMatrix>>,
    /// One summary a [`MatrixMetric`]: mean over runs, with the interval that resamples runs.
    pub summaries: Vec<(Option<f64>, Option<Interval>)>,
    pub stored: usize,
    pub graded: usize,
    pub planned: usize,
}

/// Ranks of all agents in one metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranking {
    pub metric: MatrixMetric,
    /// `ranks[path][agent]`, 1 is best, ties share the smaller rank; empty while an agent has no value.
    pub ranks: Vec<Vec<usize>>,
    /// Kendall's tau-b of the first two paths.
    pub tau: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatrixMetric {
    Ap,
    Fwt,
    Bwt,
    Fgt,
}

impl MatrixMetric {
    pub const ALL: [MatrixMetric; 4] = [MatrixMetric::Ap, MatrixMetric::Fwt, MatrixMetric::Bwt, MatrixMetric::Fgt];

    /// Name in files, the published figure's too.
    pub fn as_str(self) -> &'static str {
        match self {
            MatrixMetric::Ap => "ap",
            MatrixMetric::Fwt => "fwt",
            MatrixMetric::Bwt => "bwt",
            MatrixMetric::Fgt => "fgt",
        }
    }

    fn of(self, metrics: &TaskMatrix) -> Option<f64> {
        match self {
            MatrixMetric::Ap => metrics.final_accuracy,
            MatrixMetric::Fwt => metrics.forward,
            MatrixMetric::Bwt => metrics.backward,
            MatrixMetric::Fgt => metrics.forgetting,
        }
    }

    /// What ranks high: little forgetting, much of everything else.
    fn merit(self, value: f64) -> f64 {
        if self == MatrixMetric::Fgt { -value } else { value }
    }
}

impl Orders {
    pub fn cell(&self, path: &str, agent: &str) -> Option<&OrderCell> {
        self.cells.iter().find(|cell| cell.path == path && cell.agent == agent)
    }
}

impl OrderCell {
    pub fn summary(&self, metric: MatrixMetric) -> (Option<f64>, Option<Interval>) {
        self.summaries[MatrixMetric::ALL.iter().position(|other| *other == metric).unwrap_or(0)]
    }
}

pub(super) fn build(plan: OrdersPlan, stages: &Stages<'_>, seed: Seed) -> Orders {
    let mut cells = Vec::new();
    for path in &plan.paths {
        for agent in &plan.agents {
            cells.push(cell(&plan, path, agent, stages, seed));
        }
    }
    let rankings = MatrixMetric::ALL.map(|metric| ranking(&plan, &cells, metric)).to_vec();
    Orders { plan, cells, rankings }
}

fn cell(plan: &OrdersPlan, path: &PathPlan, agent: &str, stages: &Stages<'_>, seed: Seed) -> OrderCell {
    let stage = OrdersPlan::stage(&path.name, agent);
    let records = stages.get(stage.as_str());
    let score = |row: u32, task: u32, run: u32| records?.get(&(row, task, run))?.score.graded();
    let tasks = path.tasks.len() as u32;
    let row =
        |row: u32, run: u32| -> Option<Vec<f64>> { path.tasks.iter().map(|task| score(row, *task, run)).collect() };
    let runs: Vec<Option<TaskMatrix>> = (0..plan.runs)
        .map(|run| {
            let baseline = row(0, run)?;
            let scores = (1..=tasks).map(|learned| row(learned, run)).collect::<Option<Vec<_>>>()?;
            Some(task_matrix(&scores, Some(&baseline)))
        })
        .collect();
    let summaries = MatrixMetric::ALL
        .iter()
        .zip(0u32..)
        .map(|(metric, at)| {
            let values: Vec<f64> = runs.iter().flatten().filter_map(|run| metric.of(run)).collect();
            (mean(&values), mean_interval(&values, seed.derive(&format!("bootstrap/{stage}"), &[at])))
        })
        .collect();
    let graded = records.map_or(0, |rows| rows.values().filter(|record| record.score.graded().is_some()).count());
    OrderCell {
        path: path.name.clone(),
        agent: agent.to_string(),
        runs,
        summaries,
        stored: records.map_or(0, |rows| rows.len()),
        graded,
        planned: ((tasks + 1) * tasks * plan.runs) as usize,
    }
}

fn ranking(plan: &OrdersPlan, cells: &[OrderCell], metric: MatrixMetric) -> Ranking {
    let merits = |path: &PathPlan| -> Option<Vec<f64>> {
        let of_path = cells.iter().filter(|cell| cell.path == path.name);
        of_path.map(|cell| cell.summary(metric).0.map(|value| metric.merit(value))).collect()
    };
    let Some(merits) = plan.paths.iter().map(merits).collect::<Option<Vec<Vec<f64>>>>() else {
        return Ranking { metric, ranks: Vec::new(), tau: None };
    };
    let tau = match merits.as_slice() {
        [first, second, ..] => kendall_tau_b(first, second),
        _ => None,
    };
    Ranking { metric, ranks: merits.iter().map(|merits| ranks(merits)).collect(), tau }
}
