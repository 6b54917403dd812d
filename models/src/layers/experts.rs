//! Feed-forward layers of many experts, of which each token goes to a few.
//!
//! The rows of a step are put in order of their experts, each expert multiplies its own rows, and every row sums what its
//! experts return in the order of its own route. Products compute a row the same whatever rows are beside it, so a token's
//! result does not depend on which others share its experts.

use lifelong_kernels::ops::matmul::Precision;
use lifelong_kernels::ops::{activation, experts};
use lifelong_kernels::{Device, Values};

use super::expert_weights::{self, Expert, SharedExpert};
use super::linear::{self, Bias, Linear};
use crate::architecture::Scratch;
use crate::config::{ExpertGate, Mixture};
use crate::error::Result;
use crate::names::Names;
use crate::weights::Weights;

/// A router and its experts.
pub(crate) struct Experts {
    router: Linear,
    experts: Vec<Expert>,
    shared: Option<SharedExpert>,
    mixture: Mixture,
    hidden: usize,
}

/// Where the rows of a step go, and in which order they stand while they are there; kept from step to step.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    /// `[T, C]`, each row's experts, best first.
    chosen: Vec<u32>,
    /// `[T, C]`
    share: Values,
    /// `[T · C]`: the row that stands at each place, in order of experts and within one of rows.
    rows: Vec<u32>,
    /// `[T, C]`: the place of each row's visit to each of its experts.
    places: Vec<u32>,
    /// `[E + 1]`: where each expert's places start.
    starts: Vec<usize>,
}

impl Routes {
    /// Sorts visits by expert.
    fn group(&mut self, experts: usize, chosen: usize) {
        let Routes { chosen: visits, rows, places, starts, .. } = self;
        starts.clear();
        starts.resize(experts + 1, 0);
        for expert in visits.iter() {
            starts[*expert as usize + 1] += 1;
        }
        for expert in 0..experts {
            starts[expert + 1] += starts[expert];
        }
        rows.resize(visits.len(), 0);
        places.resize(visits.len(), 0);
        for (visit, expert) in visits.iter().enumerate() {
            let place = starts[*expert as usize];
            starts[*expert as usize] += 1;
            (rows[place], places[visit]) = ((visit / chosen) as u32, place as u32);
        }
        // Every start has moved to the next one's place.
        starts.rotate_right(1);
        starts[0] = 0;
    }
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
        let Mixture { experts: count, chosen, feed_forward, .. } = self.mixture;
        let visits = rows * chosen;
        let Scratch { normed, gate, up, query, key, value, attended, projected, routes, .. } = scratch;
        let x = normed.take(device, rows * hidden)?;
        self.route(device, gate.take(device, rows * count)?, x, routes)?;
        let gathered = attended.take(device, visits * hidden)?;
        experts::gather(device, gathered, x, &routes.rows, hidden)?;
        let (gate, up) = (gate.take(device, visits * feed_forward)?, up.take(device, visits * feed_forward)?);
        for (expert, places) in self.visited(&routes.starts) {
            let part = places.start * feed_forward..places.end * feed_forward;
            let products = [(&mut gate[part.clone()], &expert.gate), (&mut up[part], &expert.up)];
            let x = &gathered[places.start * hidden..places.end * hidden];
            linear::forward_each(device, products, x, Precision::Bits8)?;
        }
        let activated = query.take(device, visits * feed_forward)?;
        match self.mixture.gate {
            ExpertGate::Silu => activation::swiglu(device, activated, gate, up)?,
            ExpertGate::Clamped { alpha, limit } => {
                activation::swiglu_clamped(device, activated, gate, up, alpha, limit)?
            }
        }
        // The rows that went in are not read any more.
        let returned = gathered;
        for (expert, places) in self.visited(&routes.starts) {
            let x = &activated[places.start * feed_forward..places.end * feed_forward];
            expert.down.forward(device, &mut returned[places.start * hidden..places.end * hidden], x)?;
        }
        let out = projected.take(device, rows * hidden)?;
        experts::combine(device, out, returned, &routes.places, &routes.share, hidden)?;
        if let Some(shared) = &self.shared {
            let gate = key.take(device, rows)?;
            linear::forward_each(device, [(&mut *gate, &shared.gate)], x, Precision::Bits16)?;
            experts::add_shared(device, out, value.take(device, rows * hidden)?, gate, hidden)?;
        }
        Ok(())
    }

    /// The router reads activations in 16 bits where its weights are quantised: a logit decides over whole experts.
    fn route(&self, device: &Device, logits: &mut [f32], x: &[f32], routes: &mut Routes) -> Result<()> {
        let Mixture { experts: count, chosen, shares, .. } = self.mixture;
        let visits = logits.len() / count * chosen;
        linear::forward_each(device, [(&mut *logits, &self.router)], x, Precision::Bits16)?;
        routes.chosen.resize(visits, 0);
        let share = routes.share.take(device, visits)?;
        experts::route(device, &mut routes.chosen, share, logits, count, shares)?;
        routes.group(count, chosen);
        Ok(())
    }

    /// The experts that any row goes to, and their places.
    fn visited<'a>(&'a self, starts: &'a [usize]) -> impl Iterator<Item = (&'a Expert, std::ops::Range<usize>)> {
        let ranges = starts.windows(2).map(|bounds| bounds[0]..bounds[1]);
        self.experts.iter().zip(ranges).filter(|(_, places)| !places.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visits_stand_in_order_of_experts_then_of_rows() {
        let mut routes = Routes { chosen: vec![2, 0, 3, 2, 0, 3], ..Routes::default() };
        routes.group(5, 2);
        assert_eq!(routes.rows, [0, 2, 0, 1, 1, 2]);
        assert_eq!(routes.places, [2, 0, 4, 3, 1, 5]);
        assert_eq!(routes.starts, [0, 2, 2, 4, 6, 6]);
        // A smaller step after a larger one.
        routes.chosen = vec![4];
        routes.group(5, 1);
        assert_eq!((routes.rows.as_slice(), routes.places.as_slice()), ([0].as_slice(), [0].as_slice()));
        assert_eq!(routes.starts, [0, 0, 0, 0, 0, 1]);
    }
}
