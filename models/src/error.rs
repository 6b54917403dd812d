//! What can go wrong between a model file and a forward pass.

use std::path::{Path, PathBuf};

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a model could not be read, built or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("cannot read {}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// The bytes break their own format. `detail` says where (byte offset, key or tensor), what was expected and found.
    #[error("{} is not a usable model file ({fault}): {detail}", path.display())]
    Malformed { path: PathBuf, fault: Fault, detail: String },
    /// Shards that the index names and the folder lacks, all of them.
    #[error("{} names shards that are not in its folder: {}; download them again", path.display(), shards.join(", "))]
    MissingShards { path: PathBuf, shards: Vec<String> },
    #[error("{} has no tensor `{tensor}`: {reason}", path.display())]
    MissingTensor { path: PathBuf, tensor: String, reason: String },
    #[error("{}: tensor `{tensor}` has shape {found:?}, the configuration says {expected:?}", path.display())]
    ShapeMismatch { path: PathBuf, tensor: String, expected: Vec<usize>, found: Vec<usize> },
    /// The file is sound, and holds a tensor in a storage type we have no kernel for.
    #[error(
        "{}: tensor `{tensor}` is stored as {found}, which has no kernel here; use a file quantised as one of {}",
        path.display(), usable.join(", ")
    )]
    UnusableType { path: PathBuf, tensor: String, found: String, usable: Vec<String> },
    /// A configuration key that is absent, of the wrong type or of a value we cannot honour.
    #[error("{}: `{key}`: {problem}", path.display())]
    Config { path: PathBuf, key: String, problem: String },
    /// Tensors no part of the architecture reads: their model computes something else.
    #[error(
        "{}: the architecture has no use for {}; the file holds a variant that is not supported",
        path.display(), list(tensors)
    )]
    UnknownTensors { path: PathBuf, tensors: Vec<String> },
    #[error("{}: architecture `{found}` is not supported; supported: {}", path.display(), supported.join(", "))]
    UnsupportedArchitecture { path: PathBuf, found: String, supported: Vec<String> },
    /// A step that the model cannot run: lengths that differ, a token or a position out of range.
    #[error("invalid batch: {0}")]
    Batch(String),
    /// A model that a group of devices cannot share.
    #[error("{}: the model cannot be split over {devices} devices: {problem}", path.display())]
    Split { path: PathBuf, devices: usize, problem: String },
    /// A model that runs through candle and that candle does not build.
    #[error("{}: candle, which runs this architecture, cannot build it: {reason}", path.display())]
    Candle { path: PathBuf, reason: String },
    #[error(transparent)]
    Kernel(#[from] lifelong_kernels::Error),
}

/// The first few names and how many more there are.
fn list(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// In which way a model file breaks its format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    BadMagic,
    UnsupportedVersion,
    Truncated,
    LengthOverflow,
    CountOverflow,
    BadType,
    TypeMismatch,
    BadUtf8,
    DuplicateKey,
    DuplicateTensor,
    BadAlignment,
    BadDims,
    TensorOutOfFile,
    MisalignedTensor,
    OverlappingTensors,
    HoleInData,
    TrailingBytes,
    BadHeader,
    HeaderTooLarge,
    SizeMismatch,
    UnsafePath,
    /// A pickle that does more than describe tensors.
    UnsafePickle,
    /// A count or depth above what any real model needs; see the constants of the readers.
    Limit,
}

impl Fault {
    /// The name used in messages, e.g. `tensor_out_of_file`.
    pub fn name(self) -> &'static str {
        match self {
            Fault::BadMagic => "bad_magic",
            Fault::UnsupportedVersion => "unsupported_version",
            Fault::Truncated => "truncated",
            Fault::LengthOverflow => "length_overflow",
            Fault::CountOverflow => "count_overflow",
            Fault::BadType => "bad_type",
            Fault::TypeMismatch => "type_mismatch",
            Fault::BadUtf8 => "bad_utf8",
            Fault::DuplicateKey => "duplicate_key",
            Fault::DuplicateTensor => "duplicate_tensor",
            Fault::BadAlignment => "bad_alignment",
            Fault::BadDims => "bad_dims",
            Fault::TensorOutOfFile => "tensor_out_of_file",
            Fault::MisalignedTensor => "misaligned_tensor",
            Fault::OverlappingTensors => "overlapping_tensors",
            Fault::HoleInData => "hole_in_data",
            Fault::TrailingBytes => "trailing_bytes",
            Fault::BadHeader => "bad_header",
            Fault::HeaderTooLarge => "header_too_large",
            Fault::SizeMismatch => "size_mismatch",
            Fault::UnsafePath => "unsafe_path",
            Fault::UnsafePickle => "unsafe_pickle",
            Fault::Limit => "limit",
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A fault before the file it sits in is known: the readers work on bytes, their callers know the path.
#[derive(Debug)]
pub(crate) struct Broken {
    pub fault: Fault,
    pub detail: String,
}

impl Broken {
    pub fn new(fault: Fault, detail: impl Into<String>) -> Self {
        Broken { fault, detail: detail.into() }
    }

    pub fn at(self, path: &Path) -> Error {
        Error::Malformed { path: path.to_path_buf(), fault: self.fault, detail: self.detail }
    }
}
