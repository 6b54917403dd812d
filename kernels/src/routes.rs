//! Which experts the rows of a step go to.

use crate::device::Device;
use crate::error::Result;
use crate::values::Values;

/// The fewest visits of one expert that a block of a GPU's threads has a kernel for, and the most.
pub(crate) const FEW: usize = 8;
const MANY: usize = 64;

/// Where T rows go, C experts each, and in which order their visits stand while they are there: by expert, within one by
/// row. [`route`](crate::ops::experts::route) makes it, the other operations of [`experts`](crate::ops::experts) follow it;
/// on a GPU it stays there. Memory is kept from step to step.
#[derive(Debug, Default)]
pub struct Routes {
    pub(crate) experts: usize,
    /// T
    pub(crate) tokens: usize,
    /// C
    pub(crate) count: usize,
    /// `[T, C]`, experts by number.
    pub(crate) chosen: Numbers,
    /// `[T, C]`
    pub(crate) share: Values,
    /// `[T · C]`
    pub(crate) rows: Numbers,
    /// `[T, C]`
    pub(crate) places: Numbers,
    /// Of the processor, `[E + 1]`: where each expert's visits start.
    pub(crate) starts: Vec<usize>,
    /// Of a GPU, `[most tiles, 3]`: an expert, and the visits of it that a block of threads takes.
    pub(crate) tiles: Numbers,
}

impl Routes {
    /// Makes room. What it holds is left over.
    pub(crate) fn take(&mut self, device: &Device, tokens: usize, count: usize, experts: usize) -> Result<()> {
        let visits = tokens * count;
        (self.tokens, self.count, self.experts) = (tokens, count, experts);
        self.chosen.take(device, visits)?;
        self.share.take(device, visits)?;
        self.rows.take(device, visits)?;
        self.places.take(device, visits)?;
        if device.is_gpu() {
            self.tiles.take(device, 3 * self.most_tiles())?;
        }
        Ok(())
    }

    /// T · C.
    pub fn visits(&self) -> usize {
        self.tokens * self.count
    }

    /// Visits of one expert that a block of threads takes: few, or, where experts have many, so many that weights are read
    /// less often. No result depends on it.
    pub(crate) fn tile_tokens(&self) -> usize {
        if self.visits() > 2 * FEW * self.experts { MANY } else { FEW }
    }

    /// Tiles that all visits take at most: every expert's last one may not be full.
    pub(crate) fn most_tiles(&self) -> usize {
        self.visits() / self.tile_tokens() + self.visits().min(self.experts)
    }

    /// Sorts visits on the processor.
    pub(crate) fn group(&mut self) {
        let Routes { count, chosen, rows, places, starts, .. } = self;
        let (chosen, rows, places) = (chosen.numbers(), rows.numbers_mut(), places.numbers_mut());
        starts.clear();
        starts.resize(self.experts + 1, 0);
        for expert in chosen {
            starts[*expert as usize + 1] += 1;
        }
        for expert in 0..self.experts {
            starts[expert + 1] += starts[expert];
        }
        for (visit, expert) in chosen.iter().enumerate() {
            let place = starts[*expert as usize];
            starts[*expert as usize] += 1;
            (rows[place], places[visit]) = ((visit / *count) as u32, place as u32);
        }
        // Every start has moved to the next one's place.
        starts.rotate_right(1);
        starts[0] = 0;
    }

    /// `[T, C]`: the experts of each row by number, best first. After [`Device::synchronize`].
    pub fn chosen(&self) -> &[u32] {
        self.chosen.numbers()
    }

    /// `[T, C]`: what each expert's answer counts. After [`Device::synchronize`].
    pub fn shares(&self) -> &[f32] {
        &self.share
    }

    /// `[T · C]`: the row that stands at each place. After [`Device::synchronize`].
    pub fn rows(&self) -> &[u32] {
        self.rows.numbers()
    }

    /// `[T, C]`: the place of each row's visit to each of its experts. After [`Device::synchronize`].
    pub fn places(&self) -> &[u32] {
        self.places.numbers()
    }
}

/// Whole numbers where operations of a device read them, kept as the bits of [`Values`].
#[derive(Debug, Default)]
pub(crate) struct Numbers(Values);

impl Numbers {
    /// As [`Values::take`].
    pub(crate) fn take(&mut self, device: &Device, length: usize) -> Result<&mut [u32]> {
        Ok(bytemuck::cast_slice_mut(self.0.take(device, length)?))
    }

    pub(crate) fn numbers(&self) -> &[u32] {
        bytemuck::cast_slice(&self.0)
    }

    pub(crate) fn numbers_mut(&mut self) -> &mut [u32] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grouped(routes: &mut Routes, chosen: &[u32], count: usize) {
        let device = Device::cpu(1);
        routes.take(&device, chosen.len() / count, count, 5).unwrap();
        routes.chosen.numbers_mut().copy_from_slice(chosen);
        routes.group();
    }

    #[test]
    fn visits_stand_in_order_of_experts_then_of_rows() {
        let mut routes = Routes::default();
        grouped(&mut routes, &[2, 0, 3, 2, 0, 3], 2);
        assert_eq!(routes.rows(), [0, 2, 0, 1, 1, 2]);
        assert_eq!(routes.places(), [2, 0, 4, 3, 1, 5]);
        assert_eq!(routes.starts, [0, 2, 2, 4, 6, 6]);
        // A smaller step after a larger one.
        grouped(&mut routes, &[4], 1);
        assert_eq!((routes.rows(), routes.places()), ([0].as_slice(), [0].as_slice()));
        assert_eq!(routes.starts, [0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn tiles_have_room_whatever_is_chosen() {
        for (tokens, count, experts) in [(1, 1, 1), (1, 2, 8), (64, 8, 128), (300, 2, 4), (2048, 8, 128)] {
            let routes = Routes { tokens, count, experts, ..Routes::default() };
            let (visits, each) = (tokens * count, routes.tile_tokens());
            // The worst case: one visit to all experts but one, which has the rest.
            let visited = experts.min(visits);
            let worst = visited - 1 + (visits - (visited - 1)).div_ceil(each);
            assert!(worst <= routes.most_tiles(), "{visits} visits of {experts} experts");
        }
    }
}
