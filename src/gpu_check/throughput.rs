//! How fast a GPU is, and what that is of what it can do at most.

use anyhow::{Context as _, ensure};
use lifelong_kernels::limits::Limits;
use lifelong_kernels::ops::pool;
use lifelong_kernels::{Device, Format, KvGeometry, KvType, Values};
use lifelong_models::{Checkpoint, Geometry, Scratch, load_encoder};
use serde_json::{Value, json};

use super::{Devices, Scale, drawn};
use crate::bench::{Kind, Measurement, Prompts, Workload, measure_completions};
use crate::engine::model::LoadedModel;

/// A workload's speed.
#[derive(Clone, Debug)]
pub struct Rate {
    pub name: &'static str,
    pub about: String,
    /// `tok/s` or `sentences/s`.
    pub unit: &'static str,
    pub rate: f64,
    /// Of reading: weights and cache. None where reading is not what decides.
    pub of_read: Option<f64>,
    /// Of products of bf16 matrices.
    pub of_floats: Option<f64>,
    /// The other's rate.
    pub peer: Option<f64>,
}

impl Rate {
    /// Over the column heads of [`Rate::header`].
    pub fn line(&self) -> String {
        let percent = |share: Option<f64>| share.map_or("—".to_string(), |share| format!("{:.0}%", 100.0 * share));
        let peer = self.peer.map_or("—".to_string(), |peer| format!("{peer:.1}"));
        let ratio = self.peer.map_or("—".to_string(), |peer| format!("{:.2}×", self.rate / peer));
        format!(
            "{:<18} {:>11.1} {:<11} {:>8} {:>8} {peer:>13} {ratio:>8}  {}",
            self.name,
            self.rate,
            self.unit,
            percent(self.of_read),
            percent(self.of_floats),
            self.about
        )
    }

    pub fn header() -> String {
        format!(
            "{:<18} {:>11} {:<11} {:>8} {:>8} {:>13} {:>8}  {}",
            "workload", "ours", "unit", "of read", "of bf16", "transformers", "ratio", "shape"
        )
    }

    pub fn json(&self) -> Value {
        json!({
            "name": self.name, "about": self.about, "unit": self.unit, "rate": self.rate, "of_read": self.of_read,
            "of_bf16": self.of_floats, "transformers": self.peer,
        })
    }
}

/// What is measured, in order; the names are those that the peer answers with.
pub(super) const WORKLOADS: &[Workload] = &[
    Workload { name: "prefill-512", kind: Kind::Prefill { tokens: 512 } },
    Workload { name: "prefill-2048", kind: Kind::Prefill { tokens: 2048 } },
    Workload { name: "decode-1-own", kind: Kind::Decode { batch: 1, prompts: Prompts::Own } },
    Workload { name: "decode-8-own", kind: Kind::Decode { batch: 8, prompts: Prompts::Own } },
    Workload { name: "decode-8-shared", kind: Kind::Decode { batch: 8, prompts: Prompts::Shared } },
    Workload { name: "decode-64-own", kind: Kind::Decode { batch: 64, prompts: Prompts::Own } },
    Workload { name: "decode-64-shared", kind: Kind::Decode { batch: 64, prompts: Prompts::Shared } },
    Workload { name: "decode-256-own", kind: Kind::Decode { batch: 256, prompts: Prompts::Own } },
    Workload { name: "decode-256-shared", kind: Kind::Decode { batch: 256, prompts: Prompts::Shared } },
    Workload { name: "matrix", kind: Kind::Matrix { prefix_cache: true } },
];

/// One of each kind, for the emulator.
pub(super) const WORKLOADS_OF_TESTS: &[Workload] = &[
    Workload { name: "prefill-64", kind: Kind::Prefill { tokens: 64 } },
    Workload { name: "decode-1-own", kind: Kind::Decode { batch: 1, prompts: Prompts::Own } },
    Workload { name: "decode-3-shared", kind: Kind::Decode { batch: 3, prompts: Prompts::Shared } },
    Workload { name: "matrix", kind: Kind::Matrix { prefix_cache: true } },
];

/// Sentences of a call, and tokens of each.
pub(super) const SENTENCES: [usize; 2] = [128, 63];

/// The rates of the largest model that fits, one after the other.
pub(super) fn measure(devices: &Devices, scale: &Scale, each: &mut dyn FnMut(Rate)) -> anyhow::Result<Limits> {
    let device = &devices.device;
    let model = drawn::load(&scale.checkpoint()?, device)?;
    let limits = Limits::measure(device, model.decoder.geometry().weight_bytes as usize)?;
    for workload in scale.workloads {
        if !fits(&model, *workload, scale)? {
            eprintln!("note: {} left out: its cache does not fit beside the weights", workload.name);
            continue;
        }
        let measured = measure_completions(&model, *workload, &scale.bench)
            .with_context(|| format!("workload `{}`", workload.name))?;
        each(rate(&measured, workload.kind, model.decoder.geometry(), scale, &limits));
    }
    drop(model);
    graphs(devices, scale, &limits, each)?;
    each(embeddings(device, scale)?);
    Ok(limits)
}

