//! Mixtures of experts: which experts a token goes to, their products, and bringing tokens there and back.
//!
//! A row's route, its products and the order of its sum are functions of the row alone, so that a token's result does not
//! depend on which others share its experts. On a GPU nothing of it is read by the host: every operation is a launch or two,
//! whatever experts were chosen.

use std::time::Instant;

use crate::cpu;
use crate::cuda::on_gpu;
use crate::device::{Backend, Device};
use crate::error::{Error, Result, check_length, check_rows};
use crate::matrix::ExpertWeights;
use crate::routes::Routes;

/// What the shares of the chosen experts are parts of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shares {
    /// The softmax over all experts: the chosen ones sum to less than 1.
    OfAll,
    /// The softmax over the chosen experts: they sum to 1.
    OfChosen,
}

/// Chooses the `count` (C) experts with the largest logits for each row and their shares, `exp(logit) / Σ exp` over what
/// `shares` says (Shazeer et al. 2017, "Outrageously Large Neural Networks", §2.1; Fedus et al. 2022, "Switch Transformers",
/// eq. 1 for shares of all), and puts the visits in order. Of equal logits the expert with the lower number is chosen, and
/// stands, first.
///
/// # Shapes
/// `routes` T rows of C visits · `logits` `[T, E]`, with E `experts`
///
/// # Errors
/// A wrong length, more experts to choose than there are.
pub fn route(
    device: &Device,
    routes: &mut Routes,
    logits: &[f32],
    experts: usize,
    count: usize,
    shares: Shares,
) -> Result<()> {
    let op = "route";
    let tokens = check_rows(op, "logits", logits.len(), experts)?;
    if count == 0 || count > experts {
        return Err(Error::Shape { op, problem: format!("{count} of {experts} experts for each token") });
    }
    routes.take(device, tokens, count, experts)?;
    match device.backend() {
        Backend::Cpu(cpu) => {
            if tokens > 0 {
                let (chosen, share) = (routes.chosen.numbers_mut(), &mut routes.share);
                cpu::experts::route(cpu, chosen, share, logits, experts, shares);
            }
            routes.group();
        }
        Backend::Cuda(cuda) => on_gpu!(cuda, experts::route(routes, logits, shares))?,
    }
    Ok(())
}

/// `out[place] = x[row that stands there]`: every row once for each expert that it goes to.
///
/// # Shapes
/// `out` `[T · C, H]` · `x` `[T, H]`
///
/// # Errors
/// A wrong length.
pub fn dispatch(device: &Device, out: &mut [f32], x: &[f32], routes: &Routes, hidden: usize) -> Result<()> {
    let op = "dispatch";
    check_length(op, "x", x.len(), &[("tokens", routes.tokens), ("hidden", hidden)])?;
    check_length(op, "out", out.len(), &[("visits", routes.visits()), ("hidden", hidden)])?;
    match device.backend() {
        Backend::Cpu(cpu) => cpu::experts::gather(cpu, out, x, routes.rows(), hidden),
        Backend::Cuda(cuda) => on_gpu!(cuda, experts::gather(out, x, routes.rows(), hidden))?,
    }
    Ok(())
}

/// `y = x Wᵀ (+ b)` with the weights of the expert that each visit is to: [`matmul::linear`](super::matmul::linear) of each
/// expert's visits, bit for bit, by several projections of the same rows at once.
///
/// # Shapes
/// each `out` `[T · C, Nᵢ]` and weights `[E, Nᵢ, K]` · `x` `[T · C, K]`
///
/// # Errors
/// A wrong length, weights of another number of experts or of another device.
pub fn linear_each(
    device: &Device,
    products: &mut [(&mut [f32], &ExpertWeights)],
    x: &[f32],
    routes: &Routes,
) -> Result<()> {
    let op = "experts";
    for (out, weights) in products.iter() {
        let visits = ("visits", routes.visits());
        weights.matrix(0).check_place(op, device)?;
        check_length(op, "x", x.len(), &[visits, ("k", weights.columns())])?;
        check_length(op, "out", out.len(), &[visits, ("n", weights.rows())])?;
        if weights.experts() != routes.experts {
            let problem = format!("weights of {} experts, routes to {}", weights.experts(), routes.experts);
            return Err(Error::Shape { op, problem });
        }
    }
    let begun = Instant::now();
    match device.backend() {
        Backend::Cpu(cpu) => cpu::experts::linear_each(cpu, products, x, routes),
        Backend::Cuda(cuda) => on_gpu!(cuda, expert_products::linear_each(op, products, x, routes))?,
    }
    let Some((_, first)) = products.first() else { return Ok(()) };
    let counters = device.counters();
    let is_quantised = first.matrix(0).is_quantised();
    let counter = if is_quantised { &counters.integer_products } else { &counters.float_products };
    let outputs: usize = products.iter().map(|(out, _)| out.len()).sum();
    // Which experts are visited is known on the device alone there: then as if visits were spread out.
    let visited = match device.is_gpu() {
        true => routes.visits().min(routes.experts),
        false => routes.starts.windows(2).filter(|bounds| bounds[0] < bounds[1]).count(),
    };
    let bytes: usize = products.iter().map(|(_, weights)| weights.bytes_of_one()).sum();
    counter.add(2 * outputs * first.columns(), visited * bytes, begun);
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

/// `out[t] = Σ_j share[t, j] · y[place of visit (t, j)]`, added in order of `j`.
///
/// # Shapes
/// `out` `[T, H]` · `y` `[T · C, H]`
///
/// # Errors
/// A wrong length.
pub fn combine(device: &Device, out: &mut [f32], y: &[f32], routes: &Routes, hidden: usize) -> Result<()> {
    let op = "combine";
    check_length(op, "out", out.len(), &[("tokens", routes.tokens), ("hidden", hidden)])?;
    check_length(op, "y", y.len(), &[("visits", routes.visits()), ("hidden", hidden)])?;
    if out.is_empty() {
        return Ok(());
    }
    match device.backend() {
        Backend::Cpu(cpu) => cpu::experts::combine(cpu, out, y, routes.places(), routes.shares(), hidden),
        Backend::Cuda(cuda) => on_gpu!(cuda, experts::combine(out, y, routes, hidden))?,
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
