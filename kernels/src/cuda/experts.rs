//! Routing rows to experts and summing what comes back, and where the weights of experts lie.

use bytemuck::{Pod, Zeroable};

use super::Cuda;
use super::matrix::Addresses;
use super::memory::Buffer;
use super::operation::Operation;
use super::runner::arguments;
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::experts::Shares;
use crate::routes::Routes;

const THREADS: u32 = 256;

/// `Expert` of `cuda/products.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Expert {
    weights: Addresses,
    bias: u64,
}

/// The table of a layer's experts, and their biases `[E, n]`.
pub(crate) struct DeviceExperts {
    table: Buffer,
    _biases: Option<Buffer>,
}

impl DeviceExperts {
    pub(crate) fn table(&self) -> u64 {
        self.table.address()
    }
}

impl std::fmt::Debug for DeviceExperts {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "a table of {} experts", self.table.bytes() / size_of::<Expert>())
    }
}

/// The caller has checked that the weights lie on the device and that `biases` holds `[E, n]`.
pub(crate) fn place(cuda: &Cuda, matrices: &[Matrix], biases: Option<&[f32]>) -> Result<DeviceExperts> {
    let placed = biases.map(|biases| Buffer::from_bytes(&cuda.memory, bytemuck::cast_slice(biases))).transpose()?;
    let expert = |(index, matrix): (usize, &Matrix)| Expert {
        weights: matrix.on_device().addresses(),
        bias: placed.as_ref().map_or(0, |biases| biases.address() + (index * matrix.rows() * size_of::<f32>()) as u64),
    };
    let experts: Vec<Expert> = matrices.iter().enumerate().map(expert).collect();
    let table = Buffer::from_bytes(&cuda.memory, bytemuck::cast_slice(&experts))?;
    Ok(DeviceExperts { table, _biases: placed })
}

pub(crate) fn route(cuda: &Cuda, routes: &mut Routes, logits: &[f32], shares: Shares) -> Result<()> {
    if routes.tokens == 0 {
        return Ok(());
    }
    let (visits, tile_tokens, most_tiles) = (routes.visits(), routes.tile_tokens(), routes.most_tiles());
    let Routes { experts, tokens, count, chosen, share, rows, places, tiles, .. } = routes;
    let (experts, tokens, count) = (*experts as u32, *tokens as u32, *count as u32);
    let mut operation = Operation::begin(cuda, "route")?;
    let chosen = operation.output(chosen.numbers_mut())?;
    let (share, logits) = (operation.output(share)?, operation.input(logits)?);
    let of_all = u32::from(shares == Shares::OfAll);
    let arguments = arguments![chosen, share, logits, experts, count, of_all];
    operation.launch("route", [tokens, 1, 1], 32, 0, arguments)?;
    let (rows, places) = (operation.output(rows.numbers_mut())?, operation.output(places.numbers_mut())?);
    let tiles = operation.output(tiles.numbers_mut())?;
    let arguments =
        arguments![rows, places, tiles, chosen, visits as u32, count, tile_tokens as u32, most_tiles as u32];
    operation.launch("group_visits", [experts, 1, 1], THREADS, experts as usize * size_of::<u32>(), arguments)?;
    operation.finish()
}

pub(crate) fn gather(cuda: &Cuda, out: &mut [f32], x: &[f32], rows: &[u32], hidden: usize) -> Result<()> {
    let grid = [rows.len() as u32, 1, 1];
    let mut operation = Operation::begin(cuda, "gather")?;
    let (out, x, rows) = (operation.output(out)?, operation.input(x)?, operation.input(rows)?);
    operation.launch("gather", grid, THREADS, 0, arguments![out, x, rows, hidden as u32])?;
    operation.finish()
}

pub(crate) fn combine(cuda: &Cuda, out: &mut [f32], y: &[f32], routes: &Routes, hidden: usize) -> Result<()> {
    let mut operation = Operation::begin(cuda, "combine")?;
    let (out, y) = (operation.output(out)?, operation.input(y)?);
    let (places, share) = (operation.input(routes.places())?, operation.input(routes.shares())?);
    let arguments = arguments![out, y, places, share, hidden as u32, routes.count as u32];
    operation.launch("combine", [routes.tokens as u32, 1, 1], THREADS, 0, arguments)?;
    operation.finish()
}

pub(crate) fn add_shared(cuda: &Cuda, out: &mut [f32], y: &[f32], gate: &[f32], hidden: usize) -> Result<()> {
    let grid = [gate.len() as u32, 1, 1];
    let mut operation = Operation::begin(cuda, "add_shared")?;
    let (out, y, gate) = (operation.in_out(out)?, operation.input(y)?, operation.input(gate)?);
    operation.launch("add_shared", grid, THREADS, 0, arguments![out, y, gate, hidden as u32])?;
    operation.finish()
}
