//! Rotary position embedding with its table of angles.

use std::sync::{PoisonError, RwLock};

use lifelong_kernels::Device;
use lifelong_kernels::ops::rope::{self, RopeStyle, RopeTable};

use crate::config::Rope;
use crate::error::Result;

/// Positions that the table grows by. The angles of a whole context of 131 072 would take 134 MB and 0.4 s at heads of
/// 256, and most runs stay far below it.
const GROWTH: usize = 2048;

/// The angles of positions, shared by layers. They are computed when a step first reaches them.
pub(crate) struct Rotary {
    table: RwLock<RopeTable>,
    style: RopeStyle,
}

impl Rotary {
    pub fn new(config: &Rope) -> Self {
        let table = RopeTable::from_frequencies(&config.frequencies(), 0, config.magnitude());
        Rotary { table: RwLock::new(table), style: config.style }
    }

    /// Rotates `x` `[T, heads, D]` in place.
    pub fn forward(&self, device: &Device, x: &mut [f32], positions: &[u32], heads: usize) -> Result<()> {
        let end = positions.iter().max().map_or(0, |last| *last as usize + 1);
        let mut table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        if table.positions() < end {
            drop(table);
            self.table.write().unwrap_or_else(PoisonError::into_inner).extend(device, end.next_multiple_of(GROWTH))?;
            table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        }
        Ok(rope::rope(device, x, positions, &table, heads, self.style)?)
    }
}
