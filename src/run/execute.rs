//! Does what the store does not hold yet, stage by stage.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, bail};

use super::matrix::{self, Unit};
use super::progress::Progress;
use super::resolve::{Resolved, ResolvedModel};
use super::sequence::{self, Family};
use super::start::{self, BackboneSettings, load_backbone, load_embedder};
use super::take_over::TakeOver;
use super::{attribution, headroom, logprob, multi_task, order, orders, pool, stopping, transition, vote};
use crate::config::{
    AttributionConfig, MatrixConfig, MultiTaskConfig, OrdersConfig, SequenceConfig, TransitionsConfig,
};
use crate::engine::embed::{Embedder, EmbedderOptions};
use crate::engine::model;
use crate::engine::session::Session;
use crate::memory::{Embed, Similarities, WORDING};
use crate::record::experiment::{MULTI_TASK_FILE, ORDERS_FILE, TRANSITIONS_FILE};
use crate::record::plan::{
    ATTRIBUTION_FILE, HistoryPlan, IGNORED_FILE, LOGPROB_FILE, LogprobPlan, POOL_FILE, PairedAgent, PoolPlan, PoolTask,
    SEQUENCES_FILE, SequencesPlan, Stopping, VOTE_FILE, VotePlan,
};
use crate::record::{AttemptRecord, Coord};
use crate::seed::Seed;
use crate::store::{self, Identity, Machine, Manifest, RunStore};

/// Runs every stage of the config into the folder, or goes on where a former run stopped. What a matrix needs is taken
/// over from `earlier`, the folder of a run that differs in its backbones or in later stages alone, where it is there.
///
/// # Errors
/// The folder belongs to another run; a model cannot be loaded; the engine, a memory or the disk fails. What was
/// stored stays, and the same command goes on from there.
pub fn execute(resolved: &Resolved, folder: &Path, earlier: Option<&Path>) -> anyhow::Result<()> {
    let manifest = manifest(resolved)?;
    let earlier = earlier.map(|earlier| TakeOver::open(earlier, &manifest.identity)).transpose()?;
    let store = open_store(resolved, &manifest, folder)?;
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
    let config = &resolved.config;
    let mut models = Models { resolved, backbone: None, embedder: None };
    match &config.matrix {
        Some(_) => run_matrix(resolved, &store, &mut models, earlier.as_ref())?,
        None => put(&store, POOL_FILE, &pool_of(resolved, (0..resolved.tasks.len() as u32).collect()))?,
    }
    if config.logprob.is_some() {
        run_logprob(resolved, &store, &mut models)?;
    }
    if config.vote.is_some() {
        run_vote(resolved, &store)?;
    }
    if let Some(config) = &config.multi_task {
        run_multi_task(resolved, &store, config, &mut models)?;
    }
    if let Some(config) = &config.sequence {
        run_sequences(resolved, &store, config, &mut models)?;
    }
    if let Some(config) = &config.attribution {
        run_attribution(&store, config, &mut models)?;
    }
    if let Some(config) = &config.transitions {
        run_transitions(resolved, &store, config, &mut models)?;
    }
    if let Some(config) = &config.orders {
        run_orders(resolved, &store, config, &mut models)?;
    }
    Ok(())
}

/// The one backbone that is in memory, and the embedding model. A stage that has nothing left to do loads none.
struct Models<'a> {
    resolved: &'a Resolved,
    backbone: Option<(usize, crate::engine::session::Engine)>,
    embedder: Option<(Embedder, Similarities)>,
}

