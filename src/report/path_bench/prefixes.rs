//! Figure 7: the direction of the vote when several demonstrations stand together.

use super::beside::Beside;
use super::published;
use super::setting::{self, Difference, Scope};
use crate::metric::Interval;
use crate::record::experiment::PrefixKind;
use crate::report::data::ReportData;
use crate::report::multi_task::{MultiTask, PrefixGain};
use crate::report::section::{Drawing, Section, legend};
use crate::report::svg::{self, Bracket, Line, Point};
use crate::report::table::{Cell, Column, Kind, Table};
use crate::report::view::{self, View};

/// The published range over all lengths; it was measured on BigCodeBench.
fn published_range(kind: PrefixKind) -> Option<(f64, f64)> {
    let bound = |quantity| published::text(quantity, kind.as_str());
    Some((bound("multi_task_gain_min")?, bound("multi_task_gain_max")?))
}

pub(super) fn gains(data: &ReportData) -> Vec<Beside> {
    let rows = data.multi_task.iter().flat_map(|multi_task| &multi_task.rows);
    rows.map(|row| Beside {
        of: "figure 7",
        condition: format!("{} demonstrations", row.length),
        agent: format!("{} prefixes", row.kind.as_str()),
        method: String::new(),
        metric: "gain".into(),
        value: row.value,
        interval: row.interval,
        n: row.targets,
        published: None,
    })
    .collect()
}

pub(super) fn figure_7(data: &ReportData, differences: &[Difference]) -> anyhow::Result<Option<Section>> {
    let Some(multi_task) = &data.multi_task else { return Ok(None) };
    let range_text = |kind| {
        published_range(kind).map_or_else(
            || "–".to_string(),
            |(low, high)| format!("{} to {}", view::signed(low / 100.0), view::signed(high / 100.0)),
        )
    };
    let headers = ["prefixes", "demonstrations", "gain [95 %]", "paper, 3 to 12", "targets", "graded", "unknown"];
    let mut view = View::new("Mean gain behind several demonstrations (points)", 2, &headers);
    for row in &multi_task.rows {
        view.rows.push(vec![
            row.kind.as_str().into(),
            row.length.to_string(),
            view::signed_interval(row.value, row.interval),
            range_text(row.kind),
            row.targets.to_string(),
            row.graded.to_string(),
            (row.of - row.graded).to_string(),
        ]);
    }
    let verdicts: Vec<String> =
        multi_task.plan.lengths.iter().map(|length| format!("{length}: {}", verdict(multi_task, *length))).collect();
    let above: Vec<String> = multi_task
        .plan
        .lengths
        .iter()
        .map(|length| format!("{length}: {}", above_random(multi_task, *length)))
        .collect();
    let drawings =
        if multi_task.rows.iter().any(|row| row.value.is_some()) { vec![drawing(data)?] } else { Vec::new() };
    Ok(Some(Section {
        id: "figure-7",
        title: "Figure 7: multi-task prefixes",
        intro: "Several tasks with their solutions in front of one target: all helpful by the vote, all misleading, or any. The \
                gain is over the target alone, seed by seed, averaged over prefixes, then over targets."
            .into(),
        tables: vec![view],
        drawings,
        notes: vec![
            format!(
                "The direction of the vote (positive prefixes above zero and negative below), by number of demonstrations: {}.",
                verdicts.join("; ")
            ),
            format!(
                "Any demonstration may help by showing what an answer looks like: what the vote adds is the distance from random \
                 prefixes. Positive minus random, random minus negative (points): {}.",
                above.join("; ")
            ),
            setting::line(differences, &[Scope::Matrix, Scope::MultiTask]),
        ],
    }))
}

/// Whether the direction of the vote survives at a length, and whether by more than the means.
fn verdict(multi_task: &MultiTask, length: u32) -> &'static str {
    let excludes =
        |kind, side: fn(Interval) -> bool| multi_task.row(kind, length).and_then(|row| row.interval).is_some_and(side);
    let is_sure = excludes(PrefixKind::Positive, |interval| interval.low > 0.0)
        && excludes(PrefixKind::Negative, |interval| interval.high < 0.0);
    match multi_task.holds(length) {
        Some(true) if is_sure => "holds",
        Some(true) => "holds in the mean alone",
        Some(false) => "does not hold",
        None => "not known yet",
    }
}

