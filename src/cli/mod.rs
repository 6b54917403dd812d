//! The command line: one file a subcommand. stdout carries data, stderr carries everything for people.

mod bench;
mod calibrate;
mod doctor;
mod embed;
mod engine_args;
mod env;
mod generate;
mod gpu_check;
mod growth;
mod list;
mod models;
mod report;
mod run;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::VARIABLES;

/// Measures whether a language agent learns over its life: real models in-process, seeded experiments, exact results.
#[derive(Debug, Parser)]
#[command(name = "lifelong", version, max_term_width = 110, after_help = environment_help())]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the experiments of a TOML file and write their report; the same command continues a run that was stopped
    Run(run::RunArgs),
    /// Rebuild the tables, figures and files of a run's report from its stored records
    Report(report::ReportArgs),
    /// Complete a prompt, a chat or a file of requests
    Generate(Box<generate::GenerateArgs>),
    /// Turn texts into embedding vectors
    Embed(embed::EmbedArgs),
    /// Measure tokens per second of this machine on the workloads the engine is built for
    Bench(bench::BenchArgs),
    /// Print how similar random tasks of a run file are under its embedding model, to set a memory's thresholds by
    Calibrate(calibrate::CalibrateArgs),
    /// List, fetch and describe models
    Models(models::ModelsArgs),
    /// Make what a benchmark needs beside its data: the pinned Python of its test programs
    Env(env::EnvArgs),
    /// List what can be named in a run file
    List(list::ListArgs),
    /// Say what is found on this machine (GPU, instruction set, sandbox, Python, models), what is missing and how to mend it
    Doctor(doctor::DoctorArgs),
    /// Check that the GPU computes what the processor does, the same every time, and measure it: one table, under nine minutes
    GpuCheck(gpu_check::GpuCheckArgs),
}

/// Runs one command and says how it went.
///
/// # Errors
/// Whatever stopped the command, with the chain of what was being done.
pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    start_log();
    match arguments.command {
        Command::Run(args) => run::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Embed(args) => embed::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Models(args) => models::run(&args),
        Command::Env(args) => env::run(&args),
        Command::List(args) => list::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::GpuCheck(args) => return gpu_check::run(&args),
    }
    .map(|()| ExitCode::SUCCESS)
}

fn start_log() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("LIFELONG_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .init();
}

fn environment_help() -> String {
    let width = VARIABLES.iter().map(|variable| variable.name.len()).max().unwrap_or(0);
    let lines: Vec<String> =
        VARIABLES.iter().map(|variable| format!("  {:width$}  {}", variable.name, variable.effect)).collect();
    format!("Environment variables:\n{}", lines.join("\n"))
}
