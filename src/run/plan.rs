//! What a run will do, priced before any device work: `lifelong run --dry-run`.

use std::fmt;

use anyhow::Context as _;

use super::call_rates::CallRates;
use super::estimate::EstimatedText;
use super::matrix::{self, Unit};
use super::rates::Rates;
use super::resolve::{Resolved, ResolvedAgent};
use super::{logprob, multi_task, pool};
use crate::agent::prompt::reply_tokens;
use crate::config::{AttributionConfig, MultiTaskConfig, SequenceConfig};
use crate::engine::generate::Prompter;
use crate::engine::hub::{self, Sources};
use crate::engine::model::load_text;
use crate::engine::planner::{PrefillEstimate, common_prefix, estimate_prefill};
use crate::engine::request::Request;
use crate::seed::Seed;

/// Every stage in the order of execution.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub name: String,
    pub tasks: u64,
    pub stages: Vec<StagePlan>,
    /// Backbones whose tokens are estimated, and why.
    pub estimated: Vec<(String, String)>,
    /// What was measured of the backbones; hours are given for these alone.
    pub rates: Vec<Rates>,
    /// What was measured of memories' calls.
    pub calls: Option<CallRates>,
}

/// One stage's cost.
#[derive(Clone, Debug, PartialEq)]
pub struct StagePlan {
    pub stage: String,
    /// The backbone that does it.
    pub model: String,
    /// Attempts; for a stage that depends on results, the most there can be.
    pub attempts: u64,
    pub is_upper_bound: bool,
    pub prompts: Prompts,
    /// Most tokens that can be generated.
    pub most_generated: u64,
    /// `None` for a stage without memories, or where none were measured.
    pub calls: Option<Calls>,
}

/// Prompt tokens of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prompts {
    /// With and without sharing.
    Known(PrefillEstimate),
    /// As much as prompts of the same shape have; which tasks stand in them depends on results.
    About(PrefillEstimate),
    /// Prompts of agents: of the tasks alone, and with as much memory as may be shown. What memories differ in stands in the
    /// middle of a prompt, so that only its instructions are surely shared.
    Between { least: u64, most: u64, shared: u64 },
}

/// Tokens of the memories' own calls, as an earlier run measured them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    pub prompt_tokens: u64,
    pub generated_tokens: u64,
    /// Agents that did not live in that run.
    pub unknown: usize,
}

