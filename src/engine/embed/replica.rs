//! An embedding model on one device.

use std::sync::{Mutex, PoisonError};

use lifelong_kernels::{Device, Values, ops};
use lifelong_models::token_head::TokenHead;
use lifelong_models::{Encoder, Scratch};

use super::{Pooling, SparseVector, TokenVectors};
use crate::engine::error::{Error, Result};

pub(super) struct Replica {
    pub(super) device: Device,
    pub(super) encoder: Box<dyn Encoder>,
    pub(super) sparse: Option<TokenHead>,
    pub(super) colbert: Option<TokenHead>,
    buffers: Mutex<Buffers>,
}

/// Memory kept between batches.
#[derive(Default)]
struct Buffers {
    scratch: Scratch,
    /// `[T, H]`
    hidden: Values,
}

/// One text behind the encoder.
pub(super) struct Encoded<'a> {
    pub(super) tokens: &'a [u32],
    /// `[tokens][H]`
    pub(super) hidden: &'a [f32],
}

impl Replica {
    pub(super) fn new(
        device: Device,
        encoder: Box<dyn Encoder>,
        sparse: Option<TokenHead>,
        colbert: Option<TokenHead>,
    ) -> Self {
        Replica { device, encoder, sparse, colbert, buffers: Mutex::default() }
    }

    fn encode_batch(
        &self,
        batch: &[usize],
        documents: &[Vec<u32>],
        mut finish: impl FnMut(usize, &Encoded<'_>) -> Result<()>,
    ) -> Result<()> {
        let tokens: Vec<u32> = batch.iter().flat_map(|&text| documents[text].iter().copied()).collect();
        let lengths: Vec<usize> = batch.iter().map(|&text| documents[text].len()).collect();
        // A batch that panicked left only memory behind, which the next one overwrites.
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let Buffers { scratch, hidden } = &mut *buffers;
        self.encoder.forward(&self.device, &tokens, &lengths, scratch, hidden).map_err(|error| failed(&error))?;
        let width = self.encoder.geometry().hidden;
        let mut start = 0;
        for &text in batch {
            let tokens = &documents[text];
            let end = start + tokens.len() * width;
            finish(text, &Encoded { tokens, hidden: &hidden[start..end] })?;
            start = end;
        }
        Ok(())
    }

    pub(super) fn dense(&self, pooling: Pooling, text: &Encoded<'_>) -> Result<Vec<f32>> {
        let (device, lengths) = (&self.device, [text.tokens.len()]);
        let mut pooled = vec![0.0; self.encoder.geometry().hidden];
        match pooling {
            Pooling::Mean => ops::pool::mean(device, &mut pooled, text.hidden, &lengths),
            Pooling::Cls => ops::pool::cls(device, &mut pooled, text.hidden, &lengths),
            Pooling::Last => ops::pool::last(device, &mut pooled, text.hidden, &lengths),
        }
        .map_err(|error| failed(&error))?;
        Ok(unit(&pooled))
    }

    pub(super) fn sparse(&self, head: &TokenHead, special: &[u32], text: &Encoded<'_>) -> Result<SparseVector> {
        let mut weights = vec![0.0; text.tokens.len()];
        head.forward(&self.device, &mut weights, text.hidden).map_err(|error| failed(&error))?;
        Ok(SparseVector::of(text.tokens, &weights, special))
    }

    pub(super) fn colbert(&self, head: &TokenHead, text: &Encoded<'_>) -> Result<TokenVectors> {
        let width = head.outputs();
        let behind_first = &text.hidden[self.encoder.geometry().hidden.min(text.hidden.len())..];
        let mut rows = vec![0.0; (text.tokens.len().saturating_sub(1)) * width];
        head.forward(&self.device, &mut rows, behind_first).map_err(|error| failed(&error))?;
        Ok(TokenVectors { width, rows: rows.chunks_exact(width).flat_map(unit).collect() })
    }
}

/// Runs all batches, the devices in turns, as batches are about equal, and gives what `finish` makes of every text, in no
/// order.
pub(super) fn share_out<T: Send>(
    replicas: &[Replica],
    batches: &[&[usize]],
    documents: &[Vec<u32>],
    finish: &(impl Fn(&Replica, &Encoded<'_>) -> Result<T> + Sync),
) -> Result<Vec<(usize, T)>> {
    let run = |index: usize| -> Result<Vec<(usize, T)>> {
        let (replica, mut done) = (&replicas[index], Vec::new());
        for batch in batches.iter().skip(index).step_by(replicas.len()) {
            replica.encode_batch(batch, documents, |text, encoded| {
                done.push((text, finish(replica, encoded)?));
                Ok(())
            })?;
        }
        Ok(done)
    };
    if replicas.len() == 1 {
        return run(0);
    }
    let parts: Vec<Result<Vec<(usize, T)>>> = std::thread::scope(|scope| {
        let run = &run;
        let started: Vec<_> = (0..replicas.len()).map(|index| scope.spawn(move || run(index))).collect();
        started
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let mut done = Vec::new();
    for part in parts {
        done.extend(part?);
    }
    Ok(done)
}

fn failed(error: &dyn std::fmt::Display) -> Error {
    Error::Forward { reason: error.to_string() }
}

/// The vector divided by its length, computed in 64 bits so that no vector but zero is too short to have one.
pub(super) fn unit(vector: &[f32]) -> Vec<f32> {
    let length = vector.iter().map(|&value| f64::from(value) * f64::from(value)).sum::<f64>().sqrt();
    if length == 0.0 {
        return vector.to_vec();
    }
    vector.iter().map(|&value| (f64::from(value) / length) as f32).collect()
}
