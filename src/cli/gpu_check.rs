//! `lifelong gpu-check`: whether a GPU may be trusted, and how fast it is, in one command and one table.
//!
//! Kernels against the processor, then a whole model against the processor and against itself in other batches, then the
//! workloads of `lifelong bench` with their share of the device's own measured limits.

use anyhow::{Context as _, ensure};
use clap::Args;
use lifelong_kernels::check::{self, Outcome};
use lifelong_kernels::limits::Limits;
use lifelong_kernels::{CudaSurvey, Device, survey_cuda};

use crate::bench::{Kind, Scale, WORKLOADS, header, limits_line, line, measure_completions};
use crate::config::EngineConfig;
use crate::engine::hub::{self, Sources};
use crate::engine::model::{self, LoadedModel};
use crate::engine::request::Request;
use crate::engine::sampling::Sampling;
use crate::engine::session::{Engine, EngineOptions};
use crate::run::start::device;

#[derive(Debug, Args)]
pub struct GpuCheckArgs {
    /// The GPU: `cuda:N`
    #[arg(long, default_value = "cuda:0")]
    device: String,
    /// Model that runs on both sides: a preset (`lifelong models list`), a hub name, or a path
    #[arg(long, default_value = "smollm2-135m-instruct")]
    model: String,
    /// Leave out the measurements
    #[arg(long)]
    no_speed: bool,
    /// Run the kernels in the emulator instead: only in builds for tests
    #[arg(long, hide = true)]
    emulated: bool,
}

/// Requests that are answered on both sides.
const REQUESTS: usize = 12;
const NEW_TOKENS: usize = 16;
/// The most that a log-probability may be off by rounding: with 16-bit weights activations are rounded to 16 bits.
const LOGPROB_TOLERANCE: f32 = 0.1;

/// Runs `lifelong gpu-check`.
///
/// # Errors
/// No GPU that can be used, a model that cannot be loaded, and, after the table, anything that did not hold.
pub fn run(args: &GpuCheckArgs) -> anyhow::Result<()> {
    let gpu = match args.emulated {
        true => Device::emulated(1)?,
        false => device(&EngineConfig { device: args.device.clone(), ..EngineConfig::default() })?,
    };
    ensure!(gpu.is_gpu(), "`{}` is the processor; name a GPU, for example `--device cuda:0`", args.device);
    describe(&survey_cuda(), &gpu);
    let mut faults = check_kernels(&gpu)?;
    let files = hub::resolve(&args.model, &Sources::from_env()?)?;
    let load = |device: &Device| model::load(&files, device).with_context(|| format!("model `{}`", args.model));
    let loaded = load(&gpu)?;
    faults += check_model(&load(&Device::cpu(gpu.threads()))?, &loaded)?;
    if !args.no_speed {
        measure(&loaded)?;
    }
    ensure!(
        faults == 0,
        "{faults} of the checks above did not hold: do not use this device, and report what it printed"
    );
    println!("\nall checks hold");
    Ok(())
}

fn describe(survey: &CudaSurvey, gpu: &Device) {
    if let (Some(chips), Some((major, minor))) = (survey.built_for, survey.driver) {
        println!("kernels for {chips}; driver for CUDA {major}.{minor}");
    }
    println!("{gpu:?}\n");
}

/// How many did not hold.
fn check_kernels(gpu: &Device) -> anyhow::Result<usize> {
    println!("{:<28} {:>10} {:>10}", "kernel against the processor", "error", "allowed");
    let outcomes = check::against_cpu(gpu)?;
    for outcome in &outcomes {
        let Outcome { name, error, tolerance } = outcome;
        let verdict = if outcome.holds() { "" } else { "  DIFFERS" };
        println!("{name:<28} {:>10} {:>10}{verdict}", exponent(*error), exponent(*tolerance));
    }
    println!();
    Ok(outcomes.iter().filter(|outcome| !outcome.holds()).count())
}

/// `0` of equal bits, else one digit and an exponent.
fn exponent(value: f64) -> String {
    if value == 0.0 { "0".to_string() } else { format!("{value:.1e}") }
}

/// Tokens, and the bits of their log-probabilities.
type Answers = Vec<Vec<(u32, u32)>>;

