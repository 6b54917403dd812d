//! What must hold: operations and whole models against the processor, and rows that do not depend on their step.

use anyhow::{Context as _, ensure};
use lifelong_kernels::checks::CHECKS;
use lifelong_kernels::{BLOCK_TOKENS, Device, Format, Values};
use lifelong_models::{Checkpoint, Scratch, load_decoder, load_encoder};

use super::families::{DECODERS, ENCODERS, Family};
use super::report::Finding;
use super::steps::{Placed, bits, error};
use super::{Devices, Scale, drawn};
use crate::engine::request::{Completion, Request};
use crate::engine::sampling::Sampling;
use crate::engine::session::{Engine, EngineOptions};
use crate::seed::Seed;

/// Weights in f32 and in blocks are multiplied as the processor does, to the bit; what differs is the order of a sum in
/// attention, if anything.
const SAME: f32 = 1e-5;
/// With weights of 16 bits, activations are rounded to as many.
const BRAIN: f32 = 4e-2;

/// Tokens of the prompts, and those drawn behind them.
const PROMPT: usize = 37;
const DRAWN: usize = 8;

/// Every operation, each on memory that is watched.
pub(super) fn operations(devices: &Devices, each: &mut dyn FnMut(Finding)) {
    for check in CHECKS {
        each(Finding::of("operations", check.name, || {
            (check.run)(&devices.watched).map_err(anyhow::Error::msg).map(|()| String::new())
        }));
    }
}

/// Every family of architectures, against the processor.
pub(super) fn models(devices: &Devices, each: &mut dyn FnMut(Finding)) {
    for family in DECODERS {
        each(Finding::of("models", format!("{}: logits and greedy tokens of the processor, f32", family.name), || {
            decoder(&family.checkpoint(Format::F32)?, &devices.device, SAME, Greedy::Compared)
        }));
        each(Finding::of("models", format!("{}: logits of the processor, bf16", family.name), || {
            decoder(&family.checkpoint(Format::BF16)?, &devices.device, BRAIN, Greedy::Left)
        }));
    }
    for format in [Format::Q8_0, Format::Q4_0] {
        each(Finding::of("models", format!("llama: logits and greedy tokens of the processor, {format:?}"), || {
            let checkpoint = DECODERS[0].checkpoint(Format::F32)?.quantized(format)?;
            decoder(&checkpoint, &devices.device, SAME, Greedy::Compared)
        }));
    }
    for family in ENCODERS {
        each(Finding::of("models", format!("{}: states of the processor", family.name), || {
            encoder(family, &devices.device)
        }));
    }
}

/// Whether likeliest tokens are compared: those of logits that are near each other may differ where numbers are rounded.
#[derive(PartialEq)]
enum Greedy {
    Compared,
    Left,
}

fn tokens(seed: u64, count: usize) -> Vec<u32> {
    let mut stream = Seed(seed).derive("gpu-check", &[]).stream();
    (0..count).map(|_| stream.below(256) as u32).collect()
}

fn decoder(checkpoint: &Checkpoint, device: &Device, tolerance: f32, greedy: Greedy) -> anyhow::Result<String> {
    let cpu = Device::cpu(1);
    let (ours, theirs) = (load_decoder(checkpoint, device)?, load_decoder(checkpoint, &cpu)?);
    let ours = Placed { model: ours.as_ref(), device };
    let theirs = Placed { model: theirs.as_ref(), device: &cpu };
    let tokens = tokens(7, PROMPT);
    let (found, expected) = (ours.logits(&tokens, PROMPT, 0)?, theirs.logits(&tokens, PROMPT, 0)?);
    ensure!(found.len() == expected.len(), "{} logits, expected {}", found.len(), expected.len());
    let error = error(&found, &expected, ours.model.geometry().vocab);
    ensure!(error <= tolerance, "logits are off by {error:.1e} of the largest, {tolerance:.0e} allowed");
    if greedy == Greedy::Compared {
        let (found, expected) = (ours.greedy(&tokens, DRAWN)?, theirs.greedy(&tokens, DRAWN)?);
        ensure!(found == expected, "tokens {found:?}, expected {expected:?}");
    }
    Ok(if bits(&found) == bits(&expected) { "bit for bit".to_string() } else { format!("off by {error:.1e}") })
}

