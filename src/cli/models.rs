//! `lifelong models`: which models there are, fetching them, and what one is made of.

mod show;

use clap::{Args, Subcommand};
use indicatif::DecimalBytes;

use crate::engine::hub::preset::Size;
use crate::engine::hub::{self, Named, Preset, Sources, card, preset};
use crate::engine::machine;

#[derive(Debug, Args)]
pub struct ModelsArgs {
    #[command(subcommand)]
    command: ModelsCommand,
}

#[derive(Debug, Subcommand)]
enum ModelsCommand {
    /// List the model presets: kind, architecture, parameters, size, whether they fit this machine's memory, are here, run
    List,
    /// Fetch models into the model cache, and print each model's name and where its checkpoint is
    Pull {
        /// A preset name, a preset file (….toml), or a hub repository ORG/NAME[@REVISION][:FILE]
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
    /// Describe a model: dimensions, memory, chat template, files and where they come from
    Show {
        /// A preset name, a preset file, a path to a checkpoint, or a hub repository that was pulled
        name: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

/// Runs `lifelong models`.
///
/// # Errors
/// Unknown names, files that no source yields, files that are no checkpoint.
pub fn run(args: &ModelsArgs) -> anyhow::Result<()> {
    match &args.command {
        ModelsCommand::List => list(),
        ModelsCommand::Pull { names } => pull(names),
        ModelsCommand::Show { name, json } => show::show(name, *json),
    }
}

/// Prints every preset, one line each.
///
/// # Errors
/// When the environment does not say where the model cache is.
pub fn list() -> anyhow::Result<()> {
    let sources = Sources::from_env()?;
    let width = |text: fn(&Preset) -> &str| preset::all().iter().map(|preset| text(preset).len()).max().unwrap_or(0);
    let (names, architectures) = (width(|preset| &preset.name), width(|preset| &preset.architecture));
    let memory = machine::memory_bytes();
    for preset in preset::all() {
        println!(
            "{:names$}  {:7}  {:architectures$}  {:>6}  {:>11}  {:14}  {:8}  {}  [{}]",
            preset.name,
            preset.kind,
            preset.architecture,
            count(preset.parameters),
            size(preset),
            memory_word(preset, memory),
            if is_here(preset, &sources)? { "here" } else { "not here" },
            runs_word(&preset.architecture),
            preset.source,
        );
    }
    Ok(())
}

/// Bytes of the files, or with a sign before them those that were computed.
fn size(preset: &Preset) -> String {
    match preset.size() {
        Some(Size::Stated(bytes)) => DecimalBytes(bytes).to_string(),
        Some(Size::Computed(bytes)) => format!("≈{}", DecimalBytes(bytes)),
        None => "unknown".into(),
    }
}

fn count(parameters: u64) -> String {
    match parameters {
        0..1_000_000_000 => format!("{:.0}M", parameters as f64 / 1e6),
        _ => format!("{:.1}B", parameters as f64 / 1e9),
    }
}

/// Whether the weights as they are stored fit; quantised at load they may.
fn memory_word(preset: &Preset, memory: Option<u64>) -> &'static str {
    match (preset.size(), memory) {
        (Some(size), Some(memory)) if machine::fits(size.bytes(), memory) => "fits",
        (Some(_), Some(_)) => "too large here",
        _ => "fits?",
    }
}

fn runs_word(architecture: &str) -> String {
    match (card::is_ported(architecture), card::through(architecture)) {
        (true, None) => "runs".into(),
        (true, Some(program)) => format!("runs through {program}"),
        (false, Some(program)) => format!("not in this build, which has no {program}"),
        (false, None) => "architecture not ported yet".into(),
    }
}

fn is_here(preset: &Preset, sources: &Sources) -> anyhow::Result<bool> {
    let named = Named::find(&preset.name)?;
    Ok(hub::find_local(&named, sources)?.is_some())
}

fn pull(names: &[String]) -> anyhow::Result<()> {
    // A typing error in the last name must not wait for the download of the first.
    names.iter().try_for_each(|name| hub::check_name(name))?;
    let sources = Sources::from_env()?;
    for name in names {
        let model = hub::resolve(name, &sources)?;
        println!("{}  {}", model.name, model.checkpoint()?.display());
    }
    Ok(())
}
