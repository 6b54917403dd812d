//! What a run will do, priced before any device work: `lifelong run --dry-run`.

use std::fmt;

use super::logprob;
use super::matrix::{self, Unit};
use super::resolve::Resolved;
use crate::config::{AttributionConfig, SequenceConfig};
use crate::engine::generate::Prompter;
use crate::engine::model::load_text;
use crate::engine::planner::{PrefillEstimate, estimate_prefill};
use crate::engine::request::Request;

/// Every stage in the order of execution.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub name: String,
    pub tasks: u64,
    pub stages: Vec<StagePlan>,
}

/// One stage's cost.
#[derive(Clone, Debug, PartialEq)]
pub struct StagePlan {
    pub stage: String,
    /// Attempts; for a stage that depends on results, the most there can be.
    pub attempts: u64,
    pub is_upper_bound: bool,
    /// Prompt tokens with and without sharing; `None` where prompts depend on what agents will remember.
    pub prefill: Option<PrefillEstimate>,
    /// Most tokens that can be generated.
    pub most_generated: u64,
}

/// Plans a run. Loads tokenizers, no weights.
///
/// # Errors
/// When a model's tokenizer or chat template cannot be loaded.
pub fn plan(resolved: &Resolved) -> anyhow::Result<Plan> {
    let config = &resolved.config;
    let tasks = resolved.tasks.len() as u32;
    let mut stages = Vec::new();
    if let Some(matrix) = &config.matrix {
        let all: Vec<u32> = (0..tasks).collect();
        let zero_shot = matrix::zero_shot(tasks, matrix.seeds);
        let one_shot = matrix::one_shot(&all, matrix.seeds);
        let is_upper_bound = matrix.headroom.is_some() || matrix.stopping.is_some();
        for model in &resolved.backbones {
            let prompter = load_text(&model.files)?.with_settings(&config.models.chat_of(&model.name))?;
            for (what, units, is_upper_bound) in
                [("zero-shot", &zero_shot, false), ("one-shot", &one_shot, is_upper_bound)]
            {
                stages.push(StagePlan {
                    stage: format!("matrix {} {what}", model.name),
                    attempts: units.len() as u64,
                    is_upper_bound,
                    prefill: Some(prefill(resolved, units, &prompter)?),
                    most_generated: (units.len() * config.sampling.max_tokens) as u64,
                });
            }
            if config.logprob.is_some() {
                let units = logprob::units(&all);
                stages.push(StagePlan {
                    stage: logprob::stage_name(&model.name),
                    attempts: units.len() as u64,
                    is_upper_bound: matrix.headroom.is_some(),
                    prefill: Some(prefill(resolved, &units, &prompter)?),
                    most_generated: 0,
                });
            }
        }
    }
    if let Some(sequence) = &config.sequence {
        let attempts = most_sequence_attempts(sequence, resolved.agents.len() as u64);
        stages.push(StagePlan {
            stage: "sequences".into(),
            attempts,
            is_upper_bound: true,
            prefill: None,
            most_generated: attempts * config.sampling.max_tokens as u64,
        });
    }
    if let (Some(attribution), Some(sequence)) = (&config.attribution, &config.sequence) {
        let agents = resolved.agents.iter().filter(|agent| agent.config.memory != "none").count();
        let groups = (agents * sequence.histories.len()) as u64;
        let draws = groups * most_traced(attribution, sequence) * u64::from(attribution.draws);
        stages.push(StagePlan {
            stage: "attribution".into(),
            attempts: draws,
            is_upper_bound: true,
            prefill: None,
            most_generated: draws * config.sampling.max_tokens as u64,
        });
    }
    Ok(Plan { name: config.name.clone(), tasks: u64::from(tasks), stages })
}

/// Memories probed for one agent under one history: the whole one of each case, and one without each experience.
fn most_traced(config: &AttributionConfig, sequence: &SequenceConfig) -> u64 {
    let lives = u64::from(sequence.sequences) * u64::from(sequence.runs);
    let probes = u64::from(1 + sequence.intervening / sequence.probe_interval[0]) * lives;
    let experiences = u64::from(sequence.warm_up + sequence.intervening).min(config.max_experiences as u64);
    probes.min(config.max_probes as u64) * (1 + experiences)
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

/// Steps with as many probes as the smallest gap allows.
fn most_sequence_attempts(config: &SequenceConfig, agents: u64) -> u64 {
    let probes = 2 + config.intervening / config.probe_interval[0];
    let steps = u64::from(config.warm_up + config.intervening + probes);
    steps * u64::from(config.sequences) * u64::from(config.runs) * config.histories.len() as u64 * agents
}

impl fmt::Display for Plan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "run `{}` over {} tasks", self.name, self.tasks)?;
        for stage in &self.stages {
            let at_most = if stage.is_upper_bound { "at most " } else { "" };
            writeln!(
                formatter,
                "  {}: {at_most}{} attempts, at most {} tokens generated",
                stage.stage, stage.attempts, stage.most_generated
            )?;
            if let Some(prefill) = &stage.prefill {
                writeln!(
                    formatter,
                    "    {} prompt tokens, {} to compute: sharing prefixes saves {:.1}x",
                    prefill.prompt_tokens,
                    prefill.computed_tokens,
                    prefill.prompt_tokens as f64 / (prefill.computed_tokens.max(1)) as f64
                )?;
            } else {
                writeln!(
                    formatter,
                    "    prompt tokens depend on what the agents will remember; calls of their memories come on top"
                )?;
            }
        }
        Ok(())
    }
}
