//! Dots with whiskers beside names, and grids of ranks, as SVG text.
//!
//! Written down directly: every mark has one place and one meaning, and a chart library would have to be told each. Inks
//! are those of [`svg`](super::svg), which the page's style sheet replaces for dark screens.

use std::fmt::Write as _;

use crate::metric::Interval;

use super::svg::SERIES;

const INK: &str = "#1F2328";
const GRID: &str = "#D0D7DE";

/// Pixels.
const LEAST_NAME_WIDTH: f64 = 168.0;
/// Of a letter of a name, rather too much than too little.
const LETTER_WIDTH: f64 = 7.8;
const PANEL_WIDTH: f64 = 300.0;
const GAP: f64 = 52.0;
const TITLE_HEIGHT: f64 = 26.0;
const AXIS_HEIGHT: f64 = 44.0;
const DOT_HEIGHT: f64 = 17.0;
const ROW_MARGIN: f64 = 8.0;

/// One mark: a mean with its interval, and the published one where there is any. All in points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Dot {
    /// Index into the colours.
    pub series: usize,
    pub value: Option<f64>,
    pub interval: Option<Interval>,
    pub published: Option<f64>,
}

/// One plot: a row a name, the row's dots from top to bottom.
pub(super) struct DotPanel {
    pub title: String,
    pub rows: Vec<Vec<Dot>>,
}

/// Plots over the same names and the same axis, `columns` beside each other. Ours are filled circles, published values
/// hollow diamonds.
pub(super) fn dots(names: &[String], panels: &[DotPanel], columns: usize, x_name: &str) -> String {
    let per_row = panels.iter().flat_map(|panel| &panel.rows).map(Vec::len).max().unwrap_or(1).max(1);
    let row_height = ROW_MARGIN + DOT_HEIGHT * per_row as f64;
    let plot_height = row_height * names.len() as f64;
    let panel_height = TITLE_HEIGHT + plot_height + AXIS_HEIGHT;
    let columns = columns.clamp(1, panels.len().max(1));
    let lines = panels.len().div_ceil(columns);
    let name_width = name_width(names);
    let (width, height) = (name_width + columns as f64 * (PANEL_WIDTH + GAP), lines as f64 * panel_height);
    let axis = Axis::around(panels.iter().flat_map(|panel| panel.rows.iter().flatten()).flat_map(reach));
    let mut out = start(width, height);
    for (index, panel) in panels.iter().enumerate() {
        let left = name_width + (index % columns) as f64 * (PANEL_WIDTH + GAP);
        let top = (index / columns) as f64 * panel_height + TITLE_HEIGHT;
        if index % columns == 0 {
            for (row, name) in names.iter().enumerate() {
                let y = top + row_height * (row as f64 + 0.5) + 4.0;
                text(&mut out, (name_width - 10.0, y), "end", 13, name);
            }
        }
        text(&mut out, (left + PANEL_WIDTH / 2.0, top - 9.0), "middle", 13, &panel.title);
        draw_panel(&mut out, panel, &axis, (left, top), row_height);
        text(&mut out, (left + PANEL_WIDTH / 2.0, top + plot_height + 36.0), "middle", 12, x_name);
    }
    out.push_str("</svg>\n");
    out
}

/// Room for the longest name on the left.
fn name_width(names: &[String]) -> f64 {
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    LEAST_NAME_WIDTH.max(longest as f64 * LETTER_WIDTH + 12.0)
}

fn reach(dot: &Dot) -> Vec<f64> {
    let bounds = dot.interval.iter().flat_map(|interval| [interval.low, interval.high]);
    dot.value.into_iter().chain(bounds).chain(dot.published).collect()
}

