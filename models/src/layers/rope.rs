//! Rotary position embedding with its table of angles.

use lifelong_kernels::Device;
use lifelong_kernels::ops::rope::{self, RopeStyle, RopeTable};

use crate::config::Rope;
use crate::error::Result;

/// The angles of every position of a context, shared by layers.
pub(crate) struct Rotary {
    table: RopeTable,
    style: RopeStyle,
}

impl Rotary {
    pub fn new(config: &Rope, context: usize) -> Self {
        let table = RopeTable::from_frequencies(&config.frequencies(), context, config.magnitude());
        Rotary { table, style: config.style }
    }

    /// Rotates `x` `[T, heads, D]` in place.
    pub fn forward(&self, device: &Device, x: &mut [f32], positions: &[u32], heads: usize) -> Result<()> {
        Ok(rope::rope(device, x, positions, &self.table, heads, self.style)?)
    }
}
