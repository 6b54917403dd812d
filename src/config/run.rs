//! The run file: one file describes one run; names refer to presets and registered things.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{bail, ensure};
use serde::{Deserialize, Serialize};

use super::{ByteSize, DeviceChoice, KvType, Quantize};
use crate::engine::embed::Pooling;
use crate::engine::sampling::Sampling;
use crate::engine::template::ChatSettings;

/// A whole run. The stages that are present are executed in this order: matrix, vote, sequence.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// Name of the run; its folder is `runs/<name>` unless `--out` says otherwise.
    pub name: String,
    /// One line for the report.
    #[serde(default)]
    pub about: String,
    /// The key of every random draw.
    #[serde(default = "default_seed")]
    pub seed: u64,
    pub models: ModelsConfig,
    #[serde(default)]
    pub engine: EngineConfig,
    /// How replies are drawn: temperature 0.7 unless said otherwise (specs §15, choice 3).
    #[serde(default = "default_sampling")]
    pub sampling: Sampling,
    pub benchmark: BenchmarkConfig,
    #[serde(default)]
    pub scoring: ScoringConfig,
    #[serde(default)]
    pub matrix: Option<MatrixConfig>,
    #[serde(default)]
    pub vote: Option<VoteConfig>,
    #[serde(default)]
    pub sequence: Option<SequenceConfig>,
    #[serde(default)]
    pub agents: Vec<AgentConfig>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelsConfig {
    /// Preset names, hub names or paths. The matrix runs on each; sequences run on the first.
    pub backbones: Vec<String>,
    /// Embedding model of the memories that need one.
    #[serde(default)]
    pub embedder: Option<String>,
    /// How its token vectors become one of a text, where its files do not say: `mean`, `cls` or `last`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedder_pooling: Option<Pooling>,
    /// How backbones keep keys and values: `f32`, or `f16` or `bf16` in half the memory. Changes results, so it is no
    /// engine setting.
    #[serde(default, skip_serializing_if = "KvType::is_default")]
    pub kv_type: KvType,
    /// What the projections of backbones in plain floats are quantised to when they are loaded; as stored when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantize: Option<Quantize>,
    /// Settings of a backbone's chat template, by the name that `backbones` gives it: `[models.chat."qwen3-8b"]`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub chat: BTreeMap<String, ChatSettings>,
}

impl ModelsConfig {
    /// The template settings of a backbone.
    pub fn chat_of(&self, backbone: &str) -> ChatSettings {
        self.chat.get(backbone).cloned().unwrap_or_default()
    }
}

/// How the engine runs. Nothing here changes a result, only time and memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EngineConfig {
    /// `auto`, `cpu`, `cuda:0`, several GPUs as `cuda:0,1` or `cuda:all`; see [`DeviceChoice`].
    pub device: String,
    /// Most requests decoded in one step.
    pub max_batch: usize,
    /// Compute threads; all cores when absent.
    pub threads: Option<usize>,
    /// Memory of the KV cache; a quarter of the machine's free memory, at most 8 GiB, when absent.
    pub kv_memory: Option<ByteSize>,
    /// Most prompt tokens computed in one step.
    pub prefill_chunk: usize,
    /// Whether computed prefixes are kept for later requests.
    pub prefix_cache: bool,
}

