//! Probe-centred sampling of lifelong sequences (PATH-Bench §4.2; open points as in the register below).
//!
//! ```text
//! X w w w w w X i i i … i X i i … i X          X probe, w warm-up (positive), i intervening
//! cold        warm        gaps of 6..=12       the last probe follows the last task
//! ```
//!
//! What the paper leaves open, and what is done here: a probe is eligible when it has enough positive sources for the
//! warm-up, at least ten tasks (or as many as are drawn, when fewer) in the dominant set, and a task in one of the other
//! two sets when any is drawn from them. Probes are drawn without replacement, then again when exhausted, in an order
//! that is the same for every history. Tasks are drawn without replacement within a sequence; a set that runs out is
//! refilled; warm-up tasks return only after a refill. Mixed relations are never sampled.

use anyhow::{bail, ensure};

use crate::config::{History, SequenceConfig};
use crate::record::plan::{HistoryPlan, PlannedStep, Relation, Relations, SequencePlan, StepKind};
use crate::seed::{Seed, Stream};

/// The paper's pools are large; a dominant set smaller than this would repeat the same few tasks.
const SMALLEST_DOMINANT_SET: usize = 10;

/// Redraws of the gaps before a sequence with few probe occurrences is taken as it is.
const GAP_REDRAWS: u32 = 1000;

