//! A part of the page that is made of tables and drawings alone: what a further experiment adds to the report.

use serde::Serialize;

use super::view::View;

/// One section, in the order of the page: intro, tables, drawings, notes.
#[derive(Serialize)]
pub(super) struct Section {
    /// Anchor on the page.
    pub id: &'static str,
    pub title: &'static str,
    pub intro: String,
    pub tables: Vec<View>,
    pub drawings: Vec<Drawing>,
    pub notes: Vec<String>,
}

/// One figure: on the page, and as a file of its own.
#[derive(Serialize)]
pub(super) struct Drawing {
    /// File name without extension.
    pub file: String,
    pub title: String,
    pub legend: Vec<Series>,
    pub svg: String,
    /// How to read it.
    pub caption: String,
}

/// A named colour of a legend.
#[derive(Clone, Serialize)]
pub(super) struct Series {
    pub name: String,
    pub colour: &'static str,
}

impl Drawing {
    /// The drawing as a document of its own, on white paper.
    pub fn document(&self) -> String {
        let paper = "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>";
        match self.svg.find('>') {
            Some(end) => format!("{}{paper}{}", &self.svg[..=end], &self.svg[end + 1..]),
            None => self.svg.clone(),
        }
    }
}

/// The series of a chart with their names.
pub(super) fn legend<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<Series> {
    let colours = super::svg::SERIES.iter().cycle();
    names.into_iter().zip(colours).map(|(name, colour)| Series { name: name.into(), colour }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_has_white_paper_behind_its_ink() {
        let drawing = Drawing {
            file: "f".into(),
            title: String::new(),
            legend: legend(["a", "b"]),
            svg: "<svg width=\"1\"><g/></svg>".into(),
            caption: String::new(),
        };
        assert!(drawing.document().starts_with("<svg width=\"1\"><rect"));
        assert!(drawing.document().ends_with("<g/></svg>"));
        assert_ne!(drawing.legend[0].colour, drawing.legend[1].colour);
    }
}
