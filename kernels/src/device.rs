//! Where operations run.

use std::fmt;
use std::sync::Arc;

use crate::cpu::Cpu;
use crate::cuda::Cuda;
use crate::error::{Error, Result};
use crate::group::Standing;
use crate::tally::{Counters, Work};
use crate::threads::Parts;

/// A processor with its threads, or a GPU; alone, or one of several that compute one model together ([`Device::group`]).
/// Cheap to clone: clones share the threads.
#[derive(Clone)]
pub struct Device {
    inner: Arc<Inner>,
    standing: Standing,
}

struct Inner {
    backend: Backend,
    counters: Counters,
}

pub(crate) enum Backend {
    Cpu(Cpu),
    Cuda(Cuda),
}

impl Device {
    /// The processor with the best instruction set it has, and `threads` threads counting the caller's (at least one).
    /// Neither changes the bits of any result.
    pub fn cpu(threads: usize) -> Self {
        Self::of(Backend::Cpu(Cpu::new(threads, InstructionSet::best())))
    }

    /// The processor held to one instruction set: for tests and measurements.
    ///
    /// # Errors
    /// [`Error::InstructionSet`] when this processor cannot run it.
    pub fn cpu_with(threads: usize, instruction_set: InstructionSet) -> Result<Self> {
        if !instruction_set.is_available() {
            return Err(Error::InstructionSet { asked: instruction_set.name(), best: InstructionSet::best().name() });
        }
        Ok(Self::of(Backend::Cpu(Cpu::new(threads, instruction_set))))
    }

    /// The GPU of this number, from 0 in the driver's order; its kernels are started in graphs.
    ///
    /// # Errors
    /// [`Error::Cuda`] with what is missing: the feature `cuda` of the build, a driver, the GPU.
    pub fn cuda(ordinal: usize) -> Result<Self> {
        Self::cuda_with(ordinal, Launching::default())
    }

    /// As [`Device::cuda`], with its kernels started in this way.
    ///
    /// # Errors
    /// As [`Device::cuda`].
    pub fn cuda_with(ordinal: usize, launching: Launching) -> Result<Self> {
        Ok(Self::of(Backend::Cuda(Cuda::new(ordinal, launching)?)))
    }

    /// The kernels of a GPU run on the processor, thread by thread: for tests. The threads of a block take turns in an order
    /// drawn from `order`, 0 for one after another; no result depends on it. Memory is watched after every kernel, as with
    /// [`Launching::Watched`].
    ///
    /// # Errors
    /// [`Error::Cuda`] in a build without the feature `emulate`.
    pub fn emulated(order: u64) -> Result<Self> {
        Self::emulated_with(order, Launching::Watched)
    }

    /// As [`Device::emulated`], with its kernels started in this way.
    ///
    /// # Errors
    /// As [`Device::emulated`].
    pub fn emulated_with(order: u64, launching: Launching) -> Result<Self> {
        Ok(Self::of(Backend::Cuda(Cuda::emulated(order, launching)?)))
    }

    /// `cpu` or `cuda`.
    pub fn name(&self) -> &'static str {
        match self.backend() {
            Backend::Cpu(_) => "cpu",
            Backend::Cuda(_) => "cuda",
        }
    }

    /// The kind of arithmetic units in use, for a run's manifest: a name of an [`InstructionSet`], the compute capability of
    /// a GPU (`sm_90`), or `emulated`.
    pub fn instruction_set(&self) -> &str {
        match self.backend() {
            Backend::Cpu(cpu) => cpu.instruction_set.name(),
            Backend::Cuda(cuda) => cuda.name(),
        }
    }

    /// Threads of the processor that take part in an operation, counting the caller's, which is alone in a task of
    /// [`Device::run`]; beside a GPU, as many as there are.
    pub fn threads(&self) -> usize {
        match self.backend() {
            Backend::Cpu(cpu) => cpu.threads(),
            Backend::Cuda(_) => std::thread::available_parallelism().map_or(1, usize::from),
        }
    }

    /// Runs `task(0)` … `task(count − 1)`, each once, on the threads that take part in operations, and returns when all are
    /// done: work between operations so finds those threads awake. A GPU has none: its caller does all tasks.
    pub fn run(&self, count: usize, task: impl Fn(usize) + Sync) {
        match self.backend() {
            Backend::Cpu(cpu) => cpu.run(count, task),
            Backend::Cuda(_) => (0..count).for_each(task),
        }
    }

    /// [`Device::run`] with an item for each task. A task may run operations of this device, which stay on its thread: work
    /// that is cut into such tasks lets the threads meet once for all of its operations.
    pub fn run_each<T: Send + Sync>(&self, items: &mut [T], task: impl Fn(usize, &mut T) + Sync) {
        let count = items.len();
        let items = Parts::new(items);
        self.run(count, |index| {
            // SAFETY: each index is run once.
            let item = unsafe { items.take(index..index + 1) };
            task(index, &mut item[0]);
        });
    }

    /// Waits until everything that was asked of the device is done; of a group, of all its members. Until then
    /// [`crate::Values`] made for it are for operations only; the processor is done when an operation returns.
    ///
    /// # Errors
    /// [`Error::Cuda`] for an operation that failed on the device after it had returned.
    pub fn synchronize(&self) -> Result<()> {
        self.members().iter().try_for_each(Device::synchronize)?;
        match self.backend() {
            Backend::Cpu(_) => Ok(()),
            Backend::Cuda(cuda) => cuda.synchronize(),
        }
    }

    /// How a GPU's kernels have been started so far; nothing where that is one by one.
    pub fn launches(&self) -> Launches {
        match self.backend() {
            Backend::Cpu(_) => Launches::default(),
            Backend::Cuda(cuda) => cuda.launches(),
        }
    }

    /// Bytes of a GPU's own memory that are free, in a group of the one that has least; `None` of the processor, whose memory
    /// the system knows of.
    ///
    /// # Errors
    /// [`Error::Cuda`] when the driver does not say.
    pub fn free_memory(&self) -> Result<Option<usize>> {
        if !self.members().is_empty() {
            let free: Vec<Option<usize>> = self.members().iter().map(Device::free_memory).collect::<Result<_>>()?;
            return Ok(free.into_iter().flatten().min());
        }
        match self.backend() {
            Backend::Cpu(_) => Ok(None),
            Backend::Cuda(cuda) => cuda.free_memory().map(Some),
        }
    }

    /// Whether weights, caches and [`crate::Values`] for it lie in a GPU's memory.
    pub fn is_gpu(&self) -> bool {
        matches!(self.backend(), Backend::Cuda(_))
    }

    /// What has been done on this device and its clones.
    pub fn work(&self) -> Work {
        self.inner.counters.read()
    }

    fn of(backend: Backend) -> Self {
        Self { inner: Arc::new(Inner { backend, counters: Counters::default() }), standing: Standing::Alone }
    }

    /// The same device in another place among others.
    pub(crate) fn standing_as(&self, standing: Standing) -> Self {
        Self { inner: Arc::clone(&self.inner), standing }
    }

    pub(crate) fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Whether both are handles of one device.
    pub(crate) fn is_same(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub(crate) fn backend(&self) -> &Backend {
        &self.inner.backend
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.inner.counters
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({}, {} threads)", self.name(), self.instruction_set(), self.threads())
    }
}

