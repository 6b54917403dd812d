//! Where operations run.

use std::fmt;
use std::sync::Arc;

use crate::cpu::Cpu;
use crate::cuda::Cuda;
use crate::error::{Error, Result};
use crate::tally::{Counters, Work};

/// A processor with its threads, or a GPU. Cheap to clone: clones share the threads.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

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

    /// The GPU of this number.
    ///
    /// # Errors
    /// [`Error::Cuda`], always for now: the message says whether the build or the kernels are missing.
    pub fn cuda(ordinal: usize) -> Result<Self> {
        Ok(Self::of(Backend::Cuda(Cuda::new(ordinal)?)))
    }

    /// `cpu` or `cuda`.
    pub fn name(&self) -> &'static str {
        match self.backend() {
            Backend::Cpu(_) => "cpu",
            Backend::Cuda(_) => "cuda",
        }
    }

    /// The kind of arithmetic units in use, for a run's manifest: a name of an
    /// [`InstructionSet`].
    pub fn instruction_set(&self) -> &'static str {
        match self.backend() {
            Backend::Cpu(cpu) => cpu.instruction_set.name(),
            Backend::Cuda(cuda) => cuda.name(),
        }
    }

    /// Threads that take part in an operation, counting the caller's.
    pub fn threads(&self) -> usize {
        match self.backend() {
            Backend::Cpu(cpu) => cpu.threads(),
            Backend::Cuda(_) => 1,
        }
    }

    /// What has been done on this device and its clones.
    pub fn work(&self) -> Work {
        self.0.counters.read()
    }

    fn of(backend: Backend) -> Self {
        Self(Arc::new(Inner { backend, counters: Counters::default() }))
    }

    pub(crate) fn backend(&self) -> &Backend {
        &self.0.backend
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.0.counters
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({}, {} threads)", self.name(), self.instruction_set(), self.threads())
    }
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
    fn cuda_is_refused_with_a_reason() {
        let error = Device::cuda(0).unwrap_err();
        assert!(matches!(&error, Error::Cuda(reason) if !reason.is_empty()), "{error}");
    }
}
