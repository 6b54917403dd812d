//! Tables as CSV (RFC 4180, UTF-8, line feeds): opens in spreadsheets, pandas, polars and DuckDB.

use super::table::{Cell, Table};

/// Header and rows. Numbers are written in the shortest form that reads back as the same number; an undefined value is
/// an empty field.
pub fn render(table: &Table) -> String {
    let mut out = String::new();
    line(&mut out, table.columns.iter().map(|column| quoted(&column.name)));
    for row in &table.rows {
        line(&mut out, row.iter().map(field));
    }
    out
}

fn line(out: &mut String, fields: impl Iterator<Item = String>) {
    out.push_str(&fields.collect::<Vec<_>>().join(","));
    out.push('\n');
}

fn field(cell: &Cell) -> String {
    match cell {
        Cell::Empty => String::new(),
        Cell::Text(text) if text.is_empty() => "\"\"".into(),
        Cell::Text(text) => quoted(text),
        Cell::Whole(value) => value.to_string(),
        Cell::Real(value) => value.to_string(),
        Cell::Flag(value) => value.to_string(),
    }
}

fn quoted(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::super::table::{Column, Kind};
    use super::*;

    #[test]
    fn quotes_what_would_break_a_field() {
        let mut table = Table::new(
            "t",
            "",
            vec![
                Column::new("a", Kind::Text, ""),
                Column::new("b,c", Kind::Real, ""),
                Column::new("d", Kind::Flag, ""),
            ],
        );
        table.push(vec![Cell::text("say \"hi\",\nplease"), Cell::Real(0.1), Cell::Flag(true)]);
        table.push(vec![Cell::text(""), Cell::Empty, Cell::Empty]);
        assert_eq!(render(&table), "a,\"b,c\",d\n\"say \"\"hi\"\",\nplease\",0.1,true\n\"\",,\n");
    }
}