/// How a GPU's kernels are started. No result depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Launching {
    /// Each when it is asked for.
    Direct,
    /// Those of a step together, as a graph, once the same kernels have been started in the same order before: saves what
    /// a single start costs, several hundred times a token.
    #[default]
    Graphs,
    /// Each is waited for, and memory is watched: every allocation stands between guards and holds no number at first, and a
    /// kernel that writes beside its operands fails by name. For checks at small shapes.
    Watched,
}

/// What has been started of a GPU that starts its kernels in graphs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Launches {
    /// Graphs that were made.
    pub graphs: usize,
    /// Starts of a graph that had been made before.
    pub repeats: usize,
    /// Kernels in these whose arguments or grid had moved.
    pub nodes_set: usize,
    /// Kernels that were started by themselves.
    pub single_launches: usize,
    /// Graphs that the driver refused; their kernels are started one by one.
    pub refused: usize,
}

/// A level of vector instructions. All levels give the same bits; they differ in speed only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InstructionSet {
    /// Plain Rust: exists on every processor.
    Scalar,
    /// 256-bit vectors with fused multiply-add (x86-64 since 2013).
    Avx2,
    /// 512-bit vectors with 8-bit dot products (x86-64 servers since 2019).
    Avx512Vnni,
    /// Those, and tile registers with 8-bit products (x86-64 servers since 2023, on Linux).
    Avx512Amx,
}

impl InstructionSet {
    /// Every level, slowest first.
    pub const ALL: [InstructionSet; 4] =
        [InstructionSet::Scalar, InstructionSet::Avx2, InstructionSet::Avx512Vnni, InstructionSet::Avx512Amx];

    /// The fastest level of this processor.
    pub fn best() -> Self {
        Self::ALL.into_iter().rev().find(|set| set.is_available()).unwrap_or(InstructionSet::Scalar)
    }

    /// Whether this processor has it.
    pub fn is_available(self) -> bool {
        match self {
            InstructionSet::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 => {
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512Vnni => {
                InstructionSet::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vnni")
            }
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512Amx => {
                InstructionSet::Avx512Vnni.is_available() && crate::cpu::tiles::are_available()
            }
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }

    /// `scalar`, `avx2`, `avx512-vnni` or `avx512-amx`.
    pub fn name(self) -> &'static str {
        match self {
            InstructionSet::Scalar => "scalar",
            InstructionSet::Avx2 => "avx2",
            InstructionSet::Avx512Vnni => "avx512-vnni",
            InstructionSet::Avx512Amx => "avx512-amx",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_says_what_it_is() {
        let device = Device::cpu_with(2, InstructionSet::Scalar).unwrap();
        assert_eq!(format!("{device:?}"), "cpu (scalar, 2 threads)");
        assert_eq!(Device::cpu(0).threads(), 1);
    }

    #[test]
    fn a_gpu_that_cannot_be_used_is_refused_with_a_reason_and_a_way_out() {
        let Err(error) = Device::cuda(64) else { return println!("skipped: this machine has 65 GPUs") };
        assert!(matches!(&error, Error::Cuda(reason) if reason.contains("64") || reason.contains("cpu")), "{error}");
        assert_eq!(Device::cpu(1).free_memory().unwrap(), None);
        Device::cpu(1).synchronize().unwrap();
    }
}
