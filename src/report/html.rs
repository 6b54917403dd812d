//! One self-contained page: no network, no external file, light and dark.
//!
//! The texts stand in `page.html`, the looks in `page.css`, the heat maps in `map.js`; this file only fills in. Maps are
//! drawn on a canvas from embedded numbers, because 14 280 SVG cells make a page ten times as large.

use std::collections::BTreeMap;

use anyhow::Context as _;
use minijinja::Environment;
use minijinja::value::Serde;
use serde::Serialize;
use serde_json::{Value, json};

use crate::metric::INTERVAL_METHOD;
use crate::record::plan::{Relation, VoteMeasure};

use super::cautions::cautions;
use super::data::ReportData;
use super::matrix::ModelMatrix;
use super::section::{Drawing, Section, Series};
use super::sequence::{CurvePoint, Sequences};
use super::svg::{self, Line, Point};
use super::table::points;
use super::view::View;
use super::{beside, memory_use, pass_at_k, tables, tool_turns, view};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("map.js");

/// Strongest pairs listed a side and model.
const STRONGEST: usize = 8;

/// Longest family name on a map.
const LABEL_LETTERS: usize = 20;

/// A heat map: its element id, its heading, and its numbers as JSON.
#[derive(Serialize)]
pub(super) struct Map {
    pub id: String,
    pub title: String,
    pub data: String,
    /// Gain of the full colours, in the unit of the map.
    pub limit: String,
    pub strongest: Option<View>,
}

/// A heat map of gains by log-probability, with its chart against the sampled ones.
#[derive(Serialize)]
struct LogprobMap {
    map: Map,
    chart: Option<String>,
}

/// A file of the report and what its columns mean.
#[derive(Serialize)]
struct File {
    name: &'static str,
    about: &'static str,
    rows: usize,
    columns: Vec<(String, String)>,
}

/// All that the template names.
#[derive(Serialize)]
struct Page<'a> {
    name: &'a str,
    about: &'a str,
    run_id: &'a str,
    code: &'a str,
    device: &'a str,
    style: &'static str,
    script: &'static str,
    facts: Vec<(String, String)>,
    missing: View,
    cautions: Vec<String>,
    /// Views of some benchmarks alone; those without rows are left out.
    extra: Vec<View>,
    damaged: usize,
    matrices: View,
    families: View,
    maps: Vec<Map>,
    vote_map: Option<Map>,
    votes: View,
    /// What gains of the vote are measured by, where it is not the score.
    vote_by: &'static str,
    voters: Option<&'a [String]>,
    stopping: View,
    /// Chance of a wrong sign, in percent.
    error_rate: Option<f64>,
    logprobs: View,
    logprob_maps: Vec<LogprobMap>,
    traced: View,
    traced_by_relation: View,
    traced_bars: Option<String>,
    metrics: View,
    against_baseline: View,
    between_histories: View,
    baseline: Option<&'a str>,
    histories: Vec<Series>,
    trajectories: Vec<Drawing>,
    sections: &'a [Section],
    usage: View,
    memory_use: View,
    memory_calls: View,
    timing: View,
    totals: Vec<(String, String)>,
    config: String,
    digests: Vec<(String, String)>,
    interval_method: &'static str,
    files: Vec<File>,
}

