//! Every environment variable the program reads, in one place.

/// A variable and what it does.
pub struct Variable {
    pub name: &'static str,
    pub effect: &'static str,
}

/// Printed by `lifelong --help`; read where each is named.
pub static VARIABLES: &[Variable] = &[
    Variable { name: "LIFELONG_HOME", effect: "folder of the model cache (default: the user's cache folder/lifelong)" },
    Variable { name: "LIFELONG_PYTHON", effect: "Python whose pip fetches wheels (default: python3)" },
    Variable {
        name: "LIFELONG_INSTRUCTION_SET",
        effect: "force scalar, avx2, avx512-vnni or avx512-amx kernels (same results, other speed)",
    },
    Variable {
        name: "LIFELONG_NCCL",
        effect: "NCCL's library file, for models split over GPUs (default: libnccl.so.2 of the system)",
    },
    Variable {
        name: "LIFELONG_LAUNCHING",
        effect: "how a GPU's kernels are started: graphs (the default), direct, or watched (slow, finds stray writes)",
    },
    Variable { name: "HF_HOME", effect: "folder of the Hugging Face cache" },
    Variable { name: "HF_HUB_CACHE", effect: "the same folder's models alone (default: hub in HF_HOME)" },
    Variable { name: "HF_ENDPOINT", effect: "address of the Hugging Face hub" },
    Variable { name: "HF_TOKEN", effect: "token for gated models" },
    Variable { name: "HF_HUB_OFFLINE", effect: "1: never ask the hub" },
    Variable { name: "NO_COLOR", effect: "any value: plain text" },
    Variable { name: "LIFELONG_LOG", effect: "log filter, for example `info` or `lifelong::engine=debug`" },
];
