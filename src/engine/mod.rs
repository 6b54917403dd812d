//! Completions and embeddings from open weights, in-process: the only part of the program that touches a device.
//!
//! A [`request`] enters through a [`session`]; `scheduler` packs rows over the prefix `cache`, `step` runs them, and a
//! completion comes back that is a pure function of weights, tokens, sampling and seed. [`generate`] is the narrow face
//! that policies and agents see. [`hub`] finds a model's files.

pub mod error;
pub mod generate;
pub mod hub;
pub mod planner;
pub mod request;
pub mod sampling;

mod block;
mod cache;
mod generation;
mod penalty;
mod prefix;
mod sampler;
#[cfg(test)]
mod sampling_cases;
mod scheduler;
mod softmax;
mod stop;