/// Decoding of few rows again, with kernels started in graphs.
fn graphs(devices: &Devices, scale: &Scale, limits: &Limits, each: &mut dyn FnMut(Rate)) -> anyhow::Result<()> {
    let model = drawn::load(&scale.checkpoint()?, &devices.graphs)?;
    for (name, batch) in [("decode-1-graphs", 1), ("decode-8-graphs", 8)] {
        let workload = Workload { name, kind: Kind::Decode { batch, prompts: Prompts::Own } };
        let measured = measure_completions(&model, workload, &scale.bench)?;
        each(rate(&measured, workload.kind, model.decoder.geometry(), scale, limits));
    }
    Ok(())
}

/// Whether the cache that a workload asks for is free.
fn fits(model: &LoadedModel, workload: Workload, scale: &Scale) -> anyhow::Result<bool> {
    let context = workload.context(&scale.bench);
    let rows = match workload.kind {
        Kind::Decode { batch, .. } => batch,
        Kind::Matrix { .. } => scale.bench.engine.matrix_requests,
        _ => 2,
    };
    let needed = (rows * context) as f64 * cache_bytes(model.decoder.geometry(), scale.bench.engine.kv_type);
    Ok(model.device.free_memory()?.is_none_or(|free| needed * 1.1 < free as f64))
}

/// Bytes of the cache for a token.
fn cache_bytes(geometry: &Geometry, kv_type: Option<KvType>) -> f64 {
    let block = KvGeometry { kv_type: kv_type.unwrap_or(KvType::F16), ..geometry.kv(1) };
    block.bytes_per_block() as f64 / block.block_tokens as f64
}

fn rate(measured: &Measurement, kind: Kind, geometry: &Geometry, scale: &Scale, limits: &Limits) -> Rate {
    let shares = measured.limit_shares(limits);
    // The cache that a decoding step reads beside the weights: a shared prefix once, what is a row's own for each.
    let of_read = match kind {
        Kind::Decode { batch, prompts } => {
            let steps = scale.bench.decode_tokens as f64;
            let own = 1.0 + steps / 2.0;
            let positions = match prompts {
                Prompts::Own => batch as f64 * (scale.bench.depth as f64 + own),
                Prompts::Shared => scale.bench.depth as f64 + batch as f64 * own,
            };
            let bytes = positions * steps * cache_bytes(geometry, scale.bench.engine.kv_type);
            Some(shares.read + bytes * measured.median() / measured.tokens as f64 / limits.read)
        }
        _ => None,
    };
    Rate {
        name: measured.name,
        about: measured.about.clone(),
        unit: measured.unit.name(),
        rate: measured.median(),
        of_read,
        of_floats: Some(shares.floats),
        peer: None,
    }
}

/// An encoder of the shape of BERT base, bf16, mean pooling.
fn embeddings(device: &Device, scale: &Scale) -> anyhow::Result<Rate> {
    let checkpoint = Checkpoint::drawn(scale.encoder.clone(), 3, Format::BF16, &[])?;
    let model = load_encoder(&checkpoint, device)?;
    let [sentences, length] = scale.sentences;
    let (vocab, hidden) = (model.geometry().vocab, model.geometry().hidden);
    let tokens: Vec<u32> = (0..sentences * length).map(|index| (index * 7919 % vocab) as u32).collect();
    let lengths = vec![length; sentences];
    let (mut scratch, mut states, mut vectors) = (Scratch::default(), Values::default(), vec![0.0; sentences * hidden]);
    let mut run = || -> anyhow::Result<()> {
        model.forward(device, &tokens, &lengths, &mut scratch, &mut states)?;
        pool::mean(device, &mut vectors, &states, &lengths)?;
        Ok(device.synchronize()?)
    };
    run()?;
    let mut quickest = f64::INFINITY;
    for _ in 0..scale.bench.runs {
        let begun = std::time::Instant::now();
        run()?;
        quickest = quickest.min(begun.elapsed().as_secs_f64());
    }
    ensure!(vectors.iter().all(|value| value.is_finite()), "embeddings that are no numbers");
    Ok(Rate {
        name: "embeddings",
        about: format!("one call of {sentences} x {length} tokens, {} layers of {hidden}", model.geometry().layers),
        unit: "sentences/s",
        rate: sentences as f64 / quickest,
        of_read: None,
        of_floats: None,
        peer: None,
    })
}
