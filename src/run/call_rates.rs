//! What the memories of a run asked of its backbone, an attempt: the part of a plan that depends on what models reply. An
//! earlier run's records tell it for agents of the same names; nothing is assumed of an agent that did not live there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use crate::record::{AttemptRecord, Usage};
use crate::store::RunReader;

/// Tokens of memories' own calls, by agent.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRates {
    folder: PathBuf,
    by_agent: BTreeMap<String, PerAttempt>,
}

/// Means over the attempts of one agent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PerAttempt {
    pub prompt_tokens: f64,
    pub generated_tokens: f64,
}

impl CallRates {
    /// Reads the lives of a run: its sequences, transitions and task orders.
    ///
    /// # Errors
    /// When the folder holds no run, or no agent lived in it.
    pub fn read(folder: &Path) -> anyhow::Result<CallRates> {
        let (records, _) =
            RunReader::open(folder)?.records().with_context(|| format!("records of {}", folder.display()))?;
        let by_agent = per_attempt(&records);
        ensure!(
            !by_agent.is_empty(),
            "{}: no agent lived in this run; calls are measured in one with `[sequence]`, `[transitions]` or `[orders]`",
            folder.display()
        );
        Ok(CallRates { folder: folder.to_path_buf(), by_agent })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// `None` for an agent that did not live there.
    pub fn of(&self, agent: &str) -> Option<PerAttempt> {
        self.by_agent.get(agent).copied()
    }
}

fn per_attempt(records: &[AttemptRecord]) -> BTreeMap<String, PerAttempt> {
    let mut sums: BTreeMap<String, (f64, Usage)> = BTreeMap::new();
    for record in records {
        let Some(agent) = agent(&record.coord.stage) else { continue };
        let (attempts, usage) = sums.entry(agent.to_string()).or_default();
        *attempts += 1.0;
        record.memory_work.calls().for_each(|call| *usage += call.usage);
    }
    let mean = |(attempts, usage): (f64, Usage)| PerAttempt {
        prompt_tokens: usage.prompt_tokens as f64 / attempts,
        generated_tokens: usage.generated_tokens as f64 / attempts,
    };
    sums.into_iter().map(|(agent, sum)| (agent, mean(sum))).collect()
}

/// The agent of a stage in which agents live: `sequence/HISTORY/AGENT`, `transition/CONDITION/AGENT`, `orders/PATH/AGENT`.
fn agent(stage: &str) -> Option<&str> {
    let (family, rest) = stage.split_once('/')?;
    ["sequence", "transition", "orders"].contains(&family).then(|| rest.rsplit('/').next())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Attempt, Coord, Ending, MemoryCall, MemoryWork, Score, TaskId};

    fn record(stage: &str, step: u32, calls: usize) -> AttemptRecord {
        let call = MemoryCall {
            purpose: "m/learn".into(),
            request: "00".into(),
            reply: "r".into(),
            is_read: true,
            usage: Usage { prompt_tokens: 30, generated_tokens: 4 },
        };
        AttemptRecord {
            coord: Coord { stage: stage.into(), sequence: 0, step, attempt: 0 },
            task: TaskId("t".into()),
            attempt: Attempt {
                turns: Vec::new(),
                answer: None,
                ending: Ending::Finished,
                usage: Usage { prompt_tokens: 100, generated_tokens: 10 },
                recalled: Vec::new(),
                dropped_memories: 0,
                votes: Vec::new(),
            },
            score: Score::Graded(1.0),
            detail: String::new(),
            memory: None,
            memory_work: MemoryWork { learned: vec![call; calls], ..MemoryWork::default() },
        }
    }

    #[test]
    fn calls_are_counted_an_attempt_and_not_the_attempts_themselves() {
        let records = [
            record("sequence/positive/a", 0, 0),
            record("sequence/positive/a", 1, 3),
            record("transition/positive-negative/a", 0, 1),
            record("orders/path-1/b", 0, 0),
            record("matrix/model/a", 0, 9),
        ];
        let found = per_attempt(&records);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(found["a"], PerAttempt { prompt_tokens: 40.0, generated_tokens: 16.0 / 3.0 });
        assert_eq!(found["b"], PerAttempt::default());
    }
}
