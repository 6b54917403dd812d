//! Transfer gains of one model: zero-shot scores, every ordered pair, and what families have to do with it.

use std::collections::BTreeMap;

use crate::metric::{Gain, Interval, Mean, Stop, mean, mean_interval, mean_of, sign, stop, transfer_gain};
use crate::record::AttemptRecord;
use crate::record::plan::{PoolPlan, Relation, Stopping, VotePlan};
use crate::seed::Seed;

use super::data::Stages;

/// All of one model's matrix.
pub struct ModelMatrix {
    pub model: String,
    /// One entry a task that is attempted alone: all of the pool, or those with headroom where it was read from a file.
    pub zero_shot: Vec<ZeroShot>,
    /// Every ordered pair of kept tasks, by source, then target; the diagonal is left out.
    pub pairs: Vec<Pair>,
    /// Pairs inside one family and across families; empty when the pool has no families.
    pub families: Vec<FamilyGain>,
    /// Attempts that are stored, and that the plan asks for.
    pub stored: usize,
    pub planned: usize,
}

/// S(j | nothing).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ZeroShot {
    pub task: u32,
    pub is_kept: bool,
    pub mean: Mean,
    /// Resampling seeds.
    pub interval: Option<Interval>,
}

/// One ordered pair: task `source` is demonstrated in front of task `target`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    pub source: u32,
    pub target: u32,
    /// S(target | source).
    pub with: Mean,
    pub gain: Gain,
    /// Seeds stored, without a gap from the first.
    pub drawn: usize,
    /// Where the pair stopped, under a stopping rule; its gain is over the seeds up to there.
    pub stop: Option<Stop>,
    pub vote: Option<Relation>,
}

impl Pair {
    pub fn sign(&self) -> Option<Relation> {
        self.gain.value.map(sign)
    }

    /// +1 or −1 when the interval excludes zero, 0 otherwise.
    pub fn certain_sign(&self) -> i8 {
        match self.gain.interval {
            Some(interval) if interval.low > 0.0 => 1,
            Some(interval) if interval.high < 0.0 => -1,
            _ => 0,
        }
    }
}

/// Mean gain over pairs of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct FamilyGain {
    pub name: &'static str,
    pub value: Option<f64>,
    /// Resampling target tasks, each with all its pairs.
    pub interval: Option<Interval>,
    pub pairs: usize,
    pub targets: usize,
}

/// What of the config decides which attempts a matrix has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    /// When the seeds of a pair stop.
    pub stopping: Option<Stopping>,
    /// Whether headroom was read from a file: only the tasks that stayed are attempted alone.
    pub is_headroom_given: bool,
}

/// The matrices of all models of the pool.
pub(super) fn build(
    pool: &PoolPlan,
    asked: Asked,
    vote: Option<&VotePlan>,
    stages: &Stages<'_>,
    seed: Seed,
) -> Vec<ModelMatrix> {
    let models = (0u32..).zip(&pool.models);
    models.map(|(index, model)| model_matrix(pool, asked, vote, stages, seed, (index, model))).collect()
}

fn model_matrix(
    pool: &PoolPlan,
    asked: Asked,
    vote: Option<&VotePlan>,
    stages: &Stages<'_>,
    seed: Seed,
    (index, model): (u32, &str),
) -> ModelMatrix {
    let empty = BTreeMap::new();
    let records = stages.get(format!("matrix/{model}").as_str()).unwrap_or(&empty);
    let key = |table: &str, row: &[u32]| seed.derive(&format!("bootstrap/{table}/{model}"), row);

    let tasks = pool.tasks.len() as u32;
    let baselines: Vec<Vec<Option<f64>>> = (0..tasks).map(|task| scores(records, 0, task, pool.seeds)).collect();
    let zero_shot: Vec<ZeroShot> = (0..tasks)
        .filter(|task| !asked.is_headroom_given || pool.kept.contains(task))
        .map(|task| {
            let baseline = &baselines[task as usize];
            let graded: Vec<f64> = baseline.iter().copied().flatten().collect();
            ZeroShot {
                task,
                is_kept: pool.kept.contains(&task),
                mean: mean_of(baseline),
                interval: mean_interval(&graded, key("zero_shot", &[task])),
            }
        })
        .collect();

    let mut pairs = Vec::new();
    for source in &pool.kept {
        for target in pool.kept.iter().filter(|target| *target != source) {
            let all = scores(records, source + 1, *target, pool.seeds);
            let baseline = &baselines[*target as usize];
            let is_stored = |seed: &u32| records.contains_key(&(source + 1, *target, *seed));
            let drawn = (0..pool.seeds).take_while(is_stored).count();
            let stop = asked.stopping.and_then(|rule| stop(&all[..drawn], baseline, rule));
            let seeds = stop.map_or(all.len(), |stop| stop.seeds);
            let with = &all[..seeds];
            pairs.push(Pair {
                source: *source,
                target: *target,
                with: mean_of(with),
                gain: transfer_gain(with, &baseline[..seeds], key("gains", &[*source, *target])),
                drawn,
                stop,
                vote: vote.and_then(|vote| vote.relations.get(*source as usize, *target as usize)),
            });
        }
    }
    let families = family_gains(pool, &pairs, seed.derive("bootstrap/families", &[index]));
    let planned = zero_shot.len() * pool.seeds as usize + pairs.iter().map(|pair| pair.gain.of).sum::<usize>();
    ModelMatrix { model: model.to_string(), zero_shot, pairs, families, stored: records.len(), planned }
}

/// One score a seed; `None` where it is ungraded or not stored.
fn scores(
    records: &BTreeMap<(u32, u32, u32), &AttemptRecord>,
    sequence: u32,
    target: u32,
    seeds: u32,
) -> Vec<Option<f64>> {
    let score = |attempt| records.get(&(sequence, target, attempt)).and_then(|record| record.score.graded());
    (0..seeds).map(score).collect()
}

fn family_gains(pool: &PoolPlan, pairs: &[Pair], seed: Seed) -> Vec<FamilyGain> {
    let family = |task: u32| pool.tasks[task as usize].family.as_deref();
    if pool.kept.iter().all(|task| family(*task).is_none()) {
        return Vec::new();
    }
    let is_inside = |pair: &Pair| family(pair.source).is_some() && family(pair.source) == family(pair.target);
    [("same family", true), ("other family", false)]
        .into_iter()
        .zip(0u32..)
        .map(|((name, wanted), row)| {
            let mut by_target: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
            for pair in pairs.iter().filter(|pair| is_inside(pair) == wanted) {
                by_target.entry(pair.target).or_default().extend(pair.gain.value);
            }
            let means: Vec<f64> = by_target.values().filter_map(|gains| mean(gains)).collect();
            FamilyGain {
                name,
                value: mean(&means),
                interval: mean_interval(&means, seed.derive("kind", &[row])),
                pairs: by_target.values().map(Vec::len).sum(),
                targets: means.len(),
            }
        })
        .collect()
}