impl Models<'_> {
    fn session(&mut self, index: usize) -> anyhow::Result<Session> {
        if self.backbone.as_ref().is_none_or(|(loaded, _)| *loaded != index) {
            // The old model leaves memory before the new one comes in.
            self.backbone = None;
            let model = &self.resolved.backbones[index];
            let config = &self.resolved.config;
            let settings = BackboneSettings::of(&config.models, &model.name);
            self.backbone = Some((index, load_backbone(model, &config.engine, &settings)?));
        }
        let (_, engine) = self.backbone.as_ref().context("a model was loaded on the line above")?;
        Ok(engine.session())
    }

    /// Lets agents live on the first backbone, with the embedding model where one of them needs it.
    fn live(
        &mut self,
        store: &RunStore,
        progress: &Progress,
        stage: impl FnOnce(&sequence::World<'_>, usize) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let resolved = self.resolved;
        let session = self.session(0)?;
        if self.embedder.is_none() && resolved.agents.iter().any(|agent| agent.needs_embedder) {
            let model = resolved.embedder.as_ref().context("an agent needs the embedding model that was resolved")?;
            let options = EmbedderOptions { pooling: resolved.config.models.embedder_pooling };
            let embedder = load_embedder(model, &resolved.config.engine, options)?;
            let similarities = measure(resolved, &embedder)?;
            self.embedder = Some((embedder, similarities));
        }
        let world = sequence::World {
            resolved,
            store,
            backbone: &session,
            embedder: self.embedder.as_ref().map(|(embedder, _)| embedder as &dyn Embed),
            similarities: self.embedder.as_ref().map(|(_, similarities)| similarities),
            progress,
        };
        // More chains than rows, so that the batch stays full while some chains grade or learn.
        stage(&world, 2 * resolved.config.engine.max_batch)
    }
}

fn manifest(resolved: &Resolved) -> anyhow::Result<Manifest> {
    let device = start::device(&resolved.config.engine)?;
    let mut config = serde_json::to_value(&resolved.config).context("the config as JSON")?;
    // Speed and memory settings change no result, so a run may go on with others.
    if let Some(config) = config.as_object_mut() {
        config.remove("engine");
    }
    let digest = |model: &ResolvedModel| -> anyhow::Result<String> { Ok(model.files.digest()?.to_string()) };
    let mut models = BTreeMap::new();
    for model in &resolved.backbones {
        // Another version of the program that runs a model is another run.
        let note = model::runs_through(&model.files)?.map(|program| format!(", through {program}"));
        models.insert(model.name.clone(), digest(model)? + &note.unwrap_or_default());
    }
    if let Some(model) = &resolved.embedder {
        models.insert(model.name.clone(), digest(model)?);
    }
    let mut data = BTreeMap::from([(resolved.config.benchmark.name.clone(), resolved.data_digest.clone())]);
    if let Some(strong) = &resolved.strong {
        data.insert("scores of strong models".into(), strong.digest.clone());
    }
    let identity = Identity {
        format: store::FORMAT,
        code: format!("{}, arithmetic {}, prompts {WORDING}", env!("CARGO_PKG_VERSION"), lifelong_kernels::ARITHMETIC),
        config,
        data,
        models,
        device: start::kind(&resolved.config.engine)?,
    };
    Ok(Manifest::new(identity, device.instruction_set()))
}

fn open_store(resolved: &Resolved, manifest: &Manifest, folder: &Path) -> anyhow::Result<RunStore> {
    let device = start::device(&resolved.config.engine)?;
    let machine = Machine {
        device: start::kind(&resolved.config.engine)?,
        instruction_set: device.instruction_set().to_string(),
        threads: device.threads() as u32,
    };
    Ok(RunStore::create_or_open(folder, manifest, machine)?)
}

fn pool_of(resolved: &Resolved, kept: Vec<u32>) -> PoolPlan {
    let matrix = resolved.config.matrix.as_ref();
    let tasks = resolved.tasks.iter();
    PoolPlan {
        tasks: tasks.map(|task| PoolTask { id: task.id().clone(), family: task.view.family.clone() }).collect(),
        kept,
        models: matrix.iter().flat_map(|_| &resolved.backbones).map(|model| model.name.clone()).collect(),
        seeds: matrix.map_or(0, |matrix| matrix.seeds),
    }
}