/// Plans a run. Loads tokenizers, no weights; where a tokenizer is not on this machine and cannot be fetched, tokens are
/// estimated. Model files of `resolved` are not used.
///
/// # Errors
/// When a tokenizer or chat template that is here cannot be loaded, or does not fit the run.
pub fn plan(
    resolved: &Resolved,
    sources: &Sources,
    rates: Vec<Rates>,
    calls: Option<CallRates>,
) -> anyhow::Result<Plan> {
    let config = &resolved.config;
    let names = &config.models.backbones;
    let tasks = resolved.tasks.len() as u32;
    let (kept, is_sampled) = kept(resolved);
    let mut stages = Vec::new();
    let mut estimated = Vec::new();
    let mut prompters = Vec::new();
    for name in names {
        prompters.push(prompter(resolved, name, sources, &mut estimated)?);
    }
    if let Some(matrix) = &config.matrix {
        let all: Vec<u32> = if resolved.strong.is_some() { kept.clone() } else { (0..tasks).collect() };
        let zero_shot = matrix::zero_shot(&all, matrix.seeds);
        let one_shot = matrix::one_shot(&kept, matrix.seeds);
        let may_stop = matrix.stopping.is_some();
        for (name, prompter) in names.iter().zip(&prompters) {
            for (what, units, depends) in [("zero-shot", &zero_shot, false), ("one-shot", &one_shot, is_sampled)] {
                let estimate = prefill(resolved, units, prompter.as_ref())?;
                stages.push(StagePlan {
                    stage: format!("matrix {name} {what}"),
                    model: name.clone(),
                    attempts: units.len() as u64,
                    is_upper_bound: depends || (may_stop && what == "one-shot"),
                    prompts: if depends { Prompts::About(estimate) } else { Prompts::Known(estimate) },
                    most_generated: (units.len() * config.sampling.max_tokens) as u64,
                    calls: None,
                });
            }
            if config.logprob.is_some() {
                let units = logprob::units(&kept);
                let estimate = forced_prefill(resolved, &units, prompter.as_ref())?;
                stages.push(StagePlan {
                    stage: logprob::stage_name(name),
                    model: name.clone(),
                    attempts: units.len() as u64,
                    is_upper_bound: is_sampled,
                    prompts: if is_sampled { Prompts::About(estimate) } else { Prompts::Known(estimate) },
                    most_generated: 0,
                    calls: None,
                });
            }
        }
    }
    let name = config.name.clone();
    let plan = |stages, calls| Plan { name, tasks: u64::from(tasks), stages, estimated, rates, calls };
    let Some(prompter) = prompters.first() else { return Ok(plan(stages, calls)) };
    if let Some(multi_task) = &config.multi_task {
        stages.push(multi_task_plan(resolved, multi_task, &kept, prompter.as_ref())?);
    }
    let alone = prompt_tokens(resolved, &kept, prompter.as_ref())?;
    for (stage, by_agent) in lives(resolved, kept.len()) {
        let attempts: u64 = by_agent.iter().map(|(_, attempts)| attempts).sum();
        let shown = |agent: &ResolvedAgent| match agent.config.memory.as_str() {
            "none" => 0,
            // 0 shows all that is remembered: no limit but the context.
            _ => agent.config.max_memory_tokens.unwrap_or(0) as u64,
        };
        let least = (alone.mean * attempts as f64).round() as u64;
        let memory: u64 = by_agent.iter().map(|(agent, attempts)| shown(agent) * attempts).sum();
        let shared = alone.shared * attempts;
        let calls = calls.as_ref().map(|rates| calls_of(&by_agent, rates));
        stages.push(StagePlan {
            stage: stage.into(),
            model: names[0].clone(),
            attempts,
            is_upper_bound: stage == "sequences" || stage == "attribution",
            prompts: Prompts::Between { least, most: least + memory, shared },
            most_generated: attempts * config.sampling.max_tokens as u64,
            calls,
        });
    }
    Ok(plan(stages, calls))
}

/// What turns dialogues into a backbone's tokens, or stands in for it.
fn prompter(
    resolved: &Resolved,
    name: &str,
    sources: &Sources,
    estimated: &mut Vec<(String, String)>,
) -> anyhow::Result<Box<dyn Prompter>> {
    match hub::resolve_text(name, sources) {
        Ok(files) => {
            let text = load_text(&files)?.with_settings(&resolved.config.models.chat_of(name))?;
            Ok(Box::new(text))
        }
        Err(error @ (hub::Error::NoSource { .. } | hub::Error::NoListing { .. } | hub::Error::NotAModel { .. })) => {
            let why = error.to_string();
            estimated
                .push((name.to_string(), why.lines().next().unwrap_or_default().trim_end_matches(':').to_string()));
            Ok(Box::new(EstimatedText))
        }
        Err(error) => Err(error).with_context(|| format!("tokenizer of backbone `{name}`")),
    }
}

/// The tasks of the matrix, and whether which ones depends on results: then as many as can pass the headroom filter.
fn kept(resolved: &Resolved) -> (Vec<u32>, bool) {
    let matrix = resolved.config.matrix.as_ref();
    let headroom = matrix.and_then(|matrix| matrix.headroom.as_ref());
    let candidates: Vec<u32> = match (&resolved.strong, headroom) {
        (Some(strong), Some(range)) => strong.kept(&resolved.tasks, range),
        _ => (0..resolved.tasks.len() as u32).collect(),
    };
    let limit = matrix.and_then(|matrix| matrix.tasks);
    let family = |task: u32| resolved.task(task).view.family.clone();
    let seed = Seed(resolved.config.seed).derive("headroom sample", &[]);
    (pool::stratified(&candidates, limit, family, seed), headroom.is_some() && resolved.strong.is_none())
}

