//! Plain weights rounded to integers of 16 bits, for products at twice the rate of `f32`.

use super::packed::TILE_ROWS;
use crate::memory::Aligned;

/// Columns that share a scale.
pub(crate) const GROUP: usize = 32;
/// The largest integer of a weight and of an activation: the products of a group sum within 32 bits.
pub(crate) const LEVEL: u16 = 8_191;

/// Weights in groups of 16 rows by 32 columns, two neighbouring columns side by side. Of a group's row the largest magnitude
/// is [`LEVEL`], so a weight is off by at most 1/16 382 of that: finer than `f16`, for all that are larger than 1/4 of it. Of
/// magnitudes below 3·10⁻³⁵ nothing is left.
///
/// ```text
/// levels   [tile][group][pair 0..16][row 0..16][2]   1 024 bytes a group
/// scales   [tile][group][row 0..16]                  what a unit is worth
/// ```
pub(crate) struct Words {
    pub(crate) levels: Aligned<u16>,
    pub(crate) scales: Aligned<f32>,
    /// Groups along the columns: k / 32.
    pub(crate) groups: usize,
}

impl Words {
    /// `columns` is a multiple of [`GROUP`].
    pub(super) fn pack(rows: usize, columns: usize, value: impl Fn(usize, usize) -> f32) -> Self {
        let groups = columns / GROUP;
        let all = rows.div_ceil(TILE_ROWS) * groups;
        let (levels, scales) = (Aligned::for_weights(all * GROUP * TILE_ROWS), Aligned::for_weights(all * TILE_ROWS));
        let mut packed = Self { levels, scales, groups };
        for (row, group) in (0..rows).flat_map(|row| (0..groups).map(move |group| (row, group))) {
            let values: [f32; GROUP] = std::array::from_fn(|column| value(row, group * GROUP + column));
            // Compared as bits, so that what is no number shows in the scale.
            let largest = f32::from_bits(values.iter().map(|value| value.abs().to_bits()).max().unwrap_or(0));
            // Of zeros, of magnitudes too small to have an inverse, and of what is no number: none.
            let factor = Some(f32::from(LEVEL) / largest).filter(|factor| factor.is_finite()).unwrap_or(0.0);
            let (at, lane) = (row / TILE_ROWS * groups + group, row % TILE_ROWS);
            packed.scales[at * TILE_ROWS + lane] = largest / f32::from(LEVEL);
            let levels = &mut packed.levels[at * GROUP * TILE_ROWS..][..GROUP * TILE_ROWS];
            for (column, value) in values.iter().enumerate() {
                levels[place(column, lane)] = (value * factor).round_ties_even() as i16 as u16;
            }
        }
        packed
    }

    pub(super) fn bytes(&self) -> usize {
        self.levels.len() * 2 + self.scales.len() * 4
    }

    pub(super) fn read_row(&self, row: usize, out: &mut [f32]) {
        for (group, out) in out.chunks_exact_mut(GROUP).enumerate() {
            let (at, lane) = (row / TILE_ROWS * self.groups + group, row % TILE_ROWS);
            let levels = &self.levels[at * GROUP * TILE_ROWS..][..GROUP * TILE_ROWS];
            let scale = self.scales[at * TILE_ROWS + lane];
            for (column, out) in out.iter_mut().enumerate() {
                *out = f32::from(levels[place(column, lane)] as i16) * scale;
            }
        }
    }
}

fn place(column: usize, lane: usize) -> usize {
    (column / 2 * TILE_ROWS + lane) * 2 + column % 2
}
