//! Table 2: what selective experience use changes, on the same sequences and runs.

use super::beside::{self, Beside, Row};
use super::published;
use super::setting::{self, Difference, Scope};
use crate::metric::PathMetric;
use crate::report::data::ReportData;
use crate::report::memory_use;
use crate::report::section::Section;
use crate::report::sequence::{Contrast, ContrastKind};

const METRICS: [(PathMetric, &str); 4] =
    [(PathMetric::Ap, "ΔAP"), (PathMetric::Fwt, "ΔFWT"), (PathMetric::Bwt, "ΔBWT"), (PathMetric::Fgt, "ΔFGT")];

/// An agent and the one it is compared with under one history.
struct Pair<'a> {
    history: &'a str,
    agent: &'a str,
    other: &'a str,
    contrasts: Vec<&'a Contrast>,
}

/// Every pair, in the plan's order.
fn pairs(data: &ReportData) -> Vec<Pair<'_>> {
    let mut pairs: Vec<Pair<'_>> = Vec::new();
    for contrast in data.sequences.iter().flat_map(|sequences| &sequences.contrasts) {
        let ContrastKind::Against { history, other } = &contrast.kind else { continue };
        let (history, agent, other) = (history.as_str(), contrast.agent.as_str(), other.as_str());
        let is_it = |pair: &&mut Pair<'_>| (pair.history, pair.agent, pair.other) == (history, agent, other);
        match pairs.iter_mut().find(is_it) {
            Some(pair) => pair.contrasts.push(contrast),
            None => pairs.push(Pair { history, agent, other, contrasts: vec![contrast] }),
        }
    }
    pairs
}

fn numbers(data: &ReportData, pair: &Pair<'_>) -> Vec<Beside> {
    let method = data.method(pair.other).filter(|_| data.is_selective(pair.agent)).unwrap_or_default();
    let number = |(metric, name): (PathMetric, &str)| {
        let contrast = pair.contrasts.iter().find(|contrast| contrast.metric == metric)?;
        Some(Beside {
            of: "table 2",
            condition: pair.history.into(),
            agent: pair.agent.into(),
            method: method.into(),
            metric: name.into(),
            value: contrast.value,
            interval: contrast.interval,
            n: contrast.sequences,
            published: published::table_2(data.published_benchmark(), method, pair.history, metric),
        })
    };
    METRICS.into_iter().filter_map(number).collect()
}

pub(super) fn changes(data: &ReportData) -> Vec<Beside> {
    pairs(data).iter().flat_map(|pair| numbers(data, pair)).collect()
}

pub(super) fn table_2(data: &ReportData, differences: &[Difference]) -> Option<Section> {
    let pairs = pairs(data);
    if pairs.is_empty() {
        return None;
    }
    let rows = pairs.iter().map(|pair| {
        let numbers = numbers(data, pair);
        let n = numbers.first().map_or(0, |number| number.n).to_string();
        Row { labels: [pair.history, pair.agent, pair.other].map(String::from).to_vec(), numbers, rest: vec![n] }
    });
    let metrics = METRICS.map(|(_, name)| (name, true));
    let labels = ["history", "agent", "minus"];
    let title = format!("Ours beside table 2, {} (points, paired, mean [95 %])", data.published_name());
    Some(Section {
        id: "table-2",
        title: "Table 2: selective experience use",
        intro: "The agent whose recalled memories are judged before use, minus the same agent without the judge, sequence by \
                sequence and run by run. Negative is good for ΔFGT alone."
            .into(),
        tables: vec![
            beside::view(title, &labels, &metrics, rows.collect(), &["sequences"]),
            memory_use::judged_view(data),
        ],
        drawings: Vec::new(),
        notes: vec![setting::line(differences, &[Scope::Matrix, Scope::Sequences, Scope::Selective])],
    })
}
