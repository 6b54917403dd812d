//! Routing rows to experts and summing what comes back.

use super::Cuda;
use super::operation::Operation;
use super::runner::arguments;
use crate::error::Result;
use crate::ops::experts::Shares;

const THREADS: u32 = 256;

pub(crate) fn route(
    cuda: &Cuda,
    chosen: &mut [u32],
    share: &mut [f32],
    logits: &[f32],
    experts: usize,
    shares: Shares,
) -> Result<()> {
    let tokens = logits.len() / experts;
    let count = (chosen.len() / tokens) as u32;
    let mut operation = Operation::begin(cuda, "route")?;
    let (chosen, share, logits) = (operation.output(chosen)?, operation.output(share)?, operation.input(logits)?);
    let of_all = u32::from(shares == Shares::OfAll);
    let arguments = arguments![chosen, share, logits, experts as u32, count, of_all];
    operation.launch("route", [tokens as u32, 1, 1], 32, 0, arguments)?;
    operation.finish()
}

pub(crate) fn gather(cuda: &Cuda, out: &mut [f32], x: &[f32], rows: &[u32], hidden: usize) -> Result<()> {
    let grid = [rows.len() as u32, 1, 1];
    let mut operation = Operation::begin(cuda, "gather")?;
    let (out, x, rows) = (operation.output(out)?, operation.input(x)?, operation.input(rows)?);
    operation.launch("gather", grid, THREADS, 0, arguments![out, x, rows, hidden as u32])?;
    operation.finish()
}

pub(crate) fn combine(
    cuda: &Cuda,
    out: &mut [f32],
    y: &[f32],
    places: &[u32],
    share: &[f32],
    hidden: usize,
) -> Result<()> {
    let tokens = out.len() / hidden;
    let count = (places.len() / tokens) as u32;
    let mut operation = Operation::begin(cuda, "combine")?;
    let (out, y) = (operation.output(out)?, operation.input(y)?);
    let (places, share) = (operation.input(places)?, operation.input(share)?);
    let arguments = arguments![out, y, places, share, hidden as u32, count];
    operation.launch("combine", [tokens as u32, 1, 1], THREADS, 0, arguments)?;
    operation.finish()
}

pub(crate) fn add_shared(cuda: &Cuda, out: &mut [f32], y: &[f32], gate: &[f32], hidden: usize) -> Result<()> {
    let grid = [gate.len() as u32, 1, 1];
    let mut operation = Operation::begin(cuda, "add_shared")?;
    let (out, y, gate) = (operation.in_out(out)?, operation.input(y)?, operation.input(gate)?);
    operation.launch("add_shared", grid, THREADS, 0, arguments![out, y, gate, hidden as u32])?;
    operation.finish()
}
