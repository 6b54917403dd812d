//! The stage `vote`: the relation of every ordered pair from its gains (PATH-Bench §4.1).
//!
//! Each backbone votes with the sign of its mean gain. With one backbone its sign decides, or, where the config asks for
//! it, groups of its seeds vote in place of backbones. Where a backbone solves too little for scores to differ, its gains
//! may be taken from the log-probabilities of the references instead.

use std::collections::BTreeMap;
use std::ops::Range;

use super::logprob;
use super::matrix::Unit;
use crate::config::VoteConfig;
use crate::metric;
use crate::record::plan::{PoolPlan, Relations, VotePlan};
use crate::record::{AttemptRecord, Coord};

/// One voter: a model and the seeds it votes with.
struct Voter<'a> {
    model: &'a str,
    seeds: Range<usize>,
}

/// Votes over all pairs of kept tasks.
pub fn vote(pool: &PoolPlan, records: &[AttemptRecord], config: &VoteConfig) -> VotePlan {
    let grades: BTreeMap<&Coord, Option<f64>> =
        records.iter().map(|record| (&record.coord, record.score.graded())).collect();
    let groups = metric::seed_groups(pool.seeds as usize, config.seed_groups as usize);
    let voters: Vec<Voter<'_>> = pool
        .models
        .iter()
        .flat_map(|model| groups.iter().map(move |seeds| Voter { model, seeds: seeds.clone() }))
        .collect();

    let mut relations = Relations::undecided(pool.tasks.len());
    for target in &pool.kept {
        let sources: Vec<u32> = pool.kept.iter().copied().filter(|source| source != target).collect();
        let by_voter: Vec<Vec<Option<f64>>> =
            voters.iter().map(|voter| gains(&grades, voter, config, &sources, *target)).collect();
        for (at, source) in sources.iter().enumerate() {
            let gains: Vec<Option<f64>> = by_voter.iter().map(|gains| gains[at]).collect();
            relations.set(*source as usize, *target as usize, metric::vote(&gains));
        }
    }
    let name = |voter: &Voter<'_>| match config.seed_groups {
        1 => voter.model.to_string(),
        _ => format!("{} seeds {}..{}", voter.model, voter.seeds.start, voter.seeds.end),
    };
    VotePlan { voters: voters.iter().map(name).collect(), by: config.by, relations }
}

