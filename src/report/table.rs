//! A table as files hold it: named, typed columns and rows of cells.

/// One table of the report.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// File name without extension.
    pub name: &'static str,
    /// One line for the page: what a row is.
    pub about: &'static str,
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<Cell>>,
}

/// A column: its name in the file, its type, and what it means (with its unit).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub kind: Kind,
    pub about: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    Whole,
    Real,
    Flag,
}

/// One value. `Empty` is "not defined" in every type of column.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Empty,
    Text(String),
    Whole(i64),
    Real(f64),
    Flag(bool),
}

impl Table {
    pub fn new(name: &'static str, about: &'static str, columns: Vec<Column>) -> Self {
        Table { name, about, columns, rows: Vec::new() }
    }

    /// # Panics
    /// When the row does not fit the columns: a table is built in one place, so this is our bug.
    pub fn push(&mut self, row: Vec<Cell>) {
        let fits = row.len() == self.columns.len()
            && row.iter().zip(&self.columns).all(|(cell, column)| cell.kind().is_none_or(|kind| kind == column.kind));
        assert!(fits, "a row of table {} does not fit its columns: {row:?}", self.name);
        self.rows.push(row);
    }
}

impl Column {
    pub fn new(name: impl Into<String>, kind: Kind, about: impl Into<String>) -> Self {
        Column { name: name.into(), kind, about: about.into() }
    }
}

impl Cell {
    fn kind(&self) -> Option<Kind> {
        match self {
            Cell::Empty => None,
            Cell::Text(_) => Some(Kind::Text),
            Cell::Whole(_) => Some(Kind::Whole),
            Cell::Real(_) => Some(Kind::Real),
            Cell::Flag(_) => Some(Kind::Flag),
        }
    }

    pub fn text(value: impl Into<String>) -> Cell {
        Cell::Text(value.into())
    }

    pub fn whole(value: impl TryInto<i64>) -> Cell {
        value.try_into().map_or(Cell::Empty, Cell::Whole)
    }

    /// Empty for `None`.
    pub fn real(value: Option<f64>) -> Cell {
        value.map_or(Cell::Empty, Cell::Real)
    }

    /// A share as points (times 100); empty for `None`.
    pub fn points(value: Option<f64>) -> Cell {
        Cell::real(value.map(points))
    }
}

/// A share in 0..=1, or a difference of shares, as points. Rounded to 1e-9 so that a file shows 31.25 and not the last
/// bit of a product.
pub fn points(share: f64) -> f64 {
    let value = (share * 1e11).round() / 1e9;
    if value == 0.0 { 0.0 } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_clean_numbers() {
        assert_eq!(points(0.3125), 31.25);
        assert_eq!(points(0.07), 7.0);
        assert_eq!(points(-0.0).to_string(), "0");
    }

    #[test]
    #[should_panic(expected = "does not fit")]
    fn a_row_of_another_type_is_our_bug() {
        Table::new("t", "", vec![Column::new("a", Kind::Whole, "")]).push(vec![Cell::Real(1.0)]);
    }
}