/// The whole page.
///
/// # Errors
/// When a chart cannot be drawn or the template is wrong; both are our bugs.
pub(super) fn render(data: &ReportData, sections: &[Section]) -> anyhow::Result<String> {
    let mut environment = Environment::new();
    environment.add_template("page.html", PAGE).context("the report's template")?;
    let page = environment.get_template("page.html").context("the report's template")?;
    let maps: Vec<Map> =
        data.matrices.iter().enumerate().map(|(index, matrix)| gain_map(data, matrix, index)).collect();
    let sequences = data.sequences.as_ref();
    let page_data = Page {
        name: data.name(),
        about: data.config_text("about").unwrap_or_default(),
        run_id: &data.run_id.0,
        code: &data.identity.code,
        device: &data.identity.device,
        style: STYLE,
        script: SCRIPT,
        facts: facts(data),
        missing: view::missing(data),
        cautions: cautions(data),
        extra: [view::ignored(data), pass_at_k::view(data), tool_turns::view(data)]
            .into_iter()
            .filter(|view| !view.is_empty())
            .collect(),
        damaged: data.damaged_pieces,
        matrices: view::matrices(data),
        families: view::families(data),
        maps,
        vote_map: vote_map(data),
        votes: view::votes(data),
        vote_by: match data.vote.as_ref().map(|vote| vote.by) {
            None | Some(VoteMeasure::Score) => "",
            Some(VoteMeasure::LogProbability) => " by the log-probability of the target's reference",
            Some(VoteMeasure::LogProbabilityOverMedian) => {
                " by the log-probability of the target's reference, over its median behind all demonstrations"
            }
        },
        voters: data.vote.as_ref().map(|vote| vote.voters.as_slice()),
        stopping: beside::stopping::view(data),
        error_rate: data.stopping.map(|rule| points(rule.error_rate)),
        logprobs: beside::logprob::view(data),
        logprob_maps: logprob_maps(data)?,
        traced: beside::attribution::strongest(data, STRONGEST),
        traced_by_relation: beside::attribution::by_relation(data),
        traced_bars: beside::attribution::chart(data, STRONGEST)?,
        metrics: view::metrics(data),
        against_baseline: view::against_baseline(data),
        between_histories: view::between_histories(data),
        baseline: sequences.and_then(|sequences| sequences.plan.baseline.as_deref()),
        histories: sequences.map(history_series).unwrap_or_default(),
        trajectories: trajectories(data)?,
        sections,
        usage: view::usage(data),
        memory_use: memory_use::view(data),
        memory_calls: view::memory_calls(data),
        timing: view::timing(data),
        totals: timing_facts(data),
        config: config_text(data),
        digests: digests(data),
        interval_method: INTERVAL_METHOD,
        files: files(data),
    };
    page.render(Serde(&page_data)).context("the report's template")
}

fn logprob_maps(data: &ReportData) -> anyhow::Result<Vec<LogprobMap>> {
    let models = data.beside.logprob.iter().enumerate();
    let map = |(index, model)| -> anyhow::Result<LogprobMap> {
        let chart = beside::logprob::chart(model, data.seed())?;
        Ok(LogprobMap { map: beside::logprob::map(data, model, index), chart })
    };
    models.map(map).collect()
}

/// The numbers at the top: a value and what it counts.
fn facts(data: &ReportData) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    let mut fact = |value: String, name: &str| facts.push((value, name.to_string()));
    let ungraded: usize = data.usage.iter().map(|stage| stage.ungraded).sum();
    fact(format!("{} of {}", data.records.len() - ungraded, data.records.len()), "attempts graded");
    if let Some(pool) = &data.pool {
        fact(format!("{} of {}", pool.kept.len(), pool.tasks.len()), "tasks with headroom");
    }
    for matrix in &data.matrices {
        let sure = |sign| matrix.pairs.iter().filter(|pair| pair.certain_sign() == sign).count();
        let name = format!("of {} pairs surely help / mislead ({})", matrix.pairs.len(), matrix.model);
        fact(format!("{} / {}", sure(1), sure(-1)), &name);
    }
    if let Some(sequences) = &data.sequences {
        let plan = &sequences.plan;
        let count: usize = plan.histories.iter().map(|history| history.sequences.len()).sum();
        fact(format!("{count} × {} × {}", plan.runs, plan.agents.len()), "sequences × runs × agents");
    }
    facts
}

/// Tasks of a map by family (in order of first appearance), then by index; and the stretch of each family.
pub(super) fn map_order(data: &ReportData, kept: &[u32]) -> (Vec<u32>, Vec<(String, usize, usize)>) {
    let mut order: Vec<u32> = Vec::new();
    let mut groups: Vec<(&str, String, usize, usize)> = Vec::new();
    for task in kept {
        let Some(family) = data.family(*task) else { continue };
        if groups.iter().all(|(name, ..)| *name != family) {
            let start = order.len();
            order.extend(kept.iter().filter(|other| data.family(**other) == Some(family)));
            let label: String = family.chars().take(LABEL_LETTERS).collect();
            groups.push((family, label, start, order.len()));
        }
    }
    order.extend(kept.iter().filter(|task| data.family(**task).is_none()));
    (order, groups.into_iter().map(|(_, label, start, end)| (label, start, end)).collect())
}