/// A voter's gains of one target, source by source.
fn gains(
    grades: &BTreeMap<&Coord, Option<f64>>,
    voter: &Voter<'_>,
    config: &VoteConfig,
    sources: &[u32],
    target: u32,
) -> Vec<Option<f64>> {
    let found = |coord: &Coord| grades.get(coord).copied().flatten();
    let unit = |demonstration: Option<u32>, seed: u32| Unit { demonstration, target, seed };
    if config.by.is_score() {
        let scores = |demonstration: Option<u32>| -> Vec<Option<f64>> {
            voter.seeds.clone().map(|seed| found(&unit(demonstration, seed as u32).coord(voter.model))).collect()
        };
        let alone = scores(None);
        return sources.iter().map(|source| metric::mean_gain(&scores(Some(*source)), &alone)).collect();
    }
    // The score of a rated reference is the probability of its tokens.
    let rated = |demonstration: Option<u32>| Some(found(&logprob::coord(unit(demonstration, 0), voter.model))?.ln());
    let behind: Vec<Option<f64>> = sources.iter().map(|source| rated(Some(*source))).collect();
    metric::logprob_gains(config.by, rated(None), &behind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::plan::{PoolTask, Relation, VoteMeasure};
    use crate::record::{Attempt, Ending, Score, TaskId, Usage};
    use crate::run::matrix;

    fn record(coord: Coord, score: f64) -> AttemptRecord {
        AttemptRecord {
            coord,
            task: TaskId("t".into()),
            attempt: Attempt {
                turns: Vec::new(),
                answer: None,
                ending: Ending::Finished,
                usage: Usage::default(),
                recalled: Vec::new(),
                dropped_memories: 0,
                votes: Vec::new(),
            },
            score: Score::Graded(score),
            detail: String::new(),
            memory: None,
            memory_work: Default::default(),
        }
    }

    /// Three tasks, two seeds; `score(model, demonstration, target, seed)` decides every grade.
    fn voted(models: &[&str], seed_groups: u32, score: impl Fn(&str, Option<u32>, u32, u32) -> f64) -> VotePlan {
        let pool = pool(models);
        let mut records = Vec::new();
        for model in models {
            for unit in matrix::zero_shot(&[0, 1, 2], 2).into_iter().chain(matrix::one_shot(&[0, 1, 2], 2)) {
                records.push(record(unit.coord(model), score(model, unit.demonstration, unit.target, unit.seed)));
            }
        }
        vote(&pool, &records, &VoteConfig { seed_groups, ..VoteConfig::default() })
    }

    fn pool(models: &[&str]) -> PoolPlan {
        PoolPlan {
            tasks: (0..3).map(|_| PoolTask { id: TaskId("t".into()), family: None }).collect(),
            kept: vec![0, 1, 2],
            models: models.iter().map(|model| model.to_string()).collect(),
            seeds: 2,
        }
    }

    /// Nothing is ever solved, and every demonstration makes every reference likelier: scores name no direction, the
    /// log-probability names one, and over the median both.
    #[test]
    fn log_probabilities_tell_apart_what_a_backbone_never_solves() {
        let mut records = Vec::new();
        for unit in matrix::zero_shot(&[0, 1, 2], 2).into_iter().chain(matrix::one_shot(&[0, 1, 2], 2)) {
            records.push(record(unit.coord("m"), 0.0));
        }
        for unit in logprob::units(&[0, 1, 2]) {
            let chance = match unit.demonstration {
                None => 0.1,
                Some(source) if source > unit.target => 0.4,
                Some(_) => 0.2,
            };
            records.push(record(logprob::coord(unit, "m"), chance));
        }
        let voted = |by| vote(&pool(&["m"]), &records, &VoteConfig { seed_groups: 1, by }).relations;
        let all = |relations: &Relations, wanted: Relation| {
            matrix::pairs(&[0, 1, 2])
                .iter()
                .all(|(source, target)| relations.get(*source as usize, *target as usize) == Some(wanted))
        };
        assert!(all(&voted(VoteMeasure::Score), Relation::Neutral));
        assert!(all(&voted(VoteMeasure::LogProbability), Relation::Positive));
        let over = voted(VoteMeasure::LogProbabilityOverMedian);
        assert_eq!([over.get(0, 1), over.get(2, 1)], [Some(Relation::Negative), Some(Relation::Positive)]);
        assert_eq!([over.get(1, 0), over.get(2, 0)], [Some(Relation::Neutral); 2], "two equal sources are the median");
    }

    #[test]
    fn one_model_votes_with_the_sign_of_its_mean_gain() {
        let plan = voted(&["m"], 1, |_, demonstration, target, seed| match (demonstration, target) {
            (None, _) => f64::from(seed),
            (Some(0), 1) => 1.0,
            (Some(1), 0) => 0.0,
            _ => f64::from(seed),
        });
        assert_eq!(plan.relations.get(0, 1), Some(Relation::Positive));
        assert_eq!(plan.relations.get(1, 0), Some(Relation::Negative));
        assert_eq!(plan.relations.get(2, 0), Some(Relation::Neutral));
        assert_eq!(plan.relations.get(1, 1), None);
        assert_eq!(plan.voters, ["m"]);
    }

    #[test]
    fn models_that_disagree_make_a_mixed_pair() {
        let plan = voted(&["a", "b"], 1, |model, demonstration, target, _| match (demonstration, target, model) {
            (None, _, _) => 0.5,
            (Some(0), 1, "a") => 1.0,
            (Some(0), 1, _) => 0.0,
            _ => 1.0,
        });
        assert_eq!(plan.relations.get(0, 1), Some(Relation::Mixed));
        assert_eq!(plan.relations.get(1, 0), Some(Relation::Positive));
    }

    #[test]
    fn groups_of_seeds_vote_in_place_of_models() {
        let plan = voted(&["m"], 2, |_, demonstration, target, seed| match (demonstration, target, seed) {
            (None, _, _) => 0.5,
            (Some(0), 1, 0) => 1.0,
            (Some(0), 1, _) => 0.0,
            _ => 1.0,
        });
        assert_eq!(plan.voters, ["m seeds 0..1", "m seeds 1..2"]);
        assert_eq!(plan.relations.get(0, 1), Some(Relation::Mixed));
        assert_eq!(plan.relations.get(2, 1), Some(Relation::Positive));
    }
}
