//! The run file: one file describes one run; names refer to presets and registered things.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{bail, ensure};
use serde::{Deserialize, Serialize};

use super::{ByteSize, DeviceChoice, KvType, MultiTaskConfig, OrdersConfig, Quantize, TransitionsConfig};
use crate::engine::embed::Pooling;
use crate::engine::sampling::Sampling;
use crate::engine::template::ChatSettings;
use crate::record::plan::{Stopping, VoteMeasure};

/// A whole run. The stages that are present are executed in this order: matrix, logprob, vote, multi_task, sequence,
/// attribution, transitions, orders.
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
    /// Gains by log-probability, beside those by sampling: `[logprob]`. Like `attribution` it reads what other stages made
    /// and changes none of it, so it may be added to a run that has begun.
    #[serde(default, skip_serializing)]
    pub logprob: Option<LogprobConfig>,
    #[serde(default)]
    pub vote: Option<VoteConfig>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multi_task: Option<MultiTaskConfig>,
    #[serde(default)]
    pub sequence: Option<SequenceConfig>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transitions: Option<TransitionsConfig>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orders: Option<OrdersConfig>,
    #[serde(default, skip_serializing)]
    pub attribution: Option<AttributionConfig>,
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
    /// How backbones keep keys and values: when absent `i16`, on a GPU and of keys with a bias `f16`; or `bf16`, or `f32` in
    /// twice the memory. Changes results, so it is no engine setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_type: Option<KvType>,
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
    /// `auto`, `cpu`, `cuda:0`; a copy of the model on each of several GPUs as `cuda:0,1` or `cuda:all`; one in parts over
    /// several as `cuda:0+1`, the only choice here that a result's bits, and so a run's identity, depend on but that of CPU or
    /// GPU; see [`DeviceChoice`].
    pub device: String,
    /// Most requests decoded in one step.
    pub max_batch: usize,
    /// Compute threads; all cores when absent.
    pub threads: Option<usize>,
    /// Memory of the KV cache, on each GPU; a quarter of the machine's free memory, at most 8 GiB, when absent.
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
    /// At most this many of them, drawn with the run's seed so that families keep their shares; the paper takes 120.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u32>,
    /// Ends the seeds of a pair once the sign of its gain is settled; every pair gets all seeds when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopping: Option<Stopping>,
}

impl Default for MatrixConfig {
    fn default() -> Self {
        MatrixConfig { seeds: 5, headroom: None, tasks: None, stopping: None }
    }
}

/// Bounds on a task's mean zero-shot score over seeds and strong models; both inclusive.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Headroom {
    pub min: f64,
    pub max: f64,
    /// The strong models, names of `models.backbones`; all of them when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// A file with scores of strong models, read instead of the zero-shot attempts of this run: published solve rates, or
    /// the `zero_shot.csv` of another run's report. A .csv or JSON lines, each line with `task` (or `task_id`) and `score`
    /// (or `solve_rate`) in 0..=1; relative to the working folder. Only tasks that stay are then attempted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scores: Option<PathBuf>,
}

/// Relations by vote over backbones (PATH-Bench §4.1).
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct VoteConfig {
    /// With fewer than three backbones, each may vote once for each of this many groups of its seeds; a stand-in for
    /// other backbones that the report names. 1: each backbone has one vote, as in the paper.
    pub seed_groups: u32,
    /// What gains are measured by: `score` as in the paper; `log_probability` or `log_probability_over_median` where the
    /// backbones solve too little for scores to differ.
    #[serde(skip_serializing_if = "VoteMeasure::is_score")]
    pub by: VoteMeasure,
}

impl Default for VoteConfig {
    fn default() -> Self {
        VoteConfig { seed_groups: 1, by: VoteMeasure::Score }
    }
}

/// Log-probability of each kept task's reference after the very prompts of the matrix. It has nothing to set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogprobConfig {}

/// Which probes are traced back to single experiences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TracedProbes {
    /// Those that score lower than the probe before.
    #[default]
    Dropped,
    /// All but the first of a sequence.
    Every,
}

/// Counterfactual attribution: a probe again, from the memory as it would be without one of the experiences since an
/// earlier, better probe.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AttributionConfig {
    pub probes: TracedProbes,
    /// Most probes of each agent under each history, the deepest drops first.
    pub max_probes: usize,
    /// Most experiences of each probe, the latest first.
    pub max_experiences: usize,
    /// Times each memory is probed; the first draws the very numbers of the run.
    pub draws: u32,
}