fn encoder(family: &Family, device: &Device) -> anyhow::Result<String> {
    let checkpoint = family.checkpoint(Format::F32)?;
    let texts = [1, 17, 5].map(|len| tokens(len as u64, len));
    let run = |device: &Device, texts: &[Vec<u32>]| -> anyhow::Result<(Vec<f32>, usize)> {
        let model = load_encoder(&checkpoint, device)?;
        let lengths: Vec<usize> = texts.iter().map(Vec::len).collect();
        let mut hidden = Values::default();
        model.forward(device, &texts.concat(), &lengths, &mut Scratch::default(), &mut hidden)?;
        device.synchronize()?;
        Ok((hidden.to_vec(), model.geometry().hidden))
    };
    let ((found, width), (expected, _)) = (run(device, &texts)?, run(&Device::cpu(1), &texts)?);
    let error = error(&found, &expected, width);
    ensure!(error <= SAME, "states are off by {error:.1e} of the largest, {SAME:.0e} allowed");
    let mut alone = Vec::new();
    for text in &texts {
        alone.extend(run(device, std::slice::from_ref(text))?.0);
    }
    ensure!(bits(&found) == bits(&alone), "texts together and alone differ");
    Ok(if bits(&found) == bits(&expected) { "bit for bit".to_string() } else { format!("off by {error:.1e}") })
}

/// Bits that must not depend on how a step was made up, on the device itself.
pub(super) fn determinism(devices: &Devices, scale: &Scale, each: &mut dyn FnMut(Finding)) {
    for family in DECODERS {
        each(Finding::of("determinism", format!("{}: chunks and batches, bf16", family.name), || {
            rows(&family.checkpoint(Format::BF16)?, &devices.device)
        }));
    }
    for family in DECODERS {
        each(Finding::of("determinism", format!("{}: kernels started in graphs, bf16", family.name), || {
            graphs(&family.checkpoint(Format::BF16)?, devices)
        }));
    }
    for format in [Format::F32, Format::BF16] {
        each(Finding::of(
            "determinism",
            format!("engine: batch, chunk, graphs, cache cold and warm, {format:?}"),
            || engine(&DECODERS[0].checkpoint(format)?, devices, scale),
        ));
    }
}

/// Models in parts over a group of GPUs, against the processor.
pub(super) fn split(devices: &Devices, each: &mut dyn FnMut(Finding)) {
    let group = match &devices.group {
        Ok(group) => group,
        Err(reason) => return each(Finding::of("split", "models in parts", || Ok(format!("skipped: {reason}")))),
    };
    let parts = group.members().len();
    for family in DECODERS.iter().filter(|family| SPLIT.contains(&family.name)) {
        let name = |what: &str| format!("{} in {parts} parts: {what}", family.name);
        each(Finding::of("split", name("logits and greedy tokens of the processor, f32"), || {
            decoder(&family.checkpoint(Format::F32)?, group, SAME, Greedy::Compared)
        }));
        each(Finding::of("split", name("chunks and batches, bf16"), || rows(&family.checkpoint(Format::BF16)?, group)));
    }
}

/// Families with two key-value heads, for two GPUs.
const SPLIT: [&str; 5] = ["llama", "mistral", "qwen3", "smollm3", "phi3"];

/// A row by itself, in chunks, and in a step with others.
fn rows(checkpoint: &Checkpoint, device: &Device) -> anyhow::Result<String> {
    let model = load_decoder(checkpoint, device)?;
    let (model, vocab) = (Placed { model: model.as_ref(), device }, model.geometry().vocab);
    let text = tokens(7, PROMPT);
    let whole = bits(&model.logits(&text, PROMPT, 0)?);
    for chunk in [1, 17] {
        ensure!(bits(&model.logits(&text, chunk, 0)?) == whole, "chunks of {chunk} tokens change the logits");
    }
    let (shared, own) = (tokens(3, BLOCK_TOKENS), [4, 5, 6].map(|seed| tokens(seed, 9)));
    let together = model.batched(&shared, [&own[0], &own[1], &own[2]])?;
    for (index, own) in own.iter().enumerate() {
        let context = if index == 2 { 0 } else { BLOCK_TOKENS };
        let alone = model.logits(&[&shared[..context], own.as_slice()].concat(), context + own.len(), context)?;
        let found = &together[index * 9 * vocab..][..9 * vocab];
        ensure!(bits(found) == bits(&alone), "request {index} of a step is not what it is alone");
    }
    Ok(String::new())
}