fn above_random(multi_task: &MultiTask, length: u32) -> String {
    let value = |kind| multi_task.row(kind, length).and_then(|row| row.value);
    let random = value(PrefixKind::Random);
    let difference = |left: Option<f64>, right: Option<f64>| {
        left.zip(right).map_or_else(|| "n/a".to_string(), |(left, right)| view::signed(left - right))
    };
    let (positive, negative) = (value(PrefixKind::Positive), value(PrefixKind::Negative));
    format!("{}, {}", difference(positive, random), difference(random, negative))
}

fn drawing(data: &ReportData) -> anyhow::Result<Drawing> {
    let rows = || data.multi_task.iter().flat_map(|multi_task| &multi_task.rows);
    let lines: Vec<Line> = PrefixKind::ALL
        .iter()
        .enumerate()
        .map(|(series, kind)| Line {
            series,
            points: rows().filter(|row| row.kind == *kind).filter_map(point).collect(),
        })
        .collect();
    let brackets: Vec<Bracket> = PrefixKind::ALL
        .iter()
        .enumerate()
        .filter_map(|(series, kind)| published_range(*kind).map(|(low, high)| Bracket { series, low, high }))
        .collect();
    let most = rows().map(|row| row.length).max().unwrap_or(1);
    let values = lines.iter().flat_map(|line| &line.points).flat_map(|point| {
        let bounds = point.interval.map(|interval| [interval.low, interval.high]);
        std::iter::once(point.y).chain(bounds.into_iter().flatten())
    });
    let y = svg::range(values.chain(brackets.iter().flat_map(|bracket| [bracket.low, bracket.high])));
    let x = (0.0, f64::from(most) + 2.0);
    let svg = svg::lines_beside(&lines, &brackets, x, y, ("demonstrations", "mean gain (points)"))?;
    Ok(Drawing {
        file: "figure-7".into(),
        title: "Gain behind several demonstrations".into(),
        legend: legend(["positive prefixes", "negative prefixes", "random prefixes"]),
        svg,
        caption: "Lines are ours with 95 % bands over targets; the brackets at the right are the published ranges over 3 to 12 \
                  demonstrations (BigCodeBench). Positive above zero and negative below: the vote's direction survives; how far it is above random prefixes, \
                  the vote's own part."
            .into(),
    })
}

fn point(row: &PrefixGain) -> Option<Point> {
    let in_points = |interval: Interval| Interval { low: 100.0 * interval.low, high: 100.0 * interval.high };
    Some(Point { x: f64::from(row.length), y: 100.0 * row.value?, interval: row.interval.map(in_points) })
}

pub(super) fn table(data: &ReportData) -> Option<Table> {
    let multi_task = data.multi_task.as_ref()?;
    let columns = [
        ("kind", Kind::Text, "positive, negative or random prefixes"),
        ("length", Kind::Whole, "demonstrations in front of the target"),
        ("gain", Kind::Real, "mean gain in points"),
        ("gain_low", Kind::Real, "lower bound of the 95 % interval, resampling targets"),
        ("gain_high", Kind::Real, "upper bound of the 95 % interval"),
        ("targets", Kind::Whole, "targets that have a value"),
        ("graded", Kind::Whole, "attempts graded"),
        ("attempts", Kind::Whole, "attempts planned"),
    ];
    let columns = columns.map(|(name, kind, about)| Column::new(name, kind, about)).to_vec();
    let mut table = Table::new("multi_task", "one row per kind and length of prefixes", columns);
    for row in &multi_task.rows {
        table.push(vec![
            Cell::text(row.kind.as_str()),
            Cell::whole(row.length),
            Cell::points(row.value),
            Cell::points(row.interval.map(|interval| interval.low)),
            Cell::points(row.interval.map(|interval| interval.high)),
            Cell::whole(row.targets),
            Cell::whole(row.graded),
            Cell::whole(row.of),
        ]);
    }
    Some(table)
}
