//! Small plots beside each other on white paper: measured points against the law they should follow.
//!
//! One ink, told apart by shape alone, so that a print without colours loses nothing: dots with whiskers are measured, a dashed
//! line is the law, a dotted one what it would be otherwise.

use plotters::chart::SeriesLabelPosition;
use plotters::element::DashedPathElement;
use plotters::prelude::*;

use super::svg::{GRID, INK, LABEL, TITLE, failed};

/// Pixels of one plot.
const WIDTH: u32 = 420;
const HEIGHT: u32 = 360;

/// Places of a drawn law.
const STEPS: usize = 100;

/// One plot.
pub struct Panel<'a> {
    pub title: String,
    /// Names of the axes, with units.
    pub x: String,
    pub y: String,
    /// At least one, by growing `x`; all numbers are above zero.
    pub points: Vec<PanelPoint>,
    pub law: Curve<'a>,
    pub reference: Option<Curve<'a>>,
}

/// A line over the whole axis: its name in the legend, and its height.
pub struct Curve<'a> {
    pub name: String,
    pub at: Box<dyn Fn(f64) -> f64 + 'a>,
}

/// A median with its range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PanelPoint {
    pub x: f64,
    pub y: f64,
    pub low: f64,
    pub high: f64,
}

/// The plots from left to right, as one SVG document.
///
/// # Errors
/// When the document cannot be drawn.
pub fn panels(panels: &[Panel<'_>]) -> anyhow::Result<String> {
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (WIDTH * panels.len().max(1) as u32, HEIGHT)).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        for (area, panel) in root.split_evenly((1, panels.len().max(1))).iter().zip(panels) {
            draw(area, panel)?;
        }
        root.present().map_err(failed)?;
    }
    Ok(text)
}

fn draw(area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>, panel: &Panel<'_>) -> anyhow::Result<()> {
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
    let x = 1.05 * most(&mut panel.points.iter().map(|point| point.x));
    // What lies above the measured is cut off: a reference may be many times higher.
    let y = 1.25 * most(&mut panel.points.iter().flat_map(|point| [point.high, (panel.law.at)(point.x)]));
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .margin_right(18)
        .caption(&panel.title, ("sans-serif", TITLE + 2).into_font().color(&INK))
        .x_label_area_size(40)
        .y_label_area_size(62)
        .build_cartesian_2d(0.0..x, 0.0..y)
        .map_err(failed)?;
    chart
        .configure_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(INK)
        .label_style(("sans-serif", LABEL, &INK))
        .axis_desc_style(("sans-serif", TITLE, &INK))
        .x_desc(&panel.x)
        .y_desc(&panel.y)
        .x_labels(6)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_labels(6)
        .y_label_formatter(&|value| label(*value, y))
        .draw()
        .map_err(failed)?;
    let places = |curve: &Curve<'_>| -> Vec<(f64, f64)> {
        let all = (1..=STEPS).map(|step| x * step as f64 / STEPS as f64).map(|x| (x, (curve.at)(x)));
        all.take_while(|(_, height)| *height <= y).collect()
    };
    let law = DashedLineSeries::new(places(&panel.law), 7, 4, INK.stroke_width(1));
    chart
        .draw_series(law)
        .map_err(failed)?
        .label(&panel.law.name)
        .legend(|(x, y)| DashedPathElement::new([(x, y), (x + 26, y)], 7, 4, INK.stroke_width(1)));
    if let Some(reference) = &panel.reference {
        let dots = DashedLineSeries::new(places(reference), 1, 4, INK.stroke_width(2));
        chart
            .draw_series(dots)
            .map_err(failed)?
            .label(&reference.name)
            .legend(|(x, y)| DashedPathElement::new([(x, y), (x + 26, y)], 1, 4, INK.stroke_width(2)));
    }
    let whiskers = panel
        .points
        .iter()
        .map(|point| ErrorBar::new_vertical(point.x, point.low, point.y, point.high, INK.filled(), 7));
    chart.draw_series(whiskers).map_err(failed)?;
    chart
        .draw_series(panel.points.iter().map(|point| Circle::new((point.x, point.y), 4, INK.filled())))
        .map_err(failed)?
        .label("measured")
        .legend(|(x, y)| Circle::new((x + 13, y), 4, INK.filled()));
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .margin(8)
        .background_style(WHITE.filled())
        .label_font(("sans-serif", LABEL, &INK))
        .draw()
        .map_err(failed)?;
    Ok(())
}

/// As many decimals as tell the marks of an axis up to `most` apart.
fn label(value: f64, most: f64) -> String {
    let decimals = if value == 0.0 { 0 } else { (1 - most.log10().floor() as i32).max(0) as usize };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_fits_and_a_reference_is_cut_off_at_the_top() {
        let points = vec![PanelPoint { x: 1.0, y: 0.1, low: 0.05, high: 0.2 }];
        let curve = |name: &str, slope: f64| Curve { name: name.to_string(), at: Box::new(move |x| slope * x) };
        let panel = |title: &str| Panel {
            title: title.to_string(),
            x: "rows <1>".to_string(),
            y: "seconds".to_string(),
            points: points.clone(),
            law: curve("law", 0.1),
            reference: Some(curve("alone", 1e6)),
        };
        let text = panels(&[panel("left"), panel("right")]).unwrap();
        for part in ["left", "right", "rows &lt;1&gt;", "seconds", "measured", "law", "alone"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("NaN") && text.ends_with("</svg>\n"), "{text}");
    }

    #[test]
    fn marks_of_small_axes_have_decimals() {
        assert_eq!(
            [label(0.0, 0.02), label(0.005, 0.02), label(2.5, 9.0), label(40.0, 90.0)],
            ["0", "0.005", "2.5", "40"]
        );
    }
}
