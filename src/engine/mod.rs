//! Completions and embeddings from open weights, in-process: the only part of the program that touches a device.
//!
//! [`hub`] finds a model's files and [`model`] loads them. A [`request`] enters through a [`session`]; `scheduler` packs
//! rows over the prefix `cache`, `step` runs them, and a completion comes back that is a pure function of weights,
//! tokens, sampling and seed; [`forced`] gives the log-probabilities of a text that is given instead of drawn. [`embed`] does the same for texts and vectors. [`generate`] is the narrow face that
//! policies and agents see.

pub mod embed;
pub mod error;
pub mod forced;
pub mod generate;
pub mod grammar;
pub mod hub;
pub mod machine;
pub mod model;
pub mod planner;
pub mod request;
pub mod sampling;
pub mod session;
pub mod stats;
pub mod template;
pub mod tokenizer;

mod batch;
mod block;
mod cache;
mod device_sampler;
mod filters;
mod generation;
mod penalty;
mod prefix;
mod replicas;
mod sampler;
#[cfg(test)]
mod sampling_cases;
mod scheduler;
mod serve;
mod softmax;
mod step;
mod stop;
mod submission;
mod thought;

pub(crate) use block::default_kv_type;
