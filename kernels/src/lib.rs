//! Fused operations over plain slices: the only place that knows which device runs.
//!
//! [`ops`] is the seam. Each operation states its formula and shapes, checks them, and makes one match on the
//! [`Device`]. Weights are a [`Matrix`], repacked once at load for the arithmetic units; attention state is a
//! [`KvCache`] of 16-token blocks. Activations are `f32`, row-major and contiguous; those that stay between operations are
//! [`Values`], which on a GPU lie where both sides can address them.
//!
//! # Numbers that do not move
//!
//! The bits of one output row are a pure function of that row's inputs: they do not depend on the other rows of the
//! batch, on the number of threads, on how a prompt was cut into chunks, nor on the instruction set. Every reduction
//! runs over a fixed order of 16 lanes with fused multiply-add, and `exp` and `erf` are our own polynomials, so scalar,
//! AVX2 and AVX-512 code give the same bits. Tensors of `candle` were not taken for this reason: its matmuls pick a
//! kernel, and so an order of summation, by the number of rows.

/// The version of the arithmetic: raised when the results of a model move, be it by a kernel (`tests/golden.rs` fails then)
/// or by what a layer asks of one. A run is continued only by the arithmetic that it was begun with.
///
/// 1: 8-bit activations everywhere. 2: 16-bit ones for query, key and value. 3: keys and values in f16. 4: as 16-bit integers
/// on the processor. 5: plain projections of encoders as 16-bit integers on the processor.
pub const ARITHMETIC: u32 = 5;

pub mod checks;
mod cpu;
mod device;
mod error;
mod gpu;
mod group;
mod kv;
pub mod limits;
mod matrix;
mod meeting;
mod memory;
pub mod ops;
mod routes;
mod tally;
mod threads;
mod values;

#[cfg(any(feature = "cuda", feature = "emulate"))]
mod cuda;
#[cfg(not(any(feature = "cuda", feature = "emulate")))]
#[path = "cuda_absent.rs"]
mod cuda;

pub use cuda::survey as survey_cuda;
pub use cuda::survey_exchange;

pub use device::{Device, InstructionSet, Launches, Launching};
pub use error::{Error, Result};
pub use gpu::{CudaSurvey, Gpu};
pub use group::Rank;
pub use kv::{BLOCK_TOKENS, KvCache, KvGeometry, KvType, Segment};
pub use matrix::{Draw, ExpertWeights, Format, Matrix, QUANTIZABLE, quantize};
pub use routes::Routes;
pub use tally::{Tally, Work};
pub use values::Values;