fn run_matrix(
    resolved: &Resolved,
    store: &RunStore,
    models: &mut Models<'_>,
    earlier: Option<&TakeOver>,
) -> anyhow::Result<()> {
    let config = resolved.config.matrix.as_ref().context("the matrix stage runs with a matrix config")?;
    let pool = match &resolved.strong {
        // Who has headroom is known already: only the pool is attempted.
        Some(strong) => {
            let range = config.headroom.as_ref().context("scores are read with the range of a headroom filter")?;
            let pool = sampled_pool(resolved, config, &strong.kept(&resolved.tasks, range));
            check_pool(&pool, config, None)?;
            put(store, POOL_FILE, &pool)?;
            run_zero_shot(resolved, store, models, &pool.kept, earlier)?;
            pool
        }
        None => {
            let all: Vec<u32> = (0..resolved.tasks.len() as u32).collect();
            run_zero_shot(resolved, store, models, &all, earlier)?;
            let names: Vec<String> = resolved.backbones.iter().map(|model| model.name.clone()).collect();
            let records = store.records()?;
            let kept = headroom::of_attempts(&records, &names, all.len() as u32, config.headroom.as_ref());
            let pool = sampled_pool(resolved, config, &kept);
            put(store, POOL_FILE, &pool)?;
            check_pool(&pool, config, Some(&records))?;
            pool
        }
    };
    let one_shot = matrix::one_shot(&pool.kept, config.seeds);
    // Last model first: it is still loaded.
    for index in (0..pool.models.len()).rev() {
        match config.stopping {
            None => run_units(resolved, store, models, (index, "one-shot"), &one_shot, earlier)?,
            Some(rule) => {
                if let Some(earlier) = earlier {
                    take_over(earlier, resolved, store, (index, "one-shot"), &one_shot)?;
                }
                run_until_settled(resolved, store, models, index, &pool, rule)?;
            }
        }
    }
    Ok(())
}

/// The pool: of the tasks with headroom as many as the config asks for, by their families' shares.
fn sampled_pool(resolved: &Resolved, config: &MatrixConfig, with_headroom: &[u32]) -> PoolPlan {
    let family = |task: u32| resolved.task(task).view.family.clone();
    let seed = Seed(resolved.config.seed).derive("headroom sample", &[]);
    pool_of(resolved, pool::stratified(with_headroom, config.tasks, family, seed))
}

/// Says where too few tasks have headroom. `records` are the zero-shot attempts, where these were filtered.
///
/// # Errors
/// When a matrix has no pair.
fn check_pool(pool: &PoolPlan, config: &MatrixConfig, records: Option<&[AttemptRecord]>) -> anyhow::Result<()> {
    let (kept, of) = (pool.kept.len(), pool.tasks.len());
    if kept < 2 {
        let solved = records.map_or_else(String::new, |records| {
            let graded = records.iter().filter_map(|record| record.score.graded());
            let (right, all) = graded.fold((0.0, 0u32), |(sum, count), grade| (sum + grade, count + 1));
            format!(" (zero-shot, {right:.0} of {all} attempts score)")
        });
        bail!(
            "the headroom filter keeps {kept} of {of} tasks{solved}; a matrix needs at least 2\n\
             hint: widen `matrix.headroom`; for a backbone that solves next to nothing keep all tasks, add `[logprob]` and \
             vote by it (`vote.by = \"log_probability_over_median\"`)"
        );
    }
    if let Some(wanted) = config.tasks.filter(|wanted| *wanted as usize > kept) {
        eprintln!("note: `matrix.tasks` asks for {wanted} tasks, {kept} of {of} have headroom; all of them are taken");
    }
    Ok(())
}

fn run_zero_shot(
    resolved: &Resolved,
    store: &RunStore,
    models: &mut Models<'_>,
    tasks: &[u32],
    earlier: Option<&TakeOver>,
) -> anyhow::Result<()> {
    let seeds = resolved.config.matrix.as_ref().map_or(0, |matrix| matrix.seeds);
    let units = matrix::zero_shot(tasks, seeds);
    for index in 0..resolved.backbones.len() {
        run_units(resolved, store, models, (index, "zero-shot"), &units, earlier)?;
    }
    Ok(())
}

fn take_over(
    earlier: &TakeOver,
    resolved: &Resolved,
    store: &RunStore,
    (model, what): (usize, &str),
    units: &[Unit],
) -> anyhow::Result<()> {
    let name = &resolved.backbones[model].name;
    let taken = earlier.take(store, name, units.iter().map(|unit| unit.coord(name)))?;
    if taken > 0 {
        eprintln!("matrix {name} {what}: {taken} attempts taken over from {}", earlier.folder().display());
    }
    Ok(())
}

