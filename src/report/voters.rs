//! How far each voter agrees with the vote it took part in (PATH-Bench, table 3).

use std::ops::Range;

use crate::metric::{Interval, logprob_gains, mean_gain, ratio_interval, seed_groups, sign};
use crate::record::plan::{PoolPlan, Relation, VoteMeasure, VotePlan};
use crate::seed::Seed;

use super::data::Stages;

/// One voter.
#[derive(Clone, Debug, PartialEq)]
pub struct VoterAgreement {
    pub voter: String,
    /// The backbone that it is, or whose seeds it is a group of.
    pub model: String,
    /// Share of decided pairs where its own sign is the voted one.
    pub value: Option<f64>,
    /// Resampling targets, each with all its pairs.
    pub interval: Option<Interval>,
    /// Pairs counted: decided by the vote, and graded for this voter.
    pub pairs: usize,
}

/// How many pairs were decided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decided {
    pub value: Option<f64>,
    /// Resampling targets.
    pub interval: Option<Interval>,
    pub decided: usize,
    pub pairs: usize,
}

/// The share of ordered pairs with a positive, neutral or negative vote.
pub(super) fn decided(pool: &PoolPlan, vote: &VotePlan, seed: Seed) -> Decided {
    let mut units = Vec::new();
    for target in &pool.kept {
        let relations: Vec<Relation> =
            sources(pool, *target).filter_map(|source| vote.relations.get(source as usize, *target as usize)).collect();
        let decided = relations.iter().filter(|relation| **relation != Relation::Mixed).count();
        units.push((decided as f64, relations.len() as f64));
    }
    let sum = |value: &dyn Fn(&(f64, f64)) -> f64| units.iter().map(value).sum::<f64>();
    let (decided, pairs) = (sum(&|unit| unit.0), sum(&|unit| unit.1));
    Decided {
        value: (pairs > 0.0).then(|| decided / pairs),
        interval: ratio_interval(&units, seed.derive("bootstrap/decided", &[])),
        decided: decided as usize,
        pairs: pairs as usize,
    }
}

/// One row a voter, in the vote's order.
pub(super) fn agreements(pool: &PoolPlan, vote: &VotePlan, stages: &Stages<'_>, seed: Seed) -> Vec<VoterAgreement> {
    if pool.models.is_empty() || !vote.voters.len().is_multiple_of(pool.models.len()) {
        return Vec::new();
    }
    let groups = seed_groups(pool.seeds as usize, (vote.voters.len() / pool.models.len()).max(1));
    let voters = pool.models.iter().flat_map(|model| groups.iter().map(move |seeds| (model, seeds.clone())));
    voters
        .zip(&vote.voters)
        .zip(0u32..)
        .map(|(((model, seeds), voter), at)| {
            let mut units = Vec::new();
            for target in &pool.kept {
                let (mut equal, mut counted) = (0.0, 0.0);
                for (source, gain) in sources(pool, *target).zip(gains(pool, vote.by, stages, (model, &seeds), *target))
                {
                    let voted = vote.relations.get(source as usize, *target as usize);
                    let (Some(voted), Some(own)) = (voted.filter(|voted| *voted != Relation::Mixed), gain.map(sign))
                    else {
                        continue;
                    };
                    counted += 1.0;
                    equal += f64::from(u8::from(own == voted));
                }
                units.push((equal, counted));
            }
            let (equal, counted) = units.iter().fold((0.0, 0.0), |sum, unit| (sum.0 + unit.0, sum.1 + unit.1));
            VoterAgreement {
                voter: voter.clone(),
                model: model.clone(),
                value: (counted > 0.0).then(|| equal / counted),
                interval: ratio_interval(&units, seed.derive("bootstrap/agreement", &[at])),
                pairs: counted as usize,
            }
        })
        .collect()
}

/// A voter's own gains of one target, in the order of [`sources`].
fn gains(
    pool: &PoolPlan,
    by: VoteMeasure,
    stages: &Stages<'_>,
    (model, seeds): (&str, &Range<usize>),
    target: u32,
) -> Vec<Option<f64>> {
    let stage = if by.is_score() { format!("matrix/{model}") } else { format!("logprob/{model}") };
    let records = stages.get(stage.as_str());
    let grade = |sequence: u32, seed: u32| records?.get(&(sequence, target, seed))?.score.graded();
    if by.is_score() {
        let scores =
            |sequence: u32| -> Vec<Option<f64>> { seeds.clone().map(|seed| grade(sequence, seed as u32)).collect() };
        let alone = scores(0);
        return sources(pool, target).map(|source| mean_gain(&scores(source + 1), &alone)).collect();
    }
    let rated = |sequence: u32| Some(grade(sequence, 0)?.ln());
    let behind: Vec<Option<f64>> = sources(pool, target).map(|source| rated(source + 1)).collect();
    logprob_gains(by, rated(0), &behind)
}

fn sources(pool: &PoolPlan, target: u32) -> impl Iterator<Item = u32> + '_ {
    pool.kept.iter().copied().filter(move |source| *source != target)
}
