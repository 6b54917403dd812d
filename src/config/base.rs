//! Run files that say what they change of another: `base = "path-bench.toml"` and, where only some of its stages are wanted,
//! `stages = ["matrix", "vote"]`. What is stored with a run is the whole, so a base may change later without moving it.

use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use toml::{Table, Value};

/// Bases of bases.
const DEEPEST: usize = 8;

/// The tables of a run file that `stages` may name.
const STAGES: &[&str] =
    &["matrix", "logprob", "vote", "multi_task", "sequence", "attribution", "transitions", "orders"];

/// The whole of a run file's text: laid over its base, and that over its own. `None` when it has no base: the text is
/// whole already. Tables are laid over each other key by key; any other value replaces the base's.
///
/// # Errors
/// A base that cannot be read or is no TOML, or that leads back to itself; a stage that there is none of.
pub(super) fn whole(text: &str, folder: &Path) -> anyhow::Result<Option<String>> {
    // Broken TOML is reported with its place by whoever reads the text for good.
    let Ok(table) = text.parse::<Table>() else { return Ok(None) };
    if !table.contains_key("base") {
        ensure!(!table.contains_key("stages"), "`stages` chooses among the stages of a `base`, and there is none");
        return Ok(None);
    }
    let laid = resolve(table, folder, 0)?;
    Ok(Some(toml::to_string(&laid).context("a run file laid over its base, as TOML")?))
}

fn resolve(mut table: Table, folder: &Path, depth: usize) -> anyhow::Result<Table> {
    let Some(base) = table.remove("base") else { return Ok(table) };
    let Value::String(base) = base else { bail!("`base` must be the path of a run file, found {base}") };
    ensure!(depth < DEEPEST, "`base` {base}: more than {DEEPEST} run files stand on each other; does one lead back?");
    let path = folder.join(&base);
    let read = || -> anyhow::Result<Table> { Ok(std::fs::read_to_string(&path)?.parse()?) };
    let under = read().with_context(|| format!("`base` {}: expected a run file beside this one", path.display()))?;
    let mut under = resolve(under, path.parent().unwrap_or(Path::new(".")), depth + 1)?;
    if let Some(stages) = table.remove("stages") {
        keep(&mut under, &stages)?;
    }
    lay_over(&mut under, table);
    Ok(under)
}

fn keep(under: &mut Table, stages: &Value) -> anyhow::Result<()> {
    let named: Option<Vec<&str>> = stages.as_array().and_then(|list| list.iter().map(Value::as_str).collect());
    let named = named.with_context(|| format!("`stages` must be a list of names, found {stages}"))?;
    if let Some(stranger) = named.iter().find(|name| !STAGES.contains(name)) {
        bail!("`stages` names `{stranger}`; stages are {}", STAGES.join(", "));
    }
    if let Some(absent) = named.iter().find(|name| !under.contains_key(**name)) {
        bail!("`stages` names `{absent}`, which the base does not have: add a `[{absent}]` table here instead");
    }
    under.retain(|key, _| !STAGES.contains(&key) || named.contains(&key));
    Ok(())
}

fn lay_over(under: &mut Table, over: Table) {
    for (key, value) in over {
        match (under.get_mut(&key), value) {
            (Some(Value::Table(under)), Value::Table(over)) => lay_over(under, over),
            (_, value) => {
                under.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    const BASE: &str = "name = \"whole\"\nseed = 4\n[models]\nbackbones = [\"a\", \"b\"]\n[benchmark]\nname = \"kata\"\n\
                        [matrix]\nseeds = 5\n[vote]\n[sequence]\nruns = 3\nwarm_up = 2\n[[agents]]\nname = \"x\"\n";

    fn load(text: &str) -> anyhow::Result<crate::config::RunConfig> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("whole.toml"), BASE).unwrap();
        std::fs::write(folder.path().join("self.toml"), "base = \"self.toml\"\n").unwrap();
        std::fs::write(folder.path().join("run.toml"), text).unwrap();
        crate::config::load(&folder.path().join("run.toml"))
    }

    #[test]
    fn what_is_said_stands_over_the_base_and_the_rest_stays() {
        let config =
            load("base = \"whole.toml\"\nname = \"part\"\n[models]\nbackbones = [\"c\"]\n[sequence]\nruns = 1\n")
                .unwrap();
        assert_eq!((config.name.as_str(), config.seed), ("part", 4));
        assert_eq!(config.models.backbones, ["c"]);
        let sequence = config.sequence.unwrap();
        assert_eq!((sequence.runs, sequence.warm_up), (1, 2));
        assert_eq!(config.matrix.unwrap().seeds, 5);
    }

    #[test]
    fn stages_that_are_not_named_go() {
        let config = load("base = \"whole.toml\"\nstages = [\"matrix\"]\n").unwrap();
        assert!(config.matrix.is_some() && config.vote.is_none() && config.sequence.is_none());
        let added = load("base = \"whole.toml\"\nstages = [\"matrix\"]\n[orders]\ntasks = 3\n").unwrap();
        assert_eq!(added.orders.unwrap().tasks, 3);
    }

    #[test]
    fn what_cannot_be_a_base_is_said() {
        let error = |text: &str| format!("{:#}", load(text).unwrap_err());
        assert!(error("base = \"absent.toml\"\n").contains("absent.toml"));
        assert!(error("base = \"self.toml\"\n").contains("lead back"));
        assert!(error("base = 3\n").contains("found 3"));
        assert!(error("base = \"whole.toml\"\nstages = [\"matrx\"]\n").contains("`matrx`; stages are matrix"));
        assert!(error("base = \"whole.toml\"\nstages = [\"orders\"]\n").contains("add a `[orders]` table"));
        assert!(error(&format!("stages = [\"matrix\"]\n{BASE}")).contains("there is none"));
        let typo = error("base = \"whole.toml\"\n[sequence]\nrnus = 2\n");
        assert!(typo.contains("rnus") && typo.contains("did you mean `runs`"), "{typo}");
    }
}