/// The one-shot attempts of one model, each pair until its sign is settled.
fn run_until_settled(
    resolved: &Resolved,
    store: &RunStore,
    models: &mut Models<'_>,
    model: usize,
    pool: &PoolPlan,
    rule: Stopping,
) -> anyhow::Result<()> {
    let name = &resolved.backbones[model].name;
    let open = stopping::open_pairs(store, name, &pool.kept, pool.seeds, rule)?;
    if open.is_empty() {
        return Ok(());
    }
    let seeds = |(source, target): &(u32, u32)| {
        let (demonstration, target) = (Some(*source), *target);
        (0..pool.seeds).map(move |seed| Unit { demonstration, target, seed })
    };
    let coords = open.iter().flat_map(seeds).map(|unit| unit.coord(name));
    let progress = start_progress(&format!("matrix {name} one-shot, at most"), coords, store)
        .context("a pair that is not settled has seeds left")?;
    let session = models.session(model)?;
    let stage = matrix::Stage { resolved, model: name, session: &session, store, progress: &progress };
    stopping::run(&stage, &open, pool.seeds, rule, 2 * resolved.config.engine.max_batch)?;
    progress.finish();
    Ok(())
}

fn run_logprob(resolved: &Resolved, store: &RunStore, models: &mut Models<'_>) -> anyhow::Result<()> {
    let pool: PoolPlan = get(store, POOL_FILE)?;
    put(store, LOGPROB_FILE, &LogprobPlan { models: pool.models.clone(), tasks: pool.kept.clone() })?;
    let units = logprob::units(&pool.kept);
    for (index, name) in pool.models.iter().enumerate() {
        let coords = units.iter().map(|unit| logprob::coord(*unit, name));
        let Some(progress) = start_progress(&logprob::stage_name(name), coords, store) else { continue };
        let session = models.session(index)?;
        let stage = matrix::Stage { resolved, model: name, session: &session, store, progress: &progress };
        logprob::run(&stage, &units)?;
        progress.finish();
    }
    Ok(())
}

fn run_units(
    resolved: &Resolved,
    store: &RunStore,
    models: &mut Models<'_>,
    (model, what): (usize, &str),
    units: &[Unit],
    earlier: Option<&TakeOver>,
) -> anyhow::Result<()> {
    let name = &resolved.backbones[model].name;
    if let Some(earlier) = earlier {
        take_over(earlier, resolved, store, (model, what), units)?;
    }
    let coords = units.iter().map(|unit| unit.coord(name));
    let Some(progress) = start_progress(&format!("matrix {name} {what}"), coords, store) else {
        return Ok(());
    };
    let session = models.session(model)?;
    matrix::run(&matrix::Stage { resolved, model: name, session: &session, store, progress: &progress }, units)?;
    progress.finish();
    Ok(())
}

fn run_vote(resolved: &Resolved, store: &RunStore) -> anyhow::Result<()> {
    let config = resolved.config.vote.context("the vote stage runs with a vote config")?;
    let pool: PoolPlan = get(store, POOL_FILE)?;
    let plan = vote::vote(&pool, &store.records()?, &config);
    put(store, VOTE_FILE, &plan)
}

fn run_multi_task(
    resolved: &Resolved,
    store: &RunStore,
    config: &MultiTaskConfig,
    models: &mut Models<'_>,
) -> anyhow::Result<()> {
    let pool: PoolPlan = get(store, POOL_FILE)?;
    let votes: VotePlan = get(store, VOTE_FILE)?;
    let seed = Seed(resolved.config.seed).derive("multi_task", &[]);
    let plan = multi_task::plan(config, &pool, &votes.relations, seed)?;
    put(store, MULTI_TASK_FILE, &plan)?;
    let shots = multi_task::shots(&plan);
    let coords = shots.iter().map(|shot| shot.coord.clone());
    let Some(progress) = start_progress("multi-task prefixes", coords, store) else {
        return Ok(());
    };
    let session = models.session(0)?;
    let stage = matrix::Stage { resolved, model: &plan.model, session: &session, store, progress: &progress };
    multi_task::run(&stage, &shots)?;
    progress.finish();
    Ok(())
}

