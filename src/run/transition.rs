//! Controlled path transitions: probe, interval, probe, interval, probe (PATH-Bench §4.2; figure 5).
//!
//! ```text
//! X a a a a a X b b b b b X        a, b: wholly positive or wholly negative for X
//! ```
//!
//! Four conditions of the two intervals, matched: what the paper leaves open, and what is done here: a matched sequence is
//! one probe with the same draws under all four conditions; conditions that begin alike share their first interval, those
//! that end alike their second, and no task stands in both. A probe is eligible with enough positive and negative sources
//! for that; probes are drawn without replacement, then again when exhausted. Sequences are lived by the same loop as the
//! probe-centred ones.

use anyhow::ensure;

use super::order::Sources;
use crate::config::TransitionsConfig;
use crate::record::plan::{HistoryPlan, PlannedStep, Relations, SequencePlan, StepKind};
use crate::seed::Seed;

/// The conditions, `FIRST-SECOND`.
const CONDITIONS: [(&str, [bool; 2]); 4] = [
    ("positive-positive", [true, true]),
    ("positive-negative", [true, false]),
    ("negative-positive", [false, true]),
    ("negative-negative", [false, false]),
];

/// The matched sequences of all four conditions.
///
/// # Errors
/// When no probe has enough sources of both kinds.
pub fn conditions(
    config: &TransitionsConfig,
    relations: &Relations,
    kept: &[u32],
    seed: Seed,
) -> anyhow::Result<Vec<HistoryPlan>> {
    let needed = 2 * config.interval as usize;
    let mut probes: Vec<u32> = kept.to_vec();
    seed.derive("probe", &[]).stream().shuffle(&mut probes);
    let sets: Vec<(u32, Sources)> =
        probes.into_iter().map(|probe| (probe, Sources::of(probe, relations, kept))).collect();
    let fewest = |sources: &Sources| sources.positive.len().min(sources.negative.len());
    let eligible: Vec<&(u32, Sources)> = sets.iter().filter(|(_, sources)| fewest(sources) >= needed).collect();
    ensure!(
        !eligible.is_empty(),
        "no task of the pool of {} can be the probe of a transition: two intervals of {} need {needed} positive and {needed} \
         negative sources, the best probe has {} of each\n\
         hint: use more tasks (`benchmark.limit`, `matrix.headroom`) or a shorter `transitions.interval`",
        kept.len(),
        config.interval,
        sets.iter().map(|(_, sources)| fewest(sources)).max().unwrap_or(0)
    );
    let matched: Vec<[SequencePlan; 4]> = (0..config.sequences)
        .map(|index| {
            let (probe, sources) = eligible[index as usize % eligible.len()];
            let drawn = |kind: &str, sources: &[u32]| {
                let mut tasks = sources.to_vec();
                seed.derive(kind, &[index]).stream().shuffle(&mut tasks);
                tasks.truncate(needed);
                tasks
            };
            let (positive, negative) = (drawn("positive", &sources.positive), drawn("negative", &sources.negative));
            let half = config.interval as usize;
            CONDITIONS.map(|(_, [first, second])| {
                let side = |is_positive: bool| if is_positive { &positive } else { &negative };
                sequence(*probe, &side(first)[..half], &side(second)[half..])
            })
        })
        .collect();
    Ok(CONDITIONS
        .iter()
        .enumerate()
        .map(|(place, (name, _))| HistoryPlan {
            name: (*name).into(),
            sequences: matched.iter().map(|four| four[place].clone()).collect(),
        })
        .collect())
}

fn sequence(probe: u32, first: &[u32], second: &[u32]) -> SequencePlan {
    let step = |task: u32, kind: StepKind| PlannedStep { task, kind };
    let mut steps = vec![step(probe, StepKind::ColdProbe)];
    for interval in [first, second] {
        steps.extend(interval.iter().map(|task| step(*task, StepKind::Intervening)));
        steps.push(step(probe, StepKind::Probe));
    }
    SequencePlan { probe, steps }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::plan::Relation;

    fn halves(tasks: usize) -> Relations {
        let mut square = Relations::undecided(tasks);
        for source in 0..tasks {
            for target in (0..tasks).filter(|target| *target != source) {
                let relation = if source % 2 == 0 { Relation::Positive } else { Relation::Negative };
                square.set(source, target, Some(relation));
            }
        }
        square
    }

    #[test]
    fn matched_conditions_share_what_they_have_in_common() {
        let config = TransitionsConfig { sequences: 30, ..TransitionsConfig::default() };
        let kept: Vec<u32> = (0..40).collect();
        let plans = conditions(&config, &halves(40), &kept, Seed(2)).unwrap();
        let names: Vec<&str> = plans.iter().map(|plan| plan.name.as_str()).collect();
        assert_eq!(names, ["positive-positive", "positive-negative", "negative-positive", "negative-negative"]);
        for index in 0..30 {
            let tasks = |condition: usize, range: std::ops::Range<usize>| -> Vec<u32> {
                plans[condition].sequences[index].steps[range].iter().map(|step| step.task).collect()
            };
            let probe = plans[0].sequences[index].probe;
            for (condition, kinds) in [(0, [0, 0]), (1, [0, 1]), (2, [1, 0]), (3, [1, 1])] {
                let steps = &plans[condition].sequences[index].steps;
                assert_eq!(steps.len(), 13);
                assert!([0, 6, 12].iter().all(|place| steps[*place].kind.is_probe() && steps[*place].task == probe));
                assert!(tasks(condition, 1..6).iter().all(|task| task % 2 == kinds[0]));
                assert!(tasks(condition, 7..12).iter().all(|task| task % 2 == kinds[1]));
                let mut all = [tasks(condition, 1..6), tasks(condition, 7..12)].concat();
                all.sort_unstable();
                all.dedup();
                assert_eq!(all.len(), 10, "no task twice");
            }
            assert_eq!(tasks(0, 0..7), tasks(1, 0..7));
            assert_eq!(tasks(2, 0..7), tasks(3, 0..7));
            assert_eq!(tasks(0, 7..13), tasks(2, 7..13));
            assert_eq!(tasks(1, 7..13), tasks(3, 7..13));
        }
    }

    #[test]
    fn a_pool_that_is_too_small_names_what_the_best_probe_has() {
        let kept: Vec<u32> = (0..12).collect();
        let message = conditions(&TransitionsConfig::default(), &halves(12), &kept, Seed(1)).unwrap_err().to_string();
        assert!(message.contains("need 10 positive and 10 negative") && message.contains("has 5 of each"), "{message}");
    }
}
