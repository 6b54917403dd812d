//! `lifelong report`: rebuild a run's report from its stored records.

use std::path::PathBuf;

use clap::Args;

use crate::report;

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Run folder, for example runs/quickstart; a run that is not finished is reported as far as it came
    run_dir: PathBuf,
}

/// # Errors
/// When the folder holds no run or its report cannot be written.
pub fn run(args: &ReportArgs) -> anyhow::Result<()> {
    report::write(&args.run_dir)
}