/// Steps of one token, which repeat the same kernels, as single launches and as graphs.
fn graphs(checkpoint: &Checkpoint, devices: &Devices) -> anyhow::Result<String> {
    let text = tokens(7, PROMPT);
    let logits = |device: &Device| {
        let model = load_decoder(checkpoint, device)?;
        Placed { model: model.as_ref(), device }.logits(&text, 1, 0)
    };
    ensure!(bits(&logits(&devices.graphs)?) == bits(&logits(&devices.device)?), "graphs change the logits");
    Ok(String::new())
}

/// What a request comes to: its tokens, and the bits of its log-probabilities.
type Outcome = (Vec<u32>, Vec<u32>);

fn outcomes(engine: &Engine, requests: &[Request]) -> anyhow::Result<Vec<Outcome>> {
    let mut all: Vec<Option<Outcome>> = vec![None; requests.len()];
    let outcome = |completion: Completion| {
        let entries = completion.logprobs.iter();
        let bits = entries.flat_map(|entry| std::iter::once(&entry.chosen).chain(&entry.top));
        let bits = bits.map(|entry| entry.logprob.to_bits()).collect();
        (completion.tokens, bits)
    };
    for (index, completion) in engine.session().complete_all(requests.to_vec()) {
        all[index] = Some(outcome(completion?));
    }
    all.into_iter().map(|outcome| outcome.context("a request without an end")).collect()
}

/// Prompts of several lengths, half of them behind a shared prefix; some drawn on the device, some brought over.
fn requests(count: usize, new_tokens: usize) -> Vec<Request> {
    let prefix = tokens(90, 50);
    let request = |index: usize| {
        let own = tokens(100 + index as u64, 3 + 5 * (index % 7));
        let tokens = if index.is_multiple_of(2) { [prefix.clone(), own].concat() } else { own };
        let logprobs = if index.is_multiple_of(3) { 2 } else { 0 };
        let sampling = Sampling {
            temperature: 0.9,
            top_p: 0.95,
            max_tokens: new_tokens,
            ignore_eos: true,
            logprobs,
            ..Sampling::default()
        };
        Request { tokens, sampling, seed: 7 + index as u64 }
    };
    (0..count).map(request).collect()
}

fn engine(checkpoint: &Checkpoint, devices: &Devices, scale: &Scale) -> anyhow::Result<String> {
    let (direct, in_graphs) = (drawn::load(checkpoint, &devices.device)?, drawn::load(checkpoint, &devices.graphs)?);
    let requests = requests(scale.requests, scale.new_tokens);
    let base = EngineOptions { kv_memory_bytes: Some(scale.kv_bytes), ..EngineOptions::default() };
    let alone = Engine::start(direct.clone(), &EngineOptions { max_batch: 1, ..base.clone() })?;
    let expected = outcomes(&alone, &requests)?;
    drop(alone);
    let ways = [
        ("in batches", &direct, base.clone()),
        ("in chunks of 16 tokens", &direct, EngineOptions { prefill_chunk: 16, max_batch: 3, ..base.clone() }),
        ("with kernels started in graphs", &in_graphs, EngineOptions { max_batch: 3, ..base.clone() }),
        ("without a prefix cache", &direct, EngineOptions { prefix_cache: false, ..base }),
    ];
    for (way, model, options) in ways {
        let engine = Engine::start(model.clone(), &options)?;
        for cache in ["cold", "warm"] {
            let found = outcomes(&engine, &requests)?;
            let differs = found.iter().zip(&expected).position(|(found, expected)| found != expected);
            if let Some(index) = differs {
                anyhow::bail!("{way}, cache {cache}: request {index} is not what it is alone");
            }
        }
    }
    Ok(format!("{} requests, 9 ways", requests.len()))
}
