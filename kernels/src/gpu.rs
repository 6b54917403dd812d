//! What a machine has of CUDA, in words that a build without it knows too.

/// A GPU as the driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    pub ordinal: usize,
    pub name: String,
    /// Major and minor compute capability.
    pub compute_capability: (i32, i32),
    pub memory_bytes: usize,
}

/// What this build and this machine have of CUDA.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CudaSurvey {
    /// The chips that the program's kernels were compiled for (`sm_80 … compute_80`); `None` in a build without the feature
    /// `cuda`, which looks for nothing.
    pub built_for: Option<&'static str>,
    /// The CUDA version that the driver speaks, major and minor; `None` where there is no driver.
    pub driver: Option<(i32, i32)>,
    /// In the driver's order.
    pub gpus: Vec<Gpu>,
    /// Why a GPU cannot be used, and what to do about it.
    pub problem: Option<String>,
}