impl Default for AttributionConfig {
    fn default() -> Self {
        AttributionConfig { probes: TracedProbes::Dropped, max_probes: 20, max_experiences: 12, draws: 5 }
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

/// When a memory stops learning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Freeze {
    /// With the warm probe of a sequence.
    AfterWarmUp,
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
    /// When the memory stops learning; it still recalls. Never when absent. An agent that only learns in the warm-up tells
    /// what later experience does apart from the noise of a probe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freeze: Option<Freeze>,
    /// Most tokens of one reply to the memory's own calls; each call's own limit when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_call_tokens: Option<usize>,
    /// The agent that the report compares this one with, sequence by sequence and run by run, for example the same memory
    /// without a filter around it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// Only the first this many sequences of each history are lived; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequences: Option<u32>,
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
            if let Some(Headroom { min, max, models, scores }) = &matrix.headroom {
                let is_range = (0.0..=1.0).contains(min) && (0.0..=1.0).contains(max) && min <= max;
                ensure!(is_range, "`matrix.headroom` needs 0 <= min <= max <= 1, found min {min}, max {max}");
                if let Some(stranger) = models.iter().find(|name| !self.models.backbones.contains(name)) {
                    bail!("`matrix.headroom.models` names `{stranger}`, which `models.backbones` does not");
                }
                ensure!(
                    models.is_empty() || scores.is_none(),
                    "`matrix.headroom` takes `models` of this run or `scores` of a file, found both: leave one out"
                );
            }
            ensure!(
                matrix.tasks.is_none_or(|tasks| tasks >= 2),
                "`matrix.tasks` must be at least 2, found {}",
                matrix.tasks.unwrap_or_default()
            );
            if let Some(Stopping { error_rate, least_seeds }) = matrix.stopping {
                ensure!(
                    (0.0..0.5).contains(&error_rate),
                    "`matrix.stopping.error_rate` must be at least 0 and below 0.5, found {error_rate}"
                );
                ensure!(
                    (1..=matrix.seeds).contains(&least_seeds),
                    "`matrix.stopping.least_seeds` must be at least 1 and at most `matrix.seeds`, found {least_seeds}"
                );
            }
        }
        ensure!(
            self.logprob.is_none() || self.matrix.is_some(),
            "`[logprob]` rates the pairs of a matrix: add `[matrix]`"
        );
        if let Some(vote) = &self.vote {
            let seeds = self.matrix.as_ref().map(|matrix| matrix.seeds);
            ensure!(seeds.is_some(), "`[vote]` votes on a matrix: add a `[matrix]` table");
            ensure!(
                vote.seed_groups > 0 && seeds >= Some(vote.seed_groups),
                "`vote.seed_groups` must be at least 1 and at most `matrix.seeds`, found {}",
                vote.seed_groups
            );
            let stops = self.matrix.as_ref().is_some_and(|matrix| matrix.stopping.is_some());
            ensure!(
                vote.seed_groups == 1 || !stops,
                "groups of seeds need every seed and `matrix.stopping` leaves some out: set `vote.seed_groups` to 1, found \
                 {}, or take `stopping` out",
                vote.seed_groups
            );
            ensure!(
                vote.by.is_score() || self.logprob.is_some(),
                "`vote.by` takes log-probabilities, which the stage `[logprob]` finds: add a `[logprob]` table, or set \
                 `vote.by` to `score`"
            );
            ensure!(
                vote.by.is_score() || vote.seed_groups == 1,
                "a log-probability has no seeds to group: set `vote.seed_groups` to 1, found {}",
                vote.seed_groups
            );
        }
        if let Some(sequence) = &self.sequence {
            ensure!(self.vote.is_some(), "`[sequence]` samples by voted relations: add a `[vote]` table");
            ensure!(!self.agents.is_empty(), "`[sequence]` needs at least one `[[agents]]` table");
            sequence.check()?;
        }
        self.check_experiments()?;
        if let Some(attribution) = &self.attribution {
            ensure!(self.sequence.is_some(), "`[attribution]` traces probes of sequences: add a `[sequence]` table");
            attribution.check()?;
        }
        ensure_distinct("agents.name", self.agents.iter().map(|agent| &agent.name))?;
        for agent in &self.agents {
            ensure!(
                !agent.name.is_empty() && agent.name.chars().all(plain),
                "`agents.name` is used in file and stage names: expected letters, digits, `-`, `_` and `.`, found `{}`",
                agent.name
            );
            ensure!(agent.max_call_tokens != Some(0), "`agents.max_call_tokens` must be at least 1, found 0");
            ensure!(agent.sequences != Some(0), "`agents.sequences` must be at least 1, found 0");
            if let Some(other) = &agent.against {
                ensure!(
                    *other != agent.name && self.agents.iter().any(|agent| agent.name == *other),
                    "agent `{}`: `against` must name another of `[[agents]]`, found `{other}`",
                    agent.name
                );
            }
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

impl AttributionConfig {
    fn check(&self) -> anyhow::Result<()> {
        let counts = [
            ("max_probes", self.max_probes),
            ("max_experiences", self.max_experiences),
            ("draws", self.draws as usize),
        ];
        for (key, value) in counts {
            ensure!(value > 0, "`attribution.{key}` must be at least 1, found 0");
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

pub(super) fn ensure_distinct<T: AsRef<str>>(key: &str, names: impl Iterator<Item = T>) -> anyhow::Result<()> {
    let mut seen = std::collections::BTreeSet::new();
    for name in names {
        ensure!(seen.insert(name.as_ref().to_string()), "`{key}` names `{}` twice", name.as_ref());
    }
    Ok(())
}
