//! `lifelong gpu-check`: whether the GPU of this machine computes what the processor does, and how fast. One program is all
//! that the machine needs.

use std::process::ExitCode;

use clap::Args;
use lifelong_kernels::{Device, Launching, survey_cuda};

use crate::gpu_check::{self, Devices, Parts, Scale};

/// There is nothing to check.
const NO_GPU: u8 = 2;

#[derive(Debug, Args)]
pub struct GpuCheckArgs {
    /// Number of the GPU, from 0 in the driver's order
    #[arg(long, value_name = "N", default_value_t = 0)]
    gpu: usize,
    /// Print one JSON object on stdout; the table goes to stderr
    #[arg(long)]
    json: bool,
    /// Check alone: measure nothing
    #[arg(long)]
    no_rates: bool,
    /// Python to measure transformers with, where it has them
    #[arg(long, value_name = "PROGRAM", default_value = "python3", conflicts_with = "no_peer")]
    python: String,
    /// Measure no transformers
    #[arg(long)]
    no_peer: bool,
    /// Run on the emulator of a test build, at tiny sizes
    #[arg(long, hide = true)]
    emulated: bool,
}

/// Runs `lifelong gpu-check`: 0 when all holds, 1 when a check fails, 2 without a GPU.
///
/// # Errors
/// When something cannot be measured.
pub fn run(args: &GpuCheckArgs) -> anyhow::Result<ExitCode> {
    let (devices, scale) = match open(args) {
        Ok(opened) => opened,
        Err(reason) => {
            eprintln!("gpu-check: no GPU to check: {reason}");
            return Ok(ExitCode::from(NO_GPU));
        }
    };
    let name = survey_cuda().gpus.get(args.gpu).map(|gpu| gpu.name.clone());
    let parts = Parts { measures: !args.no_rates, python: (!args.no_peer).then_some(args.python.as_str()) };
    let mut say = |line: &str| if args.json { eprintln!("{line}") } else { println!("{line}") };
    say(&format!(
        "lifelong {} on {} ({})",
        env!("CARGO_PKG_VERSION"),
        name.as_deref().unwrap_or("no GPU"),
        devices.device.instruction_set()
    ));
    let report = gpu_check::run(&devices, &scale, parts, &mut say)?;
    if args.json {
        println!("{}", report.json());
    }
    Ok(if report.failures() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn open(args: &GpuCheckArgs) -> lifelong_kernels::Result<(Devices, Scale)> {
    let open = |launching| match args.emulated {
        true => Device::emulated_with(0, launching),
        false => Device::cuda_with(args.gpu, launching),
    };
    let [device, graphs, watched] = [Launching::Direct, Launching::Graphs, Launching::Watched].map(open);
    let devices = Devices { device: device?, graphs: graphs?, watched: watched?, group: group(args) };
    let scale = match args.emulated {
        true => Scale::tiny(),
        false => Scale::full(args.gpu, devices.device.free_memory()?.unwrap_or(0)),
    };
    Ok((devices, scale))
}

/// This GPU and the next, where there are two.
fn group(args: &GpuCheckArgs) -> lifelong_kernels::Result<Device> {
    let gpus = survey_cuda().gpus.len();
    let members = match (args.emulated, gpus) {
        (true, _) => vec![Device::emulated(0)?, Device::emulated(1)?],
        (false, 0 | 1) => vec![Device::cuda(args.gpu)?],
        (false, _) => vec![Device::cuda(args.gpu)?, Device::cuda((args.gpu + 1) % gpus)?],
    };
    Device::group(members)
}
