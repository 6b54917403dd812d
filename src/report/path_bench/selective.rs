//! Table 2: what selective experience use changes, on the same sequences and runs.

use super::beside::{self, Beside};
use super::published;
use super::setting::{self, Difference, Scope};
use crate::metric::PathMetric;
use crate::report::data::ReportData;
use crate::report::section::Section;
use crate::report::sequence::{Contrast, ContrastKind};

const METRICS: [(PathMetric, &str); 4] =
    [(PathMetric::Ap, "ΔAP"), (PathMetric::Fwt, "ΔFWT"), (PathMetric::Bwt, "ΔBWT"), (PathMetric::Fgt, "ΔFGT")];

/// Pairs of agents by history, with the four contrasts of each.
fn pairs(data: &ReportData) -> Vec<(&str, &str, &str, Vec<&Contrast>)> {
    let mut pairs: Vec<(&str, &str, &str, Vec<&Contrast>)> = Vec::new();
    for contrast in data.sequences.iter().flat_map(|sequences| &sequences.contrasts) {
        let ContrastKind::Against { history, other } = &contrast.kind else { continue };
        let is_it = |pair: &&mut (&str, &str, &str, Vec<&Contrast>)| {
            (pair.0, pair.1, pair.2) == (history.as_str(), contrast.agent.as_str(), other.as_str())
        };
        match pairs.iter_mut().find(is_it) {
            Some(pair) => pair.3.push(contrast),
            None => pairs.push((history, &contrast.agent, other, vec![contrast])),
        }
    }
    pairs
}

fn numbers(data: &ReportData, history: &str, agent: &str, other: &str, contrasts: &[&Contrast]) -> Vec<Beside> {
    let method = data.method(other).filter(|_| data.is_selective(agent)).unwrap_or_default();
    let number = |(metric, name): (PathMetric, &str)| {
        let contrast = contrasts.iter().find(|contrast| contrast.metric == metric)?;
        Some(Beside {
            of: "table 2",
            condition: history.into(),
            agent: agent.into(),
            method: method.into(),
            metric: name.into(),
            value: contrast.value,
            interval: contrast.interval,
            n: contrast.sequences,
            published: published::table_2(data.published_benchmark(), method, history, metric),
        })
    };
    METRICS.into_iter().filter_map(number).collect()
}

pub(super) fn changes(data: &ReportData) -> Vec<Beside> {
    let pairs = pairs(data);
    pairs.iter().flat_map(|(history, agent, other, found)| numbers(data, history, agent, other, found)).collect()
}

pub(super) fn table_2(data: &ReportData, differences: &[Difference]) -> Option<Section> {
    let pairs = pairs(data);
    if pairs.is_empty() {
        return None;
    }
    let rows = pairs.iter().map(|(history, agent, other, found)| {
        let numbers = numbers(data, history, agent, other, found);
        let n = numbers.first().map_or(0, |number| number.n).to_string();
        (vec![history.to_string(), agent.to_string(), other.to_string()], numbers, vec![n])
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
        tables: vec![beside::view(title, &labels, &metrics, rows.collect(), &["sequences"])],
        drawings: Vec::new(),
        notes: vec![setting::line(differences, &[Scope::Matrix, Scope::Sequences, Scope::Selective])],
    })
}
