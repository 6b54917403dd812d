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

/// The device a config asks for; of several, the first. An embedding model runs on that alone.
///
/// # Errors
/// As [`devices`].
pub fn device(config: &EngineConfig) -> anyhow::Result<Device> {
    match config.device.parse()? {
        DeviceChoice::Cuda(copies) => gpu(copies.first().and_then(|copy| copy.first()).copied().unwrap_or(0)),
        DeviceChoice::AllCuda => gpu(0),
        DeviceChoice::Auto => first_gpu().map_or_else(|| cpu(config), Ok),
        DeviceChoice::Cpu => cpu(config),
    }
}

/// What results of a backbone depend on of a config's devices: `cpu`, `cuda`, or in how many parts the model is.
///
/// # Errors
/// As [`device`].
pub fn kind(config: &EngineConfig) -> anyhow::Result<String> {
    Ok(in_parts(device(config)?.name(), config.device.parse::<DeviceChoice>()?.parts()))
}

fn in_parts(name: &str, parts: usize) -> String {
    match parts {
        1 => name.to_string(),
        parts => format!("{name} in {parts} parts"),
    }
}

/// The devices that a config asks for, at least one: of a model in parts, groups.
///
/// # Errors
/// When a GPU is asked for by name and there is none that can be used; `auto` says why in one line and takes the CPU then.
pub fn devices(config: &EngineConfig) -> anyhow::Result<Vec<Device>> {
    match config.device.parse()? {
        DeviceChoice::Cuda(copies) => copies.into_iter().map(gpus).collect(),
        // None is an error of the first.
        DeviceChoice::AllCuda => (0..survey_cuda().gpus.len().max(1)).map(gpu).collect(),
        DeviceChoice::Auto | DeviceChoice::Cpu => Ok(vec![device(config)?]),
    }
}

/// One GPU, or several as a group.
fn gpus(numbers: Vec<usize>) -> anyhow::Result<Device> {
    if let [number] = numbers[..] {
        return gpu(number);
    }
    let devices = numbers.iter().map(|number| gpu(*number)).collect::<anyhow::Result<_>>()?;
    Device::group(devices).with_context(|| {
        let names: Vec<String> = numbers.iter().map(usize::to_string).collect();
        format!("device `cuda:{}`: these GPUs cannot share a model", names.join("+"))
    })
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
    pub kv_type: Option<KvType>,
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
        kv_type: settings.kv_type.map(Into::into),
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

    /// A run's identity: one that was begun with another number of parts is refused by this word.
    #[test]
    fn what_results_depend_on_says_the_number_of_parts() {
        let on = |device: &str| EngineConfig { device: device.to_string(), ..EngineConfig::default() };
        assert_eq!(kind(&on("cpu")).unwrap(), "cpu");
        assert_eq!((in_parts("cuda", 1).as_str(), in_parts("cuda", 4).as_str()), ("cuda", "cuda in 4 parts"));
        if survey_cuda().gpus.is_empty() {
            let error = format!("{:#}", devices(&on("cuda:0+1")).unwrap_err());
            assert!(error.contains("`cuda:0` cannot be used") && error.contains("hint:"), "{error}");
        }
    }

    #[test]
    fn ways_to_start_kernels_are_named() {
        assert_eq!(launching_named("direct").unwrap(), Launching::Direct);
        assert_eq!(launching_named("graphs").unwrap(), Launching::default());
        let error = launching_named("fast").unwrap_err().to_string();
        assert!(error.contains("direct, graphs or watched") && error.contains("`fast`"), "{error}");
    }
}
