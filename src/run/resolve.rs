//! Names in a config become things: tasks, scorers, model files, memories and policies.
//!
//! Everything that can be wrong with a config is found here, cheapest checks first, before any device work.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail, ensure};

use super::headroom::StrongScores;
use crate::benchmark::{self, Selection};
use crate::config::{AgentConfig, FeedbackKind, RunConfig};
use crate::engine::hub::{self, ModelFiles, Sources};
use crate::memory::{self, MemoryMethod};
use crate::policy::{self, Policy};
use crate::record::Task;
use crate::scorer::{self, Grading};
use crate::seed::Seed;

/// A run whose every name has been found.
pub struct Resolved {
    pub config: RunConfig,
    /// The tasks in the benchmark's order; coordinates index this list.
    pub tasks: Vec<Task>,
    /// Digest of the data the tasks were loaded from.
    pub data_digest: String,
    /// Tasks that the benchmark left out because nothing can pass them here, and why.
    pub ignored: BTreeMap<String, String>,
    /// Scores of strong models, where the config names a file of them.
    pub strong: Option<StrongScores>,
    /// In the config's order. Empty, as `embedder` is, until model files are asked for: a plan needs none.
    pub backbones: Vec<ResolvedModel>,
    pub embedder: Option<ResolvedModel>,
    pub agents: Vec<ResolvedAgent>,
    pub grading: Grading,
}

/// A model by the name the config gave it, and its files.
pub struct ResolvedModel {
    pub name: String,
    pub files: ModelFiles,
}

pub struct ResolvedAgent {
    pub config: AgentConfig,
    pub method: &'static dyn MemoryMethod,
    pub policy: &'static dyn Policy,
    /// Whether the memory, with these options, embeds texts.
    pub needs_embedder: bool,
}

impl Resolved {
    /// A task by its pool index.
    ///
    /// # Panics
    /// When the index is outside the pool: plans are made from this pool.
    pub fn task(&self, index: u32) -> &Task {
        &self.tasks[index as usize]
    }

    /// An agent by its name.
    ///
    /// # Errors
    /// When a stored plan names an agent that the config does not.
    pub fn agent(&self, name: &str) -> anyhow::Result<&ResolvedAgent> {
        let found = self.agents.iter().find(|agent| agent.config.name == name);
        found.with_context(|| format!("a plan of the run names agent `{name}`, which the run file does not"))
    }
}

/// Finds everything a config names; fetches model files that are not there yet.
///
/// # Errors
/// As [`find`]; models that no source yields.
pub fn resolve(config: RunConfig, sources: &Sources) -> anyhow::Result<Resolved> {
    let found = find(config)?;
    let fetch = |name: &String| -> anyhow::Result<ResolvedModel> {
        Ok(ResolvedModel { name: name.clone(), files: hub::resolve(name, sources)? })
    };
    let models = &found.config.models;
    let backbones = models.backbones.iter().map(fetch).collect::<anyhow::Result<Vec<_>>>()?;
    let embedder = models.embedder.as_ref().map(fetch).transpose()?;
    Ok(Resolved { backbones, embedder, ..found })
}

/// Finds everything a config names but the files of its models, of which only the names are checked.
///
/// # Errors
/// Unknown names with the nearest known one, bad options, bad data, missing isolation.
pub fn find(config: RunConfig) -> anyhow::Result<Resolved> {
    let benchmark = benchmark::find(&config.benchmark.name)?;
    let agents = config.agents.iter().map(|agent| resolve_agent(agent, &config)).collect::<anyhow::Result<Vec<_>>>()?;
    // What is stored with the run has every default filled in.
    let config = RunConfig { agents: agents.iter().map(|agent| agent.config.clone()).collect(), ..config };
    for name in config.models.backbones.iter().chain(&config.models.embedder) {
        hub::check_name(name)?;
    }

    let selection = Selection { path: config.benchmark.path.clone(), options: config.benchmark.options.clone() };
    let pool = benchmark.load(&selection).with_context(|| format!("benchmark `{}`", benchmark.name()))?;
    let tasks = limit(pool.tasks, config.benchmark.limit, Seed(config.seed));
    ensure!(tasks.len() >= 2, "benchmark `{}` yields {} tasks; a run needs at least 2", benchmark.name(), tasks.len());
    let strong = strong_scores(&config, &tasks)?;

    let grading = Grading { allow_missing_isolation: config.scoring.allow_missing_isolation.clone() };
    check_scorers(&tasks, &grading)?;
    Ok(Resolved {
        config,
        tasks,
        data_digest: pool.digest,
        ignored: pool.ignored,
        strong,
        backbones: Vec::new(),
        embedder: None,
        agents,
        grading,
    })
}

fn strong_scores(config: &RunConfig, tasks: &[Task]) -> anyhow::Result<Option<StrongScores>> {
    let range = config.matrix.as_ref().and_then(|matrix| matrix.headroom.as_ref());
    let Some(path) = range.and_then(|range| range.scores.as_ref()) else { return Ok(None) };
    let scores = StrongScores::read(path)?;
    let rated = scores.rated(tasks)?;
    if rated < tasks.len() {
        eprintln!("note: {} rates {rated} of {} tasks; the others are left out", path.display(), tasks.len());
    }
    Ok(Some(scores))
}

fn resolve_agent(agent: &AgentConfig, config: &RunConfig) -> anyhow::Result<ResolvedAgent> {
    let context = || format!("agent `{}`", agent.name);
    let method = memory::find(&agent.memory).with_context(context)?;
    let policy = policy::find(&agent.policy).with_context(context)?;
    method.create(&agent.options).with_context(context)?;
    let resolved = method.resolve(&agent.options).with_context(context)?;
    if resolved.needs_embedder && config.models.embedder.is_none() {
        bail!(
            "agent `{}`: memory `{}` needs an embedding model; set `models.embedder`, for example `all-minilm-l6-v2`",
            agent.name,
            agent.memory
        );
    }
    if resolved.needs_feedback && agent.feedback == FeedbackKind::Withheld {
        bail!(
            "agent `{}`: memory `{}` keeps what succeeded, so it must be told: set `feedback` to `correct`, `graded` or \
             `revealed`",
            agent.name,
            agent.memory
        );
    }
    let config = AgentConfig {
        max_memory_tokens: agent.max_memory_tokens.or(Some(resolved.max_memory_tokens)),
        options: resolved.options,
        ..agent.clone()
    };
    Ok(ResolvedAgent { config, method, policy, needs_embedder: resolved.needs_embedder })
}

/// At most `limit` tasks, drawn with the run's seed, in the benchmark's order.
fn limit(tasks: Vec<Task>, limit: Option<usize>, seed: Seed) -> Vec<Task> {
    let Some(limit) = limit.filter(|limit| *limit < tasks.len()) else {
        return tasks;
    };
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    seed.derive("pool", &[]).stream().shuffle(&mut order);
    let kept: std::collections::BTreeSet<usize> = order.into_iter().take(limit).collect();
    tasks.into_iter().enumerate().filter(|(index, _)| kept.contains(index)).map(|(_, task)| task).collect()
}

fn check_scorers(tasks: &[Task], grading: &Grading) -> anyhow::Result<()> {
    let mut ready = std::collections::BTreeSet::new();
    for task in tasks {
        let scorer = scorer::find(&task.reference.scorer).with_context(|| format!("task {}", task.id()))?;
        scorer.check(&task.reference).with_context(|| format!("task {}", task.id()))?;
        if ready.insert(scorer.name().to_string()) {
            scorer.ready(grading).with_context(|| format!("scorer `{}`", scorer.name()))?;
        }
    }
    Ok(())
}
