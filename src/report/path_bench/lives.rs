//! Table 1, and what of figures 3, 4 and 6 is printed as numbers.

use super::beside::{self, Beside, Row};
use super::published;
use super::setting::{self, Difference, Scope};
use crate::metric::PathMetric;
use crate::report::data::ReportData;
use crate::report::dots::{DotPanel, dots};
use crate::report::section::{Drawing, Section, legend};
use crate::report::sequence::{ContrastKind, LifeCell};

/// The paper's four.
const METRICS: [(PathMetric, &str, bool); 4] = [
    (PathMetric::Ap, "AP", false),
    (PathMetric::Fwt, "FWT", true),
    (PathMetric::Bwt, "BWT", false),
    (PathMetric::Fgt, "FGT", false),
];

/// Occurrence of the probe at which the paper states changes: the last that all its sequences have.
const STATED_OCCURRENCE: u32 = 12;

/// Table 1, one number a cell, agent and metric.
pub(super) fn metrics(data: &ReportData) -> Vec<Beside> {
    data.sequences.iter().flat_map(|sequences| &sequences.cells).flat_map(|cell| cell_metrics(data, cell)).collect()
}

fn cell_metrics(data: &ReportData, cell: &LifeCell) -> Vec<Beside> {
    let method = data.method(&cell.agent).unwrap_or_default();
    let number = |(metric, name, _): (PathMetric, &str, bool)| {
        let summary = cell.summary(metric);
        Beside {
            of: "table 1",
            condition: cell.history.clone(),
            agent: cell.agent.clone(),
            method: method.into(),
            metric: name.into(),
            value: summary.value,
            interval: summary.interval,
            n: summary.sequences,
            published: published::table_1(data.published_benchmark(), method, &cell.history, metric),
        }
    };
    METRICS.map(number).to_vec()
}

pub(super) fn table_1(data: &ReportData, differences: &[Difference]) -> Option<Section> {
    let sequences = data.sequences.as_ref()?;
    let rows = sequences.cells.iter().map(|cell| {
        let method = data.method(&cell.agent).unwrap_or("–");
        let labels = vec![cell.history.clone(), cell.agent.clone(), method.to_string()];
        let (complete, lives) = cell.complete_lives();
        let ungraded = cell.executions - cell.graded;
        let rest = vec![format!("{complete} of {lives}"), cell.graded.to_string(), ungraded.to_string()];
        Row { labels, numbers: cell_metrics(data, cell), rest }
    });
    let named: Vec<(&str, bool)> = METRICS.iter().map(|(_, name, is_signed)| (*name, *is_signed)).collect();
    let title = format!("Ours beside table 1, {} (points, mean [95 %])", data.published_name());
    let labels = ["history", "agent", "in the paper"];
    let view = beside::view(title, &labels, &named, rows.collect(), &["runs", "graded", "unknown"]);
    let checks = &data.checks;
    let mut tables = vec![view];
    tables.extend(last_view(data));
    Some(Section {
        id: "table-1",
        title: "Table 1: metrics beside the published ones",
        intro: "AP in percent; FWT, BWT and FGT in points; lower FGT is better. The trajectories of figures 3 and 6 are drawn \
                above."
            .into(),
        tables,
        drawings: Vec::new(),
        notes: vec![
            format!(
                "Checked: FWT = (p_warm − p_cold) + BWT − FGT in {} of {} complete runs (in the others a probe is ungraded), \
                 and the memory after each of {} probes is the one before it.",
                checks.identities, checks.lives, checks.probes
            ),
            "Unknown: executions that could not be graded; they leave their means and are never counted as wrong.".into(),
            setting::line(differences, &[Scope::Matrix, Scope::Sequences]),
        ],
    })
}

/// Figures 3 and 6 at the last common occurrence of ours.
pub(super) fn last_changes(data: &ReportData) -> Vec<Beside> {
    let cells = data.sequences.iter().flat_map(|sequences| &sequences.cells);
    let with_method = cells.filter_map(|cell| Some((cell, data.method(&cell.agent).filter(|name| *name != "none")?)));
    with_method
        .filter_map(|(cell, method)| {
            let last = cell.curve.iter().rfind(|point| point.is_common)?;
            let scope = format!("{} {} {method}", data.published_benchmark(), cell.history);
            Some(Beside {
                of: "figures 3 and 6",
                condition: cell.history.clone(),
                agent: cell.agent.clone(),
                method: method.into(),
                metric: format!("change at occurrence {}", last.occurrence),
                value: last.summary.value,
                interval: last.summary.interval,
                n: last.summary.sequences,
                published: published::text("probe_change_at_12", &scope),
            })
        })
        .collect()
}

