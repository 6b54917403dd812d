//! Parse, run, exit code.

use std::process::ExitCode;

use clap::Parser as _;
use lifelong::{cli, sandbox};

fn main() -> ExitCode {
    // The sandbox starts this binary again as its launcher, which must stay single-threaded and read no configuration.
    if std::env::args().nth(1).as_deref() == Some(sandbox::SUBCOMMAND) {
        sandbox::launcher_main();
    }
    match cli::run(cli::Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