/// Rated references go through the model behind their prompts; the last token of one is asked for and never read.
fn forced_prefill(resolved: &Resolved, units: &[Unit], prompter: &dyn Prompter) -> anyhow::Result<PrefillEstimate> {
    let request = |unit: &Unit| -> anyhow::Result<Request> {
        let mut tokens = matrix::prompt(resolved, *unit, prompter)?.tokens;
        let reference = reply_tokens(&resolved.task(unit.target).reference.solution, prompter);
        tokens.extend(&reference[..reference.len().saturating_sub(1)]);
        Ok(Request { tokens, sampling: resolved.config.sampling.clone(), seed: 0 })
    };
    Ok(estimate_prefill(&units.iter().map(request).collect::<anyhow::Result<Vec<_>>>()?))
}

fn prefill(resolved: &Resolved, units: &[Unit], prompter: &dyn Prompter) -> anyhow::Result<PrefillEstimate> {
    // Seeds of one prompt share all of it but the last token; one render serves them.
    let mut requests: Vec<Request> = Vec::with_capacity(units.len());
    let mut last: Option<(Option<u32>, u32)> = None;
    for unit in units {
        let tokens = match (last, requests.last()) {
            (Some(same), Some(before)) if same == (unit.demonstration, unit.target) => before.tokens.clone(),
            _ => matrix::prompt(resolved, *unit, prompter)?.tokens,
        };
        last = Some((unit.demonstration, unit.target));
        requests.push(Request { tokens, sampling: resolved.config.sampling.clone(), seed: 0 });
    }
    Ok(estimate_prefill(&requests))
}

/// Prefixes of any tasks stand in for the voted ones.
fn multi_task_plan(
    resolved: &Resolved,
    config: &MultiTaskConfig,
    kept: &[u32],
    prompter: &dyn Prompter,
) -> anyhow::Result<StagePlan> {
    let seeds = resolved.config.matrix.as_ref().map_or(1, |matrix| matrix.seeds);
    let targets = kept.len().min(config.targets as usize);
    let mut requests = Vec::new();
    for target in &kept[..targets] {
        for length in &config.lengths {
            for draw in 0..3 * config.sequences {
                let mut others: Vec<u32> = kept.iter().copied().filter(|other| other != target).collect();
                Seed(resolved.config.seed).derive("estimate", &[*target, *length, draw]).stream().shuffle(&mut others);
                others.truncate(*length as usize);
                let tokens = multi_task::prompt(resolved, &others, *target, prompter)?.tokens;
                for _ in 0..seeds {
                    let sampling = resolved.config.sampling.clone();
                    requests.push(Request { tokens: tokens.clone(), sampling, seed: 0 });
                }
            }
        }
    }
    Ok(StagePlan {
        stage: "multi-task prefixes".into(),
        model: resolved.config.models.backbones[0].clone(),
        attempts: requests.len() as u64,
        is_upper_bound: true,
        prompts: Prompts::About(estimate_prefill(&requests)),
        most_generated: (requests.len() * resolved.config.sampling.max_tokens) as u64,
        calls: None,
    })
}

