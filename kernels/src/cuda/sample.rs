//! Drawing the next tokens: a few bytes a row come back instead of its logits.

use bytemuck::{NoUninit, Pod, Zeroable};

use super::Cuda;
use super::operation::Operation;
use super::runner::{Argument, arguments};
use crate::error::Result;
use crate::ops::sample::{Drawn, Sampling};

const THREADS: u32 = 512;
/// Logits whose weights are summed together.
const CHUNK: usize = 64;
/// What a row without numbers gets for a token.
const NOTHING: u32 = u32::MAX;

/// `Sampling` of `cuda/sample.cu`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct DeviceSampling {
    temperature: f32,
    top_k: u32,
    top_p: f64,
    min_p: f64,
    key: u64,
    position: u64,
}

/// `Drawn` of `cuda/sample.cu`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct DeviceDrawn {
    token: u32,
    below: f32,
    total: f64,
}

/// `Sample` of `cuda/sample.cu`.
#[repr(C)]
#[derive(Clone, Copy, NoUninit)]
struct Sample {
    drawn: u64,
    logits: u64,
    rows: u64,
    weights: u64,
    kept: u64,
    sorted: u64,
    sums: u64,
    vocabulary: i32,
    fill: i32,
}

pub(crate) fn draw(cuda: &Cuda, logits: &[f32], vocabulary: usize, rows: &[Sampling]) -> Result<Vec<Option<Drawn>>> {
    let samplings: Vec<DeviceSampling> = rows
        .iter()
        .map(|row| DeviceSampling {
            temperature: row.temperature,
            top_k: row.top_k,
            top_p: row.top_p,
            min_p: row.min_p,
            key: row.key,
            position: row.position,
        })
        .collect();
    let mut drawn = vec![DeviceDrawn::zeroed(); rows.len()];
    let mut operation = Operation::begin(cuda, "sample")?;
    let sample = Sample {
        drawn: operation.output(&mut drawn)?,
        logits: operation.input(logits)?,
        rows: operation.input(&samplings)?,
        weights: operation.scratch(size_of_val(logits))?,
        kept: operation.scratch(logits.len() * size_of::<u32>())?,
        sorted: operation.scratch(logits.len() * size_of::<u32>())?,
        sums: operation.scratch(rows.len() * vocabulary.div_ceil(CHUNK) * size_of::<f32>())?,
        vocabulary: vocabulary as i32,
        fill: 0,
    };
    operation.launch("sample_rows", [rows.len() as u32, 1, 1], THREADS, 0, arguments![Argument::of(&sample)])?;
    operation.finish()?;
    let read = |drawn: &DeviceDrawn| {
        let logprob = (f64::from(drawn.below) - drawn.total.ln()) as f32;
        (drawn.token != NOTHING).then_some(Drawn { token: drawn.token, logprob })
    };
    Ok(drawn.iter().map(read).collect())
}
