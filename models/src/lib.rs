//! Backbone and encoder architectures, and the checkpoint formats they load from.
//!
//! A [`checkpoint::Checkpoint`] is a model on disk: tensors by name and a description, from [`gguf`] or [`safetensors`].
//! [`config`] turns the description into typed dimensions, [`registry`] finds the architecture it names, and that builds
//! an [`architecture::Decoder`] or [`architecture::Encoder`] out of layers, which are thin over the kernels.

pub mod architecture;
pub mod bert;
#[cfg_attr(not(feature = "candle"), path = "candle_fallback_absent.rs")]
mod candle_fallback;
pub mod causal_encoder;
pub mod checkpoint;
pub mod config;
mod drawn;
pub mod error;
pub mod file;
mod fp8;
pub mod gemma3;
pub mod gguf;
pub mod gpt_oss;
mod layers;
pub mod llama;
pub mod mistral;
pub mod mpnet;
mod names;
pub mod phi3;
mod pieces;
pub mod pre_norm;
pub mod qwen2;
pub mod qwen3;
pub mod qwen3_5;
pub mod qwen3_moe;
pub mod registry;
pub mod safetensors;
mod share;
pub mod smollm3;
mod split;
pub mod token_head;
pub mod torch_file;
mod weights;
pub mod xlm_roberta;

pub use architecture::{Batch, Batching, Decoder, Encoder, Geometry, Scratch};
pub use checkpoint::{Checkpoint, Metadata, TensorView};
pub use error::{Error, Fault, Result};
pub use registry::{ARCHITECTURES, load_decoder, load_encoder};
