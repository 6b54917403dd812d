//! Mixtures of experts: which experts a token goes to, and bringing tokens there and back.
//!
//! The expert layers themselves are products ([`super::matmul`]) over the rows of one expert. A row's route, its products
//! and the order of its sum are functions of the row alone, so that a token's result does not depend on which others
//! share its experts.

use crate::cpu;
use crate::cuda::on_gpu;
use crate::device::{Backend, Device};
use crate::error::{Error, Result, check_length, check_rows};

/// What the shares of the chosen experts are parts of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shares {
    /// The softmax over all experts: the chosen ones sum to less than 1.
    OfAll,
    /// The softmax over the chosen experts: they sum to 1.
    OfChosen,
}

/// Chooses the C experts with the largest logits and their shares, `exp(logit) / Σ exp` over what `shares` says
/// (Shazeer et al. 2017, "Outrageously Large Neural Networks", §2.1; Fedus et al. 2022, "Switch Transformers", eq. 1 for
/// shares of all). Of equal logits the expert with the lower number is chosen, and stands, first.
///
/// # Shapes
/// `chosen`, `share` `[T, C]`, best first · `logits` `[T, E]`, with E `experts`, and C as given by `chosen`'s length
///
/// # Errors
/// A wrong length, more experts to choose than there are.
pub fn route(
    device: &Device,
    chosen: &mut [u32],
    share: &mut [f32],
    logits: &[f32],
    experts: usize,
    shares: Shares,
) -> Result<()> {
    let op = "route";
    let tokens = check_rows(op, "logits", logits.len(), experts)?;
    check_length(op, "share", share.len(), &[("chosen", chosen.len())])?;
    if tokens == 0 {
        return check_length(op, "chosen", chosen.len(), &[("tokens", 0)]);
    }
    let count = check_rows(op, "chosen", chosen.len(), tokens)?;
    if count == 0 || count > experts {
        return Err(Error::Shape { op, problem: format!("{count} of {experts} experts for each token") });
    }
    match device.backend() {
        Backend::Cpu(cpu) => cpu::experts::route(cpu, chosen, share, logits, experts, shares),
        Backend::Cuda(cuda) => on_gpu!(cuda, experts::route(chosen, share, logits, experts, shares))?,
    }
    Ok(())
}

/// `out[i] = x[rows[i]]`.
///
/// # Shapes
/// `out` `[S, H]` · `x` `[T, H]` · `rows` `[S]`
///
/// # Errors
/// A row outside of `x`, or a wrong length.
pub fn gather(device: &Device, out: &mut [f32], x: &[f32], rows: &[u32], hidden: usize) -> Result<()> {
    let op = "gather";
    check_indices(op, "row", rows, check_rows(op, "x", x.len(), hidden)?)?;
    check_length(op, "out", out.len(), &[("rows", rows.len()), ("hidden", hidden)])?;
    match device.backend() {
        Backend::Cpu(cpu) => cpu::experts::gather(cpu, out, x, rows, hidden),
        Backend::Cuda(cuda) => on_gpu!(cuda, experts::gather(out, x, rows, hidden))?,
    }
    Ok(())
}

/// `out[t] = Σ_j share[t, j] · y[places[t, j]]`, added in order of `j`.
///
/// # Shapes
/// `out` `[T, H]` · `y` `[S, H]` · `places`, `share` `[T, C]`
///
/// # Errors
/// A place outside of `y`, or a wrong length.
pub fn combine(
    device: &Device,
    out: &mut [f32],
    y: &[f32],
    places: &[u32],
    share: &[f32],
    hidden: usize,
) -> Result<()> {
    let op = "combine";
    check_indices(op, "place", places, check_rows(op, "y", y.len(), hidden)?)?;
    check_length(op, "share", share.len(), &[("places", places.len())])?;
    let tokens = check_rows(op, "out", out.len(), hidden)?;
    if tokens == 0 {
        return check_length(op, "places", places.len(), &[("tokens", 0)]);
    }
    check_rows(op, "places", places.len(), tokens)?;
    match device.backend() {
        Backend::Cpu(cpu) => cpu::experts::combine(cpu, out, y, places, share, hidden),
        Backend::Cuda(cuda) => on_gpu!(cuda, experts::combine(out, y, places, share, hidden))?,
    }
    Ok(())
}

/// `out[t] += sigmoid(gate[t]) · y[t]`: an expert that every token goes to.
///
/// # Shapes
/// `out`, `y` `[T, H]` · `gate` `[T]`
///
/// # Errors
/// A wrong length.
pub fn add_shared(device: &Device, out: &mut [f32], y: &[f32], gate: &[f32], hidden: usize) -> Result<()> {
    let op = "add_shared";
    check_length(op, "out", out.len(), &[("tokens", gate.len()), ("hidden", hidden)])?;
    check_length(op, "y", y.len(), &[("out", out.len())])?;
    match device.backend() {
        Backend::Cpu(cpu) => cpu::experts::add_shared(cpu, out, y, gate, hidden),
        Backend::Cuda(cuda) => on_gpu!(cuda, experts::add_shared(out, y, gate, hidden))?,
    }
    Ok(())
}

fn check_indices(op: &'static str, operand: &'static str, indices: &[u32], limit: usize) -> Result<()> {
    match indices.iter().find(|index| **index as usize >= limit) {
        Some(index) => Err(Error::Index { op, operand, index: *index as usize, limit }),
        None => Ok(()),
    }
}