/// The stages in which agents live, each with its agents and the most attempts of each.
fn lives(resolved: &Resolved, kept: usize) -> Vec<(&'static str, Vec<(&ResolvedAgent, u64)>)> {
    let config = &resolved.config;
    let mut stages = Vec::new();
    let named = |listed: Option<&Vec<String>>, each: u64| -> Vec<(&ResolvedAgent, u64)> {
        let names = config.agents_of(listed);
        resolved.agents.iter().filter(|agent| names.contains(&agent.config.name)).map(|agent| (agent, each)).collect()
    };
    if let Some(sequence) = &config.sequence {
        let by_agent = resolved.agents.iter().map(|agent| {
            let sequences = agent.config.sequences.unwrap_or(u32::MAX).min(sequence.sequences);
            (agent, most_steps(sequence) * u64::from(sequences * sequence.runs) * sequence.histories.len() as u64)
        });
        stages.push(("sequences", by_agent.collect()));
    }
    if let (Some(attribution), Some(sequence)) = (&config.attribution, &config.sequence) {
        let each = most_traced(attribution, sequence) * u64::from(attribution.draws) * sequence.histories.len() as u64;
        let remembers = resolved.agents.iter().filter(|agent| agent.config.memory != "none");
        stages.push(("attribution", remembers.map(|agent| (agent, each)).collect()));
    }
    if let Some(transitions) = &config.transitions {
        let steps = u64::from(3 + 2 * transitions.interval);
        let each = 4 * steps * u64::from(transitions.sequences * transitions.runs);
        stages.push(("transitions", named(transitions.agents.as_ref(), each)));
    }
    if let Some(orders) = &config.orders {
        let tasks = kept.min(orders.tasks as usize) as u64;
        let each = (tasks + 1) * tasks * u64::from(orders.paths * orders.runs);
        stages.push(("orders", named(orders.agents.as_ref(), each)));
    }
    stages
}

/// Memories probed for one agent under one history: the whole one of each case, and one without each experience.
fn most_traced(config: &AttributionConfig, sequence: &SequenceConfig) -> u64 {
    let lives = u64::from(sequence.sequences) * u64::from(sequence.runs);
    let probes = u64::from(1 + sequence.intervening / sequence.probe_interval[0]) * lives;
    let experiences = u64::from(sequence.warm_up + sequence.intervening).min(config.max_experiences as u64);
    probes.min(config.max_probes as u64) * (1 + experiences)
}

/// Steps with as many probes as the smallest gap allows.
fn most_steps(config: &SequenceConfig) -> u64 {
    let probes = 2 + config.intervening / config.probe_interval[0];
    u64::from(config.warm_up + config.intervening + probes)
}

/// The memories' calls of a stage, at the rates of an earlier run.
fn calls_of(by_agent: &[(&ResolvedAgent, u64)], rates: &CallRates) -> Calls {
    let mut calls = Calls::default();
    for (agent, attempts) in by_agent {
        match rates.of(&agent.config.name) {
            Some(each) => {
                calls.prompt_tokens += (each.prompt_tokens * *attempts as f64).round() as u64;
                calls.generated_tokens += (each.generated_tokens * *attempts as f64).round() as u64;
            }
            None => calls.unknown += usize::from(agent.config.memory != "none"),
        }
    }
    calls
}

/// Prompts of tasks without any memory.
struct Alone {
    /// Tokens of one.
    mean: f64,
    /// Tokens in whole blocks that each has in common with the others.
    shared: u64,
}

fn prompt_tokens(resolved: &Resolved, tasks: &[u32], prompter: &dyn Prompter) -> anyhow::Result<Alone> {
    let prompt = |task: &u32| -> anyhow::Result<Vec<u32>> {
        let alone = Unit { demonstration: None, target: *task, seed: 0 };
        Ok(matrix::prompt(resolved, alone, prompter)?.tokens)
    };
    let prompts = tasks.iter().map(prompt).collect::<anyhow::Result<Vec<_>>>()?;
    let total: usize = prompts.iter().map(Vec::len).sum();
    Ok(Alone { mean: total as f64 / tasks.len().max(1) as f64, shared: common_prefix(&prompts) as u64 })
}

impl StagePlan {
    /// Fewest and most hours at a backbone's rates: computed prompt tokens at the rate of prefill, and as many generated
    /// tokens as replies may have at the rate of decoding.
    pub fn hours(&self, rates: &Rates) -> (f64, f64) {
        let (least, most) = match self.prompts {
            Prompts::Known(estimate) | Prompts::About(estimate) => (estimate.computed_tokens, estimate.computed_tokens),
            Prompts::Between { least, most, shared } => (least - shared, most - shared),
        };
        let calls = self.calls.unwrap_or_default();
        let decode = (self.most_generated + calls.generated_tokens) as f64 / rates.decode.tokens_per_second;
        let prefill = |prompt: u64| (prompt + calls.prompt_tokens) as f64 / rates.prefill.tokens_per_second;
        let hours = |prompt: u64| (prefill(prompt) + decode) / 3600.0;
        (hours(least), hours(most))
    }
}

