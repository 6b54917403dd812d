//! `lifelong doctor`: what this program finds on this machine, what is missing, and how to mend it. Changes nothing.

use std::time::Duration;

use clap::Args;
use indicatif::BinaryBytes;
use lifelong_kernels::{CudaSurvey, InstructionSet, survey_cuda, survey_exchange};
use serde::Serialize;

use crate::engine::hub::{self, Sources};
use crate::engine::machine;
use crate::sandbox::python::Interpreter;
use crate::sandbox::{Layer, Sandbox, SandboxOptions};

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// How long the hub may take to answer: long enough for a far one, short enough to wait for.
const HUB_LIMIT: Duration = Duration::from_millis(1500);

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Finding {
    part: &'static str,
    found: String,
    /// What cannot be done, and what to do about it; none when nothing is missing.
    mend: Option<String>,
}

impl Finding {
    fn fine(part: &'static str, found: impl Into<String>) -> Self {
        Finding { part, found: found.into(), mend: None }
    }

    fn missing(part: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Self {
        Finding { part, found: found.into(), mend: Some(mend.into()) }
    }
}

/// Runs `lifelong doctor`.
///
/// # Errors
/// When the findings cannot be written.
pub fn run(args: &DoctorArgs) -> anyhow::Result<()> {
    let survey = survey_cuda();
    let sources = Sources::from_env();
    let mut findings = vec![program(&survey), processor(), memory()];
    findings.extend(cuda(&survey));
    findings.extend([sandbox(), python(sources.as_ref().ok())]);
    match &sources {
        Ok(sources) => findings.extend([model_cache(sources), reach(sources)]),
        Err(error) => findings.push(Finding::missing("model cache", "no folder", error.to_string())),
    }
    if args.json {
        println!("{}", serde_json::to_string(&findings)?);
        return Ok(());
    }
    for Finding { part, found, mend } in &findings {
        println!("{part:<12} {found}");
        if let Some(mend) = mend {
            println!("{:<12} → {mend}", "");
        }
    }
    Ok(())
}

fn program(survey: &CudaSurvey) -> Finding {
    let hub = if cfg!(feature = "hub") { "hub" } else { "no hub" };
    let cuda = match survey.built_for {
        Some(chips) => format!("CUDA kernels for {chips}"),
        None => "no CUDA kernels".to_string(),
    };
    Finding::fine("program", format!("lifelong {}, {hub}, {cuda}", env!("CARGO_PKG_VERSION")))
}

fn processor() -> Finding {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let best = InstructionSet::best();
    let found = format!("{cores} cores, {} instructions", best.name());
    match best {
        InstructionSet::Scalar => {
            Finding::missing("processor", found, "models run many times slower than on a processor with AVX2")
        }
        _ => Finding::fine("processor", found),
    }
}

fn memory() -> Finding {
    match (machine::memory_bytes(), machine::available_bytes()) {
        (Some(all), Some(free)) => {
            Finding::fine("memory", format!("{}, {} of it free", BinaryBytes(all), BinaryBytes(free)))
        }
        _ => Finding::missing(
            "memory",
            "the system does not say",
            "give the KV cache its size with `--kv-memory`; without it 2 GiB are taken",
        ),
    }
}

/// The driver, and a line for each GPU. A build that knows no CUDA looks for none.
fn cuda(survey: &CudaSurvey) -> Vec<Finding> {
    if survey.built_for.is_none() {
        let mend = "where there is an NVIDIA GPU, build with `--features cuda` after kernels/cuda/install-toolkit.sh";
        return vec![Finding::missing("GPU", "not looked for: the program has no CUDA kernels", mend)];
    }
    let driver = match survey.driver {
        Some((major, minor)) => format!("NVIDIA driver for CUDA {major}.{minor}"),
        None => "no NVIDIA driver".to_string(),
    };
    let first = match &survey.problem {
        Some(problem) => Finding::missing("GPU", driver, problem.as_str()),
        None => Finding::fine("GPU", driver),
    };
    let gpus = survey.gpus.iter().map(|gpu| {
        let ((major, minor), memory) = (gpu.compute_capability, BinaryBytes(gpu.memory_bytes as u64));
        let found = format!("cuda:{} {}, compute capability {major}.{minor}, {memory}", gpu.ordinal, gpu.name);
        match gpu.compute_capability < (8, 0) {
            true => Finding::missing("GPU", found, "the kernels need compute capability 8.0 (Ampere, 2020) or later"),
            false => Finding::fine("GPU", found),
        }
    });
    let exchange = (survey.gpus.len() > 1).then(|| exchange(survey_exchange()));
    [first].into_iter().chain(gpus).chain(exchange).collect()
}

/// What a model that is split over several GPUs needs.
fn exchange(found: Result<String, String>) -> Finding {
    match found {
        Ok(version) => Finding::fine("GPU", format!("NCCL {version}: `--device cuda:0+1` splits a model")),
        Err(problem) => Finding::missing("GPU", "no model can be split over several", problem),
    }
}

/// Every layer is tried; the first that does not hold is named with what to do.
fn sandbox() -> Finding {
    let all = SandboxOptions { allow_missing: Layer::ALL.to_vec(), ..SandboxOptions::default() };
    let layers = match Sandbox::start(all) {
        Ok(sandbox) => sandbox.layers().clone(),
        Err(error) => return Finding::missing("sandbox", "does not start", error.to_string()),
    };
    let held = format!("{} of {} layers hold", Layer::ALL.len() - layers.missing.len(), Layer::ALL.len());
    if layers.missing.is_empty() {
        return Finding::fine("sandbox", held);
    }
    let missing: Vec<String> = layers.missing.iter().map(|(layer, why)| format!("{layer}: {why}")).collect();
    let names: Vec<String> = layers.missing.keys().map(|layer| format!("\"{layer}\"")).collect();
    let mend = format!(
        "{}. Programs of models are not run without them; `allow_missing_isolation = [{}]` under [scoring] takes that risk",
        missing.join("; "),
        names.join(", ")
    );
    Finding::missing("sandbox", held, mend)
}

/// The interpreter that grades programs; the one that fetches wheels is the same unless `LIFELONG_PYTHON` names another.
fn python(sources: Option<&Sources>) -> Finding {
    let name = sources.map_or("python3".to_string(), |sources| sources.python.display().to_string());
    match Interpreter::find(&name) {
        Ok(Interpreter { program, version, .. }) => {
            Finding::fine("Python", format!("{version} ({})", program.display()))
        }
        Err(error) => {
            let mend = format!("{error}. Python grades programs and fetches models that come as packages");
            Finding::missing("Python", format!("`{name}` does not run"), mend)
        }
    }
}

fn model_cache(sources: &Sources) -> Finding {
    let folder = sources.home.join("models");
    let models =
        std::fs::read_dir(&folder).map_or(0, |entries| entries.flatten().filter(|entry| entry.path().is_dir()).count());
    let found = format!("{}, {models} models", sources.home.display());
    match models {
        0 => Finding::missing(
            "model cache",
            found,
            "`lifelong models list` names models, `lifelong models pull NAME` fetches one",
        ),
        _ => Finding::fine("model cache", found),
    }
}

fn reach(sources: &Sources) -> Finding {
    match hub::reach(sources, HUB_LIMIT) {
        Ok(()) if sources.proxied => Finding::fine("hub", format!("{}, asked through a proxy", sources.endpoint)),
        Ok(()) => Finding::fine("hub", format!("{} answers", sources.endpoint)),
        Err(reason) => Finding::missing(
            "hub",
            reason,
            "models that are not in the cache come from the other sources of their preset, or from a path",
        ),
    }
}

#[cfg(test)]
mod tests {
    use lifelong_kernels::Gpu;

    use super::*;

    #[test]
    fn several_gpus_come_with_what_a_split_model_needs() {
        let gpu =
            |ordinal| Gpu { ordinal, name: "a GPU".to_string(), compute_capability: (9, 0), memory_bytes: 80 << 30 };
        let survey = |count| CudaSurvey {
            built_for: Some("sm_90"),
            driver: Some((13, 0)),
            gpus: (0..count).map(gpu).collect(),
            problem: None,
        };
        assert_eq!((cuda(&survey(1)).len(), cuda(&survey(2)).len()), (2, 4));
        assert!(exchange(Ok("2.28.3".into())).found.contains("cuda:0+1"));
        assert_eq!(exchange(Err("not there; install it".into())).mend.unwrap(), "not there; install it");
    }
}
