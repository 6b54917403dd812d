//! `lifelong calibrate`: how similar random tasks of a run file are under its embedding model.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;

use crate::config;
use crate::engine::hub::Sources;
use crate::run;

#[derive(Debug, Args)]
pub struct CalibrateArgs {
    /// The run file whose tasks and embedding model are measured
    config: PathBuf,
}

const PERCENTILES: [f64; 9] = [1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0];

/// Prints mean, standard deviation and percentiles: what a memory's threshold can be set by.
pub fn run(args: &CalibrateArgs) -> anyhow::Result<()> {
    let mut config = config::load(&args.config)?;
    let embedder = config.models.embedder.clone().context("the run file names no `models.embedder` to measure")?;
    // Neither backbones nor agents take part: nothing of them is fetched or checked.
    config.models.backbones.clear();
    config.agents.clear();
    let resolved = run::resolve(config, &Sources::from_env()?)?;
    let similarities = run::similarities(&resolved)?;
    println!("{} random pairs of {} tasks under {embedder}", similarities.pairs(), resolved.tasks.len());
    println!("mean {:.4}  standard deviation {:.4}", similarities.mean(), similarities.deviation());
    for percent in PERCENTILES {
        println!("{percent:>3.0} %  {:.4}", similarities.percentile(percent));
    }
    Ok(())
}
