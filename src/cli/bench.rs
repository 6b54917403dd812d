//! `lifelong bench`: how fast the engine is on this machine.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use clap::Args;
use lifelong_kernels::Device;
use lifelong_kernels::limits::Limits;
use serde_json::json;

use crate::bench::{
    GrowthScale, Kind, Measurement, Scale, WORKLOADS, Workload, chosen, header, limits_line, line, measure_completions,
    measure_embeddings,
};
use crate::config::EngineConfig;
use crate::engine::embed::{Embedder, load_embedder};
use crate::engine::hub::{self, Sources};
use crate::engine::model::{self, LoadedModel};
use crate::run::start::device;

/// The encoder of the embedding workloads.
const EMBEDDER: &str = "all-minilm-l6-v2";

/// Bytes whose reading is the limit where no backbone is measured.
const SMALL_MODEL: usize = 100 << 20;

#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Model of the prefill, decode and matrix workloads: a preset, a hub name, or a path
    #[arg(long, default_value = "smollm2-135m-instruct")]
    model: String,
    /// Measure the workload of this name, or those whose name contains the word
    #[arg(long, value_name = "WORD")]
    only: Option<String>,
    /// Measure how time grows with the prompt, the batch and the number of demonstrations, and draw it
    #[arg(long, conflicts_with = "only")]
    growth: bool,
    /// The figure of --growth: an SVG file, or a folder for `growth.svg`
    #[arg(long, value_name = "PATH", default_value = "growth.svg", requires = "growth")]
    out: PathBuf,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Fewer runs, fewer new tokens, a small matrix
    #[arg(long)]
    quick: bool,
    /// Timed runs of each workload after its warm-up [default: 5, of the matrix 1]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    runs: Option<u16>,
    /// Compute threads [default: all cores]
    #[arg(long)]
    threads: Option<usize>,
}

impl BenchArgs {
    fn scale(&self) -> Scale {
        let scale = if self.quick { Scale::QUICK } else { Scale::FULL };
        match self.runs.map(usize::from) {
            Some(runs) => Scale { runs, matrix_runs: runs, ..scale },
            None => scale,
        }
    }

    fn growth_scale(&self) -> GrowthScale {
        let scale = if self.quick { GrowthScale::QUICK } else { GrowthScale::FULL };
        GrowthScale { runs: self.runs.map_or(scale.runs, usize::from), ..scale }
    }
}

pub fn run(args: &BenchArgs) -> anyhow::Result<()> {
    let workloads = chosen(WORKLOADS, args.only.as_deref())?;
    let device = device(&EngineConfig { threads: args.threads, ..EngineConfig::default() })?;
    let mut models =
        Models { name: &args.model, sources: Sources::from_env()?, device, backbone: None, embedder: None };
    if args.growth {
        let scale = args.growth_scale();
        return super::growth::run(&args.model, models.backbone()?, &scale, &args.out, args.json);
    }
    let scale = args.scale();
    let asks_backbone = workloads.iter().any(|workload| !matches!(workload.kind, Kind::Embed { .. }));
    let read = if asks_backbone { models.backbone()?.decoder.geometry().weight_bytes as usize } else { SMALL_MODEL };
    let limits = Limits::measure(&models.device, read)?;
    if !args.json {
        println!("{} on {:?}\n{}\n\n{}", args.model, models.device, limits_line(&limits), header());
    }
    let mut measurements = Vec::with_capacity(workloads.len());
    for workload in workloads {
        eprintln!("{}: {}", workload.name, workload.about(&scale));
        let Some(measurement) = measure(&mut models, workload, &scale)? else { continue };
        if !args.json {
            println!("{}", line(&measurement, &limits));
        }
        measurements.push(measurement);
    }
    ensure!(!measurements.is_empty(), "nothing was measured");
    if args.json {
        let workloads: Vec<_> = measurements.iter().map(|measurement| measurement.json(&limits)).collect();
        let device = format!("{:?}", models.device);
        let threads = models.device.threads();
        let limits = json!({ "integers": limits.integers, "floats": limits.floats, "read": limits.read });
        let found = json!({
            "model": args.model, "device": device, "threads": threads, "limits": limits, "workloads": workloads,
        });
        println!("{found}");
    }
    Ok(())
}

/// `None`, with a note, where the embedding model is not on this machine or the backbone's context is too short.
fn measure(models: &mut Models, workload: Workload, scale: &Scale) -> anyhow::Result<Option<Measurement>> {
    let Kind::Embed { sentences } = workload.kind else {
        let backbone = models.backbone()?;
        let (context, needed) = (backbone.decoder.geometry().context, workload.context(scale));
        if needed > context {
            eprintln!(
                "note: {} left out: it needs a context of {needed} tokens, the model has {context}",
                workload.name
            );
            return Ok(None);
        }
        let measured = measure_completions(backbone, workload, scale);
        return Ok(Some(measured.with_context(|| format!("workload `{}`", workload.name))?));
    };
    let Some(embedder) = models.embedder()? else {
        eprintln!("note: {} left out: {EMBEDDER} is not here (`lifelong models pull {EMBEDDER}`)", workload.name);
        return Ok(None);
    };
    Ok(Some(measure_embeddings(embedder, workload, sentences, scale)?))
}

/// Models loaded when the first workload needs them.
struct Models<'a> {
    name: &'a str,
    sources: Sources,
    device: Device,
    backbone: Option<LoadedModel>,
    embedder: Option<Embedder>,
}

impl Models<'_> {
    fn backbone(&mut self) -> anyhow::Result<&LoadedModel> {
        if self.backbone.is_none() {
            self.backbone = Some(model::load(&hub::resolve(self.name, &self.sources)?, &self.device)?);
        }
        self.backbone.as_ref().context("the model was just loaded: this is a bug in lifelong")
    }

    /// `None` when it would have to be fetched: a measurement asks no network.
    fn embedder(&mut self) -> anyhow::Result<Option<&Embedder>> {
        if self.embedder.is_none()
            && let Some(files) = hub::find_local(&hub::Named::find(EMBEDDER)?, &self.sources)?
        {
            self.embedder = Some(load_embedder(&files, &self.device)?);
        }
        Ok(self.embedder.as_ref())
    }
}
