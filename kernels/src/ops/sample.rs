//! Drawing the next token of each row where its logits are.

use crate::cpu;
use crate::cuda::on_gpu;
use crate::device::{Backend, Device};
use crate::error::{Error, Result, check_length};

/// How a row is drawn: division by the temperature, top-k, top-p, min-p, renormalisation, one draw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// 0 takes the likeliest token and ignores the filters.
    pub temperature: f32,
    /// 0 keeps all.
    pub top_k: u32,
    /// In (0, 1]; 1 keeps all.
    pub top_p: f64,
    /// In [0, 1]; 0 keeps all.
    pub min_p: f64,
    /// Philox key and counter of the row's random number.
    pub key: u64,
    pub position: u64,
}

/// A drawn token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drawn {
    pub token: u32,
    /// Under the logits' own distribution: before temperature and filters.
    pub logprob: f32,
}

/// One draw a row; `None` for a row with a NaN, a +∞ or nothing but −∞. Ties, at the likeliest and at every cut, go to the
/// lower token; the draw walks what is kept in order of token. Every sum has one order, so a row's draw is a function of
/// its logits and its [`Sampling`], and the same on every device.
///
/// # Shapes
/// `logits` `[rows.len(), vocabulary]`
///
/// # Errors
/// A wrong length, a vocabulary of none, a parameter out of its range.
pub fn draw(device: &Device, logits: &[f32], vocabulary: usize, rows: &[Sampling]) -> Result<Vec<Option<Drawn>>> {
    let op = "sample";
    if vocabulary == 0 || vocabulary > i32::MAX as usize {
        return Err(Error::Shape { op, problem: format!("a vocabulary of {vocabulary} tokens") });
    }
    check_length(op, "logits", logits.len(), &[("rows", rows.len()), ("vocabulary", vocabulary)])?;
    let is_legal = |row: &Sampling| {
        row.temperature >= 0.0
            && row.temperature.is_finite()
            && row.top_p > 0.0
            && row.top_p <= 1.0
            && (0.0..=1.0).contains(&row.min_p)
    };
    if let Some((index, row)) = rows.iter().enumerate().find(|(_, row)| !is_legal(row)) {
        return Err(Error::Shape { op, problem: format!("row {index} has {row:?}") });
    }
    match device.backend() {
        Backend::Cpu(_) => Ok(logits
            .chunks_exact(vocabulary)
            .zip(rows)
            .map(|(row, sampling)| cpu::sample::draw(row, sampling))
            .collect()),
        Backend::Cuda(cuda) => on_gpu!(cuda, sample::draw(logits, vocabulary, rows)),
    }
}
