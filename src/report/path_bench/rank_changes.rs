//! Figure 1: how agents rank under two orders of the same tasks.

use super::published;
use super::setting::{self, Difference, Scope};
use crate::report::data::ReportData;
use crate::report::dots::{RankGrid, ranks};
use crate::report::orders::{MatrixMetric, Orders};
use crate::report::section::{Drawing, Section};
use crate::report::table::{Cell, Column, Kind, Table};
use crate::report::view::{self, View};

const NAMES: [&str; 4] = ["AP", "FWT", "BWT", "FGT"];

pub(super) fn figure_1(data: &ReportData, differences: &[Difference]) -> Option<Section> {
    let orders = data.orders.as_ref()?;
    let mut tables = vec![metrics(data, orders)];
    tables.extend(rank_view(data, orders));
    let drawings = rank_cells(orders).map(|ours| drawing(data, orders, ours)).into_iter().collect();
    Some(Section {
        id: "figure-1",
        title: "Figure 1: the same tasks in two orders",
        intro: "Every task is attempted again after each task that was learned, from a frozen memory. AP: mean over the tasks \
                after the last one; FWT: a task just before it is learned, minus before anything was; BWT: a task at the end \
                minus just after it was learned; FGT: its best in between minus at the end. These are the classic metrics of \
                a task matrix, not the probe metrics of the same names above."
            .into(),
        tables,
        drawings,
        notes: vec![
            "Attempts draw with their task and run alone, so whatever changes along a column is the memory's doing, and an \
             agent without memory has FWT, BWT and FGT of exactly zero."
                .into(),
            setting::line(differences, &[Scope::Orders]),
        ],
    })
}

fn metrics(data: &ReportData, orders: &Orders) -> View {
    let headers = ["path", "agent", "in the paper", "AP", "FWT", "BWT", "FGT", "runs", "graded", "unknown"];
    let mut view = View::new("Task-matrix metrics (points, mean [95 % over runs])", 3, &headers);
    for cell in &orders.cells {
        let method = data.method(&cell.agent).unwrap_or("–");
        let mut row = vec![cell.path.clone(), cell.agent.clone(), method.to_string()];
        for metric in MatrixMetric::ALL {
            let (value, interval) = cell.summary(metric);
            row.push(match metric {
                MatrixMetric::Ap => view::interval(value, interval),
                _ => view::signed_interval(value, interval),
            });
        }
        let complete = cell.runs.iter().flatten().count();
        row.extend([format!("{complete} of {}", cell.runs.len()), cell.graded.to_string()]);
        row.push((cell.stored - cell.graded).to_string());
        view.rows.push(row);
    }
    view
}

/// Ranks under the first two paths, by agent, then metric; `None` while one is missing.
fn rank_cells(orders: &Orders) -> Option<Vec<Vec<Option<[usize; 2]>>>> {
    let is_ranked = orders.rankings.iter().all(|ranking| ranking.ranks.len() >= 2);
    let of = |agent: usize| -> Vec<Option<[usize; 2]>> {
        orders.rankings.iter().map(|ranking| Some([ranking.ranks[0][agent], ranking.ranks[1][agent]])).collect()
    };
    is_ranked.then(|| (0..orders.plan.agents.len()).map(of).collect())
}

fn published_cells(data: &ReportData, orders: &Orders) -> Vec<Vec<Option<[usize; 2]>>> {
    let of = |agent: &String| -> Vec<Option<[usize; 2]>> {
        let method = data.method(agent).unwrap_or_default();
        let ranks = |metric: MatrixMetric| published::figure_1(method, metric.as_str());
        MatrixMetric::ALL.map(|metric| ranks(metric).map(|ranks| ranks.map(|rank| rank as usize))).to_vec()
    };
    orders.plan.agents.iter().map(of).collect()
}

