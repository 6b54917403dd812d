//! Whether a GPU computes what the processor does, the same every time, and how fast: one command, one table.
//!
//! Models have drawn weights and are made on the GPU itself, so that the program is all that a machine needs. What is checked
//! here on a GPU is checked on the emulator wherever the tests run, down to the launch calls.

mod checks;
mod drawn;
mod families;
mod peer;
mod report;
mod steps;
mod throughput;

use std::time::{Duration, Instant};

use lifelong_kernels::{Device, Format, KvType};
use lifelong_models::Checkpoint;
use serde_json::{Value, json};

pub use report::{Finding, Report};
pub use throughput::Rate;

use crate::bench::{self, EngineShape, MatrixShape, Workload};

/// The whole command ends within this time, a peer that is slower is stopped.
const LIMIT: Duration = Duration::from_secs(520);

/// The GPU that is checked, the same with kernels started in graphs, and the same with its memory watched.
pub struct Devices {
    pub device: Device,
    pub graphs: Device,
    pub watched: Device,
    /// The GPU and another one as a group, where there are two; else itself, which goes through the same calls. An error is why
    /// there is none.
    pub group: lifelong_kernels::Result<Device>,
}

/// How large models and workloads are.
#[derive(Clone, Debug)]
pub struct Scale {
    /// The GPU's number, for the peer.
    pub ordinal: usize,
    /// `config.json` of the decoder that is measured.
    decoder: Value,
    /// Of the encoder.
    encoder: Value,
    /// Sentences of a call, and tokens of each.
    sentences: [usize; 2],
    workloads: &'static [Workload],
    bench: bench::Scale,
    /// Requests of the checks of the engine, new tokens of each, and the cache's bytes.
    requests: usize,
    new_tokens: usize,
    kv_bytes: u64,
}

impl Scale {
    /// Llama 3.1 8B in bf16, on a GPU without room for it Llama 3.2 1B; caches in f16.
    pub fn full(ordinal: usize, free_memory: usize) -> Self {
        let engine =
            EngineShape { max_batch: 256, prefill_chunk: 2048, kv_type: Some(KvType::F16), matrix_requests: 160 };
        let matrix = MatrixShape { demonstrations: 32, targets: 32, new_tokens: 48, ..MatrixShape::SMALL };
        Scale {
            ordinal,
            decoder: if free_memory > ROOM_FOR_8B { llama(4096, 14_336, 32, 32) } else { llama(2048, 8192, 16, 32) },
            encoder: bert(768, 12, 3072, 30_522),
            sentences: throughput::SENTENCES,
            workloads: throughput::WORKLOADS,
            bench: bench::Scale { runs: 3, decode_tokens: 32, matrix, engine, ..bench::Scale::FULL },
            requests: 24,
            new_tokens: 12,
            kv_bytes: 64 << 20,
        }
    }

    /// For the emulator: every path, hardly any work.
    pub fn tiny() -> Self {
        let engine = EngineShape { max_batch: 8, prefill_chunk: 64, kv_type: Some(KvType::F16), matrix_requests: 8 };
        let matrix = MatrixShape {
            demonstration_tokens: 32,
            target_tokens: 9,
            demonstrations: 1,
            targets: 2,
            seeds: 2,
            new_tokens: 2,
        };
        let mut decoder = llama(64, 96, 1, 2);
        decoder["vocab_size"] = json!(320);
        Scale {
            ordinal: 0,
            decoder,
            encoder: bert(64, 1, 96, 320),
            sentences: [2, 9],
            workloads: throughput::WORKLOADS_OF_TESTS,
            bench: bench::Scale { runs: 1, decode_tokens: 2, matrix, depth: 33, engine, ..bench::Scale::FULL },
            requests: 6,
            new_tokens: 3,
            kv_bytes: 2 << 20,
        }
    }

    fn checkpoint(&self) -> lifelong_models::Result<Checkpoint> {
        Checkpoint::drawn(self.decoder.clone(), 1, Format::BF16, &["lm_head.weight"])
    }
}

/// Weights of 16 GB, and room for a cache.
const ROOM_FOR_8B: usize = 19 << 30;

fn llama(hidden: usize, feed_forward: usize, layers: usize, heads: usize) -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-5,
        "hidden_size": hidden, "intermediate_size": feed_forward, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": heads.div_ceil(4), "head_dim": hidden / heads,
        "vocab_size": 128_256, "max_position_embeddings": 8192, "rope_theta": 500_000.0, "tie_word_embeddings": false,
    })
}

fn bert(hidden: usize, layers: usize, feed_forward: usize, vocabulary: usize) -> Value {
    json!({
        "architectures": ["BertModel"], "model_type": "bert", "vocab_size": vocabulary, "hidden_size": hidden,
        "num_hidden_layers": layers, "num_attention_heads": hidden.div_ceil(64), "intermediate_size": feed_forward,
        "max_position_embeddings": 512, "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
        "position_embedding_type": "absolute", "pad_token_id": 0,
    })
}

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    pub measures: bool,
    /// The Python that may have transformers; none is asked where nothing is measured.
    pub python: Option<&'a str>,
}

/// Checks and measures; every line is handed over as it is found.
///
/// # Errors
/// When a workload cannot be measured; a check that fails is a finding.
pub fn run(devices: &Devices, scale: &Scale, parts: Parts<'_>, say: &mut dyn FnMut(&str)) -> anyhow::Result<Report> {
    let begun = Instant::now();
    let mut findings = Vec::new();
    let mut found = |finding: Finding| {
        say(&finding.line());
        findings.push(finding);
    };
    checks::operations(devices, &mut found);
    checks::models(devices, &mut found);
    checks::determinism(devices, scale, &mut found);
    checks::split(devices, &mut found);
    let mut report = Report {
        device: devices.device.instruction_set().to_string(),
        findings,
        limits: None,
        rates: Vec::new(),
        peer: String::new(),
        seconds: 0.0,
    };
    if parts.measures {
        say("");
        measure(devices, scale, parts.python, begun, &mut report, say)?;
    }
    report.seconds = begun.elapsed().as_secs_f64();
    say("");
    say(&report.verdict());
    Ok(report)
}

fn measure(
    devices: &Devices,
    scale: &Scale,
    python: Option<&str>,
    begun: Instant,
    report: &mut Report,
    say: &mut dyn FnMut(&str),
) -> anyhow::Result<()> {
    let rates = &mut report.rates;
    let limits = throughput::measure(devices, scale, &mut |rate| {
        eprintln!("{}: {:.1} {}", rate.name, rate.rate, rate.unit);
        rates.push(rate);
    })?;
    report.limits = Some([limits.read, limits.floats]);
    report.peer = match python {
        Some(python) => peer::measure(python, scale, rates, LIMIT.saturating_sub(begun.elapsed())),
        None => "no peer was asked for".to_string(),
    };
    let [read, floats] = [limits.read * 1e-9, limits.floats * 1e-12];
    say(&format!("limits measured here: {read:.0} GB/s read, {floats:.1} TFLOP/s of bf16 matrices by mma.sync"));
    say(&format!("beside: {}", report.peer));
    say(&Rate::header());
    report.rates.iter().for_each(|rate| say(&rate.line()));
    Ok(())
}
