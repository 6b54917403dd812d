//! Backbone and encoder architectures, and the checkpoint formats they load from.
//!
//! A [`checkpoint::Checkpoint`] is a model on disk: tensors by name and a description, from [`gguf`] or [`safetensors`].
//! [`config`] turns the description into typed dimensions, [`registry`] finds the architecture it names, and that builds
//! an [`architecture::Decoder`] or [`architecture::Encoder`] out of [`layers`], which are thin over the kernels.

pub mod checkpoint;
pub mod error;
pub mod file;
pub mod gguf;
pub mod safetensors;

pub use error::{Error, Fault, Result};