fn draw_panel(out: &mut String, panel: &DotPanel, axis: &Axis, (left, top): (f64, f64), row_height: f64) {
    let height = row_height * panel.rows.len() as f64;
    let x = |value: f64| left + axis.place(value) * PANEL_WIDTH;
    for mark in &axis.marks {
        let ink = if *mark == 0.0 { INK } else { GRID };
        line(out, (x(*mark), top), (x(*mark), top + height), ink, 1.0);
        text(out, (x(*mark), top + height + 17.0), "middle", 12, &mark_text(*mark));
    }
    for (row, dots) in panel.rows.iter().enumerate() {
        let middle = top + row_height * (row as f64 + 0.5);
        for (place, dot) in dots.iter().enumerate() {
            let y = middle + DOT_HEIGHT * (place as f64 - (dots.len() as f64 - 1.0) / 2.0);
            let colour = SERIES[dot.series % SERIES.len()];
            if let Some(interval) = dot.interval {
                line(out, (x(interval.low), y), (x(interval.high), y), colour, 2.0);
                for end in [interval.low, interval.high] {
                    line(out, (x(end), y - 4.0), (x(end), y + 4.0), colour, 2.0);
                }
            }
            if let Some(value) = dot.value {
                let _ = write!(out, "<circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"4.5\" fill=\"{colour}\"/>", x(value));
            }
            if let Some(published) = dot.published {
                let (x, r) = (x(published), 5.0);
                let _ = write!(
                    out,
                    "<path d=\"M{:.1} {y:.1}L{x:.1} {:.1}L{:.1} {y:.1}L{x:.1} {:.1}Z\" fill=\"none\" stroke=\"{colour}\" \
                     stroke-width=\"1.6\"/>",
                    x - r,
                    y - r,
                    x + r,
                    y + r
                );
            }
        }
    }
}

/// A range around 0 with round marks.
struct Axis {
    low: f64,
    high: f64,
    marks: Vec<f64>,
}

impl Axis {
    fn around(values: impl Iterator<Item = f64>) -> Axis {
        let (low, high) = values.fold((-1.0f64, 1.0f64), |(low, high), value| (low.min(value), high.max(value)));
        let steps = [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];
        let step = steps.into_iter().find(|step| (high - low) / step <= 6.0).unwrap_or(100.0);
        let (first, last) = ((low / step).floor() as i64, (high / step).ceil() as i64);
        let marks: Vec<f64> = (first..=last).map(|mark| mark as f64 * step).collect();
        Axis { low: first as f64 * step, high: last as f64 * step, marks }
    }

    /// In 0..=1 from left to right.
    fn place(&self, value: f64) -> f64 {
        (value - self.low) / (self.high - self.low)
    }
}

fn mark_text(mark: f64) -> String {
    let digits = if mark.fract() == 0.0 { format!("{:.0}", mark.abs()) } else { format!("{:.1}", mark.abs()) };
    match mark {
        mark if mark < 0.0 => format!("−{digits}"),
        mark if mark > 0.0 => format!("+{digits}"),
        _ => digits,
    }
}

/// A grid of rank changes, `first → second`; 1 is best.
pub(super) struct RankGrid {
    pub title: String,
    /// By row, then column; `None` where there are no ranks.
    pub cells: Vec<Vec<Option<[usize; 2]>>>,
}

/// Grids beside each other over the same names and columns. A cell is blue when the rank improves from the first path to
/// the second and orange when it falls, the stronger the farther.
pub(super) fn ranks(names: &[String], columns: &[&str], grids: &[RankGrid]) -> String {
    const CELL: (f64, f64) = (66.0, 30.0);
    let grid_width = CELL.0 * columns.len() as f64;
    let name_width = name_width(names);
    let width = name_width + grids.len() as f64 * (grid_width + GAP);
    let height = 2.0 * TITLE_HEIGHT + CELL.1 * names.len() as f64 + 10.0;
    let top = 2.0 * TITLE_HEIGHT;
    let farthest = names.len().saturating_sub(1).max(1) as f64;
    let mut out = start(width, height);
    for (row, name) in names.iter().enumerate() {
        text(&mut out, (name_width - 10.0, top + CELL.1 * (row as f64 + 0.5) + 4.0), "end", 13, name);
    }
    for (place, grid) in grids.iter().enumerate() {
        let left = name_width + place as f64 * (grid_width + GAP);
        text(&mut out, (left + grid_width / 2.0, 17.0), "middle", 13, &grid.title);
        for (column, name) in columns.iter().enumerate() {
            text(&mut out, (left + CELL.0 * (column as f64 + 0.5), top - 8.0), "middle", 12, name);
        }
        for (row, cells) in grid.cells.iter().enumerate() {
            for (column, cell) in cells.iter().enumerate() {
                let (x, y) = (left + CELL.0 * column as f64, top + CELL.1 * row as f64);
                let change = cell.map_or(0.0, |[first, second]| first as f64 - second as f64);
                let colour = SERIES[usize::from(change < 0.0)];
                let strength = if change == 0.0 { 0.0 } else { 0.15 + 0.6 * change.abs() / farthest };
                let _ = write!(
                    out,
                    "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{}\" height=\"{}\" fill=\"{colour}\" \
                     fill-opacity=\"{strength:.2}\" stroke=\"{GRID}\"/>",
                    CELL.0, CELL.1
                );
                let label = cell.map_or_else(|| "n/a".to_string(), |[first, second]| format!("{first} → {second}"));
                text(&mut out, (x + CELL.0 / 2.0, y + CELL.1 / 2.0 + 4.5), "middle", 13, &label);
            }
        }
    }
    out.push_str("</svg>\n");
    out
}

