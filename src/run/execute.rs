//! Does what the store does not hold yet, stage by stage.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, ensure};

use super::matrix::{self, Unit};
use super::progress::Progress;
use super::resolve::Resolved;
use super::start::{self, BackboneSettings, load_backbone, load_embedder};
use super::{order, sequence, vote};
use crate::config::SequenceConfig;
use crate::engine::embed::{Embedder, EmbedderOptions};
use crate::engine::session::Session;
use crate::memory::{Embed, Similarities, WORDING};
use crate::record::Coord;
use crate::record::plan::{
    IGNORED_FILE, POOL_FILE, PoolPlan, PoolTask, SEQUENCES_FILE, SequencesPlan, VOTE_FILE, VotePlan,
};
use crate::seed::Seed;
use crate::store::{self, Identity, Machine, Manifest, RunStore};

/// Runs every stage of the config into the folder, or goes on where a former run stopped.
///
/// # Errors
/// The folder belongs to another run; a model cannot be loaded; the engine, a memory or the disk fails. What was
/// stored stays, and the same command goes on from there.
pub fn execute(resolved: &Resolved, folder: &Path) -> anyhow::Result<()> {
    let store = open_store(resolved, folder)?;
    if store.is_continued() {
        eprintln!("{}: goes on with {} stored attempts", folder.display(), store.len());
    }
    for damage in &store.findings().damage {
        let unit = damage.coord.as_ref().map_or_else(|| "its unit".to_string(), Coord::to_string);
        eprintln!("{}: line {}: {}; {unit} is done again", folder.display(), damage.line, damage.why);
    }
    if !resolved.ignored.is_empty() {
        eprintln!("{} tasks are ignored: their reference solutions do not pass here", resolved.ignored.len());
        put(&store, IGNORED_FILE, &resolved.ignored)?;
    }
    let mut backbone = Backbone { resolved, loaded: None };
    if resolved.config.matrix.is_some() {
        run_matrix(resolved, &store, &mut backbone)?;
    }
    if resolved.config.vote.is_some() {
        run_vote(resolved, &store)?;
    }
    if let Some(config) = &resolved.config.sequence {
        run_sequences(resolved, &store, config, &mut backbone)?;
    }
    Ok(())
}

/// The one backbone that is in memory. A stage that has nothing left to do loads none.
struct Backbone<'a> {
    resolved: &'a Resolved,
    loaded: Option<(usize, crate::engine::session::Engine)>,
}

impl Backbone<'_> {
    fn session(&mut self, index: usize) -> anyhow::Result<Session> {
        if self.loaded.as_ref().is_none_or(|(loaded, _)| *loaded != index) {
            // The old model leaves memory before the new one comes in.
            self.loaded = None;
            let model = &self.resolved.backbones[index];
            let config = &self.resolved.config;
            let settings = BackboneSettings::of(&config.models, &model.name);
            self.loaded = Some((index, load_backbone(model, &config.engine, &settings)?));
        }
        let (_, engine) = self.loaded.as_ref().context("a model was loaded on the line above")?;
        Ok(engine.session())
    }
}

fn open_store(resolved: &Resolved, folder: &Path) -> anyhow::Result<RunStore> {
    let device = start::device(&resolved.config.engine)?;
    let mut config = serde_json::to_value(&resolved.config).context("the config as JSON")?;
    // Speed and memory settings change no result, so a run may go on with others.
    if let Some(config) = config.as_object_mut() {
        config.remove("engine");
    }
    let models = resolved.backbones.iter().chain(&resolved.embedder);
    let identity = Identity {
        format: store::FORMAT,
        code: format!("{}, arithmetic {}, prompts {WORDING}", env!("CARGO_PKG_VERSION"), lifelong_kernels::ARITHMETIC),
        config,
        data: BTreeMap::from([(resolved.config.benchmark.name.clone(), resolved.data_digest.clone())]),
        models: models
            .map(|model| Ok((model.name.clone(), model.files.digest()?.to_string())))
            .collect::<anyhow::Result<_>>()?,
        device: device.name().to_string(),
    };
    let machine = Machine {
        device: device.name().to_string(),
        instruction_set: device.instruction_set().to_string(),
        threads: device.threads() as u32,
    };
    let manifest = Manifest::new(identity, device.instruction_set());
    Ok(RunStore::create_or_open(folder, &manifest, machine)?)
}

fn run_matrix(resolved: &Resolved, store: &RunStore, backbone: &mut Backbone<'_>) -> anyhow::Result<()> {
    let config = resolved.config.matrix.as_ref().context("the matrix stage runs with a matrix config")?;
    let tasks = resolved.tasks.len() as u32;
    let models: Vec<String> = resolved.backbones.iter().map(|model| model.name.clone()).collect();
    let zero_shot = matrix::zero_shot(tasks, config.seeds);
    for index in 0..models.len() {
        run_units(resolved, store, backbone, index, "zero-shot", &zero_shot)?;
    }
    let kept = matrix::headroom(&store.records()?, &models, tasks, config.headroom);
    let pool = PoolPlan {
        tasks: resolved
            .tasks
            .iter()
            .map(|task| PoolTask { id: task.id().clone(), family: task.view.family.clone() })
            .collect(),
        kept,
        models,
        seeds: config.seeds,
    };
    put(store, POOL_FILE, &pool)?;
    ensure!(
        pool.kept.len() >= 2,
        "the headroom filter keeps {} of {tasks} tasks; a matrix needs at least 2: widen `matrix.headroom`",
        pool.kept.len()
    );
    let one_shot = matrix::one_shot(&pool.kept, config.seeds);
    // Last model first: it is still loaded.
    for index in (0..pool.models.len()).rev() {
        run_units(resolved, store, backbone, index, "one-shot", &one_shot)?;
    }
    Ok(())
}

