//! A number of ours and the published one, for people and as a file.

use crate::metric::Interval;
use crate::report::data::ReportData;
use crate::report::dots::Dot;
use crate::report::table::{Cell, Column, Kind, Table};
use crate::report::view::{self, View};

/// One number beside the published one. Ours is a share, the published in points as printed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Beside {
    /// Table or figure of the paper.
    pub of: &'static str,
    /// History, condition or length.
    pub condition: String,
    pub agent: String,
    /// What the paper calls it; empty where it has no such thing.
    pub method: String,
    pub metric: String,
    pub value: Option<f64>,
    pub interval: Option<Interval>,
    /// Units that the mean is over.
    pub n: usize,
    pub published: Option<f64>,
}

impl Beside {
    /// Ours, with its interval.
    pub fn ours(&self, is_signed: bool) -> String {
        if is_signed {
            view::signed_interval(self.value, self.interval)
        } else {
            view::interval(self.value, self.interval)
        }
    }

    /// The published number as printed, a dash where there is none.
    pub fn theirs(&self, is_signed: bool) -> String {
        let Some(value) = self.published else { return "–".into() };
        // With as many decimals as the paper prints.
        let digits = format!("{:.1$}", value.abs(), if self.of == "figure 5" { 1 } else { 2 });
        match value {
            value if value < 0.0 => format!("−{digits}"),
            value if value > 0.0 && is_signed => format!("+{digits}"),
            _ => digits,
        }
    }

    pub fn dot(&self, series: usize) -> Dot {
        Dot {
            series,
            value: self.value.map(|value| 100.0 * value),
            interval: self.interval.map(|interval| Interval { low: 100.0 * interval.low, high: 100.0 * interval.high }),
            published: self.published,
        }
    }
}

/// A row of a table: labels, one number a metric, and what stands behind them.
pub(super) struct Row {
    pub labels: Vec<String>,
    pub numbers: Vec<Beside>,
    pub rest: Vec<String>,
}

/// A table with two columns a metric, ours and the paper's.
pub(super) fn view(
    title: String,
    labels: &[&str],
    metrics: &[(&str, bool)],
    rows: Vec<Row>,
    trailing: &[&str],
) -> View {
    let mut headers = labels.to_vec();
    for (name, _) in metrics {
        headers.extend([*name, "paper"]);
    }
    headers.extend(trailing);
    let mut view = View::new(title, labels.len(), &headers);
    for Row { labels: mut row, numbers, rest } in rows {
        for (number, (_, is_signed)) in numbers.iter().zip(metrics) {
            row.extend([number.ours(*is_signed), number.theirs(*is_signed)]);
        }
        row.extend(rest);
        view.rows.push(row);
    }
    view
}

/// Every number that has a published twin, one a row.
pub(super) fn table(data: &ReportData) -> Option<Table> {
    let columns = [
        ("of", Kind::Text, "table or figure of the paper"),
        ("condition", Kind::Text, "history, interval, length or path"),
        ("agent", Kind::Text, "name in the run file, model or kind of prefix"),
        ("method", Kind::Text, "what the paper calls it; empty where it has no such thing"),
        ("metric", Kind::Text, "what is compared"),
        ("ours", Kind::Real, "points"),
        ("ours_low", Kind::Real, "lower bound of the 95 % interval"),
        ("ours_high", Kind::Real, "upper bound of the 95 % interval"),
        ("n", Kind::Whole, "sequences, targets or pairs that ours is over"),
        ("published", Kind::Real, "points, as printed; empty where the paper prints none"),
    ];
    let columns = columns.map(|(name, kind, about)| Column::new(name, kind, about)).to_vec();
    let mut table = Table::new("beside_published", "one row per number that stands beside one of the paper", columns);
    let mut rows = super::lives::metrics(data);
    rows.extend(super::lives::ap_changes(data));
    rows.extend(super::lives::last_changes(data));
    rows.extend(super::transition_effects::effects(data));
    rows.extend(super::selective::changes(data));
    rows.extend(super::agreement::shares(data));
    rows.extend(super::prefixes::gains(data));
    for row in &rows {
        let bound = |bound: fn(&Interval) -> f64| Cell::points(row.interval.as_ref().map(bound));
        table.push(vec![
            Cell::text(row.of),
            Cell::text(&row.condition),
            Cell::text(&row.agent),
            if row.method.is_empty() { Cell::Empty } else { Cell::text(&row.method) },
            Cell::text(&row.metric),
            Cell::points(row.value),
            bound(|interval| interval.low),
            bound(|interval| interval.high),
            Cell::whole(row.n),
            Cell::real(row.published),
        ]);
    }
    (!rows.is_empty()).then_some(table)
}
