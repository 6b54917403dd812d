//! The turns of tool dialogues: accuracy by kind, place and transition, shortest orders, progress, errors.

use std::collections::BTreeMap;

use crate::metric::{Portion, ToolTurns, tool_turns};
use crate::record::AttemptRecord;
use crate::record::tool::ToolVerdict;

use super::data::ReportData;
use super::table::{Cell, Column, Kind, Table};
use super::view::{View, share};

/// Attempts that are reported together: a model's attempts without or behind a demonstration, or an agent's.
fn parts(records: &[AttemptRecord]) -> BTreeMap<(&str, &'static str), Vec<ToolVerdict>> {
    let mut parts: BTreeMap<(&str, &'static str), Vec<ToolVerdict>> = BTreeMap::new();
    for record in records {
        let Some(verdict) = ToolVerdict::from_detail(&record.detail) else { continue };
        let condition = match (record.coord.stage.starts_with("matrix/"), record.coord.sequence) {
            (true, 0) => "zero-shot",
            (true, _) => "one-shot",
            (false, _) => "sequence",
        };
        parts.entry((record.coord.stage.as_str(), condition)).or_default().push(verdict);
    }
    parts
}

fn metrics(data: &ReportData) -> Vec<((&str, &'static str), ToolTurns)> {
    parts(&data.records).into_iter().map(|(part, verdicts)| (part, tool_turns(verdicts.iter()))).collect()
}

/// Every metric, one a row; `None` where no attempt was a tool dialogue.
pub(super) fn table(data: &ReportData) -> Option<Table> {
    let columns = vec![
        Column::new("stage", Kind::Text, "stage of the run"),
        Column::new("condition", Kind::Text, "zero-shot, one-shot or sequence"),
        Column::new(
            "metric",
            Kind::Text,
            "turn accuracy, session accuracy, optimal path, progress, error, unwinnable or other rules differ",
        ),
        Column::new("group", Kind::Text, "kind, place or transition of the turns, or the kind of error"),
        Column::new("part", Kind::Whole, "right turns or sessions, or steps; for errors how often"),
        Column::new("of", Kind::Whole, "turns, sessions or actions"),
        Column::new("share", Kind::Real, "part over of"),
    ];
    let mut table = Table::new("tool_turns", "one row per metric of the turns of tool dialogues", columns);
    for ((stage, condition), found) in metrics(data) {
        let mut row = |metric: &str, group: &str, portion: Portion| {
            table.push(vec![
                Cell::text(stage),
                Cell::text(condition),
                Cell::text(metric),
                Cell::text(group),
                Cell::whole(portion.part),
                Cell::whole(portion.of),
                Cell::real(portion.share()),
            ]);
        };
        row("turn accuracy", "all", found.turns);
        row("session accuracy", "all", found.sessions);
        found.kinds.iter().for_each(|(kind, portion)| row("turn accuracy", kind, *portion));
        found.places.iter().for_each(|(place, portion)| row("turn accuracy", &format!("turn {place}"), *portion));
        found.transitions.iter().for_each(|(transition, portion)| row("turn accuracy", transition, *portion));
        found.optimal.iter().for_each(|(kind, portion)| row("optimal path", kind, *portion));
        found.progress.iter().for_each(|(kind, portion)| row("progress", kind, *portion));
        let of = found.turns.of;
        found.faults.iter().for_each(|(fault, part)| row("error", fault, Portion { part: *part, of }));
        row("unwinnable", "all", Portion { part: found.unwinnable, of });
        row("other rules differ", "all", Portion { part: found.differing, of });
    }
    (!table.rows.is_empty()).then_some(table)
}

/// The main metrics, one row a part of the run.
pub(super) fn view(data: &ReportData) -> View {
    let headers = [
        "stage",
        "",
        "turns",
        "turn accuracy",
        "session accuracy",
        "optimal path",
        "progress",
        "unwinnable turns",
        "other rules differ",
        "most frequent error",
    ];
    let mut view = View::new("Tool dialogues", 2, &headers);
    for ((stage, condition), found) in metrics(data) {
        let total = |groups: &BTreeMap<String, Portion>| share(groups.get("Total").and_then(|portion| portion.share()));
        // The first of the most frequent, by name.
        let worst = found.faults.iter().rev().max_by_key(|(_, count)| **count);
        view.rows.push(vec![
            stage.to_string(),
            condition.to_string(),
            found.turns.of.to_string(),
            share(found.turns.share()),
            share(found.sessions.share()),
            total(&found.optimal),
            total(&found.progress),
            found.unwinnable.to_string(),
            found.differing.to_string(),
            worst.map_or_else(|| "–".to_string(), |(fault, count)| format!("{fault} ({count})")),
        ]);
    }
    view
}
