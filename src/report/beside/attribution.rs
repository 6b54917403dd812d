//! Which experiences moved a probe: the probe with the whole memory minus the probe without each of them.

use std::collections::BTreeMap;

use crate::metric::{Interval, mean, mean_interval};
use crate::record::plan::{AttributionCase, AttributionGroup, AttributionPlan, Relation};
use crate::seed::Seed;

use super::super::data::{ReportData, Stages};
use super::super::dots::{Dot, DotPanel, dots};
use super::super::table::{Cell, Column, Kind, Table, points};
use super::super::view::{View, share, signed, signed_interval};
use super::logprob::nats;

/// All traced probes of a run.
pub struct Attribution {
    pub plan: AttributionPlan,
    /// By group, case and experience, in the plan's order.
    pub effects: Vec<Effect>,
    pub stored: usize,
    pub planned: usize,
}

/// What one experience did to one probe.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    pub history: String,
    pub agent: String,
    pub case: AttributionCase,
    /// Pool index of the probe, and of the experience's task.
    pub probe: u32,
    pub task: u32,
    /// The experience's step.
    pub step: u32,
    /// The voted relation of the experience's task to the probe.
    pub relation: Option<Relation>,
    /// Mean over draws of the score with all experiences minus the score without this one: above 0 it helped, below 0 it
    /// harmed.
    pub value: Option<f64>,
    /// Resampling draws.
    pub interval: Option<Interval>,
    /// Mean log-probability of the probe's reference with all experiences minus without this one, in nats a token.
    pub logprob: Option<f64>,
    /// Draws graded on both sides.
    pub graded: usize,
    /// Whether the memory without it is the same as with it: it had left no trace.
    pub left_no_trace: bool,
}

impl Effect {
    /// Most harmful first: by score, then by log-probability; at last by place.
    fn harm_order(&self, other: &Effect) -> std::cmp::Ordering {
        let value = |effect: &Effect| effect.value.unwrap_or(0.0);
        let logprob = |effect: &Effect| effect.logprob.unwrap_or(0.0);
        value(self).total_cmp(&value(other)).then(logprob(self).total_cmp(&logprob(other)))
    }

    /// −1 where it harmed, 1 where it helped, 0 where neither can be told.
    fn side(&self) -> i8 {
        let of = |value: Option<f64>| match value {
            Some(value) if value > 0.0 => 1,
            Some(value) if value < 0.0 => -1,
            _ => 0,
        };
        match of(self.value) {
            0 => of(self.logprob),
            side => side,
        }
    }
}

pub(super) fn build(plan: AttributionPlan, data: &ReportData, stages: &Stages<'_>) -> Attribution {
    let mut effects = Vec::new();
    let (mut stored, mut planned) = (0, 0);
    for (index, group) in (0u32..).zip(&plan.groups) {
        let draws = Units::of(stages, "attribution", group);
        let logprobs = Units::of(stages, "attribution-logprob", group);
        stored += draws.count() + logprobs.count();
        for (number, case) in (0u32..).zip(&group.cases) {
            planned += (case.left_out.len() + 1) * (plan.draws as usize + 1);
            let whole = Seen::of(&draws, &logprobs, number, 0, plan.draws);
            for (place, step) in (1u32..).zip(&case.left_out) {
                let without = Seen::of(&draws, &logprobs, number, place, plan.draws);
                let key = data.seed().derive("bootstrap/attribution", &[index, number, place]);
                effects.extend(effect(data, group, case, *step, &whole, &without, key));
            }
        }
    }
    Attribution { plan, effects, stored, planned }
}

/// Stored records of one stage.
struct Units<'a>(Option<&'a BTreeMap<(u32, u32, u32), &'a crate::record::AttemptRecord>>);

impl<'a> Units<'a> {
    fn of(stages: &'a Stages<'a>, stage: &str, group: &AttributionGroup) -> Units<'a> {
        Units(stages.get(format!("{stage}/{}/{}", group.history, group.agent).as_str()))
    }

    fn get(&self, case: u32, left_out: u32, draw: u32) -> Option<&'a crate::record::AttemptRecord> {
        self.0?.get(&(case, left_out, draw)).copied()
    }

    fn count(&self) -> usize {
        self.0.map_or(0, BTreeMap::len)
    }
}

/// What a probe showed from one memory.
struct Seen {
    scores: Vec<Option<f64>>,
    logprob: Option<f64>,
    memory: Option<String>,
}

