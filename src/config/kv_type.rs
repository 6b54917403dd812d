//! How the KV cache stores numbers, as it is said in a file or on the command line.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Rounded to nearest when stored; attention itself runs in `f32`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lower")]
pub enum KvType {
    /// Exact
    #[default]
    F32,
    /// Half the memory, 11 significant bits
    F16,
    /// Half the memory, 8 significant bits
    Bf16,
}

impl KvType {
    pub(super) fn is_default(&self) -> bool {
        *self == KvType::default()
    }
}

impl From<KvType> for lifelong_kernels::KvType {
    fn from(kv_type: KvType) -> Self {
        match kv_type {
            KvType::F32 => lifelong_kernels::KvType::F32,
            KvType::F16 => lifelong_kernels::KvType::F16,
            KvType::Bf16 => lifelong_kernels::KvType::BF16,
        }
    }
}
