//! The operations: formula and shapes, checks, one match on the device.
//!
//! Outputs come first, then inputs, then sizes. Slices are `f32`, row-major, contiguous. `T` is the number of packed
//! token rows of a step; every output row depends on its own inputs only, bit for bit.

pub mod activation;
pub mod attention;
pub mod delta;
pub mod embed;
pub mod exchange;
pub mod experts;
pub mod kv;
pub mod matmul;
pub mod norm;
pub mod pool;
pub mod residual;
pub mod rope;
pub mod sample;
