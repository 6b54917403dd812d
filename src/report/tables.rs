//! The tables that are written as files. Column names and meanings stand here and nowhere else.
//!
//! AP, FWT, BWT, FGT and probe changes are in points (shares times 100), as published tables print them; scores and
//! gains are in score units (0..=1).

use crate::metric::{Interval, PathMetric};
use crate::record::plan::StepKind;
use crate::record::{AttemptRecord, Ending, Usage};

use super::beside;
use super::data::ReportData;
use super::sequence::{ContrastKind, Life};
use super::table::{Cell, Column, Kind, Table};
use super::{memory_use, pass_at_k, tool_turns};

const STAGES: &str = "matrix/MODEL, logprob/MODEL, multi_task/KIND/N, sequence/HISTORY/AGENT, attribution/…, \
                      attribution-logprob/…, transition/CONDITION/AGENT or orders/PATH/AGENT";

/// Every table that depends on records alone.
pub(super) fn all(data: &ReportData) -> Vec<Table> {
    let mut tables = vec![
        metrics(data),
        gains(data),
        zero_shot(data),
        sequences(data),
        probes(data),
        contrasts(data),
        usage(data),
        memory_calls(data),
        attempts(data),
    ];
    tables.extend(super::path_bench::tables(data));
    tables.extend(beside::tables(data));
    // Those of some runs alone.
    tables.extend([memory_use::table(data), pass_at_k::table(data), tool_turns::table(data)].into_iter().flatten());
    tables
}

fn text(name: &str, about: &str) -> Column {
    Column::new(name, Kind::Text, about)
}

fn whole(name: &str, about: &str) -> Column {
    Column::new(name, Kind::Whole, about)
}

fn real(name: &str, about: &str) -> Column {
    Column::new(name, Kind::Real, about)
}

fn flag(name: &str, about: &str) -> Column {
    Column::new(name, Kind::Flag, about)
}

/// Value, low and high of a column that has an interval.
fn with_interval(name: &str, about: &str) -> [Column; 3] {
    [
        real(name, about),
        real(&format!("{name}_low"), "lower bound of the 95 % interval"),
        real(&format!("{name}_high"), "upper bound of the 95 % interval"),
    ]
}

fn bounds(interval: Option<Interval>) -> [Cell; 2] {
    [Cell::real(interval.map(|interval| interval.low)), Cell::real(interval.map(|interval| interval.high))]
}

fn point_bounds(interval: Option<Interval>) -> [Cell; 2] {
    [Cell::points(interval.map(|interval| interval.low)), Cell::points(interval.map(|interval| interval.high))]
}

fn about_metric(metric: PathMetric) -> &'static str {
    match metric {
        PathMetric::Ap => "AP in points: mean score of all executions; higher is better",
        PathMetric::Fwt => "FWT in points: mean of later probes minus the cold probe; higher is better",
        PathMetric::Bwt => "BWT in points: mean rise of later probes above the warm probe; higher is better",
        PathMetric::Fgt => "FGT in points: mean fall of later probes below the warm probe; lower is better",
        PathMetric::Change => "mean of later probes minus the warm probe, in points (BWT minus FGT)",
    }
}

fn metrics(data: &ReportData) -> Table {
    let mut columns = vec![text("history", "which relation dominates"), text("agent", "name in the run file")];
    for metric in PathMetric::ALL {
        columns.extend(with_interval(metric.as_str(), about_metric(metric)));
        columns.push(whole(&format!("{}_sequences", metric.as_str()), "sequences that have a value"));
    }
    columns.extend([
        whole("sequences", "sequences planned"),
        whole("complete_runs", "runs of sequences whose every step is stored"),
        whole("runs", "runs of sequences planned"),
        whole("graded", "graded executions of complete runs"),
        whole("executions", "executions of complete runs"),
    ]);
    let mut table = Table::new("metrics", "one row per history and agent", columns);
    for cell in data.sequences.iter().flat_map(|sequences| &sequences.cells) {
        let mut row = vec![Cell::text(&cell.history), Cell::text(&cell.agent)];
        for metric in PathMetric::ALL {
            let summary = cell.summary(metric);
            row.push(Cell::points(summary.value));
            row.extend(point_bounds(summary.interval));
            row.push(Cell::whole(summary.sequences));
        }
        let (complete, lives) = cell.complete_lives();
        row.extend([cell.lives.len(), complete, lives, cell.graded, cell.executions].map(Cell::whole));
        table.push(row);
    }
    table
}

