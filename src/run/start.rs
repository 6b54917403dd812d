//! Brings a model into memory, ready to answer.

use std::sync::Once;
use std::thread::available_parallelism;

use anyhow::{Context as _, bail};
use lifelong_kernels::{Device, InstructionSet, Launching, survey_cuda};

use super::resolve::ResolvedModel;
use crate::config::{DeviceChoice, EngineConfig, KvType, ModelsConfig, Quantize};
use crate::engine::embed::{Embedder, EmbedderOptions, load_embedder_on as load_encoder};
use crate::engine::hub::{self, ModelFiles, Sources};
use crate::engine::model::{self, LoadedModel};
use crate::engine::session::{Engine, EngineOptions};
use crate::engine::template::ChatSettings;

/// The device a config asks for; of several, the first.
///
/// # Errors
/// As [`devices`].
pub fn device(config: &EngineConfig) -> anyhow::Result<Device> {
    match config.device.parse()? {
        DeviceChoice::Cuda(numbers) => gpu(numbers.first().copied().unwrap_or(0)),
        DeviceChoice::AllCuda => gpu(0),
        DeviceChoice::Auto => first_gpu().map_or_else(|| cpu(config), Ok),
        DeviceChoice::Cpu => cpu(config),
    }
}

/// The devices that a config asks for, at least one.
///
/// # Errors
/// When a GPU is asked for by name and there is none that can be used; `auto` says why in one line and takes the CPU then.
pub fn devices(config: &EngineConfig) -> anyhow::Result<Vec<Device>> {
    match config.device.parse()? {
        DeviceChoice::Cuda(numbers) => numbers.into_iter().map(gpu).collect(),
        // None is an error of the first.
        DeviceChoice::AllCuda => (0..survey_cuda().gpus.len().max(1)).map(gpu).collect(),
        DeviceChoice::Auto | DeviceChoice::Cpu => Ok(vec![device(config)?]),
    }
}

fn gpu(number: usize) -> anyhow::Result<Device> {
    Device::cuda_with(number, launching()?).with_context(|| {
        format!("device `cuda:{number}` cannot be used\nhint: `auto` takes a GPU when there is one, else the CPU")
    })
}

/// How kernels are started; no result depends on it.
fn launching() -> anyhow::Result<Launching> {
    match std::env::var("LIFELONG_LAUNCHING") {
        Ok(name) => launching_named(&name),
        Err(_) => Ok(Launching::default()),
    }
}

fn launching_named(name: &str) -> anyhow::Result<Launching> {
    match name {
        "direct" => Ok(Launching::Direct),
        "graphs" => Ok(Launching::Graphs),
        "watched" => Ok(Launching::Watched),
        other => bail!("LIFELONG_LAUNCHING: expected direct, graphs or watched, found `{other}`"),
    }
}

fn cpu(config: &EngineConfig) -> anyhow::Result<Device> {
    let threads = config.threads.unwrap_or_else(|| available_parallelism().map_or(1, usize::from));
    match std::env::var("LIFELONG_INSTRUCTION_SET") {
        Ok(name) => Ok(Device::cpu_with(threads, instruction_set(&name)?)?),
        Err(_) => Ok(Device::cpu(threads)),
    }
}

/// The first GPU, when the program was built for one and it can be used.
fn first_gpu() -> Option<Device> {
    static SAID: Once = Once::new();
    survey_cuda().built_for?;
    match launching().and_then(|launching| Ok(Device::cuda_with(0, launching)?)) {
        Ok(device) => Some(device),
        Err(reason) => {
            SAID.call_once(|| eprintln!("device auto: the cpu, as there is no GPU to use ({reason})"));
            None
        }
    }
}

fn instruction_set(name: &str) -> anyhow::Result<InstructionSet> {
    InstructionSet::ALL.into_iter().find(|set| set.name() == name).with_context(|| {
        let known: Vec<&str> = InstructionSet::ALL.iter().map(|set| set.name()).collect();
        format!("LIFELONG_INSTRUCTION_SET: expected one of {}, found `{name}`", known.join(", "))
    })
}

/// What of a backbone's setting up changes its replies, unlike an [`EngineConfig`].
#[derive(Clone, Debug, Default)]
pub struct BackboneSettings {
    pub kv_type: KvType,
    pub quantize: Option<Quantize>,
    pub chat: ChatSettings,
}

impl BackboneSettings {
    /// Those of the backbone that a run file names.
    pub fn of(config: &ModelsConfig, backbone: &str) -> Self {
        BackboneSettings { kv_type: config.kv_type, quantize: config.quantize, chat: config.chat_of(backbone) }
    }
}

/// Resolves a backbone by name and starts an engine on it.
pub fn start_engine(
    name: &str,
    config: &EngineConfig,
    settings: &BackboneSettings,
    sources: &Sources,
) -> anyhow::Result<Engine> {
    start_on(&hub::resolve(name, sources)?, config, settings)
}

/// Starts an engine on a resolved backbone.
pub fn load_backbone(
    model: &ResolvedModel,
    config: &EngineConfig,
    settings: &BackboneSettings,
) -> anyhow::Result<Engine> {
    start_on(&model.files, config, settings).with_context(|| format!("backbone `{}`", model.name))
}

fn start_on(files: &ModelFiles, config: &EngineConfig, settings: &BackboneSettings) -> anyhow::Result<Engine> {
    let load = |device: &Device| -> anyhow::Result<LoadedModel> {
        Ok(model::load_as(files, device, settings.quantize.map(Into::into))?.with_settings(&settings.chat)?)
    };
    let loaded = devices(config)?.iter().map(load).collect::<anyhow::Result<Vec<_>>>()?;
    let options = EngineOptions {
        max_batch: config.max_batch,
        kv_memory_bytes: config.kv_memory.map(|size| size.0),
        prefill_chunk: config.prefill_chunk,
        prefix_cache: config.prefix_cache,
        kv_type: settings.kv_type.into(),
    };
    Ok(Engine::start_replicas(loaded, &options)?)
}

/// Resolves an embedding model by name and loads it.
pub fn start_embedder(
    name: &str,
    config: &EngineConfig,
    options: EmbedderOptions,
    sources: &Sources,
) -> anyhow::Result<Embedder> {
    Ok(load_encoder(&hub::resolve(name, sources)?, &devices(config)?, options)?)
}

/// Loads a resolved embedding model.
pub fn load_embedder(
    resolved: &ResolvedModel,
    config: &EngineConfig,
    options: EmbedderOptions,
) -> anyhow::Result<Embedder> {
    load_encoder(&resolved.files, &devices(config)?, options)
        .with_context(|| format!("embedding model `{}`", resolved.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_to_start_kernels_are_named() {
        assert_eq!(launching_named("direct").unwrap(), Launching::Direct);
        assert_eq!(launching_named("graphs").unwrap(), Launching::default());
        let error = launching_named("fast").unwrap_err().to_string();
        assert!(error.contains("direct, graphs or watched") && error.contains("`fast`"), "{error}");
    }
}
