//! The four numbers of a probe-centred sequence: AP, FWT, BWT, FGT (PATH-Bench, metrics; specs: §8.4).
//!
//! Probe scores p_1 … p_n in order of occurrence, p_cold = p_1 before any experience, p_warm = p_2 after the warm-up:
//!
//! | metric | over one run | better |
//! |---|---|---|
//! | AP  | mean score of all executions, probes included | higher |
//! | FWT | mean over i ≥ 3 of p_i − p_cold | higher |
//! | BWT | mean over i ≥ 3 of max(0, p_i − p_warm) | higher |
//! | FGT | mean over i ≥ 3 of max(0, p_warm − p_i) | lower |
//!
//! so that in every run FWT = (p_warm − p_cold) + BWT − FGT. p_warm is one noisy score: BWT and FGT of an agent without
//! memory are not 0 when replies are sampled, so reports always print the memory-free agent beside the others. These
//! are not the task-matrix metrics of the same names, see [`super::task_matrix`].

use crate::record::plan::StepKind;
use crate::seed::Seed;

use super::bootstrap::{Interval, mean_interval};
use super::sum::mean;

/// A column of the tables: the paper's four, and the mean of the probe curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PathMetric {
    Ap,
    Fwt,
    Bwt,
    Fgt,
    /// Mean over i ≥ 3 of p_i − p_warm = BWT − FGT: how far the probe moved after the warm-up. Ours.
    Change,
}

impl PathMetric {
    /// In the order of every table.
    pub const ALL: [PathMetric; 5] =
        [PathMetric::Ap, PathMetric::Fwt, PathMetric::Bwt, PathMetric::Fgt, PathMetric::Change];

    /// Column name, lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            PathMetric::Ap => "ap",
            PathMetric::Fwt => "fwt",
            PathMetric::Bwt => "bwt",
            PathMetric::Fgt => "fgt",
            PathMetric::Change => "probe_change",
        }
    }
}

/// One run of one sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathMetrics {
    pub ap: Option<f64>,
    pub fwt: Option<f64>,
    pub bwt: Option<f64>,
    pub fgt: Option<f64>,
    pub change: Option<f64>,
    /// Executions with a graded score.
    pub graded: usize,
    /// Executions of the run.
    pub of: usize,
}

impl PathMetrics {
    pub fn get(&self, metric: PathMetric) -> Option<f64> {
        match metric {
            PathMetric::Ap => self.ap,
            PathMetric::Fwt => self.fwt,
            PathMetric::Bwt => self.bwt,
            PathMetric::Fgt => self.fgt,
            PathMetric::Change => self.change,
        }
    }
}

/// The metrics of one complete run, from its executions in order (`None`: ungraded).
///
/// Ungraded executions leave their means; without a graded p_cold there is no FWT, without a graded p_warm no BWT and
/// no FGT.
///
/// # Panics
/// When FWT is not (p_warm − p_cold) + BWT − FGT: the identity is asserted of every run, and breaking it is our bug.
pub fn path_metrics(executions: &[(StepKind, Option<f64>)]) -> PathMetrics {
    let graded: Vec<f64> = executions.iter().filter_map(|(_, score)| *score).collect();
    let first = |kind| executions.iter().find(|(found, _)| *found == kind).and_then(|(_, score)| *score);
    let cold = first(StepKind::ColdProbe);
    let warm = first(StepKind::WarmProbe);
    let later: Vec<f64> =
        executions.iter().filter(|(kind, _)| *kind == StepKind::Probe).filter_map(|(_, score)| *score).collect();
    let later_mean = |term: &dyn Fn(f64) -> f64| mean(&later.iter().map(|score| term(*score)).collect::<Vec<_>>());
    let metrics = PathMetrics {
        ap: mean(&graded),
        fwt: cold.and_then(|cold| later_mean(&|score| score - cold)),
        bwt: warm.and_then(|warm| later_mean(&|score| (score - warm).max(0.0))),
        fgt: warm.and_then(|warm| later_mean(&|score| (warm - score).max(0.0))),
        change: warm.and_then(|warm| later_mean(&|score| score - warm)),
        graded: graded.len(),
        of: executions.len(),
    };
    let parts = cold.zip(warm).zip(metrics.fwt.zip(metrics.bwt.zip(metrics.fgt)));
    assert!(
        parts.is_none_or(|((cold, warm), (fwt, (bwt, fgt)))| (fwt - ((warm - cold) + bwt - fgt)).abs() < 1e-9),
        "FWT is not (p_warm - p_cold) + BWT - FGT: this is a bug in lifelong: {metrics:?}"
    );
    metrics
}