fn last_view(data: &ReportData) -> Option<crate::report::view::View> {
    let rows = last_changes(data);
    if rows.is_empty() {
        return None;
    }
    let rows = rows.into_iter().map(|row| {
        let labels = vec![row.condition.clone(), row.agent.clone(), row.method.clone(), row.metric.clone()];
        let rest = vec![row.n.to_string()];
        Row { labels, numbers: vec![row], rest }
    });
    let title = format!("Probe change beside figures 3 and 6 (points; the paper's at occurrence {STATED_OCCURRENCE})");
    let labels = ["history", "agent", "in the paper", "ours at"];
    Some(beside::view(title, &labels, &[("change", true)], rows.collect(), &["sequences"]))
}

/// Figure 4: AP minus that of the memory-free agent.
pub(super) fn ap_changes(data: &ReportData) -> Vec<Beside> {
    let contrasts = data.sequences.iter().flat_map(|sequences| &sequences.contrasts);
    contrasts
        .filter(|contrast| contrast.metric == PathMetric::Ap)
        .filter_map(|contrast| {
            let ContrastKind::Baseline { history } = &contrast.kind else { return None };
            let method = data.method(&contrast.agent).unwrap_or_default();
            let ap = |method| published::table_1(data.published_benchmark(), method, history, PathMetric::Ap);
            // The paper's table has two decimals; so has the difference of two of its numbers.
            let difference = |(agent, none): (f64, f64)| ((agent - none) * 100.0).round() / 100.0;
            Some(Beside {
                of: "figure 4",
                condition: history.clone(),
                agent: contrast.agent.clone(),
                method: method.into(),
                metric: "AP change".into(),
                value: contrast.value,
                interval: contrast.interval,
                n: contrast.sequences,
                published: ap(method).zip(ap("none")).map(difference),
            })
        })
        .collect()
}

pub(super) fn figure_4(data: &ReportData, differences: &[Difference]) -> Option<Section> {
    let sequences = data.sequences.as_ref()?;
    let changes = ap_changes(data);
    if changes.iter().all(|change| change.value.is_none()) {
        return None;
    }
    let histories: Vec<&str> = sequences.plan.histories.iter().map(|history| history.name.as_str()).collect();
    let is_shown = |agent: &&String| changes.iter().any(|change| change.agent == **agent);
    let agents: Vec<String> = sequences.plan.agents.iter().filter(is_shown).cloned().collect();
    let rows = agents.iter().map(|agent| {
        let of = |(series, history): (usize, &&str)| {
            let is_it = |change: &&Beside| change.agent == *agent && change.condition == **history;
            Some(changes.iter().find(is_it)?.dot(series))
        };
        histories.iter().enumerate().filter_map(of).collect()
    });
    let panel = DotPanel { title: String::new(), rows: rows.collect() };
    let names: Vec<String> = histories.iter().map(|history| format!("{history} history")).collect();
    let view_rows = changes.into_iter().map(|change| {
        let method = if change.method.is_empty() { "–".to_string() } else { change.method.clone() };
        let labels = vec![change.condition.clone(), change.agent.clone(), method];
        let rest = vec![change.n.to_string()];
        Row { labels, numbers: vec![change], rest }
    });
    let view = beside::view(
        "AP minus that of the memory-free agent (points, paired, mean [95 %])".into(),
        &["history", "agent", "in the paper"],
        &[("AP change", true)],
        view_rows.collect(),
        &["sequences"],
    );
    Some(Section {
        id: "figure-4",
        title: "Figure 4: AP change against the memory-free agent",
        intro: String::new(),
        tables: vec![view],
        drawings: vec![Drawing {
            file: "figure-4".into(),
            title: "Change in average performance".into(),
            legend: legend(names.iter().map(String::as_str)),
            svg: dots(&agents, &[panel], 1, "AP change (points)"),
            caption: format!(
                "Filled circles are ours with 95 % intervals over sequences, hollow diamonds the published differences ({}). \
                 Right of zero the memory pays over a whole life.",
                data.published_name()
            ),
        }],
        notes: vec![setting::line(differences, &[Scope::Matrix, Scope::Sequences])],
    })
}
