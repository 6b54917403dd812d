//! How the KV cache stores numbers, as it is said in a file or on the command line.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Rounded to nearest when stored; attention over floats runs in `f32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lower")]
pub enum KvType {
    /// Exact, twice the memory
    F32,
    /// 11 significant bits, up to 65 504
    F16,
    /// 8 significant bits, any size
    Bf16,
    /// Integers of up to 13 bits and a sign beside a scale of each head's key and value, on a CPU only: the fastest there for
    /// long prompts and batches
    I16,
}

impl From<KvType> for lifelong_kernels::KvType {
    fn from(kv_type: KvType) -> Self {
        match kv_type {
            KvType::F32 => lifelong_kernels::KvType::F32,
            KvType::F16 => lifelong_kernels::KvType::F16,
            KvType::Bf16 => lifelong_kernels::KvType::BF16,
            KvType::I16 => lifelong_kernels::KvType::I16,
        }
    }
}