/// Values in thousandths of a score; `null` on the diagonal and where nothing is graded.
fn gain_map(data: &ReportData, matrix: &ModelMatrix, index: usize) -> Map {
    let kept = data.pool.as_ref().map(|pool| pool.kept.clone()).unwrap_or_default();
    let (order, groups) = map_order(data, &kept);
    let place: BTreeMap<u32, usize> = order.iter().enumerate().map(|(place, task)| (*task, place)).collect();
    let empty = || vec![vec![Value::Null; order.len()]; order.len()];
    let (mut values, mut lows, mut highs, mut counts) = (empty(), empty(), empty(), empty());
    let thousandths = |value: f64| json!((value * 1000.0).round() as i64);
    for pair in &matrix.pairs {
        let (row, column) = (place[&pair.source], place[&pair.target]);
        values[row][column] = pair.gain.value.map_or(Value::Null, thousandths);
        lows[row][column] = pair.gain.interval.map_or(Value::Null, |interval| thousandths(interval.low));
        highs[row][column] = pair.gain.interval.map_or(Value::Null, |interval| thousandths(interval.high));
        counts[row][column] = json!(pair.gain.graded);
    }
    let largest = matrix.pairs.iter().filter_map(|pair| pair.gain.value).map(f64::abs).fold(0.2, f64::max);
    let seeds = data.pool.as_ref().map_or(0, |pool| pool.seeds);
    let labels: Vec<String> = order.iter().map(|task| data.task_name(*task)).collect();
    let numbers = json!({
        "labels": labels, "groups": groups, "cells": values, "max": largest * 1000.0, "low": lows, "high": highs,
        "n": counts, "of": seeds,
    });
    let strongest = Some(view::strongest(data, matrix, STRONGEST)).filter(|view| !view.is_empty());
    Map {
        id: format!("gains-{index}"),
        title: matrix.model.clone(),
        data: embedded(&numbers),
        limit: view::share(Some(largest)),
        strongest,
    }
}

fn vote_map(data: &ReportData) -> Option<Map> {
    let (vote, pool) = (data.vote.as_ref()?, data.pool.as_ref()?);
    let (order, groups) = map_order(data, &pool.kept);
    let cell = |source: &u32, target: &u32| match vote.relations.get(*source as usize, *target as usize) {
        Some(Relation::Positive) => json!(1),
        Some(Relation::Neutral) => json!(0),
        Some(Relation::Negative) => json!(-1),
        Some(Relation::Mixed) => json!("mixed"),
        None => Value::Null,
    };
    let rows: Vec<Vec<Value>> =
        order.iter().map(|source| order.iter().map(|target| cell(source, target)).collect()).collect();
    let names = json!({ "1": "positive", "0": "neutral", "-1": "negative", "mixed": "mixed" });
    let labels: Vec<String> = order.iter().map(|task| data.task_name(*task)).collect();
    let numbers = json!({ "labels": labels, "groups": groups, "cells": rows, "max": 1, "names": names });
    Some(Map {
        id: "votes".into(),
        title: "Voted relations".into(),
        data: embedded(&numbers),
        limit: String::new(),
        strongest: None,
    })
}

/// JSON that may stand inside a script element: no text in it can end the element.
pub(super) fn embedded(value: &Value) -> String {
    value.to_string().replace('<', "\\u003c")
}

fn history_series(sequences: &Sequences) -> Vec<Series> {
    let histories = sequences.plan.histories.iter().enumerate();
    histories
        .map(|(index, history)| Series {
            name: format!("{} history", history.name),
            colour: svg::SERIES[index % svg::SERIES.len()],
        })
        .collect()
}

