//! `lifelong run`: execute a run file, or say what it would do.

use std::path::PathBuf;

use clap::Args;

use crate::engine::hub::Sources;
use crate::{config, report, run};

#[derive(Debug, Args)]
pub struct RunArgs {
    /// The run file, for example configs/runs/quickstart.toml
    config: PathBuf,
    /// Run folder; one that exists is continued when it belongs to the same run [default: runs/<name>]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Print the plan (attempts, token estimate, what prefix sharing saves) and stop
    #[arg(long)]
    dry_run: bool,
}

pub fn run(args: &RunArgs) -> anyhow::Result<()> {
    let config = config::load(&args.config)?;
    let folder = args.out.clone().unwrap_or_else(|| PathBuf::from("runs").join(&config.name));
    let resolved = run::resolve(config, &Sources::from_env()?)?;
    if args.dry_run {
        print!("{}", run::plan::plan(&resolved)?);
        return Ok(());
    }
    run::execute(&resolved, &folder)?;
    report::write(&folder)
}
