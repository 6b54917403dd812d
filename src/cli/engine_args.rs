//! The engine's options as flags, shared by the commands that load a model. None of them changes a result.

use clap::Args;

use crate::config::{ByteSize, EngineConfig};

#[derive(Debug, Args)]
#[command(next_help_heading = "Engine (speed and memory only; results stay the same)")]
pub struct EngineArgs {
    /// Device: `cpu`, `cuda:N`, copies on several GPUs as `cuda:0,1` or `cuda:all`, one model in parts over several that it is
    /// too large for one of as `cuda:0+1` (needs NCCL; other last digits than one GPU), or `auto` for the first GPU where the
    /// program was built with CUDA and there is one, else the CPU
    #[arg(long, default_value = "auto")]
    device: String,
    /// Most requests decoded in one step; lower it when memory is short
    #[arg(long, default_value_t = EngineConfig::default().max_batch)]
    max_batch: usize,
    /// Compute threads [default: all cores]
    #[arg(long)]
    threads: Option<usize>,
    /// Memory of the KV cache, on each GPU, for example `2GiB` [default: a quarter of the free memory, at most 8GiB; on a GPU nine tenths
    /// of what the weights leave]
    #[arg(long)]
    kv_memory: Option<ByteSize>,
    /// Most prompt tokens computed in one step
    #[arg(long, default_value_t = EngineConfig::default().prefill_chunk)]
    prefill_chunk: usize,
    /// Compute every prompt anew instead of reusing prefixes that were computed before
    #[arg(long)]
    no_prefix_cache: bool,
}

impl EngineArgs {
    pub fn config(&self) -> EngineConfig {
        EngineConfig {
            device: self.device.clone(),
            max_batch: self.max_batch,
            threads: self.threads,
            kv_memory: self.kv_memory,
            prefill_chunk: self.prefill_chunk,
            prefix_cache: !self.no_prefix_cache,
        }
    }
}
