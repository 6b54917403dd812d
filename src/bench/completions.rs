//! Measures an engine: prefill, decoding, the transfer matrix.

use std::time::Instant;

use lifelong_kernels::{BLOCK_TOKENS, Device, KvGeometry, Work};

use super::measurement::{Measurement, Times, Unit};
use super::prompt::{request, tokens};
use super::workload::{EngineShape, Kind, MatrixShape, Prompts, Scale, Workload};
use crate::engine::default_kv_type;
use crate::engine::error::{Error, Result};
use crate::engine::model::LoadedModel;
use crate::engine::request::Request;
use crate::engine::session::{Engine, EngineOptions};

/// Seeds of prompts: of demonstrations and shared prefixes, of targets, and of what each row has alone.
const TARGET: u64 = 100;
const ROW: u64 = 1000;
const WARM_UP: u64 = 1_000_000;

/// Runs a workload on a new engine, after one run that does not count.
///
/// # Errors
/// When the engine cannot answer, for example because the model's context is shorter than the workload's prompts.
pub fn measure_completions(model: &LoadedModel, workload: Workload, scale: &Scale) -> Result<Measurement> {
    let measured = match workload.kind {
        Kind::Prefill { tokens } => prefill(model, tokens, scale)?,
        Kind::Decode { batch, prompts } => decode(model, batch, prompts, scale)?,
        Kind::Matrix { prefix_cache } => matrix(model, prefix_cache, scale)?,
        Kind::Embed { .. } => {
            let found = workload.name.to_string();
            return Err(Error::Option { option: "workload", expected: "one of completions".to_string(), found });
        }
    };
    Ok(Measurement {
        name: workload.name,
        about: workload.about(scale),
        unit: Unit::Tokens,
        count: measured.tokens,
        tokens: measured.tokens,
        seconds: measured.seconds,
        times: Some(measured.times),
        calls: 1,
        work: measured.work,
        prompt_tokens: measured.prompt_tokens,
        reused_tokens: measured.reused_tokens,
    })
}

/// Timed runs, each of the same number of tokens.
#[derive(Default)]
struct Measured {
    tokens: usize,
    seconds: Vec<f64>,
    times: Times,
    work: Work,
    prompt_tokens: u64,
    reused_tokens: u64,
}

impl Measured {
    /// Times the requests on an engine.
    fn run(&mut self, device: &Device, engine: &Engine, requests: &[Request]) -> Result<()> {
        let (before, work) = (engine.stats(), device.work());
        let started = Instant::now();
        complete(engine, requests)?;
        self.seconds.push(started.elapsed().as_secs_f64());
        let after = engine.stats();
        self.work += device.work().since(work);
        self.prompt_tokens += after.prompt_tokens - before.prompt_tokens;
        self.reused_tokens += after.reused_tokens - before.reused_tokens;
        self.times.forward += after.forward_seconds - before.forward_seconds;
        self.times.sample += after.sample_seconds - before.sample_seconds;
        Ok(())
    }
}

fn prefill(model: &LoadedModel, length: usize, scale: &Scale) -> Result<Measured> {
    // Room for two prompts, and two to warm up: the timed ones find memory that the system has given and cleared before, as
    // all but the first prompts of a long run do.
    let engine = start(model, true, 2 * (length + 1), scale.engine)?;
    let prompt = |seed| request(tokens(seed, length, vocabulary(&engine)), 1, 0);
    for warm_up in 0..2 {
        complete(&engine, &[prompt(WARM_UP + warm_up)])?;
    }
    let mut measured = Measured { tokens: length, ..Measured::default() };
    for run in 0..scale.runs as u64 {
        measured.run(&model.device, &engine, &[prompt(run)])?;
    }
    Ok(measured)
}

fn decode(model: &LoadedModel, batch: usize, prompts: Prompts, scale: &Scale) -> Result<Measured> {
    let engine = start(model, true, batch * (scale.depth + 1 + scale.decode_tokens), scale.engine)?;
    let vocabulary = vocabulary(&engine);
    let prompt_of = |row: u64| match prompts {
        Prompts::Own => tokens(ROW + row, scale.depth + 1, vocabulary),
        Prompts::Shared => [tokens(0, scale.depth, vocabulary), tokens(ROW + row, 1, vocabulary)].concat(),
    };
    let requests = |max_tokens| -> Vec<Request> {
        (0..batch as u64).map(|row| request(prompt_of(row), max_tokens, row)).collect()
    };
    // Computes the prompts, so that every timed run finds them cached.
    complete(&engine, &requests(2))?;
    let timed = requests(scale.decode_tokens);
    let mut measured = Measured { tokens: batch * scale.decode_tokens, ..Measured::default() };
    for _ in 0..scale.runs {
        measured.run(&model.device, &engine, &timed)?;
    }
    Ok(measured)
}

/// A new engine each run, since the last one's cache knows the prompts.
fn matrix(model: &LoadedModel, prefix_cache: bool, scale: &Scale) -> Result<Measured> {
    let shape = scale.matrix;
    let mut measured = Measured { tokens: shape.completions() * shape.new_tokens, ..Measured::default() };
    for _ in 0..scale.matrix_runs {
        let tokens_held = scale.engine.matrix_requests * shape.request_tokens();
        let engine = start(model, prefix_cache, tokens_held, scale.engine)?;
        let vocabulary = vocabulary(&engine);
        // An unrelated prompt: weights are in memory and threads awake, and nothing of the matrix is cached.
        complete(&engine, &[request(tokens(WARM_UP, 64, vocabulary), 4, 0)])?;
        measured.run(&model.device, &engine, &matrix_requests(shape, vocabulary))?;
    }
    Ok(measured)
}

fn matrix_requests(shape: MatrixShape, vocabulary: usize) -> Vec<Request> {
    let mut requests = Vec::with_capacity(shape.completions());
    for demonstration in 0..shape.demonstrations as u64 {
        let demonstration = tokens(demonstration, shape.demonstration_tokens, vocabulary);
        for target in 0..shape.targets as u64 {
            let target = tokens(TARGET + target, shape.target_tokens, vocabulary);
            let prompt = [demonstration.as_slice(), &target].concat();
            requests.extend((0..shape.seeds as u64).map(|seed| request(prompt.clone(), shape.new_tokens, seed)));
        }
    }
    requests
}

/// An engine whose cache holds `tokens`, each request's last block counted whole, and no more: a measurement needs no more
/// memory than its peers.
fn start(model: &LoadedModel, prefix_cache: bool, tokens: usize, shape: EngineShape) -> Result<Engine> {
    let EngineShape { max_batch, prefill_chunk, kv_type, .. } = shape;
    let blocks = (tokens + max_batch * BLOCK_TOKENS).div_ceil(BLOCK_TOKENS);
    let geometry = model.decoder.geometry();
    let block_type = kv_type.unwrap_or_else(|| default_kv_type(&model.device, geometry));
    let block = KvGeometry { kv_type: block_type, ..geometry.kv(blocks) }.bytes_per_block();
    let kv_memory_bytes = Some((block * blocks) as u64);
    let options = EngineOptions { max_batch, kv_memory_bytes, prefill_chunk, prefix_cache, kv_type };
    Engine::start(model.clone(), &options)
}

fn vocabulary(engine: &Engine) -> usize {
    engine.session().tokenizer().vocab_size()
}

fn complete(engine: &Engine, requests: &[Request]) -> Result<()> {
    for (_, completion) in engine.session().complete_all(requests.to_vec()) {
        completion?;
    }
    Ok(())
}