impl Default for EngineConfig {
    fn default() -> Self {
        EngineConfig {
            device: "auto".into(),
            max_batch: 64,
            threads: None,
            kv_memory: None,
            prefill_chunk: 256,
            prefix_cache: true,
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BenchmarkConfig {
    pub name: String,
    /// The data file, for benchmarks that read one; relative to the working folder.
    #[serde(default)]
    pub path: Option<PathBuf>,
    /// At most this many tasks, drawn with the run's seed (all when absent), in the benchmark's order.
    #[serde(default)]
    pub limit: Option<usize>,
    /// The benchmark's own options.
    #[serde(default)]
    pub options: toml::Table,
}

/// How attempts are graded.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScoringConfig {
    /// Isolation layers that may be missing when generated code is run; a layer that is missing and not named here
    /// stops the run.
    pub allow_missing_isolation: Vec<String>,
}

/// Zero-shot and one-shot scores of every ordered pair of tasks (PATH-Bench §4.1).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MatrixConfig {
    /// Attempts per pair; the paper takes five.
    pub seeds: u32,
    /// Keeps the tasks whose zero-shot score lies in this range; all tasks when absent.
    pub headroom: Option<Headroom>,
}

impl Default for MatrixConfig {
    fn default() -> Self {
        MatrixConfig { seeds: 5, headroom: None }
    }
}

/// Bounds on a task's mean zero-shot score over seeds and backbones; both inclusive.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Headroom {
    pub min: f64,
    pub max: f64,
}

/// Relations by vote over backbones (PATH-Bench §4.1).
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct VoteConfig {
    /// With fewer than three backbones, each may vote once for each of this many groups of its seeds; a stand-in for
    /// other backbones that the report names. 1: each backbone has one vote, as in the paper.
    pub seed_groups: u32,
}

impl Default for VoteConfig {
    fn default() -> Self {
        VoteConfig { seed_groups: 1 }
    }
}

/// Which relation dominates the tasks between probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum History {
    Positive,
    Negative,
}

impl History {
    pub fn as_str(self) -> &'static str {
        match self {
            History::Positive => "positive",
            History::Negative => "negative",
        }
    }
}

/// Probe-centred sequences (PATH-Bench §4.2).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SequenceConfig {
    pub histories: Vec<History>,
    /// Sequences of each history; the paper takes 50.
    pub sequences: u32,
    /// Runs of each sequence with other draws; the paper takes 5.
    pub runs: u32,
    /// Positive tasks between the cold and the warm probe.
    pub warm_up: u32,
    /// Tasks after the warm probe.
    pub intervening: u32,
    /// Share of the intervening tasks from the dominant set.
    pub dominant_share: f64,
    /// The probe returns after this many intervening tasks: smallest and largest gap.
    pub probe_interval: [u32; 2],
}

impl Default for SequenceConfig {
    fn default() -> Self {
        SequenceConfig {
            histories: vec![History::Positive, History::Negative],
            sequences: 50,
            runs: 5,
            warm_up: 5,
            intervening: 100,
            dominant_share: 0.7,
            probe_interval: [6, 12],
        }
    }
}

/// What a memory is told of an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeedbackKind {
    Withheld,
    #[default]
    Correct,
    Graded,
    Revealed,
}

/// One agent: a memory and the policy that turns recalled prompts into a reply.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentConfig {
    pub name: String,
    #[serde(default = "default_memory")]
    pub memory: String,
    #[serde(default = "default_policy")]
    pub policy: String,
    #[serde(default)]
    pub feedback: FeedbackKind,
    /// Most tokens of recalled memories in a prompt; 0 shows all of them. The memory's own limit (2048 for most, 4096
    /// for those that show a library) when absent.
    #[serde(default)]
    pub max_memory_tokens: Option<usize>,
    /// Most tokens of one reply to the memory's own calls; each call's own limit when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_call_tokens: Option<usize>,
    /// The memory's own options.
    #[serde(default)]
    pub options: toml::Table,
}

fn default_seed() -> u64 {
    1
}

fn default_sampling() -> Sampling {
    Sampling { temperature: 0.7, ..Sampling::default() }
}

fn default_memory() -> String {
    "none".into()
}

fn default_policy() -> String {
    "single".into()
}