fn gains(data: &ReportData) -> Table {
    let mut columns = vec![
        text("model", "backbone"),
        text("source", "demonstrated task"),
        text("source_family", "its family"),
        text("target", "task that is attempted"),
        text("target_family", "its family"),
    ];
    columns.extend(with_interval("gain", "S(target | source) - S(target | nothing), seed by seed, in score units"));
    columns.extend([
        text("sign", "positive, neutral (exactly 0) or negative"),
        flag("excludes_zero", "whether the interval excludes 0"),
        real("with_mean", "S(target | source)"),
        whole("graded", "seeds graded with and without the demonstration"),
        whole("seeds", "seeds planned"),
        text("vote", "voted relation of the pair over all voters"),
    ]);
    let mut table = Table::new("gains", "one row per model and ordered pair of tasks", columns);
    let family = |task| data.family(task).map_or(Cell::Empty, Cell::text);
    for matrix in &data.matrices {
        for pair in &matrix.pairs {
            let [low, high] = bounds(pair.gain.interval);
            table.push(vec![
                Cell::text(&matrix.model),
                Cell::text(data.task_name(pair.source)),
                family(pair.source),
                Cell::text(data.task_name(pair.target)),
                family(pair.target),
                Cell::real(pair.gain.value),
                low,
                high,
                pair.sign().map_or(Cell::Empty, |sign| Cell::text(sign.as_str())),
                pair.gain.interval.map_or(Cell::Empty, |interval| Cell::Flag(interval.excludes_zero())),
                Cell::real(pair.with.value),
                Cell::whole(pair.gain.graded),
                Cell::whole(pair.gain.of),
                pair.vote.map_or(Cell::Empty, |vote| Cell::text(vote.as_str())),
            ]);
        }
    }
    table
}

fn zero_shot(data: &ReportData) -> Table {
    let mut columns = vec![
        text("model", "backbone"),
        text("task", "task"),
        text("family", "its family"),
        flag("kept", "whether the headroom filter kept it"),
    ];
    columns.extend(with_interval("score", "S(task | nothing): mean over graded seeds"));
    columns.extend([
        real("stderr", "standard error of the mean over seeds"),
        whole("graded", "graded seeds"),
        whole("seeds", "seeds planned"),
    ]);
    let mut table = Table::new("zero_shot", "one row per model and task of the pool, filtered tasks included", columns);
    for matrix in &data.matrices {
        for row in &matrix.zero_shot {
            let [low, high] = bounds(row.interval);
            table.push(vec![
                Cell::text(&matrix.model),
                Cell::text(data.task_name(row.task)),
                data.family(row.task).map_or(Cell::Empty, Cell::text),
                Cell::Flag(row.is_kept),
                Cell::real(row.mean.value),
                low,
                high,
                Cell::real(row.mean.stderr),
                Cell::whole(row.mean.graded),
                Cell::whole(row.mean.of),
            ]);
        }
    }
    table
}

