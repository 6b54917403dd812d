//! What of a run is not as in PATH-Bench, computed from the run's own config and plans: a number beside a published one
//! says what it may be compared in.

use std::collections::BTreeSet;

use serde_json::Value;

use super::published;
use crate::record::plan::VoteMeasure;
use crate::report::data::ReportData;
use crate::report::view::View;

/// Which numbers a setting bears on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Everything,
    Matrix,
    Sequences,
    MultiTask,
    Transitions,
    Orders,
    Selective,
}

impl Scope {
    fn title(self) -> &'static str {
        match self {
            Scope::Everything => "everything",
            Scope::Matrix => "gains and votes",
            Scope::Sequences => "sequences",
            Scope::MultiTask => "multi-task prefixes",
            Scope::Transitions => "transitions",
            Scope::Orders => "task orders",
            Scope::Selective => "selective experience use",
        }
    }
}

/// One setting that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub scope: Scope,
    pub what: &'static str,
    pub paper: String,
    pub here: String,
}

/// Every setting that the paper states and the run has otherwise, and those that it leaves open and a run must fix.
pub(in crate::report) fn differences(data: &ReportData) -> Vec<Difference> {
    let mut found = Found { data, differences: Vec::new() };
    found.everything();
    if !data.matrices.is_empty() {
        found.matrix();
    }
    if data.sequences.is_some() {
        found.sequences();
        found.selective();
    }
    if let Some(multi_task) = &data.multi_task {
        let plan = &multi_task.plan;
        found.number(Scope::MultiTask, "targets", 50, plan.targets.len() as u64);
        found.text(Scope::MultiTask, "prefix lengths", "[3, 6, 9, 12]", &format!("{:?}", plan.lengths));
        found.number(Scope::MultiTask, "prefixes of a target and length", 3, u64::from(plan.sequences));
        found.number(Scope::MultiTask, "seeds of a prefix", 5, u64::from(plan.seeds));
    }
    if let Some(transitions) = &data.transitions {
        let plan = &transitions.plan;
        let first = plan.histories.first().map_or(0, |history| history.sequences.len());
        found.number(Scope::Transitions, "matched sequences", 30, first as u64);
        found.number(Scope::Transitions, "runs of a sequence", 5, u64::from(plan.runs));
        found.number(Scope::Transitions, "tasks of an interval", 5, found.config_number("/transitions/interval"));
    }
    if let Some(orders) = &data.orders {
        let plan = &orders.plan;
        found.add(Scope::Orders, "tasks", "of LifelongAgentBench".into(), found.benchmark());
        let tasks = plan.paths.first().map_or(0, |path| path.tasks.len());
        found.number(Scope::Orders, "tasks of a path", 50, tasks as u64);
        found.number(Scope::Orders, "paths", 2, plan.paths.len() as u64);
        found.number(Scope::Orders, "runs of a path", 3, u64::from(plan.runs));
    }
    found.differences
}

/// The differences as a table; empty when there are none.
pub(in crate::report) fn view(differences: &[Difference]) -> View {
    let mut view = View::new("Not as in the paper", 4, &["bears on", "setting", "paper", "here"]);
    view.rows.extend(
        differences
            .iter()
            .map(|row| vec![row.scope.title().into(), row.what.into(), row.paper.clone(), row.here.clone()]),
    );
    view
}

/// One line that names everything that differs for these scopes.
pub(in crate::report) fn line(differences: &[Difference], scopes: &[Scope]) -> String {
    let named: Vec<String> = differences
        .iter()
        .filter(|row| row.scope == Scope::Everything || scopes.contains(&row.scope))
        .map(|row| format!("{}: {} (paper: {})", row.what, row.here, row.paper))
        .collect();
    if named.is_empty() {
        "Every setting that the paper states is as stated there.".into()
    } else {
        format!("Not as in the paper: {}.", named.join("; "))
    }
}

struct Found<'a> {
    data: &'a ReportData,
    differences: Vec<Difference>,
}