fn run_sequences(
    resolved: &Resolved,
    store: &RunStore,
    config: &SequenceConfig,
    models: &mut Models<'_>,
) -> anyhow::Result<()> {
    let pool: PoolPlan = get(store, POOL_FILE)?;
    let votes: VotePlan = get(store, VOTE_FILE)?;
    let seed = Seed(resolved.config.seed).derive("order", &[]);
    let histories = config
        .histories
        .iter()
        .map(|history| order::history(*history, config, &votes.relations, &pool.kept, seed))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let agents = resolved.agents.iter().map(|agent| agent.config.name.clone()).collect();
    let plan = sequences_plan(resolved, agents, config.runs, histories);
    put(store, SEQUENCES_FILE, &plan)?;
    run_lives(store, models, ("sequences", Family::Sequence), &plan)
}

fn run_transitions(
    resolved: &Resolved,
    store: &RunStore,
    config: &TransitionsConfig,
    models: &mut Models<'_>,
) -> anyhow::Result<()> {
    let pool: PoolPlan = get(store, POOL_FILE)?;
    let votes: VotePlan = get(store, VOTE_FILE)?;
    let seed = Seed(resolved.config.seed).derive("transition", &[]);
    let conditions = transition::conditions(config, &votes.relations, &pool.kept, seed)?;
    let agents = resolved.config.agents_of(config.agents.as_ref());
    let plan = SequencesPlan { paired: Vec::new(), ..sequences_plan(resolved, agents, config.runs, conditions) };
    put(store, TRANSITIONS_FILE, &plan)?;
    run_lives(store, models, ("transitions", Family::Transition), &plan)
}

fn sequences_plan(resolved: &Resolved, agents: Vec<String>, runs: u32, histories: Vec<HistoryPlan>) -> SequencesPlan {
    let is_baseline = |name: &&String| resolved.agent(name).is_ok_and(|agent| agent.config.memory == "none");
    let paired = resolved.agents.iter().map(|agent| &agent.config);
    SequencesPlan {
        model: resolved.backbones[0].name.clone(),
        baseline: agents.iter().find(is_baseline).cloned(),
        agents,
        runs,
        histories,
        paired: paired
            .filter(|agent| agent.against.is_some() || agent.sequences.is_some())
            .map(|agent| PairedAgent {
                agent: agent.name.clone(),
                against: agent.against.clone(),
                sequences: agent.sequences,
            })
            .collect(),
    }
}

fn run_lives(
    store: &RunStore,
    models: &mut Models<'_>,
    (stage, family): (&str, Family),
    plan: &SequencesPlan,
) -> anyhow::Result<()> {
    let Some(progress) = start_progress(stage, sequence::coords(family, plan), store) else {
        return Ok(());
    };
    models.live(store, &progress, |world, threads| sequence::run(world, family, plan, threads))?;
    progress.finish();
    Ok(())
}

fn run_attribution(store: &RunStore, config: &AttributionConfig, models: &mut Models<'_>) -> anyhow::Result<()> {
    let sequences: SequencesPlan = get(store, SEQUENCES_FILE)?;
    let plan = attribution::plan(store, &sequences, config)?;
    put(store, ATTRIBUTION_FILE, &plan).context(
        "this folder was traced with another `[attribution]`: take those settings again, or a new folder with --out",
    )?;
    let Some(progress) = start_progress("attribution", attribution::coords(&plan), store) else {
        return Ok(());
    };
    models.live(store, &progress, |world, threads| attribution::run(world, &plan, &sequences, threads))?;
    progress.finish();
    Ok(())
}

fn run_orders(
    resolved: &Resolved,
    store: &RunStore,
    config: &OrdersConfig,
    models: &mut Models<'_>,
) -> anyhow::Result<()> {
    let pool: PoolPlan = get(store, POOL_FILE)?;
    let seed = Seed(resolved.config.seed).derive("orders", &[]);
    let agents = resolved.config.agents_of(config.agents.as_ref());
    let plan = orders::plan(config, &pool.kept, &resolved.backbones[0].name, agents, seed);
    put(store, ORDERS_FILE, &plan)?;
    let Some(progress) = start_progress("orders", orders::coords(&plan), store) else {
        return Ok(());
    };
    models.live(store, &progress, |world, threads| orders::run(world, &plan, threads))?;
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