/// How many of its checks did not hold.
fn check_model(cpu: &LoadedModel, gpu: &LoadedModel) -> anyhow::Result<usize> {
    let requests = requests(gpu.decoder.geometry().vocab as u32);
    let expected = answers(cpu, &requests, REQUESTS)?;
    let together = answers(gpu, &requests, REQUESTS)?;
    let alone = answers(gpu, &requests, 1)?;
    let again = answers(gpu, &requests, 5)?;
    let differing = |a: &Answers, b: &Answers| a.iter().zip(b).filter(|(a, b)| a != b).count();
    let determinism = differing(&together, &alone) + differing(&together, &again);
    let worst = off_by(&together, &expected);
    println!(
        "model against the processor: log-probabilities of its tokens off by {worst:.4} at most, {LOGPROB_TOLERANCE} allowed"
    );
    println!("model against itself, 12, 5 and 1 at a time: {determinism} of {} completions differ\n", 2 * REQUESTS);
    Ok(usize::from(worst.is_nan() || worst > LOGPROB_TOLERANCE) + usize::from(determinism > 0))
}

/// The largest difference of log-probabilities, up to where the tokens of a completion part: from there on both answer other
/// prompts.
fn off_by(found: &Answers, expected: &Answers) -> f32 {
    let mut worst: f32 = 0.0;
    for (found, expected) in found.iter().zip(expected) {
        for ((token, logprob), (expected_token, expected_logprob)) in found.iter().zip(expected) {
            let difference = (f32::from_bits(*logprob) - f32::from_bits(*expected_logprob)).abs();
            worst = if difference.is_nan() { f32::NAN } else { worst.max(difference) };
            if token != expected_token {
                break;
            }
        }
    }
    worst
}

/// Prompts with a common beginning and without, the likeliest tokens and drawn ones.
fn requests(vocabulary: u32) -> Vec<Request> {
    let token =
        |seed: u32, place: u32| (seed.wrapping_mul(7919).wrapping_add(place.wrapping_mul(104_729))) % vocabulary;
    let request = |index: u32| {
        let beginning = if index.is_multiple_of(3) { index } else { 1000 };
        let tokens =
            (0..40).map(|place| token(beginning, place)).chain((0..index + 1).map(|place| token(index, place + 99)));
        let sampling = Sampling {
            temperature: if index.is_multiple_of(2) { 0.0 } else { 0.7 },
            top_p: 0.9,
            max_tokens: NEW_TOKENS,
            ignore_eos: true,
            logprobs: 1,
            ..Sampling::default()
        };
        Request { tokens: tokens.collect(), sampling, seed: u64::from(index) }
    };
    (0..REQUESTS as u32).map(request).collect()
}

fn answers(model: &LoadedModel, requests: &[Request], max_batch: usize) -> anyhow::Result<Answers> {
    let blocks = REQUESTS * 8;
    let bytes = model.decoder.geometry().kv(blocks).bytes_per_block() * blocks;
    let options = EngineOptions { max_batch, kv_memory_bytes: Some(bytes as u64), ..EngineOptions::default() };
    let engine = Engine::start(model.clone(), &options)?;
    let mut answers = vec![Vec::new(); requests.len()];
    for (index, completion) in engine.session().complete_all(requests.to_vec()) {
        let chosen = completion?.logprobs.into_iter().map(|entry| (entry.chosen.token, entry.chosen.logprob.to_bits()));
        answers[index] = chosen.collect();
    }
    Ok(answers)
}

fn measure(model: &LoadedModel) -> anyhow::Result<()> {
    let (geometry, scale) = (model.decoder.geometry(), Scale::QUICK);
    let limits = Limits::measure(&model.device, geometry.weight_bytes as usize)?;
    println!("{}\n\n{}", limits_line(&limits), header());
    for workload in WORKLOADS.iter().filter(|workload| !matches!(workload.kind, Kind::Embed { .. })) {
        if workload.context(&scale) <= geometry.context {
            println!("{}", line(&measure_completions(model, *workload, &scale)?, &limits));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_probabilities_are_compared_up_to_where_tokens_part() {
        let bits = |pairs: &[(u32, f32)]| vec![pairs.iter().map(|(token, value)| (*token, value.to_bits())).collect()];
        let expected: Answers = bits(&[(1, -0.5), (2, -1.0), (3, -1.0)]);
        assert_eq!(off_by(&bits(&[(1, -0.5), (2, -1.25), (3, -1.0)]), &expected), 0.25);
        assert_eq!(off_by(&bits(&[(1, -0.5), (9, -1.0), (3, -7.0)]), &expected), 0.0);
        assert!(off_by(&bits(&[(1, f32::NAN)]), &expected).is_nan());
    }
}
