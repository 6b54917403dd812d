//! Stands in for the GPU in a build without the features `cuda` and `emulate`: nothing here can be constructed.

use crate::device::{Launches, Launching};
use crate::error::{Error, Result};
use crate::gpu::{CudaSurvey, Gpu};

/// A GPU that cannot exist in this build.
pub(crate) enum Cuda {}

/// Memory that both sides address: there is no other side.
pub(crate) enum Managed {}

/// A weight on a GPU.
pub(crate) enum DeviceMatrix {}

/// Where the weights of experts lie on a GPU.
#[derive(Debug)]
pub(crate) enum DeviceExperts {}

/// A cache on a GPU.
pub(crate) enum DeviceCache {}

/// Ways between GPUs.
pub(crate) enum Links {}

/// What runs an operation where there is a GPU: there it is a call of the launcher, here it cannot be reached.
macro_rules! on_gpu {
    ($cuda:expr, $family:ident::$launcher:ident($($argument:expr),* $(,)?)) => {
        $cuda.never()
    };
}
pub(crate) use on_gpu;

/// What this build and this machine have of CUDA.
pub fn survey() -> CudaSurvey {
    CudaSurvey { built_for: None, driver: None, gpus: Vec::<Gpu>::new(), problem: None }
}

/// There is no GPU that could be connected.
pub(crate) fn connect(_gpus: &[&Cuda]) -> Result<Option<Links>> {
    Ok(None)
}

/// The version of the library that carries numbers between GPUs of a group.
///
/// # Errors
/// Always.
pub fn survey_exchange() -> std::result::Result<String, String> {
    Err("a program without CUDA kernels looks for no NCCL".into())
}

impl Links {
    pub(crate) fn cut(&self) {
        match *self {}
    }
}

impl Cuda {
    pub(crate) fn new(ordinal: usize, _launching: Launching) -> Result<Self> {
        let problem = format!("device {ordinal} asked of a program built without the feature `cuda`");
        Err(Error::Cuda(problem + "; build with `--features cuda` or use the cpu"))
    }

    pub(crate) fn emulated(_order: u64, _launching: Launching) -> Result<Self> {
        Err(Error::Cuda("a build without the feature `emulate`, which is for tests, emulates no GPU".into()))
    }

    pub(crate) fn name(&self) -> &str {
        match *self {}
    }

    pub(crate) fn never<T>(&self) -> Result<T> {
        match *self {}
    }

    pub(crate) fn managed(&self, _length: usize) -> Result<Managed> {
        match *self {}
    }

    pub(crate) fn synchronize(&self) -> Result<()> {
        match *self {}
    }

    pub(crate) fn launches(&self) -> Launches {
        match *self {}
    }

    pub(crate) fn free_memory(&self) -> Result<usize> {
        match *self {}
    }
}

impl Managed {
    pub(crate) fn grown(&self, _length: usize) -> Result<Self> {
        match *self {}
    }

    pub(crate) fn synchronize(&self) -> Result<()> {
        match *self {}
    }

    pub(crate) fn values(&self) -> &[f32] {
        match *self {}
    }

    pub(crate) fn values_mut(&mut self) -> &mut [f32] {
        match *self {}
    }
}

impl DeviceMatrix {
    pub(crate) fn is_quantised(&self) -> bool {
        match *self {}
    }

    pub(crate) fn bytes(&self) -> usize {
        match *self {}
    }
}
