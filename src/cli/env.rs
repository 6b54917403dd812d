//! `lifelong env`: make what a benchmark needs beside its data.

mod packages;
mod references;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand};

use crate::benchmark::{self, Selection};
use crate::engine::hub::Sources;
use crate::record::python_environment::{ENVIRONMENT_FILE, PythonEnvironment};
use crate::sandbox::python::Interpreter;

#[derive(Debug, Args)]
pub struct EnvArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Make the pinned Python of a code benchmark, and run every reference solution in it once
    Python(PythonArgs),
}

#[derive(Debug, Args)]
pub struct PythonArgs {
    /// The benchmark: bigcodebench
    #[arg(long)]
    benchmark: String,
    /// Its data file, as `path` in a run file
    #[arg(long)]
    data: PathBuf,
    /// The Python to start from; pins are for 3.10 [default: python3.10 where there is one, else python3]
    #[arg(long)]
    python: Option<String>,
    /// Folder to make; one that exists is gone on with [default: python/BENCHMARK in the model cache]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Install only these of the pinned packages (repeat; `none` installs nothing) [default: all]
    #[arg(long)]
    only: Vec<String>,
    /// Check only tasks that need nothing but the standard library
    #[arg(long)]
    standard_library: bool,
    /// Isolation layers that may be missing when reference solutions are run
    #[arg(long)]
    allow_missing_isolation: Vec<String>,
}

/// The pins of the benchmarks that have some.
const PINS: [(&str, &str); 1] = [("bigcodebench", include_str!("../../configs/python/bigcodebench.txt"))];

/// # Errors
/// When the environment cannot be made, or reference solutions cannot be run at all.
pub fn run(args: &EnvArgs) -> anyhow::Result<()> {
    match &args.what {
        What::Python(args) => python(args),
    }
}

fn python(args: &PythonArgs) -> anyhow::Result<()> {
    let known: Vec<&str> = PINS.iter().map(|(name, _)| *name).collect();
    let pins = PINS.iter().find(|(name, _)| *name == args.benchmark).with_context(|| {
        format!("no Python environment is pinned for benchmark `{}` (known: {})", args.benchmark, known.join(", "))
    })?;
    let pins = packages::choose(&packages::parse(pins.1), &args.only)?;
    let folder = match &args.out {
        Some(folder) => folder.clone(),
        None => Sources::from_env()?.home.join("python").join(&args.benchmark),
    };
    // Read before anything is made: a wrong path is told at once.
    let options = |python: &Path| {
        let mut options = toml::Table::new();
        options.insert("python".into(), python.display().to_string().into());
        if args.standard_library {
            options.insert("libraries".into(), "standard".into());
        }
        options
    };
    let load = |python: &Path| {
        let selection = Selection { path: Some(args.data.clone()), options: options(python) };
        benchmark::find(&args.benchmark)?.load(&selection)
    };
    load(Path::new("python3"))?;

    let python = make(&folder, args.python.as_deref())?;
    eprintln!("{}: {} packages to install", folder.display(), pins.len());
    let departures = packages::install(&python, &pins)?;
    let pool = load(&python)?;
    eprintln!("{}: {} reference solutions to run", folder.display(), pool.tasks.len());
    let ignored = references::failing(&pool.tasks, &args.allow_missing_isolation)?;
    let environment = PythonEnvironment {
        benchmark: args.benchmark.clone(),
        data: pool.digest,
        version: Interpreter::find(&python.display().to_string())?.version,
        packages: packages::installed(&python)?,
        python,
        departures,
        checked: pool.tasks.len() as u32,
        ignored,
    };
    let path = folder.join(ENVIRONMENT_FILE);
    std::fs::write(&path, serde_json::to_string_pretty(&environment)? + "\n")
        .with_context(|| format!("write {}", path.display()))?;
    print!("{}", summary(&environment, &folder));
    Ok(())
}

/// A virtual environment in the folder; the one that is there already.
fn make(folder: &Path, base: Option<&str>) -> anyhow::Result<PathBuf> {
    let folder = std::path::absolute(folder).with_context(|| folder.display().to_string())?;
    let venv = folder.join("venv");
    let python = venv.join("bin/python");
    if python.exists() {
        return Ok(python);
    }
    std::fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let starts = |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success());
    let base = match base {
        Some(name) => name,
        None => ["python3.10", "python3"].into_iter().find(starts).context("neither python3.10 nor python3 starts")?,
    };
    let output = Command::new(base)
        .args(["-m", "venv"])
        .arg(&venv)
        .output()
        .with_context(|| format!("`{base}` does not start; name another with --python"))?;
    if !output.status.success() {
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        bail!("`{base} -m venv {}` failed: {}", venv.display(), said.trim());
    }
    ensure!(python.exists(), "`{base} -m venv` made no {}", python.display());
    Ok(python)
}

fn summary(environment: &PythonEnvironment, folder: &Path) -> String {
    let PythonEnvironment { version, packages, departures, checked, ignored, .. } = environment;
    let mut text = format!("python {version} with {} packages in {}\n", packages.len(), folder.display());
    let list = |text: &mut String, title: String, lines: &BTreeMap<String, String>| {
        if !lines.is_empty() {
            *text += &format!("{title}\n");
            lines.iter().for_each(|(name, why)| *text += &format!("  {name}: {why}\n"));
        }
    };
    list(&mut text, format!("{} packages are not as pinned:", departures.len()), departures);
    let passing = *checked as usize - ignored.len();
    text += &format!("{passing} of {checked} reference solutions pass\n");
    list(&mut text, format!("{} tasks are ignored:", ignored.len()), ignored);
    text += &format!("use it in a run file: [benchmark.options] environment = \"{}\"\n", folder.display());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_lists_what_departs_and_what_is_ignored() {
        let environment = PythonEnvironment {
            benchmark: "bigcodebench".into(),
            data: "d".into(),
            python: "/e/venv/bin/python".into(),
            version: "3.11.7".into(),
            packages: BTreeMap::from([("numpy".into(), "1.26.4".into())]),
            departures: BTreeMap::from([("numpy==1.21.2".into(), "1.26.4".into())]),
            checked: 3,
            ignored: BTreeMap::from([("bigcodebench/7".into(), "wrong".into())]),
        };
        assert_eq!(
            summary(&environment, Path::new("/e")),
            "python 3.11.7 with 1 packages in /e\n1 packages are not as pinned:\n  numpy==1.21.2: 1.26.4\n2 of 3 reference \
             solutions pass\n1 tasks are ignored:\n  bigcodebench/7: wrong\nuse it in a run file: [benchmark.options] \
             environment = \"/e\"\n"
        );
    }
}
