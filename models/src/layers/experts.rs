//! Feed-forward layers of many experts, of which each token goes to a few.
//!
//! The rows of a step are put in order of their experts, each expert multiplies its own rows, and every row sums what its
//! experts return in the order of its own route. Products compute a row the same whatever rows are beside it, so a token's
//! result does not depend on which others share its experts.

use lifelong_kernels::Device;
use lifelong_kernels::ops::matmul::Precision;
use lifelong_kernels::ops::{activation, experts};

use super::expert_weights::{self, Projections, SharedExpert};
use super::linear::{self, Bias, Linear};
use crate::architecture::Scratch;
use crate::config::{ExpertGate, Mixture};
use crate::error::Result;
use crate::names::Names;
use crate::weights::Weights;

/// A router and its experts.
pub(crate) struct Experts {
    router: Linear,
    experts: Projections,
    shared: Option<SharedExpert>,
    mixture: Mixture,
    hidden: usize,
}

impl Experts {
    pub fn load(weights: &mut Weights, names: &Names, layer: usize, hidden: usize, mixture: &Mixture) -> Result<Self> {
        let router = expert_weights::router(weights, names, layer);
        let shared = match mixture.shared {
            Some(width) => Some(expert_weights::shared(weights, names, layer, hidden, width)?),
            None => None,
        };
        Ok(Experts {
            // A logit decides over whole experts, and the router is a small part of the weights.
            router: Linear::load_as_stored(weights, &router, mixture.experts, hidden, Bias::from(mixture.biases))?,
            experts: expert_weights::load(weights, names, layer, hidden, mixture)?,
            shared,
            mixture: mixture.clone(),
            hidden,
        })
    }

    /// Reads `scratch.normed` `[rows, H]`, leaves the output in `scratch.projected`.
    pub fn forward(&self, device: &Device, rows: usize, scratch: &mut Scratch) -> Result<()> {
        let hidden = self.hidden;
        if let Some(shared) = &self.shared {
            shared.mlp.forward(device, rows, scratch)?;
            // Kept aside while the others compute.
            std::mem::swap(&mut scratch.projected, &mut scratch.value);
        }
        let Mixture { experts: count, chosen, feed_forward, shares, .. } = self.mixture;
        let visits = rows * chosen;
        let Scratch { normed, gate, up, query, key, value, attended, projected, routes, .. } = scratch;
        let x = normed.take(device, rows * hidden)?;
        // A logit decides over whole experts, so the router reads activations in 16 bits where its weights are quantised.
        let logits = gate.take(device, rows * count)?;
        linear::forward_each(device, [(&mut *logits, &self.router)], x, Precision::Bits16)?;
        experts::route(device, routes, logits, count, chosen, shares)?;
        let gathered = attended.take(device, visits * hidden)?;
        experts::dispatch(device, gathered, x, routes, hidden)?;
        let (gate, up) = (gate.take(device, visits * feed_forward)?, up.take(device, visits * feed_forward)?);
        let Projections { gate: gates, up: ups, down } = &self.experts;
        experts::linear_each(device, &mut [(&mut *gate, gates), (&mut *up, ups)], gathered, routes)?;
        let activated = query.take(device, visits * feed_forward)?;
        match self.mixture.gate {
            ExpertGate::Silu => activation::swiglu(device, activated, gate, up)?,
            ExpertGate::Clamped { alpha, limit } => {
                activation::swiglu_clamped(device, activated, gate, up, alpha, limit)?
            }
        }
        // The rows that went in are not read any more.
        let returned = gathered;
        experts::linear_each(device, &mut [(&mut *returned, down)], activated, routes)?;
        let out = projected.take(device, rows * hidden)?;
        experts::combine(device, out, returned, routes, hidden)?;
        if let Some(shared) = &self.shared {
            let gate = key.take(device, rows)?;
            linear::forward_each(device, [(&mut *gate, &shared.gate)], x, Precision::Bits16)?;
            experts::add_shared(device, out, value.take(device, rows * hidden)?, gate, hidden)?;
        }
        Ok(())
    }
}
