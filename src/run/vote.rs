//! The stage `vote`: the relation of every ordered pair from the matrix's gains (PATH-Bench §4.1).
//!
//! Each backbone votes with the sign of its mean gain. With one backbone its sign decides, or, where the config asks for
//! it, groups of its seeds vote in place of backbones.

use std::collections::BTreeMap;
use std::ops::Range;

use super::matrix::Unit;
use crate::metric;
use crate::record::plan::{PoolPlan, Relations, VotePlan};
use crate::record::{AttemptRecord, Coord};

/// One voter: a model and the seeds it votes with.
struct Voter<'a> {
    model: &'a str,
    seeds: Range<usize>,
}

/// Votes over all pairs of kept tasks. `seed_groups` is how many groups of seeds each model votes with.
pub fn vote(pool: &PoolPlan, records: &[AttemptRecord], seed_groups: u32) -> VotePlan {
    let grades: BTreeMap<&Coord, Option<f64>> =
        records.iter().map(|record| (&record.coord, record.score.graded())).collect();
    let groups = metric::seed_groups(pool.seeds as usize, seed_groups as usize);
    let voters: Vec<Voter<'_>> = pool
        .models
        .iter()
        .flat_map(|model| groups.iter().map(move |seeds| Voter { model, seeds: seeds.clone() }))
        .collect();

    let mut relations = Relations::undecided(pool.tasks.len());
    for source in &pool.kept {
        for target in pool.kept.iter().filter(|target| *target != source) {
            let gains: Vec<Option<f64>> =
                voters.iter().map(|voter| gain(&grades, voter, Some(*source), *target)).collect();
            relations.set(*source as usize, *target as usize, metric::vote(&gains));
        }
    }
    let name = |voter: &Voter<'_>| match seed_groups {
        1 => voter.model.to_string(),
        _ => format!("{} seeds {}..{}", voter.model, voter.seeds.start, voter.seeds.end),
    };
    VotePlan { voters: voters.iter().map(name).collect(), relations }
}

fn gain(
    grades: &BTreeMap<&Coord, Option<f64>>,
    voter: &Voter<'_>,
    demonstration: Option<u32>,
    target: u32,
) -> Option<f64> {
    let scores = |demonstration: Option<u32>| -> Vec<Option<f64>> {
        let grade = |seed: usize| {
            let unit = Unit { demonstration, target, seed: seed as u32 };
            grades.get(&unit.coord(voter.model)).copied().flatten()
        };
        voter.seeds.clone().map(grade).collect()
    };
    metric::mean_gain(&scores(demonstration), &scores(None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::plan::{PoolTask, Relation};
    use crate::record::{Attempt, Ending, Score, TaskId, Usage};
    use crate::run::matrix;

    fn record(unit: Unit, model: &str, score: f64) -> AttemptRecord {
        AttemptRecord {
            coord: unit.coord(model),
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
        let pool = PoolPlan {
            tasks: (0..3).map(|_| PoolTask { id: TaskId("t".into()), family: None }).collect(),
            kept: vec![0, 1, 2],
            models: models.iter().map(|model| model.to_string()).collect(),
            seeds: 2,
        };
        let mut records = Vec::new();
        for model in models {
            for unit in matrix::zero_shot(3, 2).into_iter().chain(matrix::one_shot(&[0, 1, 2], 2)) {
                records.push(record(unit, model, score(model, unit.demonstration, unit.target, unit.seed)));
            }
        }
        vote(&pool, &records, seed_groups)
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
