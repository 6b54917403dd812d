//! Rotation of head vectors.

use super::Cuda;
use super::operation::Operation;
use super::runner::arguments;
use crate::error::Result;
use crate::ops::rope::{RopeStyle, RopeTable};

pub(crate) fn rope(
    cuda: &Cuda,
    x: &mut [f32],
    positions: &[u32],
    table: &RopeTable,
    heads: usize,
    head_dim: usize,
    style: RopeStyle,
) -> Result<()> {
    let (grid, pairs) = ([positions.len() as u32, 1, 1], table.pairs());
    let threads = (heads * pairs).next_multiple_of(32).clamp(32, 256) as u32;
    let interleaved = u32::from(style == RopeStyle::Interleaved);
    let mut operation = Operation::begin(cuda, "rope")?;
    let x = operation.in_out(x)?;
    let (positions, table) = (operation.step_input("positions", positions)?, operation.input(table.values())?);
    let arguments = arguments![x, positions, table, heads as u32, head_dim as u32, pairs as u32, interleaved];
    operation.launch("rope", grid, threads, 0, arguments)?;
    operation.finish()
}