fn run_units(
    resolved: &Resolved,
    store: &RunStore,
    backbone: &mut Backbone<'_>,
    model: usize,
    what: &str,
    units: &[Unit],
) -> anyhow::Result<()> {
    let name = &resolved.backbones[model].name;
    let coords = units.iter().map(|unit| unit.coord(name));
    let Some(progress) = start_progress(&format!("matrix {name} {what}"), coords, store) else {
        return Ok(());
    };
    let session = backbone.session(model)?;
    matrix::run(&matrix::Stage { resolved, model: name, session: &session, store, progress: &progress }, units)?;
    progress.finish();
    Ok(())
}

fn run_vote(resolved: &Resolved, store: &RunStore) -> anyhow::Result<()> {
    let config = resolved.config.vote.context("the vote stage runs with a vote config")?;
    let pool: PoolPlan = get(store, POOL_FILE)?;
    let plan = vote::vote(&pool, &store.records()?, config.seed_groups);
    put(store, VOTE_FILE, &plan)
}

fn run_sequences(
    resolved: &Resolved,
    store: &RunStore,
    config: &SequenceConfig,
    backbone: &mut Backbone<'_>,
) -> anyhow::Result<()> {
    let pool: PoolPlan = get(store, POOL_FILE)?;
    let votes: VotePlan = get(store, VOTE_FILE)?;
    let seed = Seed(resolved.config.seed).derive("order", &[]);
    let histories = config
        .histories
        .iter()
        .map(|history| order::history(*history, config, &votes.relations, &pool.kept, seed))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let plan = SequencesPlan {
        model: resolved.backbones[0].name.clone(),
        agents: resolved.agents.iter().map(|agent| agent.config.name.clone()).collect(),
        baseline: resolved
            .agents
            .iter()
            .find(|agent| agent.config.memory == "none")
            .map(|agent| agent.config.name.clone()),
        runs: config.runs,
        histories,
    };
    put(store, SEQUENCES_FILE, &plan)?;
    let Some(progress) = start_progress("sequences", sequence::coords(&plan), store) else {
        return Ok(());
    };
    let session = backbone.session(0)?;
    let embedder: Option<Embedder> = resolved
        .embedder
        .as_ref()
        .filter(|_| resolved.agents.iter().any(|agent| agent.needs_embedder))
        .map(|model| {
            let options = EmbedderOptions { pooling: resolved.config.models.embedder_pooling };
            load_embedder(model, &resolved.config.engine, options)
        })
        .transpose()?;
    let similarities = embedder.as_ref().map(|embedder| measure(resolved, embedder)).transpose()?;
    let world = sequence::World {
        resolved,
        store,
        backbone: &session,
        embedder: embedder.as_ref().map(|embedder| embedder as &dyn Embed),
        similarities: similarities.as_ref(),
        progress: &progress,
    };
    // More chains than rows, so that the batch stays full while some chains grade or learn.
    sequence::run(&world, &plan, config, 2 * resolved.config.engine.max_batch)?;
    progress.finish();
    Ok(())
}

/// How similar random tasks of a run are under its embedding model.
///
/// # Errors
/// When the run names no embedding model, or it cannot be loaded.
pub fn similarities(resolved: &Resolved) -> anyhow::Result<Similarities> {
    let model = resolved.embedder.as_ref().context("the run names no `models.embedder`")?;
    let options = EmbedderOptions { pooling: resolved.config.models.embedder_pooling };
    measure(resolved, &load_embedder(model, &resolved.config.engine, options)?)
}

fn measure(resolved: &Resolved, embedder: &Embedder) -> anyhow::Result<Similarities> {
    let questions: Vec<String> = resolved.tasks.iter().map(|task| task.view.question.clone()).collect();
    Similarities::measure(&questions, embedder, Seed(resolved.config.seed)).context("similarities of the run's tasks")
}

/// `None` when every unit is stored already.
fn start_progress(stage: &str, coords: impl Iterator<Item = Coord>, store: &RunStore) -> Option<Progress> {
    let (mut total, mut done) = (0u64, 0u64);
    for coord in coords {
        total += 1;
        done += u64::from(store.has(&coord));
    }
    (done < total).then(|| Progress::start(stage, total, done))
}

fn put<T: serde::Serialize>(store: &RunStore, name: &str, plan: &T) -> anyhow::Result<()> {
    let mut text = serde_json::to_vec_pretty(plan).context("a plan as JSON")?;
    text.push(b'\n');
    Ok(store.put_once(name, &text)?)
}

fn get<T: serde::de::DeserializeOwned>(store: &RunStore, name: &str) -> anyhow::Result<T> {
    let bytes = store.get_once(name)?.with_context(|| format!("{name} is missing from {}", store.dir().display()))?;
    serde_json::from_slice(&bytes).with_context(|| format!("{name} in {}", store.dir().display()))
}
