//! Line charts with bands as SVG text.
//!
//! Only this file and `panels` know plotters. Ink and grid are drawn in two fixed colours that the page's style sheet replaces to
//! fit a light or a dark screen; the series colours are legible on both.

use anyhow::anyhow;
use plotters::prelude::*;

use crate::metric::Interval;

pub(super) const INK: RGBColor = RGBColor(0x1f, 0x23, 0x28);
/// plotters writes fonts about a fifth smaller than asked.
pub(super) const LABEL: i32 = 14;
pub(super) const TITLE: i32 = 15;

pub(super) const GRID: RGBColor = RGBColor(0xd0, 0xd7, 0xde);

/// Blue, orange, green, purple; the page's legends use the same list.
pub(super) const SERIES: [&str; 4] = ["#3b78d8", "#d9702b", "#2e9e6b", "#8b5cc7"];

fn colour(series: usize) -> RGBColor {
    [RGBColor(0x3b, 0x78, 0xd8), RGBColor(0xd9, 0x70, 0x2b), RGBColor(0x2e, 0x9e, 0x6b), RGBColor(0x8b, 0x5c, 0xc7)]
        [series % SERIES.len()]
}

/// A mean with its interval at one place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub x: f64,
    pub y: f64,
    pub interval: Option<Interval>,
}

/// One line of a chart.
pub(super) struct Line {
    /// Index into [`SERIES`].
    pub series: usize,
    pub points: Vec<Point>,
}

/// A range of values known from elsewhere, drawn as a bracket at the right end.
pub(super) struct Bracket {
    /// Index into [`SERIES`].
    pub series: usize,
    pub low: f64,
    pub high: f64,
}

/// Lines over their bands, with a line at zero. Ranges are given so that charts beside each other can be compared.
pub(super) fn lines(lines: &[Line], x: (f64, f64), y: (f64, f64), names: (&str, &str)) -> anyhow::Result<String> {
    lines_beside(lines, &[], x, y, names)
}

/// As [`lines`], with brackets beside each other in the last unit of the horizontal axis.
pub(super) fn lines_beside(
    lines: &[Line],
    brackets: &[Bracket],
    x: (f64, f64),
    y: (f64, f64),
    names: (&str, &str),
) -> anyhow::Result<String> {
    let mut text = String::new();
    let decimals = match y.1 - y.0 {
        narrow if narrow < 0.5 => 2,
        narrow if narrow < 5.0 => 1,
        _ => 0,
    };
    {
        let root = SVGBackend::with_string(&mut text, (500, 280)).into_drawing_area();
        let mut chart = ChartBuilder::on(&root)
            .margin(8)
            .margin_right(14)
            .x_label_area_size(38)
            .y_label_area_size(50)
            .build_cartesian_2d(x.0..x.1, y.0..y.1)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .axis_style(INK)
            .label_style(("sans-serif", LABEL, &INK))
            .axis_desc_style(("sans-serif", TITLE, &INK))
            .x_desc(names.0)
            .y_desc(names.1)
            .x_labels(((x.1 - x.0).round() as usize + 1).clamp(2, 12))
            .x_label_formatter(&|x| if x.fract().abs() < 1e-6 { format!("{x:.0}") } else { String::new() })
            .y_labels(6)
            .y_label_formatter(&|mark| format!("{mark:.decimals$}").replace('-', "−"))
            .draw()
            .map_err(failed)?;
        chart.draw_series(LineSeries::new([(x.0, 0.0), (x.1, 0.0)], INK.stroke_width(1))).map_err(failed)?;
        for line in lines {
            for band in bands(&line.points) {
                chart
                    .draw_series(std::iter::once(Polygon::new(band, colour(line.series).mix(0.18).filled())))
                    .map_err(failed)?;
            }
        }
        for line in lines {
            let places: Vec<(f64, f64)> = line.points.iter().map(|point| (point.x, point.y)).collect();
            let colour = colour(line.series);
            chart.draw_series(LineSeries::new(places.iter().copied(), colour.stroke_width(2))).map_err(failed)?;
            chart.draw_series(places.iter().map(|place| Circle::new(*place, 3, colour.filled()))).map_err(failed)?;
        }
        for (place, bracket) in brackets.iter().enumerate() {
            let at = x.1 - 1.0 + (place as f64 + 0.5) / brackets.len() as f64;
            let half = 0.12;
            let shapes = [
                vec![(at, bracket.low), (at, bracket.high)],
                vec![(at - half, bracket.low), (at + half, bracket.low)],
                vec![(at - half, bracket.high), (at + half, bracket.high)],
            ];
            let style = colour(bracket.series).stroke_width(3);
            chart.draw_series(shapes.into_iter().map(|shape| PathElement::new(shape, style))).map_err(failed)?;
        }
        root.present().map_err(failed)?;
    }
    Ok(text)
}