/// Probe scores relative to p_warm, in order of occurrence from the second on (so the first entry is 0 where p_warm is
/// graded). `None` where an occurrence, or p_warm, is ungraded.
pub fn probe_curve(executions: &[(StepKind, Option<f64>)]) -> Vec<Option<f64>> {
    let probes: Vec<Option<f64>> =
        executions.iter().filter(|(kind, _)| kind.is_probe()).map(|(_, score)| *score).collect();
    let warm = probes.get(1).copied().flatten();
    probes.iter().skip(1).map(|score| Some((*score)? - warm?)).collect()
}

/// A mean over sequences of means over runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathSummary {
    pub value: Option<f64>,
    /// Resampling sequences, each with all its runs.
    pub interval: Option<Interval>,
    /// Runs that have a value, and runs there are.
    pub runs: usize,
    pub of_runs: usize,
    /// Sequences that have at least one such run, and sequences there are.
    pub sequences: usize,
    pub of_sequences: usize,
}

/// Mean over runs, then over sequences; `values[sequence][run]`.
pub fn summarise(values: &[Vec<Option<f64>>], seed: Seed) -> PathSummary {
    let per_sequence: Vec<f64> =
        values.iter().filter_map(|runs| mean(&runs.iter().copied().flatten().collect::<Vec<_>>())).collect();
    PathSummary {
        value: mean(&per_sequence),
        interval: mean_interval(&per_sequence, seed),
        runs: values.iter().flatten().flatten().count(),
        of_runs: values.iter().map(Vec::len).sum(),
        sequences: per_sequence.len(),
        of_sequences: values.len(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const COLD: StepKind = StepKind::ColdProbe;
    const WARM: StepKind = StepKind::WarmProbe;
    const LATER: StepKind = StepKind::Probe;

    fn run(cold: Option<f64>, warm: Option<f64>, later: &[Option<f64>]) -> Vec<(StepKind, Option<f64>)> {
        let mut executions = vec![(COLD, cold), (StepKind::WarmUp, Some(1.0)), (WARM, warm)];
        for score in later {
            executions.extend([(StepKind::Intervening, Some(0.0)), (LATER, *score)]);
        }
        executions
    }

    #[test]
    fn formulas_by_hand() {
        let metrics = path_metrics(&run(Some(0.25), Some(0.5), &[Some(1.0), Some(0.0), Some(0.75), Some(0.5)]));
        // p_i − p_cold: .75 −.25 .5 .25 → 1.25/4; over p_warm: .5 + .25 → .75/4; under: .5 → .5/4
        assert_eq!(metrics.fwt, Some(0.3125));
        assert_eq!(metrics.bwt, Some(0.1875));
        assert_eq!(metrics.fgt, Some(0.125));
        assert_eq!(metrics.change, Some(0.0625));
        assert_eq!(metrics.ap, Some((0.25 + 1.0 + 0.5 + 2.25) / 11.0));
        assert_eq!((metrics.graded, metrics.of), (11, 11));
    }

    #[test]
    fn an_ungraded_anchor_leaves_what_hangs_on_it_undefined() {
        let metrics = path_metrics(&run(None, Some(0.5), &[Some(1.0)]));
        assert_eq!((metrics.fwt, metrics.bwt, metrics.fgt), (None, Some(0.5), Some(0.0)));
        let metrics = path_metrics(&run(Some(0.0), None, &[Some(1.0)]));
        assert_eq!((metrics.fwt, metrics.bwt, metrics.fgt), (Some(1.0), None, None));
        assert_eq!((metrics.graded, metrics.of), (4, 5));
        assert_eq!(probe_curve(&run(Some(0.0), None, &[Some(1.0)])), [None, None]);
    }

    #[test]
    fn the_curve_starts_at_the_warm_probe() {
        let curve = probe_curve(&run(Some(0.0), Some(0.5), &[Some(1.0), None]));
        assert_eq!(curve, [Some(0.0), Some(0.5), None]);
    }

    #[test]
    fn sequences_weigh_the_same_whatever_their_runs() {
        let summary = summarise(&[vec![Some(1.0), Some(0.0), None], vec![Some(1.0)], vec![None]], Seed(1));
        assert_eq!(summary.value, Some(0.75));
        assert_eq!((summary.runs, summary.of_runs, summary.sequences, summary.of_sequences), (3, 5, 2, 3));
    }

    proptest! {
        #[test]
        fn forward_transfer_splits_into_its_parts(
            cold in 0.0f64..=1.0, warm in 0.0f64..=1.0,
            later in prop::collection::vec(prop::option::weighted(0.9, 0.0f64..=1.0), 1..20)
        ) {
            let metrics = path_metrics(&run(Some(cold), Some(warm), &later));
            match (metrics.fwt, metrics.bwt, metrics.fgt) {
                (Some(fwt), Some(bwt), Some(fgt)) => prop_assert!((fwt - ((warm - cold) + bwt - fgt)).abs() < 1e-12),
                other => prop_assert!(later.iter().all(Option::is_none), "{:?}", other),
            }
        }
    }
}