impl Plan {
    fn rates_of(&self, stage: &StagePlan) -> Option<&Rates> {
        self.rates.iter().find(|rates| rates.model == stage.model)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "run `{}` over {} tasks", self.name, self.tasks)?;
        for (model, why) in &self.estimated {
            writeln!(formatter, "  tokens of {model} are estimated, its tokenizer is not here ({why})")?;
        }
        for stage in &self.stages {
            let at_most = if stage.is_upper_bound { "at most " } else { "" };
            writeln!(
                formatter,
                "  {}: {at_most}{} attempts, at most {} tokens generated",
                stage.stage, stage.attempts, stage.most_generated
            )?;
            match stage.prompts {
                Prompts::Known(estimate) => write_prefill(formatter, "", estimate)?,
                Prompts::About(estimate) => write_prefill(formatter, "about ", estimate)?,
                Prompts::Between { least, most, shared } => {
                    writeln!(
                        formatter,
                        "    {least} prompt tokens of the tasks alone, {most} with as much memory as may be shown; sharing the \
                         instructions saves {shared}"
                    )?;
                    write_calls(formatter, stage.calls)?;
                }
            }
            if let Some(rates) = self.rates_of(stage) {
                let (least, most) = stage.hours(rates);
                let hours = if least == most { format!("{most:.2}") } else { format!("{least:.2} to {most:.2}") };
                writeln!(formatter, "    {hours} hours on {}, when every reply is as long as it may be", rates.device)?;
            }
        }
        self.write_total(formatter)
    }
}

fn write_calls(formatter: &mut fmt::Formatter<'_>, calls: Option<Calls>) -> fmt::Result {
    let Some(Calls { prompt_tokens, generated_tokens, unknown }) = calls else {
        return writeln!(
            formatter,
            "    calls of the memories come on top: `--calls-from RUN_DIR` takes them from an earlier run"
        );
    };
    let without = match unknown {
        0 => String::new(),
        some => format!("; {some} agents did not live there and count none"),
    };
    writeln!(
        formatter,
        "    calls of the memories, as measured there: about {prompt_tokens} prompt tokens and {generated_tokens} \
         generated{without}"
    )
}

fn write_prefill(formatter: &mut fmt::Formatter<'_>, about: &str, estimate: PrefillEstimate) -> fmt::Result {
    writeln!(
        formatter,
        "    {about}{} prompt tokens, {} to compute: sharing prefixes saves {:.1}x",
        estimate.prompt_tokens,
        estimate.computed_tokens,
        estimate.prompt_tokens as f64 / (estimate.computed_tokens.max(1)) as f64
    )
}

impl Plan {
    /// The sum where every stage has a rate, and what to measure where one has none.
    fn write_total(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for rates in &self.rates {
            writeln!(formatter, "  {rates}")?;
        }
        if let Some(calls) = &self.calls {
            writeln!(formatter, "  calls of memories measured in {}", calls.folder().display())?;
        }
        let mut unmeasured: Vec<&str> = self
            .stages
            .iter()
            .filter(|stage| self.rates_of(stage).is_none())
            .map(|stage| stage.model.as_str())
            .collect();
        unmeasured.dedup();
        unmeasured.sort_unstable();
        unmeasured.dedup();
        if unmeasured.is_empty() && !self.stages.is_empty() {
            let hours = self.stages.iter().filter_map(|stage| Some(stage.hours(self.rates_of(stage)?)));
            let (least, most) = hours.fold((0.0, 0.0), |(low, high), (least, most)| (low + least, high + most));
            return writeln!(formatter, "  in all {least:.1} to {most:.1} hours");
        }
        for model in unmeasured {
            writeln!(
                formatter,
                "  hours of {model}: not estimated, for nothing was measured: `lifelong bench --model {model} --json > FILE` on \
                 the machine in question, then `--measured FILE`"
            )?;
        }
        Ok(())
    }
}
