//! How time grows: with the length of a prompt, with the batch, with the number of demonstrations.
//!
//! Each curve has the law that the engine is built for, fitted to its own points. A curve that leaves its law says that
//! something grew which should not: attention that reads more than the prefix, a step that handles its rows one by one, a
//! demonstration that is computed again for every target.

use super::completions::measure_completions;
use super::law::Law;
use super::workload::{DEPTH, Kind, MatrixShape, Prompts, Scale, Workload};
use crate::engine::error::Result;
use crate::engine::model::LoadedModel;

/// Which points are measured, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrowthScale {
    /// Timed runs of a point after its warm-up; of a number of demonstrations always one.
    pub runs: usize,
    pub prompts: &'static [usize],
    pub batches: &'static [usize],
    pub demonstrations: &'static [usize],
    /// Of a row, when the batch grows.
    pub decode_tokens: usize,
    /// Of a completion, when demonstrations are added.
    pub completion_tokens: usize,
}

impl GrowthScale {
    pub const FULL: GrowthScale = GrowthScale {
        runs: 2,
        prompts: &[128, 256, 512, 1024, 2048, 3072],
        batches: &[1, 2, 4, 8, 16, 32],
        demonstrations: &[1, 2, 4, 8],
        decode_tokens: 32,
        completion_tokens: 16,
    };
    pub const QUICK: GrowthScale = GrowthScale {
        runs: 1,
        prompts: &[128, 512, 1024],
        batches: &[1, 4, 16],
        demonstrations: &[1, 2, 3],
        decode_tokens: 8,
        completion_tokens: 4,
    };
}

/// Targets and seeds behind every demonstration of the third curve.
const TARGETS: usize = MatrixShape::SMALL.targets;
const SEEDS: usize = MatrixShape::SMALL.seeds;

/// Seconds over one thing that grows.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    pub name: &'static str,
    /// What was run, in words.
    pub about: String,
    /// What grows, with its unit.
    pub x: &'static str,
    /// What is measured, with its unit.
    pub y: &'static str,
    /// At least one, by growing `x`.
    pub points: Vec<Point>,
    pub law: Law,
    /// Seconds for each unit of `x` if rows shared nothing, where that can be told from the first point.
    pub alone: Option<f64>,
}

/// Timed runs at one size.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    pub x: usize,
    /// Ascending; at least one.
    pub seconds: Vec<f64>,
    /// Prompt tokens of one run that were asked for, and those of them that no cache held.
    pub prompt_tokens: u64,
    pub new_prompt_tokens: u64,
}

impl Point {
    /// The middle one; of an even number of runs the lower of the two.
    pub fn median(&self) -> f64 {
        self.seconds[(self.seconds.len() - 1) / 2]
    }

    pub fn min(&self) -> f64 {
        self.seconds[0]
    }

    pub fn max(&self) -> f64 {
        self.seconds[self.seconds.len() - 1]
    }
}

impl Curve {
    fn new(name: &'static str, [x, y]: [&'static str; 2], powers: [i32; 2], points: Vec<Point>) -> Option<Curve> {
        let places: Vec<(f64, f64)> = points.iter().map(|point| (point.x as f64, point.median())).collect();
        (!points.is_empty()).then(|| Curve {
            name,
            about: String::new(),
            x,
            y,
            law: Law::fit(powers, &places),
            points,
            alone: None,
        })
    }

    /// The largest distance of a point from the law, as a share of the law.
    pub fn deviation(&self) -> f64 {
        let off = |point: &Point| (point.median() / self.law.at(point.x as f64) - 1.0).abs();
        self.points.iter().map(off).fold(0.0, f64::max)
    }
}

/// Measures all curves, each point on an engine of its own. Sizes that the model's context does not hold are left out, and a
/// curve of which nothing remains.
///
/// # Errors
/// When the engine cannot answer.
pub fn measure_growth(model: &LoadedModel, scale: &GrowthScale) -> Result<Vec<Curve>> {
    let curves = [prompt_curve(model, scale)?, batch_curve(model, scale)?, demonstration_curve(model, scale)?];
    Ok(curves.into_iter().flatten().collect())
}

fn prompt_curve(model: &LoadedModel, scale: &GrowthScale) -> Result<Option<Curve>> {
    let settings = scale.settings(1);
    let points = points(model, scale.prompts, |tokens| (Kind::Prefill { tokens }, settings), 1.0)?;
    let curve = Curve::new("prompt", ["tokens of the prompt", "seconds to the first new token"], [1, 2], points);
    let about = "one prompt of which nothing is cached; products with weights grow with its tokens, attention with their square";
    Ok(curve.map(|curve| Curve { about: about.to_string(), ..curve }))
}

fn batch_curve(model: &LoadedModel, scale: &GrowthScale) -> Result<Option<Curve>> {
    let settings = scale.settings(1);
    let kind = |batch| (Kind::Decode { batch, prompts: Prompts::Shared }, settings);
    let points = points(model, scale.batches, kind, 1.0 / scale.decode_tokens as f64)?;
    let curve = Curve::new("batch", ["rows of the batch", "seconds of a step"], [0, 1], points);
    let about = format!(
        "one token a row behind {DEPTH} shared cached tokens; weights and the prefix are read once a step, whatever the rows"
    );
    Ok(curve.map(|curve| Curve {
        alone: curve.points.first().map(|point| point.median() / point.x as f64),
        about,
        ..curve
    }))
}

fn demonstration_curve(model: &LoadedModel, scale: &GrowthScale) -> Result<Option<Curve>> {
    let kind = |demonstrations| (Kind::Matrix { prefix_cache: true }, scale.settings(demonstrations));
    let points = points(model, scale.demonstrations, kind, 1.0)?;
    let curve = Curve::new("demonstrations", ["demonstrations", "seconds of all completions"], [0, 1], points);
    let about = format!(
        "{TARGETS} targets x {SEEDS} seeds behind each demonstration, {} new tokens; each adds its own tokens and its targets' once",
        scale.completion_tokens
    );
    Ok(curve.map(|curve| Curve { about, ..curve }))
}

impl GrowthScale {
    fn settings(&self, demonstrations: usize) -> Scale {
        let matrix = MatrixShape { demonstrations, new_tokens: self.completion_tokens, ..MatrixShape::SMALL };
        Scale { runs: self.runs, matrix_runs: 1, decode_tokens: self.decode_tokens, matrix, ..Scale::FULL }
    }
}

/// Measures each size that the context holds; `share` of a run's seconds is the value of its point.
fn points(
    model: &LoadedModel,
    sizes: &[usize],
    kind: impl Fn(usize) -> (Kind, Scale),
    share: f64,
) -> Result<Vec<Point>> {
    let mut points = Vec::with_capacity(sizes.len());
    for &size in sizes {
        let (kind, scale) = kind(size);
        let workload = Workload { name: "growth", kind };
        if workload.context(&scale) > model.decoder.geometry().context {
            continue;
        }
        let measured = measure_completions(model, workload, &scale)?;
        let mut seconds: Vec<f64> = measured.seconds.iter().map(|seconds| seconds * share).collect();
        seconds.sort_by(f64::total_cmp);
        let runs = seconds.len() as u64;
        let (prompt_tokens, reused_tokens) = (measured.prompt_tokens / runs, measured.reused_tokens / runs);
        points.push(Point { x: size, seconds, prompt_tokens, new_prompt_tokens: prompt_tokens - reused_tokens });
    }
    Ok(points)
}