impl Seen {
    fn of(draws: &Units<'_>, logprobs: &Units<'_>, case: u32, left_out: u32, count: u32) -> Seen {
        let score = |draw| draws.get(case, left_out, draw).and_then(|record| record.score.graded());
        Seen {
            scores: (0..count).map(score).collect(),
            logprob: logprobs.get(case, left_out, 0).and_then(|record| record.score.graded()).map(f64::ln),
            memory: draws.get(case, left_out, 0).and_then(|record| record.memory.clone()),
        }
    }
}

/// `None` while the plan's sequences are not known.
fn effect(
    data: &ReportData,
    group: &AttributionGroup,
    case: &AttributionCase,
    step: u32,
    whole: &Seen,
    without: &Seen,
    seed: Seed,
) -> Option<Effect> {
    let histories = &data.sequences.as_ref()?.plan.histories;
    let planned = histories.iter().find(|history| history.name == group.history)?;
    let sequence = planned.sequences.get(case.sequence as usize)?;
    let task = sequence.steps.get(step as usize)?.task;
    let pairs = whole.scores.iter().zip(&without.scores);
    let differences: Vec<f64> = pairs.filter_map(|(whole, without)| Some((*whole)? - (*without)?)).collect();
    Some(Effect {
        history: group.history.clone(),
        agent: group.agent.clone(),
        case: case.clone(),
        probe: sequence.probe,
        task,
        step,
        relation: data.vote.as_ref().and_then(|vote| vote.relations.get(task as usize, sequence.probe as usize)),
        value: mean(&differences),
        interval: mean_interval(&differences, seed),
        logprob: whole.logprob.zip(without.logprob).map(|(whole, without)| whole - without),
        graded: differences.len(),
        left_no_trace: whole.memory.is_some() && whole.memory == without.memory,
    })
}

/// Harms, worst first, and helps, best first, at most `each` of both.
fn ranked(data: &ReportData, each: usize) -> Vec<(&'static str, &Effect)> {
    let Some(attribution) = &data.beside.attribution else { return Vec::new() };
    let mut effects: Vec<&Effect> = attribution.effects.iter().collect();
    effects.sort_by(|left, right| left.harm_order(right));
    let harms = effects.iter().copied().filter(|effect| effect.side() < 0).take(each).map(|effect| ("harms", effect));
    // The worst last of all: backwards is the best first, equal ones in order of place.
    let mut helpful: Vec<&Effect> = effects.iter().copied().filter(|effect| effect.side() > 0).collect();
    helpful.sort_by(|left, right| right.harm_order(left));
    harms.chain(helpful.into_iter().take(each).map(|effect| ("helps", effect))).collect()
}

pub(in crate::report) fn strongest(data: &ReportData, each: usize) -> View {
    let headers = [
        "",
        "history",
        "agent",
        "experience",
        "probe",
        "steps before",
        "vote",
        "effect [95 %]",
        "nats",
        "probe score",
        "earlier",
    ];
    let mut view = View::new(
        "Experiences that moved a probe (effect in points; nats a token of the probe's reference)",
        7,
        &headers,
    );
    for (side, effect) in ranked(data, each) {
        let case = &effect.case;
        view.rows.push(vec![
            side.to_string(),
            effect.history.clone(),
            effect.agent.clone(),
            data.task_name(effect.task),
            format!(
                "{} (sequence {}, run {}, step {})",
                data.task_name(effect.probe),
                case.sequence,
                case.run,
                case.probe
            ),
            (case.probe - effect.step).to_string(),
            effect.relation.map_or("n/a", Relation::as_str).to_string(),
            signed_interval(effect.value, effect.interval),
            effect.logprob.map_or("n/a".into(), nats),
            share(Some(case.score)),
            share(Some(case.earlier_score)),
        ]);
    }
    view
}

/// Mean effect of the experiences by what the vote said of them.
pub(in crate::report) fn by_relation(data: &ReportData) -> View {
    let headers = ["history", "agent", "vote", "effect", "nats", "experiences", "harm", "help", "left no trace"];
    let mut view = View::new("Effect of single experiences on traced probes, by voted relation (points)", 3, &headers);
    let Some(attribution) = &data.beside.attribution else { return view };
    for group in &attribution.plan.groups {
        for relation in [Relation::Positive, Relation::Neutral, Relation::Negative, Relation::Mixed]
            .map(Some)
            .into_iter()
            .chain([None])
        {
            let is_here = |effect: &&Effect| {
                (&effect.history, &effect.agent, effect.relation) == (&group.history, &group.agent, relation)
            };
            let effects: Vec<&Effect> = attribution.effects.iter().filter(is_here).collect();
            if effects.is_empty() {
                continue;
            }
            let values: Vec<f64> = effects.iter().filter_map(|effect| effect.value).collect();
            let logprobs: Vec<f64> = effects.iter().filter_map(|effect| effect.logprob).collect();
            let side = |wanted| effects.iter().filter(|effect| effect.side() == wanted).count().to_string();
            view.rows.push(vec![
                group.history.clone(),
                group.agent.clone(),
                relation.map_or("undecided", Relation::as_str).to_string(),
                mean(&values).map_or("n/a".into(), signed),
                mean(&logprobs).map_or("n/a".into(), nats),
                effects.len().to_string(),
                side(-1),
                side(1),
                effects.iter().filter(|effect| effect.left_no_trace).count().to_string(),
            ]);
        }
    }
    view
}

