//! The tables people read, on the terminal and on the page: few columns, numbers with their intervals and counts.

use crate::metric::{Interval, PathMetric, PathSummary, agreement};
use crate::record::plan::Relation;

use super::data::ReportData;
use super::matrix::{ModelMatrix, Pair};
use super::sequence::{Contrast, ContrastKind};
use super::table::points;

/// A titled table of texts. The first `label_columns` are labels, the rest numbers.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(super) struct View {
    pub title: String,
    pub headers: Vec<String>,
    pub label_columns: usize,
    pub rows: Vec<Vec<String>>,
}

impl View {
    pub fn new(title: impl Into<String>, label_columns: usize, headers: &[&str]) -> Self {
        let headers = headers.iter().map(|header| header.to_string()).collect();
        View { title: title.into(), headers, label_columns, rows: Vec::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// Parts of the run that are not complete; empty when all are.
pub(super) fn missing(data: &ReportData) -> View {
    let mut view = View::new("Not complete", 1, &["part", "stored", "planned"]);
    for part in data.completeness.iter().filter(|part| !part.is_complete()) {
        let of = part.of.map_or_else(|| "not planned yet".to_string(), |of| of.to_string());
        view.rows.push(vec![part.what.clone(), part.done.to_string(), of]);
    }
    view
}

/// Tasks that nothing can pass on this machine: left out of the pool, counted nowhere.
pub(super) fn ignored(data: &ReportData) -> View {
    let title = format!("Ignored: {} tasks whose reference solution does not pass here", data.ignored.len());
    let mut view = View::new(title, 2, &["task", "why"]);
    view.rows.extend(data.ignored.iter().map(|(task, why)| vec![task.clone(), why.clone()]));
    view
}

/// One row a model: what its matrix holds.
pub(super) fn matrices(data: &ReportData) -> View {
    let headers = [
        "model",
        "tasks",
        "zero-shot",
        "pairs",
        "positive",
        "neutral",
        "negative",
        "sure +",
        "sure −",
        "agrees",
        "graded",
    ];
    let mut view = View::new("Transfer gains", 1, &headers);
    let candidates = data.pool.as_ref().map_or(0, |pool| pool.tasks.len());
    for matrix in &data.matrices {
        let signs = |wanted| matrix.pairs.iter().filter(|pair| pair.sign() == Some(wanted)).count().to_string();
        let sure = |wanted| matrix.pairs.iter().filter(|pair| pair.certain_sign() == wanted).count().to_string();
        let kept: Vec<f64> =
            matrix.zero_shot.iter().filter(|row| row.is_kept).filter_map(|row| row.mean.value).collect();
        let (graded, of) =
            matrix.pairs.iter().fold((0, 0), |(graded, of), pair| (graded + pair.gain.graded, of + pair.gain.of));
        view.rows.push(vec![
            matrix.model.clone(),
            format!("{} of {}", matrix.zero_shot.iter().filter(|row| row.is_kept).count(), candidates),
            share(crate::metric::mean(&kept)),
            matrix.pairs.len().to_string(),
            signs(Relation::Positive),
            signs(Relation::Neutral),
            signs(Relation::Negative),
            sure(1),
            sure(-1),
            share(model_agreement(data, matrix)),
            format!("{graded} of {of}"),
        ]);
    }
    view
}

/// `None` with a single voter: it agrees with itself.
fn model_agreement(data: &ReportData, matrix: &ModelMatrix) -> Option<f64> {
    data.vote.as_ref().filter(|vote| vote.voters.len() > 1)?;
    agreement(&matrix.pairs.iter().map(|pair| (pair.sign(), pair.vote)).collect::<Vec<_>>())
}

/// Mean gain inside and across families.
pub(super) fn families(data: &ReportData) -> View {
    let mut view =
        View::new("Gain by family (points)", 2, &["model", "pairs of", "mean gain [95 %]", "pairs", "targets"]);
    for matrix in &data.matrices {
        for row in &matrix.families {
            view.rows.push(vec![
                matrix.model.clone(),
                row.name.to_string(),
                signed_interval(row.value, row.interval),
                row.pairs.to_string(),
                row.targets.to_string(),
            ]);
        }
    }
    view
}

/// The pairs of a model whose interval excludes zero, strongest first on each side.
pub(super) fn strongest(data: &ReportData, matrix: &ModelMatrix, each_side: usize) -> View {
    let mut view = View::new(
        format!("Strongest pairs of {} (points)", matrix.model),
        3,
        &["", "demonstrated", "attempted", "gain [95 %]", "zero-shot", "with it", "graded"],
    );
    for (side, name) in [(1i8, "helps"), (-1, "misleads")] {
        let mut pairs: Vec<&Pair> = matrix.pairs.iter().filter(|pair| pair.certain_sign() == side).collect();
        let strength = |pair: &Pair| pair.gain.value.unwrap_or(0.0) * f64::from(side);
        pairs.sort_by(|left, right| {
            strength(right)
                .total_cmp(&strength(left))
                .then((left.source, left.target).cmp(&(right.source, right.target)))
        });
        for pair in pairs.into_iter().take(each_side) {
            let zero_shot = matrix.zero_shot.iter().find(|row| row.task == pair.target).and_then(|row| row.mean.value);
            view.rows.push(vec![
                name.to_string(),
                data.task_name(pair.source),
                data.task_name(pair.target),
                signed_interval(pair.gain.value, pair.gain.interval),
                share(zero_shot),
                share(pair.with.value),
                format!("{} of {}", pair.gain.graded, pair.gain.of),
            ]);
        }
    }
    view
}

/// How many pairs got which relation.
pub(super) fn votes(data: &ReportData) -> View {
    let mut view = View::new("Votes", 1, &["relation", "pairs", "share", "same family", "other family"]);
    let (Some(vote), Some(pool)) = (&data.vote, &data.pool) else { return view };
    let pairs: Vec<(u32, u32)> = pool
        .kept
        .iter()
        .flat_map(|source| pool.kept.iter().map(move |target| (*source, *target)))
        .filter(|(source, target)| source != target)
        .collect();
    let is_inside =
        |(source, target): &&(u32, u32)| data.family(*source).is_some() && data.family(*source) == data.family(*target);
    let relations = [Relation::Positive, Relation::Neutral, Relation::Negative, Relation::Mixed].map(Some);
    for relation in relations.into_iter().chain([None]) {
        let found: Vec<(u32, u32)> = pairs
            .iter()
            .copied()
            .filter(|(source, target)| vote.relations.get(*source as usize, *target as usize) == relation)
            .collect();
        if relation.is_none() && found.is_empty() {
            continue;
        }
        let inside = found.iter().filter(is_inside).count();
        view.rows.push(vec![
            relation.map_or("undecided", Relation::as_str).to_string(),
            found.len().to_string(),
            share((!pairs.is_empty()).then(|| found.len() as f64 / pairs.len() as f64)),
            inside.to_string(),
            (found.len() - inside).to_string(),
        ]);
    }
    view
}

/// AP, FWT, BWT, FGT and the probe change of each agent under each history.
pub(super) fn metrics(data: &ReportData) -> View {
    let headers = ["history", "agent", "AP", "FWT", "BWT", "FGT", "probe change", "runs", "graded"];
    let mut view = View::new("Lifelong sequences (points, mean [95 %])", 2, &headers);
    for cell in data.sequences.iter().flat_map(|sequences| &sequences.cells) {
        let mut row = vec![cell.history.clone(), cell.agent.clone()];
        row.extend(PathMetric::ALL.map(|metric| summary(metric, &cell.summary(metric))));
        let (complete, lives) = cell.complete_lives();
        row.push(format!("{complete} of {lives}"));
        row.push(format!("{} of {}", cell.graded, cell.executions));
        view.rows.push(row);
    }
    view
}

/// Each agent minus the memory-free agent.
pub(super) fn against_baseline(data: &ReportData) -> View {
    let Some(sequences) = &data.sequences else { return View::new("", 0, &[]) };
    let title = match &sequences.plan.baseline {
        Some(baseline) => format!("Change against {baseline} (points, paired by sequence and run, mean [95 %])"),
        None => "Change against a memory-free agent: this run has none".to_string(),
    };
    let mut view = View::new(title, 2, &["history", "agent", "AP", "FWT", "BWT", "FGT", "probe change", "sequences"]);
    let is_baseline = |contrast: &&Contrast| matches!(contrast.kind, ContrastKind::Baseline { .. });
    let contrasts: Vec<&Contrast> = sequences.contrasts.iter().filter(is_baseline).collect();
    for group in contrasts.chunks(PathMetric::ALL.len()) {
        let ContrastKind::Baseline { history } = &group[0].kind else { continue };
        view.rows.push(contrast_row(vec![history.clone(), group[0].agent.clone()], group));
    }
    view
}

/// Each agent under one history minus under another.
pub(super) fn between_histories(data: &ReportData) -> View {
    let headers = ["difference", "agent", "AP", "FWT", "BWT", "FGT", "probe change", "sequences"];
    let mut view = View::new("Change between histories (points, mean [95 %])", 2, &headers);
    let is_history = |contrast: &&Contrast| matches!(contrast.kind, ContrastKind::Histories { .. });
    let contrasts: Vec<&Contrast> =
        data.sequences.iter().flat_map(|sequences| &sequences.contrasts).filter(is_history).collect();
    for group in contrasts.chunks(PathMetric::ALL.len()) {
        let ContrastKind::Histories { left, right } = &group[0].kind else { continue };
        view.rows.push(contrast_row(vec![format!("{left} − {right}"), group[0].agent.clone()], group));
    }
    view
}

fn contrast_row(mut row: Vec<String>, group: &[&Contrast]) -> Vec<String> {
    row.extend(group.iter().map(|contrast| signed_interval(contrast.value, contrast.interval)));
    let pairing = if group[0].is_paired { "paired" } else { "apart" };
    row.push(format!("{} {pairing}", group[0].sequences));
    row
}

/// Tokens of every stage.
pub(super) fn usage(data: &ReportData) -> View {
    let headers = ["stage", "attempts", "ungraded", "prompt tokens", "generated tokens", "ended by itself"];
    let mut view = View::new("Tokens", 1, &headers);
    for stage in &data.usage {
        let finished = stage.endings.get(&crate::record::Ending::Finished).copied().unwrap_or(0);
        view.rows.push(vec![
            stage.stage.clone(),
            stage.attempts.to_string(),
            stage.ungraded.to_string(),
            grouped(stage.usage.prompt_tokens),
            grouped(stage.usage.generated_tokens),
            share((stage.attempts > 0).then(|| finished as f64 / stage.attempts as f64)),
        ]);
    }
    view
}

/// What memories asked of the backbone, and how often the reply was of no use.
pub(super) fn memory_calls(data: &ReportData) -> View {
    let headers =
        ["stage", "purpose", "calls", "not asked", "unreadable", "unreadable %", "prompt tokens", "generated tokens"];
    let mut view = View::new("Calls of the memories", 2, &headers);
    for row in &data.memory_calls {
        view.rows.push(vec![
            row.stage.clone(),
            row.purpose.clone(),
            row.calls.to_string(),
            row.unasked.to_string(),
            row.unread.to_string(),
            share(
                Some(row.calls - row.unasked).filter(|asked| *asked > 0).map(|asked| row.unread as f64 / asked as f64),
            ),
            grouped(row.usage.prompt_tokens),
            grouped(row.usage.generated_tokens),
        ]);
    }
    view
}

/// Seconds of every stage; the only view that differs between equal runs.
pub(super) fn timing(data: &ReportData) -> View {
    let headers = ["stage", "attempts", "seconds", "tokens/s", "reused tokens"];
    let mut view = View::new("Time", 1, &headers);
    let tokens_of = |stage: &str| {
        let usage = data.usage.iter().find(|usage| usage.stage == stage).map(|usage| usage.usage);
        usage.map_or(0, |usage| usage.prompt_tokens + usage.generated_tokens)
    };
    let mut push = |stage: &str, units: u64, seconds: f64, tokens: u64, reused: u64| {
        let rate = if seconds > 0.0 { format!("{:.0}", tokens as f64 / seconds) } else { "n/a".into() };
        let reused = grouped(reused);
        view.rows.push(vec![stage.to_string(), units.to_string(), format!("{seconds:.1}"), rate, reused]);
    };
    for (stage, time) in &data.timing.stages {
        push(stage, time.units, time.seconds, tokens_of(stage), time.reused_tokens);
    }
    let totals = &data.timing.totals;
    let tokens = data.timing.stages.keys().map(|stage| tokens_of(stage)).sum();
    push("total", totals.units, totals.active_seconds, tokens, totals.reused_tokens);
    view
}

fn summary(metric: PathMetric, summary: &PathSummary) -> String {
    match metric {
        PathMetric::Ap | PathMetric::Bwt | PathMetric::Fgt => interval(summary.value, summary.interval),
        PathMetric::Fwt | PathMetric::Change => signed_interval(summary.value, summary.interval),
    }
}

/// A share as points with one decimal.
pub(super) fn share(value: Option<f64>) -> String {
    value.map_or_else(|| "n/a".into(), |value| format!("{:.1}", points(value)))
}

pub(super) fn interval(value: Option<f64>, interval: Option<Interval>) -> String {
    match (value, interval) {
        (None, _) => "n/a".into(),
        (Some(_), None) => share(value),
        (Some(_), Some(Interval { low, high })) => {
            format!("{} [{:.1}, {:.1}]", share(value), points(low), points(high))
        }
    }
}

/// With a sign, a true minus, and no sign on what prints as zero.
pub(super) fn signed(value: f64) -> String {
    let text = format!("{:.1}", points(value).abs());
    match text.as_str() {
        "0.0" => text,
        _ if value < 0.0 => format!("−{text}"),
        _ => format!("+{text}"),
    }
}

pub(super) fn signed_interval(value: Option<f64>, interval: Option<Interval>) -> String {
    match (value, interval) {
        (None, _) => "n/a".into(),
        (Some(value), None) => signed(value),
        (Some(value), Some(Interval { low, high })) => {
            format!("{} [{}, {}]", signed(value), signed(low), signed(high))
        }
    }
}

/// Thousands apart.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(signed(-0.0004), "0.0");
        assert_eq!(signed(-0.0312), "−3.1");
        assert_eq!(signed_interval(Some(0.5), Some(Interval { low: -0.1, high: 1.0 })), "+50.0 [−10.0, +100.0]");
        assert_eq!(interval(None, None), "n/a");
        assert_eq!(grouped(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(grouped(12), "12");
    }
}