fn start(width: f64, height: f64) -> String {
    format!(
        "<svg width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         xmlns=\"http://www.w3.org/2000/svg\">\n"
    )
}

fn line(out: &mut String, from: (f64, f64), to: (f64, f64), ink: &str, width: f64) {
    let _ = write!(
        out,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{ink}\" stroke-width=\"{width}\"/>",
        from.0, from.1, to.0, to.1
    );
}

fn text(out: &mut String, (x, y): (f64, f64), anchor: &str, size: u32, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-family=\"sans-serif\" font-size=\"{size}\" \
         fill=\"{INK}\">{words}</text>"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mark_is_inside_its_plot() {
        let dot = Dot {
            series: 1,
            value: Some(-14.7),
            interval: Some(Interval { low: -31.0, high: 2.0 }),
            published: Some(44.0),
        };
        let panel = |title: &str| DotPanel { title: title.into(), rows: vec![vec![dot], vec![]] };
        let names = ["a <1>".to_string(), "b".to_string()];
        let drawn = dots(&names, &[panel("left"), panel("right"), panel("below")], 2, "points");
        for part in ["a &lt;1&gt;", "left", "below", "−40", "+60", "points"] {
            assert!(drawn.contains(part), "{part}: {drawn}");
        }
        assert_eq!(drawn.matches("<circle").count(), 3);
        let places = drawn.split("cx=\"").skip(1).map(|rest| rest.split('"').next().unwrap().parse::<f64>().unwrap());
        for place in places {
            assert!((LEAST_NAME_WIDTH..LEAST_NAME_WIDTH + 2.0 * (PANEL_WIDTH + GAP)).contains(&place), "{place}");
        }
        assert!(!drawn.contains("NaN"));
    }

    #[test]
    fn a_long_name_has_room() {
        let name = "group-self-consistency: plural-sentence/12".to_string();
        let panel = || DotPanel { title: "one".into(), rows: vec![vec![]] };
        let drawn = [
            dots(std::slice::from_ref(&name), &[panel()], 1, "points"),
            ranks(std::slice::from_ref(&name), &["AP"], &[RankGrid { title: "ours".into(), cells: vec![vec![None]] }]),
        ];
        for drawn in drawn {
            let line = drawn.lines().find(|line| line.contains(&name)).unwrap();
            let end: f64 = line.split("x=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap();
            assert!(end >= 7.5 * name.len() as f64, "{line}");
        }
    }

    #[test]
    fn an_axis_holds_its_values_between_round_marks() {
        let axis = Axis::around([-14.7, 12.0].into_iter());
        assert_eq!(axis.marks, [-15.0, -10.0, -5.0, 0.0, 5.0, 10.0, 15.0]);
        assert_eq!((axis.place(-15.0), axis.place(0.0), axis.place(15.0)), (0.0, 0.5, 1.0));
        assert_eq!(Axis::around(std::iter::empty()).marks, [-1.0, -0.5, 0.0, 0.5, 1.0]);
        assert_eq!([mark_text(-0.5), mark_text(0.0), mark_text(20.0)], ["−0.5", "0", "+20"]);
    }

    #[test]
    fn a_rank_that_falls_is_orange_and_one_that_stays_has_no_colour() {
        let cells = vec![vec![Some([1, 3])], vec![Some([2, 2])], vec![Some([3, 1])], vec![None]];
        let names: Vec<String> = ["a", "b", "c", "d"].map(String::from).to_vec();
        let drawn = ranks(&names, &["AP"], &[RankGrid { title: "ours".into(), cells }]);
        let rects: Vec<&str> = drawn.lines().filter(|line| line.contains("<rect")).collect();
        assert!(rects[0].contains(SERIES[1]) && rects[0].contains("fill-opacity=\"0.55\""), "{rects:?}");
        assert!(rects[1].contains("fill-opacity=\"0.00\""));
        assert!(rects[2].contains(SERIES[0]));
        assert!(drawn.contains("1 → 3") && drawn.contains("n/a"));
    }
}