/// `None` when the run has no such stage.
pub(super) fn table(data: &ReportData) -> Option<Table> {
    let attribution = data.beside.attribution.as_ref()?;
    let columns = vec![
        Column::new("history", Kind::Text, "which relation dominates"),
        Column::new("agent", Kind::Text, "name in the run file"),
        Column::new("sequence", Kind::Whole, "index of the sequence"),
        Column::new("run", Kind::Whole, "index of the run"),
        Column::new("probe", Kind::Text, "task that returns"),
        Column::new("probe_step", Kind::Whole, "step of the traced probe"),
        Column::new("probe_score", Kind::Real, "its score in the run (0..=1)"),
        Column::new("earlier_step", Kind::Whole, "step of the probe it is compared with"),
        Column::new("earlier_score", Kind::Real, "the score of that one (0..=1)"),
        Column::new("experience", Kind::Text, "task of the experience that is left out"),
        Column::new("experience_step", Kind::Whole, "its step"),
        Column::new("vote", Kind::Text, "voted relation of the experience's task to the probe"),
        Column::new("effect", Kind::Real, "score with all experiences minus score without this one, in points"),
        Column::new("effect_low", Kind::Real, "lower bound of the 95 % interval"),
        Column::new("effect_high", Kind::Real, "upper bound of the 95 % interval"),
        Column::new("effect_nats", Kind::Real, "the same of the reference's mean log-probability, in nats a token"),
        Column::new("graded", Kind::Whole, "draws graded on both sides"),
        Column::new("draws", Kind::Whole, "draws planned"),
        Column::new("left_no_trace", Kind::Flag, "whether the memory is the same without it"),
    ];
    let mut table = Table::new("attribution", "one row per traced probe and experience left out", columns);
    for effect in &attribution.effects {
        let case = &effect.case;
        let bound = |bound: fn(&Interval) -> f64| Cell::points(effect.interval.as_ref().map(bound));
        table.push(vec![
            Cell::text(&effect.history),
            Cell::text(&effect.agent),
            Cell::whole(case.sequence),
            Cell::whole(case.run),
            Cell::text(data.task_name(effect.probe)),
            Cell::whole(case.probe),
            Cell::Real(case.score),
            Cell::whole(case.earlier),
            Cell::Real(case.earlier_score),
            Cell::text(data.task_name(effect.task)),
            Cell::whole(effect.step),
            effect.relation.map_or(Cell::Empty, |relation| Cell::text(relation.as_str())),
            Cell::points(effect.value),
            bound(|interval| interval.low),
            bound(|interval| interval.high),
            Cell::real(effect.logprob),
            Cell::whole(effect.graded),
            Cell::whole(attribution.plan.draws),
            Cell::Flag(effect.left_no_trace),
        ]);
    }
    Some(table)
}

/// The strongest harms and helps; `None` when no score moved.
pub(in crate::report) fn chart(data: &ReportData, each: usize) -> anyhow::Result<Option<String>> {
    const LETTERS: usize = 48;
    let moved: Vec<&Effect> = ranked(data, each)
        .into_iter()
        .map(|(_, effect)| effect)
        .filter(|effect| effect.value.is_some_and(|value| value != 0.0))
        .collect();
    if moved.is_empty() {
        return Ok(None);
    }
    let in_points = |interval: Interval| Interval { low: points(interval.low), high: points(interval.high) };
    let name = |effect: &&Effect| {
        let task = data.task_name(effect.task);
        let task = task.split_once('/').map_or(task.as_str(), |(_, local)| local);
        format!("{}: {task}", effect.agent).chars().take(LETTERS).collect()
    };
    let names: Vec<String> = moved.iter().map(name).collect();
    let dot = |effect: &&Effect| {
        vec![Dot {
            series: 0,
            value: effect.value.map(points),
            interval: effect.interval.map(in_points),
            published: None,
        }]
    };
    let panel = DotPanel { title: String::new(), rows: moved.iter().map(dot).collect() };
    Ok(Some(dots(&names, &[panel], 1, "probe with it minus probe without it (points)")))
}
