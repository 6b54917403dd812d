//! Gains by the log-probability of the reference, beside the sampled ones.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::metric::{Concordance, Interval, TwoGains, agreement, cluster_interval, concordance, mean, sign};
use crate::record::AttemptRecord;
use crate::record::plan::{LogprobPlan, Relation};
use crate::seed::Seed;

use super::super::data::{ReportData, Stages};
use super::super::html::{Map, embedded, map_order};
use super::super::svg::{self, Line, Point};
use super::super::table::{Cell, Column, Kind, Table, points};
use super::super::view::{View, share};

/// One model's gains in nats a token: mean log-probability of the reference of the target behind the source, minus alone.
pub struct ModelLogprob {
    pub model: String,
    /// By source, then target; the diagonal is left out.
    pub pairs: Vec<LogprobPair>,
    /// Against the sampled gains of the same model.
    pub concordance: Concordance,
    /// Against those sampled gains whose interval excludes zero.
    pub sure: Concordance,
    /// Share of pairs with a decided vote where the sign is that of the vote.
    pub agrees: Option<f64>,
    pub stored: usize,
    pub planned: usize,
}

/// One ordered pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogprobPair {
    pub source: u32,
    pub target: u32,
    /// Mean log-probability a token, behind the source and alone; `None` where it is not stored or could not be rated.
    pub with: Option<f64>,
    pub without: Option<f64>,
    /// The sampled gain, in score units, and whether its interval excludes zero.
    pub sampled: Option<f64>,
    pub is_sure: bool,
    pub vote: Option<Relation>,
}

impl LogprobPair {
    pub fn gain(&self) -> Option<f64> {
        Some(self.with? - self.without?)
    }

    fn both(&self) -> Option<TwoGains> {
        Some(TwoGains { target: self.target, standard: self.sampled?, other: self.gain()? })
    }
}

pub(super) fn build(plan: &LogprobPlan, data: &ReportData, stages: &Stages<'_>) -> Vec<ModelLogprob> {
    plan.models.iter().map(|model| of_model(plan, model, data, stages)).collect()
}

fn of_model(plan: &LogprobPlan, model: &str, data: &ReportData, stages: &Stages<'_>) -> ModelLogprob {
    let empty = BTreeMap::new();
    let records = stages.get(format!("logprob/{model}").as_str()).unwrap_or(&empty);
    let sampled: BTreeMap<(u32, u32), (Option<f64>, bool)> = data
        .matrices
        .iter()
        .filter(|matrix| matrix.model == model)
        .flat_map(|matrix| &matrix.pairs)
        .map(|pair| ((pair.source, pair.target), (pair.gain.value, pair.certain_sign() != 0)))
        .collect();
    let mut pairs = Vec::new();
    for source in &plan.tasks {
        for target in plan.tasks.iter().filter(|target| *target != source) {
            let (gain, is_sure) = sampled.get(&(*source, *target)).copied().unwrap_or_default();
            pairs.push(LogprobPair {
                source: *source,
                target: *target,
                with: logprob(records, source + 1, *target),
                without: logprob(records, 0, *target),
                sampled: gain,
                is_sure,
                vote: data.vote.as_ref().and_then(|vote| vote.relations.get(*source as usize, *target as usize)),
            });
        }
    }
    let compared = |is_wanted: &dyn Fn(&LogprobPair) -> bool, part: &str| {
        let gains: Vec<TwoGains> = pairs.iter().filter(|pair| is_wanted(pair)).filter_map(LogprobPair::both).collect();
        concordance(&gains, data.seed().derive(&format!("bootstrap/logprob/{model}/{part}"), &[]))
    };
    let voted: Vec<_> = pairs.iter().map(|pair| (pair.gain().map(sign), pair.vote)).collect();
    ModelLogprob {
        model: model.to_string(),
        concordance: compared(&|_| true, "all"),
        sure: compared(&|pair| pair.is_sure, "sure"),
        agrees: agreement(&voted),
        stored: records.len(),
        planned: plan.tasks.len() + pairs.len(),
        pairs,
    }
}

