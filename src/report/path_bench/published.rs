//! What PATH-Bench printed, as facts beside ours: never averaged with them, and empty where the paper printed nothing.
//!
//! The numbers were measured with other backbones on other machines; [`setting`](super::setting) says what is different.

use serde_json::Value;

use crate::metric::PathMetric;
use crate::report::data::ReportData;

/// One table of facts: named columns, rows of texts.
struct Facts(&'static str);

const TABLE_1: Facts = Facts(include_str!("published/table_1.csv"));
const TABLE_2: Facts = Facts(include_str!("published/table_2.csv"));
const TABLE_3: Facts = Facts(include_str!("published/table_3.csv"));
const FIGURE_1: Facts = Facts(include_str!("published/figure_1.csv"));
const FIGURE_5: Facts = Facts(include_str!("published/figure_5.csv"));
const TEXT: Facts = Facts(include_str!("published/text.csv"));

/// The memories of the paper's agents, and what the paper calls them.
pub(super) const METHODS: [(&str, &str); 10] = [
    ("none", "none"),
    ("rag", "BGE-M3 RAG"),
    ("hipporag", "HippoRAG-v2"),
    ("clin", "Clin"),
    ("awm", "AWM"),
    ("simplemem", "SimpleMem"),
    ("simplemem_paper", "SimpleMem"),
    ("memrl", "MemRL"),
    ("autoskill", "AutoSkill"),
    ("skillclaw", "SkillClaw"),
];

impl Facts {
    /// The rows in which every named column has the given text.
    fn rows(&self, wanted: &[(&str, &str)]) -> impl Iterator<Item = Vec<(&'static str, &'static str)>> {
        let mut lines = self.0.lines().filter(|line| !line.starts_with('#'));
        let header: Vec<&'static str> = lines.next().unwrap_or_default().split(',').collect();
        let wanted: Vec<(String, String)> =
            wanted.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        lines
            .map(move |line| header.iter().copied().zip(line.split(',')).collect::<Vec<_>>())
            .filter(move |row| wanted.iter().all(|(name, value)| cell(row, name) == Some(value.as_str())))
    }

    fn number(&self, wanted: &[(&str, &str)], column: &str) -> Option<f64> {
        cell(&self.rows(wanted).next()?, column)?.parse().ok()
    }
}

fn cell<'a>(row: &[(&str, &'a str)], column: &str) -> Option<&'a str> {
    row.iter().find(|(name, _)| *name == column).map(|(_, value)| *value)
}

impl ReportData {
    /// The agents of the run's config.
    pub(in crate::report) fn agents(&self) -> impl Iterator<Item = &Value> {
        self.identity.config.get("agents").and_then(Value::as_array).into_iter().flatten()
    }

    fn memory_of(&self, agent: &str) -> Option<&str> {
        self.agents().find(|other| other["name"].as_str() == Some(agent))?.get("memory")?.as_str()
    }

    /// What the paper calls an agent of the run; `None` for one that it does not have.
    pub(in crate::report) fn method(&self, agent: &str) -> Option<&'static str> {
        method(self.memory_of(agent)?)
    }

    /// Whether an agent is another's memory under selective experience use.
    pub(in crate::report) fn is_selective(&self, agent: &str) -> bool {
        self.memory_of(agent) == Some("seu")
    }

    /// The benchmark of the paper whose numbers stand beside the run's: its own, WildToolBench for other tool use, or
    /// BigCodeBench for a run on other tasks.
    pub(in crate::report) fn published_benchmark(&self) -> &'static str {
        match self.identity.config.pointer("/benchmark/name").and_then(Value::as_str) {
            Some("wildtoolbench" | "bfcl") => "wildtoolbench",
            _ => "bigcodebench",
        }
    }

    /// The same in words.
    pub(in crate::report) fn published_name(&self) -> &'static str {
        if self.published_benchmark() == "wildtoolbench" { "WildToolBench" } else { "BigCodeBench" }
    }
}

