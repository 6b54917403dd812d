//! pass@k of code benchmarks from a model's zero-shot attempts (Chen et al. 2021, §2.1): the chance that one of k attempts
//! passes, estimated without bias from all of them.

use crate::metric::{mean, pass_at_k};

use super::data::ReportData;
use super::table::{Cell, Column, Kind, Table};
use super::view::{View, share};

/// The values of k that public leaderboards print.
const KS: [u64; 5] = [1, 5, 10, 25, 100];
/// Benchmarks that are published with pass@k.
const BENCHMARKS: [&str; 2] = ["bigcodebench", "humaneval"];

struct Row<'a> {
    model: &'a str,
    k: u64,
    value: f64,
    tasks: usize,
}

fn rows(data: &ReportData) -> Vec<Row<'_>> {
    let name = data.identity.config.get("benchmark").and_then(|benchmark| benchmark.get("name")?.as_str());
    if !name.is_some_and(|name| BENCHMARKS.contains(&name)) {
        return Vec::new();
    }
    let mut rows = Vec::new();
    for matrix in &data.matrices {
        let counts: Vec<(u64, u64)> = matrix
            .zero_shot
            .iter()
            .filter(|row| row.mean.graded > 0)
            .map(|row| {
                let graded = row.mean.graded as u64;
                // Scores are 0 or 1, so the mean counts those that passed.
                (graded, (row.mean.value.unwrap_or(0.0) * graded as f64).round() as u64)
            })
            .collect();
        let fewest = counts.iter().map(|(graded, _)| *graded).min().unwrap_or(0);
        for k in KS.into_iter().filter(|k| *k <= fewest) {
            let values: Vec<f64> = counts.iter().filter_map(|(n, c)| pass_at_k(*n, *c, k)).collect();
            if let Some(value) = mean(&values) {
                rows.push(Row { model: &matrix.model, k, value, tasks: values.len() });
            }
        }
    }
    rows
}

/// `None` for benchmarks that are not published with pass@k.
pub(super) fn table(data: &ReportData) -> Option<Table> {
    let columns = vec![
        Column::new("model", Kind::Text, "backbone"),
        Column::new("k", Kind::Whole, "attempts of which one must pass"),
        Column::new("pass_at_k", Kind::Real, "mean over tasks of the unbiased estimate, in score units"),
        Column::new("tasks", Kind::Whole, "tasks with graded attempts"),
    ];
    let mut table = Table::new("pass_at_k", "one row per model and k, from zero-shot attempts", columns);
    for row in rows(data) {
        table.push(vec![
            Cell::text(row.model),
            Cell::whole(row.k),
            Cell::real(Some(row.value)),
            Cell::whole(row.tasks),
        ]);
    }
    (!table.rows.is_empty()).then_some(table)
}

pub(super) fn view(data: &ReportData) -> View {
    let mut view = View::new("pass@k, zero-shot", 1, &["model", "k", "pass@k", "tasks"]);
    for row in rows(data) {
        view.rows.push(vec![row.model.to_string(), row.k.to_string(), share(Some(row.value)), row.tasks.to_string()]);
    }
    view
}
