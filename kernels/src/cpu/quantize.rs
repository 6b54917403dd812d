//! Activations as 8-bit integers, for products with quantised weights.
//!
//! Each row is cut into groups of 32; a group is scaled by its largest magnitude over 127 and rounded to nearest, ties
//! to even. A group's integers depend on its own 32 values only, so a row's product does not depend on other rows. The
//! scheme is ggml's Q8_1 with the scale kept in `f32`.

/// Rows of quantised activations.
#[derive(Default)]
pub(super) struct Activations {
    /// `[rows][k]`
    pub(super) levels: Vec<i8>,
    /// `[rows][k / 32]`
    pub(super) scales: Vec<f32>,
    /// Sums of levels, `[rows][k / 16]`.
    pub(super) sums: Vec<i32>,
}

impl Activations {
    /// Quantises `x`, rows of whole groups.
    pub(super) fn quantize(&mut self, x: &[f32]) {
        self.levels.resize(x.len(), 0);
        self.scales.resize(x.len() / 32, 0.0);
        self.sums.resize(x.len() / 16, 0);
        for (index, group) in x.chunks_exact(32).enumerate() {
            // As bits, so that NaN counts as the largest and reaches the scale.
            let largest = group.iter().map(|value| value.to_bits() & 0x7fff_ffff).max().map_or(0.0, f32::from_bits);
            let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
            self.scales[index] = largest / 127.0;
            for (level, value) in self.levels[index * 32..].iter_mut().zip(group) {
                *level = (value * inverse).round_ties_even() as i8;
            }
            for half in 0..2 {
                let levels = &self.levels[index * 32 + half * 16..][..16];
                self.sums[index * 2 + half] = levels.iter().map(|level| i32::from(*level)).sum();
            }
        }
    }
}
