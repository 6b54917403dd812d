//! What is reported beside the standard values because the model runs in-process: seeds that were not needed, gains by
//! log-probability, and single experiences behind a probe's drop. One file a measure; a run without it shows nothing.

pub mod attribution;
pub mod logprob;
pub mod stopping;

use crate::record::plan::{ATTRIBUTION_FILE, AttributionPlan, LOGPROB_FILE, LogprobPlan};
use crate::store::{self, RunReader};

use super::data::{Completeness, ReportData, Stages};
use super::table::Table;
use super::view::View;

/// All measures of a run.
#[derive(Default)]
pub struct Beside {
    pub stopping: Vec<stopping::ModelStopping>,
    pub logprob: Vec<logprob::ModelLogprob>,
    pub attribution: Option<attribution::Attribution>,
}

/// Fills in what the run has of each, once everything else of the report is there.
pub(super) fn build(reader: &RunReader, data: &ReportData, stages: &Stages<'_>) -> store::Result<Beside> {
    let logprobs: Option<LogprobPlan> = reader.plan(LOGPROB_FILE)?;
    let traced: Option<AttributionPlan> = reader.plan(ATTRIBUTION_FILE)?;
    Ok(Beside {
        stopping: stopping::build(data),
        logprob: logprobs.map(|plan| logprob::build(&plan, data, stages)).unwrap_or_default(),
        attribution: traced.map(|plan| attribution::build(plan, data, stages)),
    })
}

/// One line for each part that is planned.
pub(super) fn completeness(beside: &Beside) -> Vec<Completeness> {
    let rated = beside.logprob.iter().map(|model| Completeness {
        what: format!("log-probabilities {}: references", model.model),
        done: model.stored,
        of: Some(model.planned),
    });
    let traced = beside.attribution.iter().map(|attribution| Completeness {
        what: "attribution: attempts".into(),
        done: attribution.stored,
        of: Some(attribution.planned),
    });
    rated.chain(traced).collect()
}

/// The tables people read; those without rows are left out by whoever shows them.
pub(super) fn views(data: &ReportData) -> Vec<View> {
    vec![stopping::view(data), logprob::view(data), attribution::strongest(data, 5), attribution::by_relation(data)]
}

/// The tables that are written as files.
pub(super) fn tables(data: &ReportData) -> Vec<Table> {
    let tables = [stopping::table(data), logprob::table(data), attribution::table(data)];
    tables.into_iter().flatten().collect()
}
