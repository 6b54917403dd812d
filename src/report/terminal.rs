//! The report as text for a terminal or a log.

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};

use crate::metric::INTERVAL_METHOD;

use super::beside;
use super::cautions::cautions;
use super::data::ReportData;
use super::section::Section;
use super::view::{self, View};
use super::{memory_use, pass_at_k, tool_turns};

/// Strongest pairs printed a side and model.
const STRONGEST: usize = 3;

/// Every view that has rows, with titles. The same for equal records: no colours, no width of the window, no times.
pub(super) fn render(data: &ReportData, sections: &[Section]) -> String {
    let mut out = format!("run {} ({})\n", data.name(), &data.run_id.0[..data.run_id.0.len().min(12)]);
    if let Some(about) = data.config_text("about").filter(|about| !about.is_empty()) {
        out += &format!("{about}\n");
    }
    cautions(data).iter().for_each(|caution| out += &format!("caution: {caution}\n"));
    let mut views = vec![view::missing(data), view::ignored(data), view::matrices(data), view::families(data)];
    views.extend([pass_at_k::view(data), tool_turns::view(data)]);
    views.extend(data.matrices.iter().map(|matrix| view::strongest(data, matrix, STRONGEST)));
    views.extend([view::votes(data), view::metrics(data), view::against_baseline(data), view::between_histories(data)]);
    views.extend(beside::views(data));
    views.extend([view::usage(data), memory_use::view(data), view::memory_calls(data)]);
    for view in views.iter().filter(|view| !view.is_empty()) {
        out += &format!("\n{}\n{}\n", view.title, grid(view));
    }
    for section in sections {
        out += &format!("\n{}\n", section.title);
        for view in section.tables.iter().filter(|view| !view.is_empty()) {
            out += &format!("\n{}\n{}\n", view.title, grid(view));
        }
        section.notes.iter().for_each(|note| out += &format!("{note}\n"));
    }
    out += &format!("\nIntervals: {INTERVAL_METHOD}.\n");
    out
}

/// One rule under the header and nothing else.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

fn grid(view: &View) -> String {
    let mut table = Table::new();
    table.load_style(STYLE).set_header(view.headers.clone());
    for row in &view.rows {
        table.add_row(row.clone());
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        if index >= view.label_columns {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let text = table.to_string();
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}
