//! How far each voter agrees with the vote it took part in (PATH-Bench, table 3).

use std::collections::BTreeMap;

use crate::metric::{Interval, mean_gain, ratio_interval, seed_groups, sign};
use crate::record::plan::{PoolPlan, Relation, VotePlan};
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
    let empty = BTreeMap::new();
    voters
        .zip(&vote.voters)
        .zip(0u32..)
        .map(|(((model, seeds), voter), at)| {
            let records = stages.get(format!("matrix/{model}").as_str()).unwrap_or(&empty);
            let scores = |sequence: u32, target: u32| -> Vec<Option<f64>> {
                let score = |seed: usize| records.get(&(sequence, target, seed as u32))?.score.graded();
                seeds.clone().map(score).collect()
            };
            let mut units = Vec::new();
            for target in &pool.kept {
                let baseline = scores(0, *target);
                let (mut equal, mut counted) = (0.0, 0.0);
                for source in sources(pool, *target) {
                    let voted = vote.relations.get(source as usize, *target as usize);
                    let own = mean_gain(&scores(source + 1, *target), &baseline).map(sign);
                    let (Some(voted), Some(own)) = (voted.filter(|voted| *voted != Relation::Mixed), own) else {
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

fn sources(pool: &PoolPlan, target: u32) -> impl Iterator<Item = u32> + '_ {
    pool.kept.iter().copied().filter(move |source| *source != target)
}