fn sequences(data: &ReportData) -> Table {
    let mut columns = vec![
        text("history", "which relation dominates"),
        text("agent", "name in the run file"),
        whole("sequence", "index of the sequence"),
        whole("run", "index of the run"),
        text("probe", "task that returns"),
        whole("stored", "steps stored"),
        whole("steps", "steps planned"),
    ];
    columns.extend(PathMetric::ALL.map(|metric| real(metric.as_str(), about_metric(metric))));
    columns.extend([
        real("p_cold", "score of the first probe (0..=1)"),
        real("p_warm", "score of the probe after the warm-up (0..=1)"),
        whole("graded", "graded executions"),
        whole("prompt_tokens", "prompt tokens of all steps"),
        whole("generated_tokens", "generated tokens of all steps"),
    ]);
    let mut table = Table::new("sequences", "one row per history, agent, sequence and run", columns);
    for cell in data.sequences.iter().flat_map(|sequences| &sequences.cells) {
        for life in cell.lives.iter().flatten() {
            table.push(life_row(data, &cell.history, &cell.agent, life));
        }
    }
    table
}

fn life_row(data: &ReportData, history: &str, agent: &str, life: &Life) -> Vec<Cell> {
    let mut row = vec![
        Cell::text(history),
        Cell::text(agent),
        Cell::whole(life.sequence),
        Cell::whole(life.run),
        Cell::text(data.task_name(life.probe)),
        Cell::whole(life.stored),
        Cell::whole(life.planned),
    ];
    row.extend(PathMetric::ALL.map(|metric| Cell::points(life.metrics.and_then(|metrics| metrics.get(metric)))));
    row.extend([
        Cell::real(life.cold),
        Cell::real(life.warm),
        life.metrics.map_or(Cell::Empty, |metrics| Cell::whole(metrics.graded)),
        Cell::whole(life.usage.prompt_tokens),
        Cell::whole(life.usage.generated_tokens),
    ]);
    row
}

fn probes(data: &ReportData) -> Table {
    let mut columns = vec![
        text("history", "which relation dominates"),
        text("agent", "name in the run file"),
        whole("occurrence", "occurrence of the probe; 2 is the warm probe"),
    ];
    columns.extend(with_interval("change", "mean of p_i minus p_warm over sequences, in points"));
    columns.extend([
        whole("sequences", "sequences that have a value"),
        whole("runs", "runs that have a value"),
        flag("common", "whether every sequence of the history has this occurrence"),
    ]);
    let mut table = Table::new("probes", "one row per history, agent and occurrence of the probe", columns);
    for cell in data.sequences.iter().flat_map(|sequences| &sequences.cells) {
        for point in &cell.curve {
            let [low, high] = point_bounds(point.summary.interval);
            table.push(vec![
                Cell::text(&cell.history),
                Cell::text(&cell.agent),
                Cell::whole(point.occurrence),
                Cell::points(point.summary.value),
                low,
                high,
                Cell::whole(point.summary.sequences),
                Cell::whole(point.summary.runs),
                Cell::Flag(point.is_common),
            ]);
        }
    }
    table
}

fn contrasts(data: &ReportData) -> Table {
    let mut columns = vec![
        text("left", "what the difference is taken from"),
        text("right", "what is subtracted"),
        text("agent", "the agent of the left side"),
        text("history", "the history of the left side"),
        text("metric", "ap, fwt, bwt, fgt or probe_change"),
    ];
    columns.extend(with_interval("difference", "left minus right, in points"));
    columns.extend([
        flag("excludes_zero", "whether the interval excludes 0"),
        whole("sequences", "sequences compared"),
        flag("paired", "whether the difference was taken sequence by sequence"),
    ]);
    let mut table = Table::new("contrasts", "one row per comparison of two cells and metric", columns);
    let baseline = data.sequences.as_ref().and_then(|sequences| sequences.plan.baseline.clone()).unwrap_or_default();
    for contrast in data.sequences.iter().flat_map(|sequences| &sequences.contrasts) {
        let (left, right, history) = match &contrast.kind {
            ContrastKind::Baseline { history } => (&contrast.agent, &baseline, history),
            ContrastKind::Against { history, other } => (&contrast.agent, other, history),
            ContrastKind::Histories { left, right } => (left, right, left),
        };
        let [low, high] = point_bounds(contrast.interval);
        table.push(vec![
            Cell::text(left),
            Cell::text(right),
            Cell::text(&contrast.agent),
            Cell::text(history),
            Cell::text(contrast.metric.as_str()),
            Cell::points(contrast.value),
            low,
            high,
            contrast.interval.map_or(Cell::Empty, |interval| Cell::Flag(interval.excludes_zero())),
            Cell::whole(contrast.sequences),
            Cell::Flag(contrast.is_paired),
        ]);
    }
    table
}

