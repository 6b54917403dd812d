//! What must hold of every run, counted over its stored records.

use crate::record::plan::SequencesPlan;

use super::data::Stages;
use super::sequence::Sequences;

/// Counts of what was checked; nothing that fails is counted, it is an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// Lives in which FWT = (p_warm − p_cold) + BWT − FGT could be checked, and held.
    pub identities: usize,
    /// Complete lives.
    pub lives: usize,
    /// Probes after which the stored memory is the one that they recalled from.
    pub probes: usize,
}

/// Checks the lives and the probes of all sequences.
///
/// # Errors
/// The first probe after which the memory was another, with its place.
pub(super) fn check(
    sequences: Option<&Sequences>,
    transitions: Option<&SequencesPlan>,
    stages: &Stages<'_>,
) -> Result<Checks, String> {
    let mut checks = Checks::default();
    let lives = sequences.iter().flat_map(|sequences| &sequences.cells).flat_map(|cell| cell.lives.iter().flatten());
    for metrics in lives.filter_map(|life| Some((life.metrics?, life.cold, life.warm))) {
        let (metrics, cold, warm) = metrics;
        checks.lives += 1;
        // Computing the metrics asserts the identity wherever all of its parts are graded.
        let has_parts = cold.is_some() && warm.is_some() && metrics.fwt.is_some();
        checks.identities += usize::from(has_parts);
    }
    for (family, plan) in [("sequence", sequences.map(|sequences| &sequences.plan)), ("transition", transitions)] {
        let Some(plan) = plan else { continue };
        checks.probes += probes(family, plan, stages)?;
    }
    Ok(checks)
}

fn probes(family: &str, plan: &SequencesPlan, stages: &Stages<'_>) -> Result<usize, String> {
    let mut probes = 0;
    for history in &plan.histories {
        for agent in &plan.agents {
            let stage = format!("{family}/{}/{agent}", history.name);
            let Some(records) = stages.get(stage.as_str()) else { continue };
            for ((sequence, step, run), record) in records {
                let planned =
                    history.sequences.get(*sequence as usize).and_then(|planned| planned.steps.get(*step as usize));
                let next = records.get(&(*sequence, step + 1, *run));
                let (Some(true), Some(next)) = (planned.map(|step| step.kind.is_probe()), next) else { continue };
                if record.memory != next.memory {
                    return Err(format!(
                        "{stage} sequence {sequence} run {run}: the probe at step {step} was followed by another memory ({} \
                         before, {} after); a probe may not change it",
                        record.memory.as_deref().unwrap_or("none"),
                        next.memory.as_deref().unwrap_or("none"),
                    ));
                }
                probes += 1;
            }
        }
    }
    Ok(probes)
}
