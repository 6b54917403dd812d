//! Attempts of an earlier run's matrix in a new run: how a backbone joins, or a later stage changes, without asking again
//! what was asked already.
//!
//! A run that exists is never rewritten: another backbone votes, and other votes are other sequences. So the new run has a
//! folder of its own and copies those attempts that it would make itself to the byte: same program, device, tasks, seed,
//! sampling, scoring, and for each backbone the same weights and settings.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::matrix::stage_name;
use crate::record::{AttemptRecord, Coord};
use crate::store::{Identity, RunReader, RunStore};

/// Parts of a run's identity that change no attempt of the matrix of a backbone both runs have.
const FREE: &[&str] = &[
    "config.name",
    "config.about",
    "config.models.backbones",
    "config.models.embedder",
    "config.models.embedder_pooling",
    "config.models.chat",
    "config.matrix",
    "config.vote",
    "config.multi_task",
    "config.sequence",
    "config.transitions",
    "config.orders",
    "config.agents",
    "data.scores of strong models",
    "models",
];

/// The matrix attempts of an earlier run.
pub struct TakeOver {
    folder: PathBuf,
    records: BTreeMap<Coord, AttemptRecord>,
}

impl TakeOver {
    /// Reads the matrices of backbones that have the same weights and settings in both runs.
    ///
    /// # Errors
    /// When the folder holds no run, or a run whose attempts would be others, with the fields that differ.
    pub fn open(folder: &Path, ours: &Identity) -> anyhow::Result<TakeOver> {
        let reader = RunReader::open(folder)?;
        let theirs = &reader.manifest().identity;
        let is_free = |field: &str| {
            FREE.iter().any(|free| {
                field.strip_prefix(free).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
            })
        };
        let differences: Vec<String> =
            theirs.differences(ours).iter().filter(|other| !is_free(&other.field)).map(ToString::to_string).collect();
        if !differences.is_empty() {
            bail!(
                "the matrix of {} was made under other conditions (there -> here):\n  {}\n\
                 hint: take over from a run with the same values, or leave `--matrix-from` away",
                folder.display(),
                differences.join("\n  ")
            );
        }
        let stages: Vec<String> =
            ours.models.keys().filter(|model| is_same(model, theirs, ours)).map(|model| stage_name(model)).collect();
        let (records, _) = reader.records().with_context(|| format!("records of {}", folder.display()))?;
        let records = records
            .into_iter()
            .filter(|record| stages.contains(&record.coord.stage))
            .map(|record| (record.coord.clone(), record))
            .collect();
        Ok(TakeOver { folder: folder.to_path_buf(), records })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Copies those of the units that are there and that the store does not hold; how many these were.
    ///
    /// # Errors
    /// When the store fails.
    pub fn take(&self, store: &RunStore, model: &str, coords: impl Iterator<Item = Coord>) -> anyhow::Result<usize> {
        let mut taken = 0;
        for coord in coords.filter(|coord| !store.has(coord)) {
            if let Some(record) = self.records.get(&coord) {
                store.append(record.clone()).with_context(|| format!("matrix of {model}"))?;
                taken += 1;
            }
        }
        Ok(taken)
    }
}

/// Whether a backbone answers alike in both runs.
fn is_same(model: &str, theirs: &Identity, ours: &Identity) -> bool {
    let chat = |identity: &Identity| identity.config["models"]["chat"].get(model).cloned();
    theirs.models.get(model) == ours.models.get(model) && chat(theirs) == chat(ours)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::record::{Attempt, Ending, Score, TaskId, Usage};
    use crate::store::{FORMAT, Machine, Manifest};

    fn identity(change: impl FnOnce(&mut serde_json::Value), models: &[(&str, &str)]) -> Identity {
        let mut config = json!({
            "name": "one", "seed": 1, "models": {"backbones": ["a"]}, "sampling": {"temperature": 0.7},
            "matrix": {"seeds": 2}, "sequence": null,
        });
        change(&mut config);
        Identity {
            format: FORMAT,
            code: "1".into(),
            config,
            data: BTreeMap::from([("kata".to_string(), "d".to_string())]),
            models: models.iter().map(|(name, digest)| (name.to_string(), digest.to_string())).collect(),
            device: "cpu".into(),
        }
    }

    fn coord(stage: &str, step: u32) -> Coord {
        Coord { stage: stage.into(), sequence: 0, step, attempt: 0 }
    }

    fn store(folder: &Path, identity: Identity) -> RunStore {
        RunStore::create_or_open(folder, &Manifest::new(identity, "scalar"), Machine::default()).unwrap()
    }

    fn earlier(folder: &Path) {
        let store = store(folder, identity(|_| {}, &[("a", "1"), ("old", "1")]));
        for (stage, step) in [("matrix/a", 0), ("matrix/a", 1), ("matrix/old", 0), ("sequence/positive/x", 0)] {
            let attempt = Attempt {
                turns: Vec::new(),
                answer: None,
                ending: Ending::Finished,
                usage: Usage::default(),
                recalled: Vec::new(),
                dropped_memories: 0,
                votes: Vec::new(),
            };
            let record = AttemptRecord {
                coord: coord(stage, step),
                task: TaskId("t".into()),
                attempt,
                score: Score::Graded(1.0),
                detail: String::new(),
                memory: None,
                memory_work: Default::default(),
            };
            store.append(record).unwrap();
        }
    }

    #[test]
    fn a_backbone_joins_and_what_was_asked_is_not_asked_again() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        earlier(&old);
        let ours = identity(
            |config| {
                config["name"] = json!("two");
                config["models"]["backbones"] = json!(["a", "b"]);
                config["sequence"] = json!({"runs": 5});
            },
            &[("a", "1"), ("b", "2"), ("old", "other weights")],
        );
        let take = TakeOver::open(&old, &ours).unwrap();
        let store = store(&new, ours);
        // Task 2 was never asked; another model's and other weights' attempts stay where they are.
        let wanted =
            || (0..3).map(|step| coord("matrix/a", step)).chain([coord("matrix/b", 0), coord("matrix/old", 0)]);
        assert_eq!(take.take(&store, "a", wanted()).unwrap(), 2);
        assert_eq!(take.take(&store, "a", wanted()).unwrap(), 0);
        assert_eq!(store.len(), 2);
        assert!(store.has(&coord("matrix/a", 1)) && !store.has(&coord("matrix/old", 0)));
    }

    #[test]
    fn a_run_under_other_conditions_is_refused_with_what_differs() {
        let folder = tempfile::tempdir().unwrap();
        earlier(folder.path());
        let other = identity(|config| config["sampling"]["temperature"] = json!(0.2), &[("a", "1")]);
        let message = format!("{:#}", TakeOver::open(folder.path(), &other).err().unwrap());
        assert!(message.contains("config.sampling.temperature: 0.7 -> 0.2") && message.contains("hint:"), "{message}");
        let tasks = identity(|config| config["benchmark"] = json!({"limit": 3}), &[("a", "1")]);
        assert!(format!("{:#}", TakeOver::open(folder.path(), &tasks).err().unwrap()).contains("config.benchmark"));
    }
}
