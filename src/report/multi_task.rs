//! What prefixes of several demonstrations did to their targets (PATH-Bench, figure 7).

use crate::metric::{Interval, mean, mean_gain, mean_interval};
use crate::record::experiment::{MultiTaskPlan, PrefixKind};
use crate::seed::Seed;

use super::data::Stages;

/// All of the stage.
pub struct MultiTask {
    pub plan: MultiTaskPlan,
    /// By kind, then length.
    pub rows: Vec<PrefixGain>,
    pub stored: usize,
    pub planned: usize,
}

/// Mean gain of prefixes of one kind and length.
#[derive(Clone, Debug, PartialEq)]
pub struct PrefixGain {
    pub kind: PrefixKind,
    pub length: u32,
    /// Mean over prefixes of mean over seeds, then over targets.
    pub value: Option<f64>,
    /// Resampling targets, each with all its prefixes.
    pub interval: Option<Interval>,
    /// Targets that have a value.
    pub targets: usize,
    /// Attempts graded, and planned.
    pub graded: usize,
    pub of: usize,
}

impl MultiTask {
    pub fn row(&self, kind: PrefixKind, length: u32) -> Option<&PrefixGain> {
        self.rows.iter().find(|row| row.kind == kind && row.length == length)
    }

    /// Whether positive prefixes help and negative ones mislead at this length; `None` while one of the means is missing.
    pub fn holds(&self, length: u32) -> Option<bool> {
        let value = |kind| self.row(kind, length).and_then(|row| row.value);
        Some(value(PrefixKind::Positive)? > 0.0 && value(PrefixKind::Negative)? < 0.0)
    }
}

pub(super) fn build(plan: MultiTaskPlan, stages: &Stages<'_>, seed: Seed) -> MultiTask {
    let score = |stage: &str, place: (u32, u32, u32)| stages.get(stage)?.get(&place)?.score.graded();
    let baseline = format!("matrix/{}", plan.model);
    let mut rows = Vec::new();
    for (kind, at) in PrefixKind::ALL.into_iter().zip(0u32..) {
        for length in &plan.lengths {
            let stage = MultiTaskPlan::stage(kind, *length);
            let mut by_target: Vec<Vec<f64>> = vec![Vec::new(); plan.targets.len()];
            let (mut graded, mut of) = (0, 0);
            let is_row = |kind_of, shown: &[u32]| kind_of == kind && shown.len() == *length as usize;
            for prefix in plan.prefixes.iter().filter(|prefix| is_row(prefix.kind, &prefix.shown)) {
                let target = plan.targets[prefix.target as usize];
                let scores = |stage: &str, sequence| -> Vec<Option<f64>> {
                    (0..plan.seeds).map(|attempt| score(stage, (sequence, target, attempt))).collect()
                };
                let with = scores(&stage, plan.sequence_of(prefix));
                graded += with.iter().flatten().count();
                of += with.len();
                by_target[prefix.target as usize].extend(mean_gain(&with, &scores(&baseline, 0)));
            }
            let means: Vec<f64> = by_target.iter().filter_map(|gains| mean(gains)).collect();
            rows.push(PrefixGain {
                kind,
                length: *length,
                value: mean(&means),
                interval: mean_interval(&means, seed.derive("bootstrap/multi_task", &[at, *length])),
                targets: means.len(),
                graded,
                of,
            });
        }
    }
    let stored = stages.iter().filter(|(stage, _)| stage.starts_with("multi_task/")).map(|(_, rows)| rows.len()).sum();
    let planned = plan.prefixes.len() * plan.seeds as usize;
    MultiTask { plan, rows, stored, planned }
}