fn rank_view(data: &ReportData, orders: &Orders) -> Option<View> {
    let (ours, theirs) = (rank_cells(orders)?, published_cells(data, orders));
    let mut headers = vec!["agent", "in the paper"];
    headers.extend(NAMES.iter().flat_map(|name| [*name, "paper"]));
    let mut view = View::new("Ranks, path 1 → path 2 (1 is best)", 2, &headers);
    let text = |cell: &Option<[usize; 2]>| {
        cell.map_or_else(|| "–".to_string(), |[first, second]| format!("{first} → {second}"))
    };
    for (agent, (ours, theirs)) in orders.plan.agents.iter().zip(ours.iter().zip(&theirs)) {
        let mut row = vec![agent.clone(), data.method(agent).unwrap_or("–").to_string()];
        row.extend(ours.iter().zip(theirs).flat_map(|(ours, theirs)| [text(ours), text(theirs)]));
        view.rows.push(row);
    }
    let mut taus = vec!["Kendall's tau-b".to_string(), String::new()];
    for ranking in &orders.rankings {
        let tau = ranking.tau.map_or_else(|| "n/a".to_string(), |tau| format!("{tau:.2}").replace('-', "−"));
        taus.extend([tau, String::new()]);
    }
    view.rows.push(taus);
    Some(view)
}

fn drawing(data: &ReportData, orders: &Orders, ours: Vec<Vec<Option<[usize; 2]>>>) -> Drawing {
    let theirs = published_cells(data, orders);
    let grids = [
        RankGrid { title: "this run".into(), cells: ours },
        RankGrid { title: "paper (LifelongAgentBench)".into(), cells: theirs },
    ];
    Drawing {
        file: "figure-1".into(),
        title: "Rank under path 1 → rank under path 2".into(),
        legend: Vec::new(),
        svg: ranks(&orders.plan.agents, &NAMES, &grids),
        caption: "Blue improves from the first path to the second, orange falls; the stronger, the farther. The tasks are the \
                  same: what moves a rank is their order. The paper ranks four agents; ranks among other sets of agents are \
                  not comparable, only whether they move."
            .into(),
    }
}

pub(super) fn table(data: &ReportData) -> Option<Table> {
    let orders = data.orders.as_ref()?;
    let mut columns = vec![
        Column::new("path", Kind::Text, "order of the tasks"),
        Column::new("agent", Kind::Text, "name in the run file"),
    ];
    for metric in MatrixMetric::ALL {
        let name = metric.as_str();
        columns.push(Column::new(name, Kind::Real, "task-matrix metric in points, mean over runs"));
        columns.push(Column::new(format!("{name}_low"), Kind::Real, "lower bound of the 95 % interval over runs"));
        columns.push(Column::new(format!("{name}_high"), Kind::Real, "upper bound of the 95 % interval"));
        columns.push(Column::new(format!("{name}_rank"), Kind::Whole, "rank among the agents of the path, 1 is best"));
    }
    columns.push(Column::new("complete_runs", Kind::Whole, "runs whose every attempt is graded"));
    columns.push(Column::new("runs", Kind::Whole, "runs planned"));
    let mut table = Table::new("orders", "one row per path and agent", columns);
    for cell in &orders.cells {
        let path = orders.plan.paths.iter().position(|path| path.name == cell.path)?;
        let agent = orders.plan.agents.iter().position(|agent| *agent == cell.agent)?;
        let mut row = vec![Cell::text(&cell.path), Cell::text(&cell.agent)];
        for ranking in &orders.rankings {
            let (value, interval) = cell.summary(ranking.metric);
            row.push(Cell::points(value));
            row.push(Cell::points(interval.map(|interval| interval.low)));
            row.push(Cell::points(interval.map(|interval| interval.high)));
            row.push(ranking.ranks.get(path).map_or(Cell::Empty, |ranks| Cell::whole(ranks[agent])));
        }
        row.extend([cell.runs.iter().flatten().count(), cell.runs.len()].map(Cell::whole));
        table.push(row);
    }
    Some(table)
}
