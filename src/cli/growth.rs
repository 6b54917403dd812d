//! `lifelong bench --growth`: how time grows on this machine, as a table and a figure.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::bench::{Curve, GrowthScale, curve_lines, measure_growth};
use crate::engine::model::LoadedModel;
use crate::report::{self, Panel, PanelPoint};
use crate::store::write_atomic;

/// The name of the figure in a folder.
const FIGURE: &str = "growth.svg";

/// Measures, prints, draws to `out`: a file, or a folder that gets `growth.svg`.
pub(super) fn run(
    name: &str,
    model: &LoadedModel,
    scale: &GrowthScale,
    out: &Path,
    is_json: bool,
) -> anyhow::Result<()> {
    let curves = measure_growth(model, scale).with_context(|| format!("growth of {name}"))?;
    ensure!(!curves.is_empty(), "the model's context holds none of the prompts that are measured");
    if is_json {
        let curves: Vec<Value> = curves.iter().map(json).collect();
        let device = format!("{:?}", model.device);
        println!("{}", json!({ "model": name, "device": device, "threads": model.device.threads(), "curves": curves }));
    } else {
        println!("{name} on {:?}\n", model.device);
        for curve in &curves {
            println!("{}", curve_lines(curve));
        }
    }
    let figure = figure(out);
    let panels: Vec<Panel<'_>> = curves.iter().map(panel).collect();
    if let Some(folder) = figure.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    }
    write_atomic(&figure, report::panels(&panels)?.as_bytes())?;
    eprintln!("figure: {}", figure.display());
    Ok(())
}

fn figure(out: &Path) -> PathBuf {
    let is_file = out.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("svg"));
    if is_file && !out.is_dir() { out.to_path_buf() } else { out.join(FIGURE) }
}

fn panel(curve: &Curve) -> Panel<'_> {
    let point = |point: &crate::bench::Point| PanelPoint {
        x: point.x as f64,
        y: point.median(),
        low: point.min(),
        high: point.max(),
    };
    Panel {
        title: format!("time against {}", curve.x),
        x: curve.x.to_string(),
        y: curve.y.to_string(),
        points: curve.points.iter().map(point).collect(),
        law: report::Curve { name: curve.law.formula(), at: Box::new(|x| curve.law.at(x)) },
        reference: curve.alone.map(|seconds| report::Curve {
            name: "if every row cost as much as the first".to_string(),
            at: Box::new(move |x| seconds * x),
        }),
    }
}

fn json(curve: &Curve) -> Value {
    let points: Vec<Value> = (curve.points.iter())
        .map(|point| {
            json!({
                "x": point.x, "seconds": point.seconds, "law": curve.law.at(point.x as f64),
                "prompt_tokens": point.prompt_tokens, "new_prompt_tokens": point.new_prompt_tokens,
            })
        })
        .collect();
    json!({
        "name": curve.name, "about": curve.about, "x": curve.x, "y": curve.y, "points": points,
        "law": { "powers": curve.law.powers, "coefficients": curve.law.coefficients, "deviation": curve.deviation() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_gets_a_file_of_its_own() {
        assert_eq!(figure(Path::new("figures/speed.svg")), Path::new("figures/speed.svg"));
        assert_eq!(figure(Path::new("figures")), Path::new("figures/growth.svg"));
    }
}