/// All sequences of one history.
///
/// # Errors
/// When no probe is eligible: says how many tasks each condition admits and what the best probe lacks.
pub fn history(
    history: History,
    config: &SequenceConfig,
    relations: &Relations,
    kept: &[u32],
    seed: Seed,
) -> anyhow::Result<HistoryPlan> {
    let mut probes: Vec<u32> = kept.to_vec();
    seed.derive("probe", &[]).stream().shuffle(&mut probes);
    let sets: Vec<(u32, Sources)> =
        probes.into_iter().map(|probe| (probe, Sources::of(probe, relations, kept))).collect();
    let eligible: Vec<&(u32, Sources)> =
        sets.iter().filter(|(_, sources)| shortfalls(history, config, sources).is_empty()).collect();
    if eligible.is_empty() {
        bail!(explain_shortfall(history, config, &sets));
    }
    let sequences = (0..config.sequences)
        .map(|index| {
            let (probe, sources) = eligible[index as usize % eligible.len()];
            let key = seed.derive(history.as_str(), &[index]);
            sequence(*probe, sources, history, config, key)
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    Ok(HistoryPlan { name: history.as_str().into(), sequences })
}

/// The other tasks by what they do to a probe.
pub(super) struct Sources {
    pub positive: Vec<u32>,
    pub neutral: Vec<u32>,
    pub negative: Vec<u32>,
}

impl Sources {
    pub fn of(probe: u32, relations: &Relations, kept: &[u32]) -> Sources {
        let with = |wanted: Relation| -> Vec<u32> {
            let is_wanted = |source: &u32| relations.get(*source as usize, probe as usize) == Some(wanted);
            kept.iter().copied().filter(|source| *source != probe).filter(is_wanted).collect()
        };
        Sources {
            positive: with(Relation::Positive),
            neutral: with(Relation::Neutral),
            negative: with(Relation::Negative),
        }
    }

    fn dominant(&self, history: History) -> &[u32] {
        match history {
            History::Positive => &self.positive,
            History::Negative => &self.negative,
        }
    }

    fn others(&self, history: History) -> Vec<u32> {
        let rest = match history {
            History::Positive => &self.negative,
            History::Negative => &self.positive,
        };
        let mut others: Vec<u32> = self.neutral.iter().chain(rest).copied().collect();
        others.sort_unstable();
        others
    }
}

/// How many intervening tasks come from the dominant set.
fn dominant_count(config: &SequenceConfig) -> usize {
    (f64::from(config.intervening) * config.dominant_share).round() as usize
}

fn smallest_dominant(config: &SequenceConfig) -> usize {
    SMALLEST_DOMINANT_SET.min(dominant_count(config))
}

/// What a probe lacks, one text a condition; empty when it is eligible.
fn shortfalls(history: History, config: &SequenceConfig, sources: &Sources) -> Vec<String> {
    let mut missing = Vec::new();
    let warm_up = config.warm_up as usize;
    if sources.positive.len() < warm_up {
        missing.push(format!("{} of {warm_up} positive sources for the warm-up", sources.positive.len()));
    }
    let (have, need) = (sources.dominant(history).len(), smallest_dominant(config));
    if have < need {
        missing.push(format!("{have} of {need} {} sources for the dominant set", history.as_str()));
    }
    if dominant_count(config) < config.intervening as usize && sources.others(history).is_empty() {
        missing.push("no source in the other two sets".to_string());
    }
    missing
}

fn explain_shortfall(history: History, config: &SequenceConfig, sets: &[(u32, Sources)]) -> String {
    let warm = sets.iter().filter(|(_, sources)| sources.positive.len() >= config.warm_up as usize).count();
    let dominant =
        sets.iter().filter(|(_, sources)| sources.dominant(history).len() >= smallest_dominant(config)).count();
    let nearest = sets
        .iter()
        .min_by_key(|(probe, sources)| {
            let need = smallest_dominant(config).saturating_sub(sources.dominant(history).len())
                + (config.warm_up as usize).saturating_sub(sources.positive.len());
            (need, *probe)
        })
        .map(|(probe, sources)| format!("task {probe} has {}", shortfalls(history, config, sources).join(" and ")))
        .unwrap_or_else(|| "the pool is empty".to_string());
    format!(
        "no task of the pool of {} can be the probe of a {}-dominant sequence: {warm} have at least {} positive sources, \
         {dominant} have at least {} {} sources; nearest: {nearest}\n\
         hint: use more tasks (`benchmark.limit`, `matrix.headroom`), fewer `warm_up` or `intervening` tasks, or the other \
         history alone (`sequence.histories`)",
        sets.len(),
        history.as_str(),
        config.warm_up,
        smallest_dominant(config),
        history.as_str(),
    )
}

fn sequence(
    probe: u32,
    sources: &Sources,
    history: History,
    config: &SequenceConfig,
    key: Seed,
) -> anyhow::Result<SequencePlan> {
    let mut stream = key.derive("tasks", &[]).stream();
    let mut warm_up = sources.positive.clone();
    stream.shuffle(&mut warm_up);
    warm_up.truncate(config.warm_up as usize);

    let from_dominant = dominant_count(config);
    let mut dominant = Deck::new(sources.dominant(history), &warm_up, &mut stream);
    let mut others = Deck::new(&sources.others(history), &warm_up, &mut stream);
    let mut intervening: Vec<u32> = Vec::with_capacity(config.intervening as usize);
    for index in 0..config.intervening as usize {
        let deck = if index < from_dominant { &mut dominant } else { &mut others };
        intervening.push(deck.draw(&mut stream));
    }
    stream.shuffle(&mut intervening);

    let gaps = gaps(config.intervening, config.probe_interval, key.derive("gaps", &[]))?;
    let step = |task: u32, kind: StepKind| PlannedStep { task, kind };
    let mut steps = vec![step(probe, StepKind::ColdProbe)];
    steps.extend(warm_up.iter().map(|task| step(*task, StepKind::WarmUp)));
    steps.push(step(probe, StepKind::WarmProbe));
    let mut rest = intervening.into_iter();
    for gap in gaps {
        steps.extend(rest.by_ref().take(gap as usize).map(|task| step(task, StepKind::Intervening)));
        steps.push(step(probe, StepKind::Probe));
    }
    Ok(SequencePlan { probe, steps })
}

/// Draws without replacement from at least one task; refilled and reshuffled when it runs out.
pub(super) struct Deck {
    all: Vec<u32>,
    left: Vec<u32>,
}

impl Deck {
    pub fn new(tasks: &[u32], already_used: &[u32], stream: &mut Stream) -> Deck {
        let mut left: Vec<u32> = tasks.iter().copied().filter(|task| !already_used.contains(task)).collect();
        stream.shuffle(&mut left);
        Deck { all: tasks.to_vec(), left }
    }

    pub fn draw(&mut self, stream: &mut Stream) -> u32 {
        if self.left.is_empty() {
            self.left = self.all.clone();
            stream.shuffle(&mut self.left);
        }
        self.left.pop().expect("an eligible probe has a task in every set that is drawn from")
    }
}

/// Lengths of the runs of intervening tasks between probes: each in `smallest..=largest`, their sum `total`, drawn
/// uniformly among the values that leave a sum that can still be made. Redrawn while the probe occurs less often than
/// the shortest sequence is meant to have (12 for the paper's 100 tasks and gaps of 6 to 12).
///
/// # Errors
/// When no gaps in the range add up to the total.
fn gaps(total: u32, [smallest, largest]: [u32; 2], key: Seed) -> anyhow::Result<Vec<u32>> {
    let mut can_be_made = vec![false; total as usize + 1];
    can_be_made[0] = true;
    for sum in 1..=total {
        can_be_made[sum as usize] = (smallest..=largest.min(sum)).any(|gap| can_be_made[(sum - gap) as usize]);
    }
    ensure!(
        can_be_made[total as usize],
        "no gaps between {smallest} and {largest} add up to {total}: change `sequence.intervening` or `sequence.probe_interval`"
    );
    let wanted = (total / (u32::midpoint(smallest, largest) + 1)) as usize;
    let mut most: Vec<u32> = Vec::new();
    for redraw in 0..GAP_REDRAWS {
        let mut stream = key.derive("redraw", &[redraw]).stream();
        let mut left = total;
        let mut drawn = Vec::new();
        while left > 0 {
            let choices: Vec<u32> =
                (smallest..=largest.min(left)).filter(|gap| can_be_made[(left - gap) as usize]).collect();
            let gap = choices[stream.below(choices.len() as u64) as usize];
            drawn.push(gap);
            left -= gap;
        }
        if drawn.len() >= wanted {
            return Ok(drawn);
        }
        if drawn.len() > most.len() {
            most = drawn;
        }
    }
    Ok(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relations(tasks: usize, relation: impl Fn(usize, usize) -> Relation) -> Relations {
        let mut square = Relations::undecided(tasks);
        for source in 0..tasks {
            for target in 0..tasks {
                if source != target {
                    square.set(source, target, Some(relation(source, target)));
                }
            }
        }
        square
    }

    /// Sources modulo 4: two positive classes, one neutral, one negative.
    fn striped() -> Relations {
        relations(120, |source, _| match source % 4 {
            0 | 1 => Relation::Positive,
            2 => Relation::Negative,
            _ => Relation::Neutral,
        })
    }

    fn kept() -> Vec<u32> {
        (0..120).collect()
    }

    #[test]
    fn a_paper_sized_sequence_has_the_papers_shape() {
        let config = SequenceConfig::default();
        let plan = history(History::Positive, &config, &striped(), &kept(), Seed(3)).unwrap();
        assert_eq!(plan.sequences.len(), 50);
        for sequence in &plan.sequences {
            let kinds: Vec<StepKind> = sequence.steps.iter().map(|step| step.kind).collect();
            assert_eq!(kinds[0], StepKind::ColdProbe);
            assert!(kinds[1..6].iter().all(|kind| *kind == StepKind::WarmUp));
            assert_eq!(kinds[6], StepKind::WarmProbe);
            assert_eq!(kinds.last(), Some(&StepKind::Probe));
            let occurrences = kinds.iter().filter(|kind| kind.is_probe()).count();
            assert!((12..=18).contains(&occurrences), "{occurrences}");
            let intervening: Vec<u32> =
                sequence.steps.iter().filter(|step| step.kind == StepKind::Intervening).map(|step| step.task).collect();
            assert_eq!(intervening.len(), 100);
            assert_eq!(intervening.iter().filter(|task| **task % 4 < 2).count(), 70);
            for step in &sequence.steps {
                assert_eq!(step.kind.is_probe(), step.task == sequence.probe);
            }
            let mut run = 0;
            for kind in &kinds[7..] {
                match kind {
                    StepKind::Intervening => run += 1,
                    _ => {
                        assert!((6..=12).contains(&run), "gap of {run}");
                        run = 0;
                    }
                }
            }
        }
    }

    #[test]
    fn tasks_do_not_repeat_before_their_set_runs_out() {
        let config = SequenceConfig { intervening: 30, dominant_share: 0.7, ..SequenceConfig::default() };
        let plan = history(History::Positive, &config, &striped(), &kept(), Seed(5)).unwrap();
        for sequence in &plan.sequences {
            let mut seen = std::collections::BTreeSet::new();
            for step in sequence.steps.iter().filter(|step| !step.kind.is_probe()) {
                assert!(seen.insert(step.task), "task {} twice", step.task);
            }
        }
    }

    #[test]
    fn probes_are_used_up_before_one_returns_and_match_across_histories() {
        let config = SequenceConfig { sequences: 120, ..SequenceConfig::default() };
        let positive = history(History::Positive, &config, &striped(), &kept(), Seed(5)).unwrap();
        let negative = history(History::Negative, &config, &striped(), &kept(), Seed(5)).unwrap();
        let probes = |plan: &HistoryPlan| plan.sequences.iter().map(|sequence| sequence.probe).collect::<Vec<_>>();
        let distinct: std::collections::BTreeSet<u32> = probes(&positive).into_iter().collect();
        assert_eq!(distinct.len(), 120);
        assert_eq!(probes(&positive), probes(&negative));
    }

    #[test]
    fn every_gap_is_in_range_and_they_add_up_for_many_seeds() {
        for seed in 0..20_000 {
            let drawn = gaps(100, [6, 12], Seed(seed)).unwrap();
            assert_eq!(drawn.iter().sum::<u32>(), 100);
            assert!(drawn.iter().all(|gap| (6..=12).contains(gap)), "{drawn:?}");
            assert!(drawn.len() >= 10, "{drawn:?}");
        }
    }

    #[test]
    fn gaps_that_cannot_add_up_are_an_error() {
        let message = gaps(9, [6, 7], Seed(1)).unwrap_err().to_string();
        assert!(message.contains("between 6 and 7") && message.contains('9'), "{message}");
    }

    #[test]
    fn a_pool_that_is_too_small_names_the_shortfall() {
        let few = relations(12, |source, _| if source < 7 { Relation::Positive } else { Relation::Mixed });
        let kept: Vec<u32> = (0..12).collect();
        let message =
            history(History::Negative, &SequenceConfig::default(), &few, &kept, Seed(1)).unwrap_err().to_string();
        assert!(message.contains("0 have at least 10 negative sources"), "{message}");
        assert!(message.contains("0 of 10 negative sources"), "{message}");
        assert!(message.contains("hint:"), "{message}");
    }

    #[test]
    fn mixed_pairs_are_never_sampled() {
        let square = relations(60, |source, _| match source % 3 {
            0 => Relation::Positive,
            1 => Relation::Mixed,
            _ => Relation::Negative,
        });
        let kept: Vec<u32> = (0..60).collect();
        let plan = history(History::Negative, &SequenceConfig::default(), &square, &kept, Seed(2)).unwrap();
        for sequence in &plan.sequences {
            assert!(sequence.steps.iter().all(|step| step.kind.is_probe() || step.task % 3 != 1));
        }
    }
}
