//! `lifelong list`: what is registered, one line each with its source.

use clap::{Args, ValueEnum};

use crate::registry::Registered;
use crate::{benchmark, environment, memory, policy, scorer};

#[derive(Debug, Args)]
pub struct ListArgs {
    /// What to list
    #[arg(value_enum)]
    kind: Kind,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    Models,
    Benchmarks,
    Environments,
    Scorers,
    Memory,
    Policies,
}

pub fn run(args: &ListArgs) -> anyhow::Result<()> {
    match args.kind {
        Kind::Models => super::models::list(),
        Kind::Benchmarks => print(benchmark::BENCHMARKS),
        Kind::Environments => print(environment::ENVIRONMENTS),
        Kind::Scorers => print(scorer::SCORERS),
        Kind::Memory => print(memory::MEMORIES),
        Kind::Policies => print(policy::POLICIES),
    }
}

fn print<T: Registered + ?Sized>(entries: &[&T]) -> anyhow::Result<()> {
    let width = entries.iter().map(|entry| entry.name().len()).max().unwrap_or(0);
    for entry in entries {
        println!("{:width$}  {} [{}]", entry.name(), entry.about(), entry.source());
    }
    Ok(())
}
