//! The operations on a GPU: what `cpu/` is for the processor.
//!
//! ```text
//! ops ── launcher (one file a family) ── Operation: where operands are ── Runner: driver or emulator ── kernels/cuda/*.cu
//! ```
//!
//! Kernels are compiled when the program is built and loaded through the driver, which is looked for when a device is asked
//! for: one program serves machines with and without it, and no CUDA library is linked. A device has one queue; operations
//! return before it is done ([`operation`] says when they do not).
//!
//! Elementwise operations, norms and rotations compute what the processor computes, bit for bit: the same polynomials, the
//! same 16 lanes, no contraction of products and sums but where both write a fused one.

pub(crate) mod activation;
pub(crate) mod attention;
pub(crate) mod delta;
pub(crate) mod draw;
#[cfg(feature = "cuda")]
mod driver;
#[cfg(feature = "cuda")]
mod driver_graph;
pub(crate) mod embed;
#[cfg(feature = "emulate")]
mod emulated;
pub(crate) mod exchange;
pub(crate) mod expert_products;
pub(crate) mod experts;
mod graphs;
mod guarded;
pub(crate) mod kv;
pub(crate) mod limits;
pub(crate) mod matmul;
pub(crate) mod matrix;
mod memory;
#[cfg_attr(not(feature = "cuda"), path = "nccl_absent.rs")]
mod nccl;
pub(crate) mod norm;
mod operation;
pub(crate) mod pool;
pub(crate) mod residual;
pub(crate) mod rope;
mod runner;
pub(crate) mod sample;

use std::sync::{Arc, Mutex};

pub(crate) use experts::DeviceExperts;
pub(crate) use kv::DeviceCache;
pub(crate) use matrix::DeviceMatrix;
pub(crate) use memory::Managed;
use memory::Memory;
pub(crate) use nccl::Links;
use operation::Stage;
use runner::Runner;

use crate::device::{Launches, Launching};
#[cfg(not(all(feature = "cuda", feature = "emulate")))]
use crate::error::Error;
use crate::error::Result;
use crate::gpu::CudaSurvey;

/// Runs an operation by its launcher, `on_gpu!(cuda, family::launcher(operands))`.
macro_rules! on_gpu {
    ($cuda:expr, $family:ident::$launcher:ident($($argument:expr),* $(,)?)) => {
        $crate::cuda::$family::$launcher($cuda, $($argument),*)
    };
}
pub(crate) use on_gpu;

/// A GPU with its queue and its memory.
pub(crate) struct Cuda {
    memory: Arc<Memory>,
    stage: Mutex<Stage>,
}

impl Cuda {
    /// The GPU of this number.
    #[cfg(feature = "cuda")]
    pub(crate) fn new(ordinal: usize, launching: Launching) -> Result<Self> {
        Ok(Self::of(Box::new(driver::Driver::open(ordinal)?), launching))
    }

    #[cfg(not(feature = "cuda"))]
    pub(crate) fn new(ordinal: usize, _launching: Launching) -> Result<Self> {
        let problem = format!("device {ordinal} asked of a program built without the feature `cuda`");
        Err(Error::Cuda(problem + "; build with `--features cuda` or use the cpu"))
    }

    /// The emulator, whose threads run in an order drawn from `order`; 0 is one after another. Its memory is watched always.
    #[cfg(feature = "emulate")]
    pub(crate) fn emulated(order: u64, launching: Launching) -> Result<Self> {
        let runner: Box<dyn Runner> = Box::new(emulated::Emulated::new(order));
        Ok(match launching {
            Launching::Graphs => Self::of(Box::new(guarded::Guarded::new(runner)), launching),
            Launching::Direct | Launching::Watched => Self::of(runner, Launching::Watched),
        })
    }

    #[cfg(not(feature = "emulate"))]
    pub(crate) fn emulated(_order: u64, _launching: Launching) -> Result<Self> {
        Err(Error::Cuda("a build without the feature `emulate`, which is for tests, emulates no GPU".into()))
    }

    fn of(runner: Box<dyn Runner>, launching: Launching) -> Self {
        let runner: Box<dyn Runner> = match launching {
            Launching::Direct => runner,
            Launching::Graphs => Box::new(graphs::Graphs::new(runner)),
            Launching::Watched => Box::new(guarded::Guarded::new(runner)),
        };
        Self { memory: Arc::new(Memory::new(runner)), stage: Mutex::default() }
    }

    /// The kind of arithmetic units.
    pub(crate) fn name(&self) -> &str {
        self.memory.runner.name()
    }

    /// Zeros that both sides address. `length` is above 0.
    pub(crate) fn managed(&self, length: usize) -> Result<Managed> {
        Managed::zeroed(&self.memory, length)
    }

    pub(crate) fn synchronize(&self) -> Result<()> {
        self.memory.runner.synchronize()
    }

    /// How kernels have been started so far.
    pub(crate) fn launches(&self) -> Launches {
        self.memory.runner.launches()
    }

    /// Bytes of device memory that nobody has taken.
    pub(crate) fn free_memory(&self) -> Result<usize> {
        Ok(self.memory.runner.memory()?.0)
    }
}

/// The ways between GPUs; none where there is no GPU, or one that is emulated.
pub(crate) fn connect(gpus: &[&Cuda]) -> Result<Option<Links>> {
    let ordinals: Option<Vec<usize>> = gpus.iter().map(|gpu| gpu.memory.runner.ordinal()).collect();
    match ordinals {
        Some(ordinals) if !ordinals.is_empty() => Links::between(&ordinals).map(Some),
        _ => Ok(None),
    }
}

/// The version of the library that carries numbers between GPUs of a group.
///
/// # Errors
/// What is missing and how to get it.
pub fn survey_exchange() -> std::result::Result<String, String> {
    nccl::version()
}

/// What this build and this machine have of CUDA.
#[cfg(feature = "cuda")]
pub fn survey() -> CudaSurvey {
    driver::survey()
}

/// What this build and this machine have of CUDA.
#[cfg(not(feature = "cuda"))]
pub fn survey() -> CudaSurvey {
    CudaSurvey::default()
}