/// One chart an agent, one line a history, all on the same axes.
pub(super) fn trajectories(data: &ReportData) -> anyhow::Result<Vec<Drawing>> {
    let Some(sequences) = &data.sequences else { return Ok(Vec::new()) };
    let is_drawn = |point: &&CurvePoint| point.is_common && point.summary.value.is_some();
    let drawn = || sequences.cells.iter().flat_map(|cell| cell.curve.iter().filter(is_drawn));
    let last = drawn().map(|point| point.occurrence).max().unwrap_or(0);
    if last < 3 {
        return Ok(Vec::new());
    }
    let values = drawn().flat_map(|point| {
        let bounds = point.summary.interval.map(|interval| [interval.low, interval.high]);
        point.summary.value.into_iter().chain(bounds.into_iter().flatten()).map(points)
    });
    let y = svg::range(values);
    sequences
        .plan
        .agents
        .iter()
        .map(|agent| {
            let lines: Vec<Line> = sequences
                .plan
                .histories
                .iter()
                .enumerate()
                .map(|(series, history)| {
                    let curve = sequences.cell(&history.name, agent).curve.iter().filter(is_drawn);
                    let point = |point: &CurvePoint| {
                        Some(Point {
                            x: f64::from(point.occurrence),
                            y: points(point.summary.value?),
                            interval: point.summary.interval.map(in_points),
                        })
                    };
                    Line { series, points: curve.filter_map(point).collect() }
                })
                .collect();
            let names = ("probe occurrence", "points above p_warm");
            let is_baseline = sequences.plan.baseline.as_ref() == Some(agent);
            let title = if is_baseline { format!("{agent} (no memory)") } else { agent.clone() };
            Ok(Drawing {
                file: format!("trajectory-{agent}"),
                title,
                legend: history_series(sequences),
                svg: svg::lines(&lines, (2.0, f64::from(last)), y, names)?,
                caption: String::new(),
            })
        })
        .collect()
}

fn in_points(interval: crate::metric::Interval) -> crate::metric::Interval {
    crate::metric::Interval { low: points(interval.low), high: points(interval.high) }
}

/// The resolved config as TOML, without the keys that were left open; as JSON where TOML cannot say it.
fn config_text(data: &ReportData) -> String {
    let config = without_nulls(&data.identity.config);
    toml::to_string_pretty(&config)
        .or_else(|_| serde_json::to_string_pretty(&config))
        .unwrap_or_else(|error| format!("the config cannot be shown: {error}"))
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(key, value)| (key.clone(), without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        scalar => scalar.clone(),
    }
}

fn digests(data: &ReportData) -> Vec<(String, String)> {
    let tasks = data.identity.data.iter().map(|(name, digest)| (format!("tasks of {name}"), digest.clone()));
    let models = data.identity.models.iter().map(|(name, digest)| (format!("weights of {name}"), digest.clone()));
    tasks.chain(models).collect()
}

fn timing_facts(data: &ReportData) -> Vec<(String, String)> {
    let totals = &data.timing.totals;
    let mut facts = vec![
        (format!("{:.1} s", totals.active_seconds), "worked on the run".to_string()),
        (format!("{:.1} s", totals.wall_seconds), "from the first start to the last attempt".to_string()),
        (totals.segments.to_string(), "times started or continued".to_string()),
    ];
    facts.extend(totals.started.map(|started| (started.strftime("%F %T UTC").to_string(), "first start".to_string())));
    let mut machines: Vec<String> = data
        .timing
        .machines
        .iter()
        .map(|machine| format!("{} · {} · {} threads", machine.device, machine.instruction_set, machine.threads))
        .collect();
    machines.dedup();
    facts.extend(machines.into_iter().map(|machine| (machine, "device".to_string())));
    facts
}

fn files(data: &ReportData) -> Vec<File> {
    tables::all(data)
        .into_iter()
        .map(|table| File {
            name: table.name,
            about: table.about,
            rows: table.rows.len(),
            columns: table.columns.into_iter().map(|column| (column.name, column.about)).collect(),
        })
        .collect()
}
