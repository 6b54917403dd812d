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
    /// The benchmark's data file or folder, in place of the run file's `benchmark.path`
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// Take the matrix attempts that this run would make itself from an earlier run's folder: for another backbone beside
    /// those of that run, or other stages after the same matrix
    #[arg(long, value_name = "RUN_DIR")]
    matrix_from: Option<PathBuf>,
    /// Print the plan (attempts, prompt tokens, what prefix sharing saves) and stop; needs tokenizers, no weights
    #[arg(long)]
    dry_run: bool,
    /// With --dry-run: hours from what `lifelong bench --json` measured of a backbone; give one file for each
    #[arg(long, value_name = "FILE", requires = "dry_run")]
    measured: Vec<PathBuf>,
    /// With --dry-run: what memories ask of the backbone, from the records of an earlier run with agents of the same names
    #[arg(long, value_name = "RUN_DIR", requires = "dry_run")]
    calls_from: Option<PathBuf>,
}

pub fn run(args: &RunArgs) -> anyhow::Result<()> {
    let mut config = config::load(&args.config)?;
    if let Some(data) = &args.data {
        config.benchmark.path = Some(data.clone());
    }
    let folder = args.out.clone().unwrap_or_else(|| PathBuf::from("runs").join(&config.name));
    let sources = Sources::from_env()?;
    if args.dry_run {
        let rates = args.measured.iter().map(|file| run::rates::read(file)).collect::<anyhow::Result<_>>()?;
        let calls = args.calls_from.as_deref().map(run::call_rates::CallRates::read).transpose()?;
        print!("{}", run::plan::plan(&run::find(config)?, &sources, rates, calls)?);
        return Ok(());
    }
    let resolved = run::resolve(config, &sources)?;
    run::execute(&resolved, &folder, args.matrix_from.as_deref())?;
    report::write(&folder)
}
