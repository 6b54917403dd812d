//! What the members of a group make of each other's numbers. They are gathered in memory of the device and added by a kernel of
//! ours, so that no library decides on an order.

use super::Cuda;
use super::operation::{Operation, blocks};
use super::runner::arguments;
use crate::error::Result;
use crate::group::{Member, Rank};

const THREADS: u32 = 256;

pub(crate) fn sum(cuda: &Cuda, member: &Member, x: &mut [f32]) -> Result<()> {
    let (count, Rank { number, count: ranks }) = (x.len(), member.rank());
    let mut operation = Operation::begin(cuda, "exchange sum")?;
    let x = operation.in_out(x)?;
    let parts = operation.scratch(ranks * count * size_of::<f32>())?;
    let own = parts + (number * count * size_of::<f32>()) as u64;
    operation.launch("residual_copy", blocks(count, THREADS), THREADS, 0, arguments![own, x, count as u64])?;
    operation.gather(member, parts, count)?;
    let arguments = arguments![x, parts, count as u64, ranks as u32];
    operation.launch("exchange_sum", blocks(count, THREADS), THREADS, 0, arguments)?;
    operation.finish()
}

pub(crate) fn columns(cuda: &Cuda, member: &Member, out: &mut [f32], x: &[f32], width: usize) -> Result<()> {
    let Rank { number, count: ranks } = member.rank();
    let rows = x.len() / member.rank().share(width).len().max(1);
    // All slots are as large as that of the widest share.
    let slot = rows * width.div_ceil(ranks);
    let count = x.len();
    let mut operation = Operation::begin(cuda, "exchange columns")?;
    let x = operation.input(x)?;
    let parts = operation.scratch(ranks * slot * size_of::<f32>())?;
    let own = parts + (number * slot * size_of::<f32>()) as u64;
    operation.launch("residual_copy", blocks(count, THREADS), THREADS, 0, arguments![own, x, count as u64])?;
    operation.gather(member, parts, slot)?;
    if member.rank().is_first() {
        let (out_count, out) = (out.len(), operation.output(out)?);
        let arguments = arguments![out, parts, rows as u64, width as u64, slot as u64, ranks as u32];
        operation.launch("exchange_columns", blocks(out_count, THREADS), THREADS, 0, arguments)?;
    }
    operation.finish()
}