impl Found<'_> {
    fn add(&mut self, scope: Scope, what: &'static str, paper: String, here: String) {
        self.differences.push(Difference { scope, what, paper, here });
    }

    fn number(&mut self, scope: Scope, what: &'static str, paper: u64, here: u64) {
        self.text(scope, what, &paper.to_string(), &here.to_string());
    }

    fn text(&mut self, scope: Scope, what: &'static str, paper: &str, here: &str) {
        if paper != here {
            self.add(scope, what, paper.into(), here.into());
        }
    }

    fn config(&self, path: &str) -> &Value {
        self.data.identity.config.pointer(path).unwrap_or(&Value::Null)
    }

    fn config_number(&self, path: &str) -> u64 {
        self.config(path).as_u64().unwrap_or(0)
    }

    fn benchmark(&self) -> String {
        self.config("/benchmark/name").as_str().unwrap_or("unknown").to_string()
    }

    fn everything(&mut self) {
        let benchmark = self.benchmark();
        if !["bigcodebench", "wildtoolbench"].contains(&benchmark.as_str()) {
            self.add(Scope::Everything, "tasks", "BigCodeBench and WildToolBench".into(), benchmark.clone());
        }
        if benchmark == "bigcodebench" {
            let environment = self.config("/benchmark/options/environment").as_str().map(String::from);
            let python = self.config("/benchmark/options/python").as_str().unwrap_or("python3").to_string();
            if environment.is_none() {
                let here = format!("`{python}` as it is on this machine");
                self.add(Scope::Everything, "Python of the tests", "3.10 with pinned packages".into(), here);
            }
            let split = self.config("/benchmark/options/split").as_str().unwrap_or("instruct").to_string();
            self.add(Scope::Everything, "split of the prompts", "not stated".into(), split);
        }
        if self.config("/benchmark/options/libraries").as_str() == Some("standard") {
            self.add(Scope::Everything, "libraries of the tasks", "all".into(), "the standard library alone".into());
        }
        let kept = self.data.pool.as_ref().map(|pool| (pool.kept.len(), pool.tasks.len()));
        if let Some((kept, of)) = kept.filter(|(kept, _)| *kept != 120) {
            self.add(Scope::Everything, "pool", "120 tasks with headroom".into(), format!("{kept} of {of} tasks"));
        }
        let paper = "by strong models' scores, limits not stated";
        let bound = |name: &str| self.config(&format!("/matrix/headroom/{name}")).as_f64();
        let here = match (bound("min"), bound("max")) {
            (Some(min), Some(max)) if min > 0.0 || max < 1.0 => {
                let of = if self.config("/matrix/headroom/scores").is_null() { "this run" } else { "a file" };
                format!("scores of {of} in {min}..{max}")
            }
            _ => "none".into(),
        };
        self.add(Scope::Everything, "headroom filter", paper.into(), here);
        let backbone = self.config("/models/backbones/0").as_str().unwrap_or("unknown").to_string();
        self.text(Scope::Everything, "backbone of the agents", "DeepSeek-V4-Flash", &backbone);
        let sampling = self.config("/sampling");
        let part =
            |name: &str| sampling.get(name).filter(|value| !value.is_null()).map(|value| format!("{name} {value}"));
        let here: Vec<String> =
            ["temperature", "top_p", "top_k", "min_p", "max_tokens"].iter().filter_map(|name| part(name)).collect();
        self.add(Scope::Everything, "sampling", "not stated".into(), here.join(", "));
    }

    fn matrix(&mut self) {
        let voters = self.data.vote.as_ref().map_or_else(|| "none".into(), |vote| vote.voters.join(", "));
        self.text(Scope::Matrix, "voters", "DeepSeek-V4-Flash, GPT-5.4-mini, GLM-5.0", &voters);
        let by = self.data.vote.as_ref().map(|vote| vote.by);
        if let Some(VoteMeasure::LogProbability | VoteMeasure::LogProbabilityOverMedian) = by {
            let over =
                if by == Some(VoteMeasure::LogProbability) { "alone" } else { "its median behind all demonstrations" };
            let here = format!("log-probability of the reference, minus {over}");
            self.add(Scope::Matrix, "gains that vote", "score, minus alone".into(), here);
        }
        self.number(Scope::Matrix, "seeds of a pair", 5, self.config_number("/matrix/seeds"));
        if !self.config("/matrix/stopping").is_null() {
            self.add(Scope::Matrix, "seeds", "all".into(), "end once a sign is settled".into());
        }
    }

    fn sequences(&mut self) {
        let scope = Scope::Sequences;
        for (what, paper, path) in [
            ("sequences of a history", 50, "/sequence/sequences"),
            ("runs of a sequence", 5, "/sequence/runs"),
            ("warm-up tasks", 5, "/sequence/warm_up"),
            ("intervening tasks", 100, "/sequence/intervening"),
        ] {
            self.number(scope, what, paper, self.config_number(path));
        }
        let here = [self.config_number("/sequence/probe_interval/0"), self.config_number("/sequence/probe_interval/1")];
        self.text(scope, "tasks between probes", "6 to 12", &format!("{} to {}", here[0], here[1]));
        let share = self.config("/sequence/dominant_share").as_f64().unwrap_or(0.0) * 100.0;
        self.text(scope, "share of the dominant set", "70 %", &format!("{share:.0} %"));
        let run: Vec<&str> = self.memories().into_iter().filter_map(|(_, memory)| published::method(&memory)).collect();
        let mut absent: Vec<&str> = published::METHODS
            .iter()
            .map(|(_, method)| *method)
            .filter(|method| *method != "none" && !run.contains(method))
            .collect();
        absent.dedup();
        if !absent.is_empty() {
            self.add(scope, "agents", "eight and the memory-free one".into(), format!("without {}", absent.join(", ")));
        }
        if let Some(embedder) = self.config("/models/embedder").as_str().map(String::from) {
            self.text(scope, "embedding model", "bge-m3", &embedder);
        }
        let mut budgets: Vec<String> = self
            .data
            .agents()
            .filter(|agent| agent["memory"].as_str() != Some("none"))
            .filter_map(|agent| agent["max_memory_tokens"].as_u64())
            .map(|tokens| if tokens == 0 { "all".to_string() } else { tokens.to_string() })
            .collect();
        budgets.sort_unstable();
        budgets.dedup();
        if !budgets.is_empty() {
            self.add(scope, "tokens of memory shown", "not stated".into(), budgets.join(", "));
        }
        self.memory_calls(scope);
    }

    /// What memories are told, and how their own calls to the backbone are asked.
    fn memory_calls(&mut self, scope: Scope) {
        let remembers = |agent: &&Value| agent["memory"].as_str() != Some("none");
        let agents: Vec<Value> = self.data.agents().filter(remembers).cloned().collect();
        let distinct = |texts: Vec<String>| -> String {
            texts.into_iter().collect::<BTreeSet<String>>().into_iter().collect::<Vec<_>>().join(", ")
        };
        let told = agents.iter().filter_map(|agent| agent["feedback"].as_str()).map(String::from).collect();
        let told = distinct(told);
        if !told.is_empty() {
            self.add(scope, "what a memory is told of an attempt", "not stated".into(), told);
        }
        let is_held = |options: &Value| options["constrained"].as_bool() == Some(true);
        if agents.iter().any(|agent| is_held(&agent["options"]) || is_held(&agent["options"]["options"])) {
            let here = "held to a grammar where their form is known".to_string();
            self.add(scope, "replies to a memory's own calls", "free text".into(), here);
        }
        let limits = agents.iter().filter_map(|agent| agent["max_call_tokens"].as_u64()).map(|most| most.to_string());
        let limits = distinct(limits.collect());
        if !limits.is_empty() {
            self.add(scope, "most tokens of such a reply", "not stated".into(), limits);
        }
    }

    fn selective(&mut self) {
        let paired: Vec<Value> =
            self.data.agents().filter(|agent| agent["memory"].as_str() == Some("seu")).cloned().collect();
        if paired.is_empty() {
            return;
        }
        let all = self.config_number("/sequence/sequences");
        let mut here: Vec<u64> =
            paired.iter().map(|agent| agent["sequences"].as_u64().unwrap_or(all).min(all)).collect();
        here.sort_unstable();
        here.dedup();
        let here = here.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        self.text(Scope::Selective, "paired sequences of a history", "20", &here);
        let backbone = self.config("/models/backbones/0").as_str().unwrap_or("unknown").to_string();
        self.text(Scope::Selective, "model that judges", "DeepSeek-V4-Flash", &backbone);
    }

    /// Name and memory of every agent that is not a wrapper.
    fn memories(&self) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        self.data.agents().map(|agent| (text(&agent["name"]), text(&agent["memory"]))).collect()
    }
}