/// Every way an attempt can end, with its column.
pub(super) const ENDINGS: [(Ending, &str); 6] = [
    (Ending::Finished, "finished"),
    (Ending::TokenLimit, "token_limit"),
    (Ending::StepLimit, "step_limit"),
    (Ending::ContextLimit, "context_limit"),
    (Ending::InvalidAction, "invalid_action"),
    (Ending::EnvironmentFault, "environment_fault"),
];

fn ending_name(ending: Ending) -> &'static str {
    ENDINGS.iter().find(|(other, _)| *other == ending).map_or("", |(_, name)| name)
}

fn usage(data: &ReportData) -> Table {
    let mut columns = vec![
        text("stage", STAGES),
        whole("attempts", "attempts stored"),
        whole("ungraded", "attempts that could not be graded"),
        whole("prompt_tokens", "prompt tokens, reused ones included"),
        whole("generated_tokens", "generated tokens"),
    ];
    columns.extend(ENDINGS.map(|(_, name)| whole(name, "attempts that ended this way")));
    let mut table = Table::new("usage", "one row per stage", columns);
    for stage in &data.usage {
        let mut row = vec![Cell::text(&stage.stage), Cell::whole(stage.attempts), Cell::whole(stage.ungraded)];
        row.extend([stage.usage.prompt_tokens, stage.usage.generated_tokens].map(Cell::whole));
        row.extend(ENDINGS.map(|(ending, _)| Cell::whole(stage.endings.get(&ending).copied().unwrap_or(0))));
        table.push(row);
    }
    table
}

fn memory_calls(data: &ReportData) -> Table {
    let columns = vec![
        text("stage", "sequence/HISTORY/AGENT"),
        text("purpose", "METHOD/PURPOSE of the calls"),
        whole("calls", "calls of the memory to the backbone"),
        whole(
            "unasked",
            "calls whose prompt did not fit the context: nothing was asked, the method's fallback applied",
        ),
        whole("unread", "calls whose reply could not be read: the method's fallback applied"),
        whole("prompt_tokens", "prompt tokens, reused ones included"),
        whole("generated_tokens", "generated tokens"),
    ];
    let mut table = Table::new("memory_calls", "one row per stage and purpose of a memory's own calls", columns);
    for row in &data.memory_calls {
        let Usage { prompt_tokens, generated_tokens } = row.usage;
        table.push(vec![
            Cell::text(&row.stage),
            Cell::text(&row.purpose),
            Cell::whole(row.calls),
            Cell::whole(row.unasked),
            Cell::whole(row.unread),
            Cell::whole(prompt_tokens),
            Cell::whole(generated_tokens),
        ]);
    }
    table
}

fn attempts(data: &ReportData) -> Table {
    let columns = vec![
        text("stage", STAGES),
        whole(
            "sequence",
            "matrix and logprob: 0 = no demonstration, i + 1 = task i; attribution: case; orders: tasks learned before; else \
             an index",
        ),
        whole(
            "step",
            "matrix, logprob, multi_task, orders: attempted task; sequence, transition: position; attribution: 0 = whole \
             memory, i + 1 = without i",
        ),
        whole("attempt", "seed, run or draw"),
        text("task", "task"),
        text("kind", "sequence, transition: cold_probe, warm_up, warm_probe, intervening or probe"),
        real("score", "0..=1; empty when ungraded"),
        text("ungraded", "why it could not be graded"),
        text("ending", "why the attempt stopped"),
        text("answer", "what was read out of the reply"),
        text("reply", "the last reply, verbatim"),
        text("detail", "what the scorer found"),
        whole("prompt_tokens", "prompt tokens"),
        whole("generated_tokens", "generated tokens"),
        whole("recalled", "memories shown"),
        whole("dropped_memories", "recalled memories that did not fit"),
        text("memory", "digest of the memory after the step"),
    ];
    let mut table = Table::new("attempts", "one row per attempt", columns);
    for record in &data.records {
        table.push(attempt_row(data, record));
    }
    table
}

