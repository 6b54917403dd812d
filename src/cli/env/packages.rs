//! Pinned packages, installed by the user's own pip.
//!
//! All pins at once is what the benchmark's authors did, and fails where one of them has no build for this Python. Then
//! they go one by one: as pinned where that is built; else in the version that is built for this Python; else as pinned
//! from source, which many small packages only have. What departs is recorded.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

/// The requirements of a pin file; blank lines and comments left out.
pub fn parse(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

/// The pins that are asked for: all, those named, or none.
///
/// # Errors
/// A name that no pin has.
pub fn choose<'a>(pins: &[&'a str], only: &[String]) -> anyhow::Result<Vec<&'a str>> {
    if only.is_empty() {
        return Ok(pins.to_vec());
    }
    if only == ["none"] {
        return Ok(Vec::new());
    }
    for name in only {
        ensure!(
            pins.iter().any(|pin| self::name(pin).eq_ignore_ascii_case(name)),
            "`{name}` is not among the pinned packages ({})",
            pins.iter().map(|pin| self::name(pin)).collect::<Vec<_>>().join(", ")
        );
    }
    let is_chosen = |pin: &&&str| only.iter().any(|only| name(pin).eq_ignore_ascii_case(only));
    Ok(pins.iter().filter(is_chosen).copied().collect())
}

/// The package of a requirement.
pub fn name(pin: &str) -> &str {
    pin.split("==").next().unwrap_or(pin).trim()
}

/// Installs the pins; returns those that could not be had as pinned: what was installed instead, or why nothing was.
///
/// # Errors
/// When pip itself does not run.
pub fn install(python: &Path, pins: &[&str]) -> anyhow::Result<BTreeMap<String, String>> {
    if pins.is_empty() || pip(python, pins, Source::Any)?.is_none() {
        return Ok(BTreeMap::new());
    }
    eprintln!("not every pin can be had for this Python: they are installed one by one");
    let mut departures = BTreeMap::new();
    for pin in pins {
        let package = name(pin);
        if pip(python, &[pin], Source::Built)?.is_none() {
            continue;
        }
        let found = match pip(python, &[package], Source::Built)? {
            None => version(python, package)?,
            Some(_) => match pip(python, &[pin], Source::Any)? {
                None => continue,
                Some(fault) => format!("not installed ({fault})"),
            },
        };
        eprintln!("{pin}: {found}");
        departures.insert(pin.to_string(), found);
    }
    // A later package may have moved an earlier one.
    let now = installed(python)?;
    for pin in pins {
        if let Some((package, wanted)) = pin.split_once("==")
            && let Some(found) = now.get(&canonical(package)).filter(|found| *found != wanted)
        {
            departures.entry(pin.to_string()).or_insert_with(|| found.clone());
        }
    }
    Ok(departures)
}

/// Installed packages and versions.
///
/// # Errors
/// When pip does not run or lists something else.
pub fn installed(python: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    #[derive(serde::Deserialize)]
    struct Package {
        name: String,
        version: String,
    }
    let output = Command::new(python)
        .args(["-m", "pip", "list", "--format", "json", "--disable-pip-version-check"])
        .output()
        .with_context(|| format!("{} -m pip", python.display()))?;
    if !output.status.success() {
        bail!("{} -m pip list failed: {}", python.display(), String::from_utf8_lossy(&output.stderr).trim());
    }
    let packages: Vec<Package> = serde_json::from_slice(&output.stdout).context("what pip lists")?;
    Ok(packages.into_iter().map(|package| (canonical(&package.name), package.version)).collect())
}

fn version(python: &Path, package: &str) -> anyhow::Result<String> {
    Ok(installed(python)?.remove(&canonical(package)).unwrap_or_else(|| "installed under another name".into()))
}

/// Names are one up to case and the marks between words.
fn canonical(name: &str) -> String {
    name.trim().to_lowercase().replace(['_', '.'], "-")
}

/// What pip may install from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Wheels alone: nothing is compiled.
    Built,
    Any,
}

/// Why pip could not install these, or `None`.
fn pip(python: &Path, requirements: &[&str], source: Source) -> anyhow::Result<Option<String>> {
    let built: &[&str] = if source == Source::Built { &["--only-binary", ":all:"] } else { &["--prefer-binary"] };
    let output = Command::new(python)
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"])
        .args(built)
        .args(requirements)
        .output()
        .with_context(|| format!("{} -m pip", python.display()))?;
    if output.status.success() {
        return Ok(None);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let fault = said.lines().rfind(|line| line.starts_with("ERROR:")).or_else(|| said.lines().last());
    Ok(Some(fault.unwrap_or("pip failed").trim_start_matches("ERROR:").trim().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# about\nnumpy==1.21.2\n\nFlask-Mail==0.9.1\npython-Levenshtein-wheels\n";

    #[test]
    fn pins_are_lines_and_can_be_chosen_by_name() {
        let pins = parse(FILE);
        assert_eq!(pins, ["numpy==1.21.2", "Flask-Mail==0.9.1", "python-Levenshtein-wheels"]);
        assert_eq!(choose(&pins, &[]).unwrap(), pins);
        assert_eq!(choose(&pins, &["none".into()]).unwrap(), Vec::<&str>::new());
        assert_eq!(choose(&pins, &["flask-mail".into()]).unwrap(), ["Flask-Mail==0.9.1"]);
        assert!(choose(&pins, &["scipy".into()]).unwrap_err().to_string().contains("`scipy`"));
    }

    #[test]
    fn names_are_compared_as_pip_does() {
        assert_eq!(canonical("python_http.client"), "python-http-client");
        assert_eq!((name("numpy==1.21.2"), name("wheels")), ("numpy", "wheels"));
    }

    #[test]
    fn every_pin_of_bigcodebench_is_there_once() {
        let pins = parse(include_str!("../../../configs/python/bigcodebench.txt"));
        let names: std::collections::BTreeSet<String> = pins.iter().map(|pin| canonical(name(pin))).collect();
        assert_eq!((pins.len(), names.len()), (71, 71));
    }
}