/// The logarithm of a stored probability of a token.
fn logprob(records: &BTreeMap<(u32, u32, u32), &AttemptRecord>, sequence: u32, target: u32) -> Option<f64> {
    Some(records.get(&(sequence, target, 0))?.score.graded()?.ln())
}

pub(in crate::report) fn view(data: &ReportData) -> View {
    let headers = [
        "model",
        "pairs",
        "positive",
        "negative",
        "mean gain",
        "same sign [95 %]",
        "of pairs",
        "same sign, sure pairs",
        "of pairs",
        "Pearson [95 %]",
        "Spearman [95 %]",
        "agrees",
    ];
    let title = "Gains by log-probability of the reference (nats a token), against the sampled gains";
    let mut view = View::new(title, 1, &headers);
    for model in &data.beside.logprob {
        let gains: Vec<f64> = model.pairs.iter().filter_map(LogprobPair::gain).collect();
        let Concordance { same_sign, pearson, spearman, signed_pairs, .. } = model.concordance;
        view.rows.push(vec![
            model.model.clone(),
            gains.len().to_string(),
            gains.iter().filter(|gain| **gain > 0.0).count().to_string(),
            gains.iter().filter(|gain| **gain < 0.0).count().to_string(),
            mean(&gains).map_or("n/a".into(), nats),
            shares(same_sign),
            signed_pairs.to_string(),
            shares(model.sure.same_sign),
            model.sure.signed_pairs.to_string(),
            correlation(pearson),
            correlation(spearman),
            share(model.agrees),
        ]);
    }
    view
}

fn shares((value, interval): (Option<f64>, Option<Interval>)) -> String {
    let bounds = interval.map(|interval| format!(" [{}, {}]", share(Some(interval.low)), share(Some(interval.high))));
    share(value) + &bounds.unwrap_or_default()
}

fn correlation((value, interval): (Option<f64>, Option<Interval>)) -> String {
    let bounds = interval.map(|interval| format!(" [{}, {}]", two(interval.low), two(interval.high)));
    value.map_or("n/a".into(), two) + &bounds.unwrap_or_default()
}

fn two(value: f64) -> String {
    format!("{value:.2}").replace('-', "−").replace("−0.00", "0.00")
}

/// A gain in nats, with a sign.
pub(super) fn nats(gain: f64) -> String {
    let text = format!("{:.3}", gain.abs());
    match text.as_str() {
        "0.000" => text,
        _ if gain < 0.0 => format!("−{text}"),
        _ => format!("+{text}"),
    }
}

/// `None` when the run has no such stage.
pub(super) fn table(data: &ReportData) -> Option<Table> {
    if data.beside.logprob.is_empty() {
        return None;
    }
    let columns = vec![
        Column::new("model", Kind::Text, "backbone"),
        Column::new("source", Kind::Text, "demonstrated task"),
        Column::new("target", Kind::Text, "task whose reference is rated"),
        Column::new("gain_nats", Kind::Real, "logprob_with - logprob_without"),
        Column::new(
            "logprob_with",
            Kind::Real,
            "mean log-probability of a token of the reference behind the source, in nats",
        ),
        Column::new("logprob_without", Kind::Real, "the same without a demonstration"),
        Column::new("sampled_gain", Kind::Real, "gain by sampling, in score units"),
        Column::new("sampled_excludes_zero", Kind::Flag, "whether the interval of the sampled gain excludes 0"),
        Column::new("same_sign", Kind::Flag, "whether both have the same sign; empty where the sampled gain is 0"),
        Column::new("vote", Kind::Text, "voted relation of the pair over all voters"),
    ];
    let mut table = Table::new("logprob_gains", "one row per model and ordered pair of tasks", columns);
    for model in &data.beside.logprob {
        for pair in &model.pairs {
            let signs = pair.sampled.zip(pair.gain()).filter(|(sampled, _)| *sampled != 0.0);
            table.push(vec![
                Cell::text(&model.model),
                Cell::text(data.task_name(pair.source)),
                Cell::text(data.task_name(pair.target)),
                Cell::real(pair.gain()),
                Cell::real(pair.with),
                Cell::real(pair.without),
                Cell::real(pair.sampled),
                pair.sampled.map_or(Cell::Empty, |_| Cell::Flag(pair.is_sure)),
                signs.map_or(Cell::Empty, |(sampled, gain)| Cell::Flag(sampled * gain > 0.0)),
                pair.vote.map_or(Cell::Empty, |vote| Cell::text(vote.as_str())),
            ]);
        }
    }
    Some(table)
}

