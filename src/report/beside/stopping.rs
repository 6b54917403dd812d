//! Seeds that sequential stopping did not need, and why each pair stopped.

use crate::metric::Settled;
use crate::record::plan::{Relation, Stopping};

use super::super::data::ReportData;
use super::super::matrix::{ModelMatrix, Pair};
use super::super::table::{Cell, Column, Kind, Table};
use super::super::view::{View, share};

/// One model's pairs under a stopping rule.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelStopping {
    pub model: String,
    pub rule: Stopping,
    /// Pairs that are done: settled, or with all their seeds.
    pub done: usize,
    pub pairs: usize,
    /// Attempts of done pairs that were made, and that all seeds would have taken.
    pub made: usize,
    pub all: usize,
    /// Pairs whose sign no other seed could change: positive, negative.
    pub certain: (usize, usize),
    /// Pairs whose sign the test named: positive, negative.
    pub tested: (usize, usize),
}

impl ModelStopping {
    /// Share of the attempts that were not needed; `None` before any pair is done.
    pub fn saved(&self) -> Option<f64> {
        (self.all > 0).then(|| 1.0 - self.made as f64 / self.all as f64)
    }
}

pub(super) fn build(data: &ReportData) -> Vec<ModelStopping> {
    let (Some(rule), Some(pool)) = (data.stopping, &data.pool) else { return Vec::new() };
    let of_model = |matrix: &ModelMatrix| {
        let settled = |wanted, sign| {
            let is_it = |pair: &&Pair| pair.stop.is_some_and(|stop| stop.settled == wanted && stop.sign == sign);
            matrix.pairs.iter().filter(is_it).count()
        };
        let both = |wanted| (settled(wanted, Relation::Positive), settled(wanted, Relation::Negative));
        let done = |pair: &&Pair| pair.drawn == pair.gain.of;
        ModelStopping {
            model: matrix.model.clone(),
            rule,
            done: matrix.pairs.iter().filter(done).count(),
            pairs: matrix.pairs.len(),
            made: matrix.pairs.iter().filter(done).map(|pair| pair.drawn).sum(),
            all: matrix.pairs.iter().filter(done).count() * pool.seeds as usize,
            certain: both(Settled::Certain),
            tested: both(Settled::Tested),
        }
    };
    data.matrices.iter().map(of_model).collect()
}

pub(in crate::report) fn view(data: &ReportData) -> View {
    let headers = [
        "model",
        "pairs",
        "attempts made",
        "of",
        "saved",
        "certain +",
        "certain −",
        "tested +",
        "tested −",
        "all seeds",
    ];
    let mut view = View::new("Seeds that stopped once a sign was settled", 1, &headers);
    for model in &data.beside.stopping {
        let settled = model.certain.0 + model.certain.1 + model.tested.0 + model.tested.1;
        view.rows.push(vec![
            model.model.clone(),
            format!("{} of {}", model.done, model.pairs),
            model.made.to_string(),
            model.all.to_string(),
            share(model.saved()),
            model.certain.0.to_string(),
            model.certain.1.to_string(),
            model.tested.0.to_string(),
            model.tested.1.to_string(),
            (model.done - settled).to_string(),
        ]);
    }
    view
}

/// `None` without a stopping rule.
pub(super) fn table(data: &ReportData) -> Option<Table> {
    let pool = data.pool.as_ref().filter(|_| !data.beside.stopping.is_empty())?;
    let columns = vec![
        Column::new("model", Kind::Text, "backbone"),
        Column::new("source", Kind::Text, "demonstrated task"),
        Column::new("target", Kind::Text, "task that is attempted"),
        Column::new("drawn", Kind::Whole, "seeds drawn"),
        Column::new("seeds", Kind::Whole, "seeds that the pair would have had"),
        Column::new(
            "settled",
            Kind::Text,
            "certain: no other seed could change the sign; tested: at the error rate; empty: not",
        ),
        Column::new("sign", Kind::Text, "the sign that was settled"),
    ];
    let mut table = Table::new("stopping", "one row per model and ordered pair of tasks", columns);
    for matrix in &data.matrices {
        for pair in &matrix.pairs {
            let settled = pair.stop.map(|stop| match stop.settled {
                Settled::Certain => "certain",
                Settled::Tested => "tested",
            });
            table.push(vec![
                Cell::text(&matrix.model),
                Cell::text(data.task_name(pair.source)),
                Cell::text(data.task_name(pair.target)),
                Cell::whole(pair.drawn),
                Cell::whole(pool.seeds),
                settled.map_or(Cell::Empty, Cell::text),
                pair.stop.map_or(Cell::Empty, |stop| Cell::text(stop.sign.as_str())),
            ]);
        }
    }
    Some(table)
}