/// Outlines of the stretches of points that have an interval.
fn bands(points: &[Point]) -> Vec<Vec<(f64, f64)>> {
    points
        .chunk_by(|left, right| left.interval.is_some() == right.interval.is_some())
        .filter_map(|stretch| {
            let bounds: Vec<(f64, Interval)> =
                stretch.iter().filter_map(|point| Some((point.x, point.interval?))).collect();
            let lower = bounds.iter().map(|(x, interval)| (*x, interval.low));
            let upper = bounds.iter().rev().map(|(x, interval)| (*x, interval.high));
            (bounds.len() > 1).then(|| lower.chain(upper).collect())
        })
        .collect()
}

pub(super) fn failed<E: std::fmt::Display>(error: E) -> anyhow::Error {
    anyhow!("a chart could not be drawn: {error}")
}

/// A range around all values and zero, a tenth wider on each side.
pub(super) fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values.fold((0.0f64, 0.0f64), |(low, high), value| (low.min(value), high.max(value)));
    let room = ((high - low) * 0.1).max(1.0);
    (if low < 0.0 { low - room } else { -room }, high + room)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(x: f64, y: f64, interval: Option<(f64, f64)>) -> Point {
        Point { x, y, interval: interval.map(|(low, high)| Interval { low, high }) }
    }

    #[test]
    fn a_band_is_drawn_only_where_there_are_intervals() {
        let points = [
            point(2.0, 0.0, None),
            point(3.0, 1.0, Some((0.0, 2.0))),
            point(4.0, 2.0, Some((1.0, 3.0))),
            point(5.0, 2.0, None),
            point(6.0, 2.0, Some((1.0, 3.0))),
        ];
        assert_eq!(bands(&points), [vec![(3.0, 0.0), (4.0, 1.0), (4.0, 3.0), (3.0, 2.0)]]);
    }

    #[test]
    fn the_same_numbers_draw_the_same_text() {
        let draw = || {
            let line = Line { series: 1, points: vec![point(2.0, 0.0, None), point(3.0, 5.0, Some((1.0, 9.0)))] };
            lines(&[line], (2.0, 3.0), (-5.0, 10.0), ("probe occurrence", "points")).unwrap()
        };
        assert_eq!(draw(), draw());
        assert!(draw().contains("probe occurrence"));
        let bracket = Bracket { series: 2, low: -3.0, high: 4.0 };
        let beside = lines_beside(&[], &[bracket], (0.0, 3.0), (-5.0, 10.0), ("demonstrations", "points")).unwrap();
        assert!(beside.contains("#2E9E6B") && !beside.contains("NaN"), "{beside}");
    }

    #[test]
    fn a_range_holds_zero_and_every_value() {
        assert_eq!(range([5.0, 10.0].into_iter()), (-1.0, 11.0));
        assert_eq!(range([-20.0].into_iter()), (-22.0, 2.0));
        assert_eq!(range([].into_iter()), (-1.0, 1.0));
    }
}