/// The heat map of one model: thousandths of a nat, each value with its text.
pub(in crate::report) fn map(data: &ReportData, model: &ModelLogprob, index: usize) -> Map {
    let mut tasks: Vec<u32> = model.pairs.iter().map(|pair| pair.target).collect();
    tasks.sort_unstable();
    tasks.dedup();
    let (order, groups) = map_order(data, &tasks);
    let place: BTreeMap<u32, usize> = order.iter().enumerate().map(|(place, task)| (*task, place)).collect();
    let mut cells = vec![vec![Value::Null; order.len()]; order.len()];
    let mut names = serde_json::Map::new();
    let mut sizes: Vec<f64> = Vec::new();
    for pair in &model.pairs {
        let Some(gain) = pair.gain() else { continue };
        let thousandths = (gain * 1000.0).round() as i64;
        cells[place[&pair.source]][place[&pair.target]] = json!(thousandths);
        names
            .insert(thousandths.to_string(), json!(format!("gain {} nats a token", nats(thousandths as f64 / 1000.0))));
        sizes.push(gain.abs());
    }
    // One reference in fifty may be as deep in colour as it likes: a single outlier would leave the others pale.
    sizes.sort_by(f64::total_cmp);
    let limit = sizes.get(sizes.len().saturating_sub(1) * 49 / 50).copied().unwrap_or(0.0).max(0.05);
    let labels: Vec<String> = order.iter().map(|task| data.task_name(*task)).collect();
    let numbers = json!({ "labels": labels, "groups": groups, "cells": cells, "max": limit * 1000.0, "names": names });
    Map {
        id: format!("logprobs-{index}"),
        title: model.model.clone(),
        data: embedded(&numbers),
        limit: format!("{limit:.2}"),
        strongest: None,
    }
}

/// Mean log-probability gain of the pairs with each sampled gain; `None` with fewer than two different ones.
pub(in crate::report) fn chart(model: &ModelLogprob, seed: Seed) -> anyhow::Result<Option<String>> {
    let mut by_sampled: BTreeMap<i64, Vec<TwoGains>> = BTreeMap::new();
    for gains in model.pairs.iter().filter_map(LogprobPair::both) {
        by_sampled.entry((points(gains.standard) * 10.0).round() as i64).or_default().push(gains);
    }
    if by_sampled.len() < 2 {
        return Ok(None);
    }
    let place = |(tenths, gains): (&i64, &Vec<TwoGains>)| {
        let mut sums: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
        for gain in gains {
            let (sum, count) = sums.entry(gain.target).or_default();
            (*sum, *count) = (*sum + gain.other, *count + 1.0);
        }
        let clusters: Vec<(f64, f64)> = sums.into_values().collect();
        let add = |left: (f64, f64), right: (f64, f64)| (left.0 + right.0, left.1 + right.1);
        let (sum, count) = clusters.iter().copied().fold((0.0, 0.0), add);
        let key = seed.derive(&format!("bootstrap/logprob chart/{}", model.model), &[*tenths as u32]);
        let interval = cluster_interval(&clusters, add, |(sum, count)| Some(sum / count), key);
        Point { x: *tenths as f64 / 10.0, y: sum / count, interval }
    };
    let line = Line { series: 0, points: by_sampled.iter().map(place).collect() };
    let ends = |point: &Point| {
        let bounds = point.interval.map(|interval| [interval.low, interval.high]);
        std::iter::once(point.y).chain(bounds.into_iter().flatten()).collect::<Vec<f64>>()
    };
    let (low, high) =
        line.points.iter().flat_map(ends).fold((0.0f64, 0.0f64), |(low, high), y| (low.min(y), high.max(y)));
    let room = ((high - low) * 0.1).max(0.01);
    let x = (line.points[0].x, line.points[line.points.len() - 1].x);
    svg::lines(&[line], x, (low - room, high + room), ("sampled gain (points)", "nats a token")).map(Some)
}