fn attempt_row(data: &ReportData, record: &AttemptRecord) -> Vec<Cell> {
    let attempt = &record.attempt;
    let why = match &record.score {
        crate::record::Score::Ungraded { why } => Cell::text(why),
        crate::record::Score::Graded(_) => Cell::Empty,
    };
    let optional = |value: &Option<String>| value.as_ref().map_or(Cell::Empty, Cell::text);
    vec![
        Cell::text(&record.coord.stage),
        Cell::whole(record.coord.sequence),
        Cell::whole(record.coord.step),
        Cell::whole(record.coord.attempt),
        Cell::text(&record.task.0),
        step_kind(data, record).map_or(Cell::Empty, |kind| Cell::text(kind_name(kind))),
        Cell::real(record.score.graded()),
        why,
        Cell::text(ending_name(attempt.ending)),
        optional(&attempt.answer),
        Cell::text(attempt.reply()),
        Cell::text(&record.detail),
        Cell::whole(attempt.usage.prompt_tokens),
        Cell::whole(attempt.usage.generated_tokens),
        Cell::whole(attempt.recalled.len()),
        Cell::whole(attempt.dropped_memories),
        optional(&record.memory),
    ]
}

fn step_kind(data: &ReportData, record: &AttemptRecord) -> Option<StepKind> {
    let (family, rest) = record.coord.stage.split_once('/')?;
    let (history, _) = rest.split_once('/')?;
    let plan = match family {
        "sequence" => &data.sequences.as_ref()?.plan,
        "transition" => &data.transitions.as_ref()?.plan,
        _ => return None,
    };
    let history = plan.histories.iter().find(|other| other.name == history)?;
    let sequence = history.sequences.get(record.coord.sequence as usize)?;
    Some(sequence.steps.get(record.coord.step as usize)?.kind)
}

fn kind_name(kind: StepKind) -> &'static str {
    match kind {
        StepKind::ColdProbe => "cold_probe",
        StepKind::WarmUp => "warm_up",
        StepKind::WarmProbe => "warm_probe",
        StepKind::Intervening => "intervening",
        StepKind::Probe => "probe",
    }
}

/// The one table that differs between two equal runs.
pub(super) fn timing(data: &ReportData) -> Table {
    let columns = vec![
        text("stage", "stage, or `total`"),
        whole("units", "attempts timed"),
        real("seconds", "active seconds, split over the stages by when attempts finished"),
        whole("reused_tokens", "prompt tokens found in the cache"),
        whole("segments", "times the run was started or continued"),
        real("wall_seconds", "from the first start to the last attempt, pauses included"),
        text("started", "first start"),
    ];
    let mut table = Table::new("timing", "one row per stage, then the total; differs between equal runs", columns);
    for (stage, time) in &data.timing.stages {
        let mut row = vec![Cell::text(stage), Cell::whole(time.units), Cell::real(Some(time.seconds))];
        row.extend([Cell::whole(time.reused_tokens), Cell::Empty, Cell::Empty, Cell::Empty]);
        table.push(row);
    }
    let totals = &data.timing.totals;
    table.push(vec![
        Cell::text("total"),
        Cell::whole(totals.units),
        Cell::real(Some(totals.active_seconds)),
        Cell::whole(totals.reused_tokens),
        Cell::whole(totals.segments),
        Cell::real(Some(totals.wall_seconds)),
        totals.started.map_or(Cell::Empty, |started| Cell::text(started.to_string())),
    ]);
    table
}
