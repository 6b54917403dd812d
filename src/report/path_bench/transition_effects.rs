//! Figure 5: what an interval did to the next probe.

use super::beside::{self, Beside, Row};
use super::published;
use super::setting::{self, Difference, Scope};
use crate::report::data::ReportData;
use crate::report::dots::{DotPanel, dots};
use crate::report::section::{Drawing, Section};
use crate::report::table::{Cell, Column, Kind, Table};
use crate::report::transitions::{Effect, TransitionRow};

/// Effects that the figure draws; the others stand in the table alone.
const DRAWN: usize = 4;

fn effect(data: &ReportData, row: &TransitionRow) -> Beside {
    let method = data.method(&row.agent).unwrap_or_default();
    // The paper ran transitions on its code tasks alone.
    let is_published = data.published_benchmark() == "bigcodebench";
    Beside {
        of: "figure 5",
        condition: row.effect.as_str().into(),
        agent: row.agent.clone(),
        method: method.into(),
        metric: "probe change".into(),
        value: row.summary.value,
        interval: row.summary.interval,
        n: row.summary.sequences,
        published: published::figure_5(method, row.effect.as_str()).filter(|_| is_published),
    }
}

pub(super) fn effects(data: &ReportData) -> Vec<Beside> {
    let rows = data.transitions.iter().flat_map(|transitions| &transitions.rows);
    rows.map(|row| effect(data, row)).collect()
}

pub(super) fn figure_5(data: &ReportData, differences: &[Difference]) -> Option<Section> {
    let transitions = data.transitions.as_ref()?;
    let agents = &transitions.plan.agents;
    let of = |effect_of: Effect, agent: &String| transitions.row(effect_of, agent).map(|row| effect(data, row));
    let panels: Vec<DotPanel> = Effect::ALL[..DRAWN]
        .iter()
        .map(|kind| DotPanel {
            title: kind.title().into(),
            rows: agents.iter().map(|agent| of(*kind, agent).iter().map(|row| row.dot(0)).collect()).collect(),
        })
        .collect();
    let rows = agents.iter().map(|agent| {
        let labels = vec![agent.clone(), data.method(agent).unwrap_or("–").to_string()];
        let numbers: Vec<Beside> = Effect::ALL.iter().filter_map(|kind| of(*kind, agent)).collect();
        let n = numbers.first().map_or(0, |number| number.n).to_string();
        Row { labels, numbers, rest: vec![n] }
    });
    let metrics = Effect::ALL.map(|kind| (kind.title(), true));
    let view = beside::view(
        "Change of the probe's score (points, mean [95 %])".into(),
        &["agent", "in the paper"],
        &metrics,
        rows.collect(),
        &["sequences"],
    );
    Some(Section {
        id: "figure-5",
        title: "Figure 5: controlled path transitions",
        intro: "Probe, interval, probe, interval, probe; each interval is wholly positive or wholly negative for the probe. \
                Initial: second probe minus first, over the two conditions that begin alike (their runs are equal up to the \
                second probe). Then: third probe minus second."
            .into(),
        tables: vec![view],
        drawings: vec![Drawing {
            file: "figure-5".into(),
            title: "Effect of an interval on the next probe".into(),
            legend: Vec::new(),
            svg: dots(agents, &panels, 2, "change of the probe (points)"),
            caption: "Filled circles are ours with 95 % intervals over matched sequences, hollow diamonds the published means. \
                      A memory-free agent shows how much a probe moves by itself."
                .into(),
        }],
        notes: vec![setting::line(differences, &[Scope::Matrix, Scope::Transitions])],
    })
}

pub(super) fn table(data: &ReportData) -> Option<Table> {
    let transitions = data.transitions.as_ref()?;
    let columns = [
        ("effect", Kind::Text, "which change of the probe's score"),
        ("agent", Kind::Text, "name in the run file"),
        ("change", Kind::Real, "mean change in points"),
        ("change_low", Kind::Real, "lower bound of the 95 % interval"),
        ("change_high", Kind::Real, "upper bound of the 95 % interval"),
        ("sequences", Kind::Whole, "matched sequences that have a value"),
        ("runs", Kind::Whole, "runs that have a value, over the conditions pooled"),
    ];
    let columns = columns.map(|(name, kind, about)| Column::new(name, kind, about)).to_vec();
    let mut table = Table::new("transitions", "one row per effect and agent", columns);
    for row in &transitions.rows {
        table.push(vec![
            Cell::text(row.effect.as_str()),
            Cell::text(&row.agent),
            Cell::points(row.summary.value),
            Cell::points(row.summary.interval.map(|interval| interval.low)),
            Cell::points(row.summary.interval.map(|interval| interval.high)),
            Cell::whole(row.summary.sequences),
            Cell::whole(row.summary.runs),
        ]);
    }
    Some(table)
}