impl RunConfig {
    /// Values that the types cannot rule out.
    ///
    /// # Errors
    /// Names the key, the value found and the values allowed.
    pub fn check(&self) -> anyhow::Result<()> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        ensure!(
            !self.name.is_empty() && self.name.chars().all(plain) && !self.name.starts_with('.'),
            "`name` becomes a folder: expected letters, digits, `-`, `_` and `.`, found `{}`",
            self.name
        );
        ensure!(!self.models.backbones.is_empty(), "`models.backbones` must name at least one model");
        ensure_distinct("models.backbones", self.models.backbones.iter())?;
        if let Some(stranger) = self.models.chat.keys().find(|name| !self.models.backbones.contains(name)) {
            bail!("`models.chat` sets up `{stranger}`, which `models.backbones` does not name");
        }
        self.engine.check()?;
        self.sampling.validate()?;
        if let Some(matrix) = &self.matrix {
            ensure!(matrix.seeds > 0, "`matrix.seeds` must be at least 1, found 0");
            if let Some(Headroom { min, max }) = matrix.headroom {
                let is_range = (0.0..=1.0).contains(&min) && (0.0..=1.0).contains(&max) && min <= max;
                ensure!(is_range, "`matrix.headroom` needs 0 <= min <= max <= 1, found min {min}, max {max}");
            }
        }
        if let Some(vote) = &self.vote {
            let seeds = self.matrix.as_ref().map(|matrix| matrix.seeds);
            ensure!(seeds.is_some(), "`[vote]` votes on a matrix: add a `[matrix]` table");
            ensure!(
                vote.seed_groups > 0 && seeds >= Some(vote.seed_groups),
                "`vote.seed_groups` must be at least 1 and at most `matrix.seeds`, found {}",
                vote.seed_groups
            );
        }
        if let Some(sequence) = &self.sequence {
            ensure!(self.vote.is_some(), "`[sequence]` samples by voted relations: add a `[vote]` table");
            ensure!(!self.agents.is_empty(), "`[sequence]` needs at least one `[[agents]]` table");
            sequence.check()?;
        }
        ensure_distinct("agents.name", self.agents.iter().map(|agent| &agent.name))?;
        for agent in &self.agents {
            ensure!(
                !agent.name.is_empty() && agent.name.chars().all(plain),
                "`agents.name` is used in file and stage names: expected letters, digits, `-`, `_` and `.`, found `{}`",
                agent.name
            );
            ensure!(agent.max_call_tokens != Some(0), "`agents.max_call_tokens` must be at least 1, found 0");
        }
        Ok(())
    }
}

impl EngineConfig {
    fn check(&self) -> anyhow::Result<()> {
        ensure!(self.max_batch > 0, "`engine.max_batch` must be at least 1, found 0");
        ensure!(self.threads != Some(0), "`engine.threads` must be at least 1, found 0");
        ensure!(self.prefill_chunk > 0, "`engine.prefill_chunk` must be at least 1, found 0");
        if let Err(error) = self.device.parse::<DeviceChoice>() {
            bail!("`engine.device`: {error}");
        }
        Ok(())
    }
}

impl SequenceConfig {
    fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.histories.is_empty(), "`sequence.histories` must name `positive`, `negative` or both");
        ensure_distinct("sequence.histories", self.histories.iter().map(|history| history.as_str()))?;
        for (key, value) in [("sequences", self.sequences), ("runs", self.runs), ("intervening", self.intervening)] {
            ensure!(value > 0, "`sequence.{key}` must be at least 1, found 0");
        }
        ensure!(
            (0.0..=1.0).contains(&self.dominant_share),
            "`sequence.dominant_share` must be in 0..=1, found {}",
            self.dominant_share
        );
        let [smallest, largest] = self.probe_interval;
        ensure!(
            0 < smallest && smallest <= largest,
            "`sequence.probe_interval` needs [smallest, largest] with 1 <= smallest <= largest, found [{smallest}, {largest}]"
        );
        Ok(())
    }
}

fn ensure_distinct<T: AsRef<str>>(key: &str, names: impl Iterator<Item = T>) -> anyhow::Result<()> {
    let mut seen = std::collections::BTreeSet::new();
    for name in names {
        ensure!(seen.insert(name.as_ref().to_string()), "`{key}` names `{}` twice", name.as_ref());
    }
    Ok(())
}
