//! What a reader must know before any number of a run is taken for a finding: plain sentences at the top of the report,
//! each with its counts. A run without such a weakness has none.

use std::collections::BTreeSet;

use crate::metric::PathMetric;
use crate::record::plan::{HistoryPlan, VoteMeasure};

use super::data::ReportData;
use super::memory_use;

/// Fewer sequences than this and a percentile interval over them is surely too narrow.
const FEW_SEQUENCES: usize = 10;

/// Every caution that applies, in the order of the stages.
pub(super) fn cautions(data: &ReportData) -> Vec<String> {
    let mut found = Vec::new();
    unsolved(data, &mut found);
    small_pool(data, &mut found);
    flat_sequences(data, &mut found);
    empty_memories(data, &mut found);
    few_sequences(data, &mut found);
    few_orders(data, &mut found);
    ungraded(data, &mut found);
    found
}

/// A backbone that never solves a task, or always does, has no gains by score.
fn unsolved(data: &ReportData, found: &mut Vec<String>) {
    let by = data.vote.as_ref().map(|vote| vote.by);
    for matrix in &data.matrices {
        let scores = matrix.zero_shot.iter().filter(|row| row.is_kept).filter_map(|row| row.mean.value);
        let (tasks, right) = scores.fold((0, 0.0), |(tasks, sum), score| (tasks + 1, sum + score));
        let pairs = matrix.pairs.iter().filter(|pair| pair.gain.value.is_some()).count();
        let flat = matrix.pairs.iter().filter(|pair| pair.gain.value == Some(0.0)).count();
        if tasks == 0 || pairs == 0 {
            continue;
        }
        let model = &matrix.model;
        if right == 0.0 {
            found.push(format!("{model} solves none of the {tasks} tasks of the pool alone."));
        } else if right == f64::from(tasks) {
            found.push(format!("{model} always solves each of the {tasks} tasks of the pool alone."));
        }
        // Where more than nine pairs in ten do not move, votes rest on the few that do.
        if flat * 10 > pairs * 9 {
            let share = if flat == pairs { format!("All {pairs}") } else { format!("{flat} of {pairs}") };
            let consequence = match by {
                None | Some(VoteMeasure::Score) => {
                    "relations by score are neutral there; `[logprob]` with `vote.by = \"log_probability_over_median\"` tells \
                     such pairs apart"
                }
                Some(_) => "relations come from the log-probability of references instead, which rates one wording",
            };
            found.push(format!("{share} gains of {model} by score are exactly zero: {consequence}."));
        }
    }
}

fn small_pool(data: &ReportData, found: &mut Vec<String>) {
    let wanted = data.identity.config.pointer("/matrix/tasks").and_then(serde_json::Value::as_u64);
    let kept = data.pool.as_ref().map(|pool| pool.kept.len() as u64);
    if let (Some(wanted), Some(kept)) = (wanted, kept)
        && kept < wanted
    {
        found.push(format!("{wanted} tasks were asked for and {kept} have headroom."));
    }
}

/// Sequences in which every execution scores alike say nothing about memories.
fn flat_sequences(data: &ReportData, found: &mut Vec<String>) {
    let Some(sequences) = &data.sequences else { return };
    let scores: Vec<f64> = sequences.cells.iter().filter_map(|cell| cell.summary(PathMetric::Ap).value).collect();
    for (score, word) in [(0.0, "0"), (1.0, "1")] {
        if !scores.is_empty() && scores.iter().all(|found| *found == score) {
            found.push(format!(
                "Every graded execution of every sequence scores {word}: FWT, BWT and FGT of all agents are zero, and no memory \
                 can be told from none by them."
            ));
        }
    }
}

/// An agent whose prompts never held a memory is the memory-free one under another name.
fn empty_memories(data: &ReportData, found: &mut Vec<String>) {
    let uses = memory_use::build(data);
    let is_empty = |agent: &str| uses.iter().filter(|row| row.agent == agent).all(|row| row.with_memory == 0);
    let agents: BTreeSet<&str> = uses.iter().map(|row| row.agent.as_str()).filter(|agent| is_empty(agent)).collect();
    if !agents.is_empty() {
        let names = agents.into_iter().collect::<Vec<_>>().join(", ");
        found.push(format!(
            "No prompt of {names} ever held a memory: what differs from the memory-free agent is none of its doing."
        ));
    }
}

fn few_sequences(data: &ReportData, found: &mut Vec<String>) {
    let Some(sequences) = &data.sequences else { return };
    let plan = &sequences.plan;
    let most = plan.histories.iter().map(|history| history.sequences.len()).max().unwrap_or(0);
    if most < FEW_SEQUENCES {
        found.push(format!(
            "{most} sequences a history: intervals over so few are too narrow, read signs and sizes as examples."
        ));
    }
    for history in &plan.histories {
        let (probes, lives) = (distinct_probes(history), history.sequences.len());
        if probes < lives {
            found.push(format!(
                "The {lives} {}-dominant sequences have {probes} different probes, since no more tasks have the relations that a \
                 probe needs: sequences of one probe are not independent, and intervals take them as if they were.",
                history.name
            ));
        }
    }
}

fn distinct_probes(history: &HistoryPlan) -> usize {
    history.sequences.iter().map(|sequence| sequence.probe).collect::<BTreeSet<u32>>().len()
}

fn few_orders(data: &ReportData, found: &mut Vec<String>) {
    let Some(orders) = &data.orders else { return };
    if orders.plan.runs < crate::metric::MINIMUM_UNITS as u32 {
        found.push(format!(
            "{} run(s) of each task order: its metrics have no intervals, and ranks may move by chance alone.",
            orders.plan.runs
        ));
    }
}

fn ungraded(data: &ReportData, found: &mut Vec<String>) {
    let ungraded: usize = data.usage.iter().map(|stage| stage.ungraded).sum();
    if ungraded * 20 > data.records.len() {
        found.push(format!(
            "{ungraded} of {} attempts could not be graded and are left out of every mean.",
            data.records.len()
        ));
    }
}