/// What the paper calls a memory; `None` for one that it does not run.
pub(super) fn method(memory: &str) -> Option<&'static str> {
    METHODS.iter().find(|(name, _)| *name == memory).map(|(_, method)| *method)
}

/// Table 1, in points.
pub(super) fn table_1(benchmark: &str, method: &str, history: &str, metric: PathMetric) -> Option<f64> {
    TABLE_1.number(&[("benchmark", benchmark), ("method", method), ("history", history)], metric.as_str())
}

/// Table 2: the change under selective experience use, in points.
pub(super) fn table_2(benchmark: &str, method: &str, history: &str, metric: PathMetric) -> Option<f64> {
    let column = format!("delta_{}", metric.as_str());
    TABLE_2.number(&[("benchmark", benchmark), ("method", method), ("history", history)], &column)
}

/// Table 3: each model and its agreement with the vote, in percent.
pub(super) fn table_3(benchmark: &str) -> Vec<(&'static str, f64)> {
    TABLE_3.rows(&[]).filter_map(|row| Some((cell(&row, "model")?, cell(&row, benchmark)?.parse().ok()?))).collect()
}

/// Figure 1: a method's ranks in one metric under the two paths.
pub(super) fn figure_1(method: &str, metric: &str) -> Option<[u32; 2]> {
    let wanted = [("method", method), ("metric", metric)];
    let rank = |column| FIGURE_1.number(&wanted, column).map(|rank| rank as u32);
    Some([rank("rank_path1")?, rank("rank_path2")?])
}

/// Figure 5: a method's mean change in points; `effect` is a column of the figure.
pub(super) fn figure_5(method: &str, effect: &str) -> Option<f64> {
    FIGURE_5.number(&[("method", method)], effect)
}

/// A number of the running text.
pub(super) fn text(quantity: &str, scope: &str) -> Option<f64> {
    TEXT.number(&[("quantity", quantity), ("scope", scope)], "value")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_found_and_what_was_not_printed_is_absent() {
        assert_eq!(table_1("bigcodebench", "AWM", "negative", PathMetric::Fwt), Some(-8.36));
        assert_eq!(table_1("bigcodebench", "none", "positive", PathMetric::Ap), Some(70.18));
        assert_eq!(table_1("bigcodebench", "none", "positive", PathMetric::Fwt), None);
        assert_eq!(table_1("bigcodebench", "AWM", "positive", PathMetric::Change), None);
        assert_eq!(table_2("wildtoolbench", "AutoSkill", "positive", PathMetric::Fgt), Some(-2.95));
        assert_eq!(table_2("wildtoolbench", "Clin", "positive", PathMetric::Fgt), None);
        assert_eq!(table_3("wildtoolbench")[1], ("GPT-5.4-mini", 66.37));
        assert_eq!(figure_1("Clin", "fgt"), Some([3, 4]));
        assert_eq!(figure_5("BGE-M3 RAG", "initial_negative"), Some(-14.7));
        assert_eq!(text("multi_task_gain_min", "negative"), Some(-15.9));
    }

    #[test]
    fn every_cell_of_every_table_is_a_number_or_empty() {
        for facts in [TABLE_1, TABLE_2, TABLE_3, FIGURE_1, FIGURE_5, TEXT] {
            let mut rows = 0;
            for row in facts.rows(&[]) {
                rows += 1;
                let texts = ["benchmark", "family", "method", "history", "metric", "model", "quantity", "scope"];
                for (column, value) in row.into_iter().filter(|(column, _)| !texts.contains(column)) {
                    assert!(value.is_empty() || value.parse::<f64>().is_ok(), "{column}: {value}");
                }
            }
            assert!(rows >= 3);
        }
    }

    #[test]
    fn every_method_of_the_tables_is_a_memory() {
        for row in TABLE_1.rows(&[]).chain(TABLE_2.rows(&[])).chain(FIGURE_5.rows(&[])).chain(FIGURE_1.rows(&[])) {
            let method = cell(&row, "method").unwrap();
            assert!(METHODS.iter().any(|(_, name)| *name == method), "{method}");
        }
    }
}
