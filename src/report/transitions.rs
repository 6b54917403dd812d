//! What an interval did to the next probe (PATH-Bench, figure 5).

use crate::metric::{PathSummary, summarise};
use crate::record::plan::SequencesPlan;
use crate::seed::Seed;

use super::data::Stages;

/// All of the stage.
pub struct Transitions {
    pub plan: SequencesPlan,
    /// By effect, then agent.
    pub rows: Vec<TransitionRow>,
    /// Attempts stored and planned, by agent.
    pub progress: Vec<(String, usize, usize)>,
}

/// A mean change of the probe's score.
#[derive(Clone, Debug, PartialEq)]
pub struct TransitionRow {
    pub effect: Effect,
    pub agent: String,
    /// Over runs (and the conditions that begin alike), then over sequences.
    pub summary: PathSummary,
}

/// Which change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Second probe minus first, of the conditions that begin with a positive interval.
    InitialPositive,
    /// The same of those that begin with a negative one.
    InitialNegative,
    /// Third probe minus second, where a negative interval follows a positive one.
    PositiveToNegative,
    NegativeToPositive,
    PositiveToPositive,
    NegativeToNegative,
}

impl Effect {
    /// In the order of the figure, then those that it does not show.
    pub const ALL: [Effect; 6] = [
        Effect::InitialPositive,
        Effect::InitialNegative,
        Effect::PositiveToNegative,
        Effect::NegativeToPositive,
        Effect::PositiveToPositive,
        Effect::NegativeToNegative,
    ];

    /// Name in files; the first four are columns of the published figure.
    pub fn as_str(self) -> &'static str {
        match self {
            Effect::InitialPositive => "initial_positive",
            Effect::InitialNegative => "initial_negative",
            Effect::PositiveToNegative => "pos_to_neg",
            Effect::NegativeToPositive => "neg_to_pos",
            Effect::PositiveToPositive => "pos_to_pos",
            Effect::NegativeToNegative => "neg_to_neg",
        }
    }

    /// Name for people.
    pub fn title(self) -> &'static str {
        match self {
            Effect::InitialPositive => "Initial positive interval",
            Effect::InitialNegative => "Initial negative interval",
            Effect::PositiveToNegative => "Positive, then negative",
            Effect::NegativeToPositive => "Negative, then positive",
            Effect::PositiveToPositive => "Positive, then positive",
            Effect::NegativeToNegative => "Negative, then negative",
        }
    }

    /// The conditions it is taken from, and the two probes (0-based) whose difference it is.
    fn parts(self) -> (&'static [&'static str], [usize; 2]) {
        match self {
            Effect::InitialPositive => (&["positive-positive", "positive-negative"], [1, 0]),
            Effect::InitialNegative => (&["negative-positive", "negative-negative"], [1, 0]),
            Effect::PositiveToNegative => (&["positive-negative"], [2, 1]),
            Effect::NegativeToPositive => (&["negative-positive"], [2, 1]),
            Effect::PositiveToPositive => (&["positive-positive"], [2, 1]),
            Effect::NegativeToNegative => (&["negative-negative"], [2, 1]),
        }
    }
}

impl Transitions {
    pub fn row(&self, effect: Effect, agent: &str) -> Option<&TransitionRow> {
        self.rows.iter().find(|row| row.effect == effect && row.agent == agent)
    }
}

pub(super) fn build(plan: SequencesPlan, stages: &Stages<'_>, seed: Seed) -> Transitions {
    let mut rows = Vec::new();
    for (effect, at) in Effect::ALL.into_iter().zip(0u32..) {
        for agent in &plan.agents {
            let values = differences(&plan, stages, effect, agent);
            let key = seed.derive(&format!("bootstrap/transition/{agent}"), &[at]);
            rows.push(TransitionRow { effect, agent: agent.clone(), summary: summarise(&values, key) });
        }
    }
    let progress = plan
        .agents
        .iter()
        .map(|agent| {
            let stage = |name: &str| format!("transition/{name}/{agent}");
            let stored = plan.histories.iter().filter_map(|history| stages.get(stage(&history.name).as_str()));
            let steps =
                plan.histories.iter().flat_map(|history| &history.sequences).map(|sequence| sequence.steps.len());
            (agent.clone(), stored.map(|rows| rows.len()).sum(), steps.sum::<usize>() * plan.runs as usize)
        })
        .collect();
    Transitions { plan, rows, progress }
}

/// By sequence, then condition and run.
fn differences(plan: &SequencesPlan, stages: &Stages<'_>, effect: Effect, agent: &str) -> Vec<Vec<Option<f64>>> {
    let (conditions, [later, earlier]) = effect.parts();
    let taken: Vec<_> = plan.histories.iter().filter(|history| conditions.contains(&history.name.as_str())).collect();
    let sequences = taken.iter().map(|history| history.sequences.len()).max().unwrap_or(0);
    (0..sequences)
        .map(|sequence| {
            let mut runs = Vec::new();
            for history in &taken {
                let probes: Vec<u32> = history.sequences[sequence]
                    .steps
                    .iter()
                    .zip(0u32..)
                    .filter(|(step, _)| step.kind.is_probe())
                    .map(|(_, place)| place)
                    .collect();
                let records = stages.get(format!("transition/{}/{agent}", history.name).as_str());
                let score =
                    |probe: usize, run: u32| records?.get(&(sequence as u32, *probes.get(probe)?, run))?.score.graded();
                runs.extend((0..plan.runs).map(|run| Some(score(later, run)? - score(earlier, run)?)));
            }
            runs
        })
        .collect()
}
