//! Table 3: each voter's agreement with the vote.

use super::beside::Beside;
use super::published;
use super::setting::{self, Difference, Scope};
use crate::report::data::ReportData;
use crate::report::section::Section;
use crate::report::table::{Cell, Column, Kind, Table};
use crate::report::view::View;

const DECIDED: &str = "decided pairs";

/// Agreement of each voter, then the share of pairs that the vote decides.
pub(super) fn shares(data: &ReportData) -> Vec<Beside> {
    let Some(decided) = &data.decided else { return Vec::new() };
    let published = published::table_3(data.published_benchmark());
    let mut shares: Vec<Beside> = data
        .voters
        .iter()
        .map(|row| Beside {
            of: "table 3",
            condition: "all voters".into(),
            agent: row.voter.clone(),
            method: String::new(),
            metric: "agreement".into(),
            value: row.value,
            interval: row.interval,
            n: row.pairs,
            // Only a model that the paper had has a twin.
            published: published.iter().find(|(model, _)| *model == row.model).map(|(_, value)| *value),
        })
        .collect();
    shares.push(Beside {
        of: "table 3",
        condition: "all voters".into(),
        agent: DECIDED.into(),
        method: String::new(),
        metric: "share".into(),
        value: decided.value,
        interval: decided.interval,
        n: decided.pairs,
        published: published::text("non_mixed_share", data.published_benchmark()),
    });
    shares
}

pub(super) fn table_3(data: &ReportData, differences: &[Difference]) -> Option<Section> {
    let shares = shares(data);
    if shares.is_empty() {
        return None;
    }
    let mut ours = View::new("Agreement with the vote (percent [95 %])", 1, &["voter", "agreement", "pairs counted"]);
    for share in shares.iter().filter(|share| share.metric == "agreement") {
        ours.rows.push(vec![share.agent.clone(), share.ours(false), share.n.to_string()]);
    }
    let mut theirs = View::new(format!("Table 3 as printed, {}", data.published_name()), 1, &["model", "agreement"]);
    for (model, value) in published::table_3(data.published_benchmark()) {
        theirs.rows.push(vec![model.into(), format!("{value:.2}")]);
    }
    let decided = shares.iter().find(|share| share.agent == DECIDED)?;
    let mut notes = vec![format!(
        "The vote decides {} % of {} ordered pairs (paper: {} %); the others are mixed and never sampled. Intervals resample \
         target tasks, each with all its pairs.",
        decided.ours(false),
        decided.n,
        decided.theirs(false)
    )];
    if data.voters.len() == 1 {
        notes.push("A single voter agrees with itself: its row says nothing.".into());
    }
    notes.push(setting::line(differences, &[Scope::Matrix]));
    Some(Section {
        id: "table-3",
        title: "Table 3: sign agreement with the vote",
        intro:
            "Share of pairs with a decided vote where a voter's own sign is the voted one. A task with itself does not \
                count."
                .into(),
        tables: vec![ours, theirs],
        drawings: Vec::new(),
        notes,
    })
}

pub(super) fn table(data: &ReportData) -> Option<Table> {
    let columns = [
        ("voter", Kind::Text, "a backbone, or a group of its seeds"),
        ("model", Kind::Text, "the backbone"),
        ("agreement", Kind::Real, "percent of decided pairs where its sign is the voted one"),
        ("agreement_low", Kind::Real, "lower bound of the 95 % interval, resampling targets"),
        ("agreement_high", Kind::Real, "upper bound of the 95 % interval"),
        ("pairs", Kind::Whole, "decided pairs that are graded for this voter"),
    ];
    let columns = columns.map(|(name, kind, about)| Column::new(name, kind, about)).to_vec();
    let mut table = Table::new("agreement", "one row per voter", columns);
    for row in &data.voters {
        table.push(vec![
            Cell::text(&row.voter),
            Cell::text(&row.model),
            Cell::points(row.value),
            Cell::points(row.interval.map(|interval| interval.low)),
            Cell::points(row.interval.map(|interval| interval.high)),
            Cell::whole(row.pairs),
        ]);
    }
    (!data.voters.is_empty()).then_some(table)
}
