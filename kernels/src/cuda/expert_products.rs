//! Products of rows with the weights of the experts that they go to, all experts in one launch.
//!
//! Rows stand in order of their experts. A launch has a row of blocks for every tile that there may be (`routes.rs`), each of
//! which looks up on the device whose rows it takes; those behind the last tile end at once. So the host knows nothing of the
//! routes, and the same launch serves any of them. A row has the bits that it has in a product with its expert alone
//! (`matmul.rs`): the kernels are the same.

use bytemuck::{Pod, Zeroable};

use super::Cuda;
use super::matmul::{self, FEW_ROWS, Kind, MANY_ROWS, MOST_PRODUCTS, Rounded};
use super::operation::Operation;
use super::runner::{Argument, arguments};
use crate::error::Result;
use crate::matrix::ExpertWeights;
use crate::ops::matmul::Precision;
use crate::routes::{self, Routes};

/// `ExpertProduct` of `cuda/products.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct ExpertProduct {
    experts: u64,
    out: u64,
    rows: i32,
    first_block: i32,
}

/// `ExpertProducts` of `cuda/products.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct ExpertProducts {
    each: [ExpertProduct; MOST_PRODUCTS],
    tiles: u64,
    count: i32,
    fill: i32,
}

/// All have the columns of `x` and lie on the device.
pub(crate) fn linear_each(
    cuda: &Cuda,
    op: &'static str,
    products: &mut [(&mut [f32], &ExpertWeights)],
    x: &[f32],
    routes: &Routes,
) -> Result<()> {
    let mut rest = products;
    while let Some((_, first)) = rest.first() {
        let kind = Kind::of(first.matrix(0));
        let same = rest.iter().take(MOST_PRODUCTS).take_while(|(_, weights)| Kind::of(weights.matrix(0)) == kind);
        let same = same.count();
        let (group, others) = rest.split_at_mut(same);
        Group { op: Operation::begin(cuda, op)?, kind, x, routes }.multiply(group)?;
        rest = others;
    }
    Ok(())
}

/// One launch: weights of one kind.
struct Group<'a> {
    op: Operation<'a>,
    kind: Kind,
    x: &'a [f32],
    routes: &'a Routes,
}

impl<'a> Group<'a> {
    fn multiply(mut self, products: &'a mut [(&mut [f32], &ExpertWeights)]) -> Result<()> {
        let columns = products[0].1.columns();
        match self.kind {
            Kind::F16 | Kind::BF16 if columns.is_multiple_of(8) => self.multiply_rounded(products, columns)?,
            Kind::Blocks { .. } => self.multiply_blocks(products, columns)?,
            _ => self.multiply_plain(products, columns)?,
        }
        self.op.finish()
    }

    /// Whether a tile is one of few rows.
    fn is_few(&self) -> bool {
        self.routes.tile_tokens() == routes::FEW
    }

    /// Where tables, outputs and tiles are, and the grid of blocks of `rows_a_block` rows.
    fn place(
        &mut self,
        products: &'a mut [(&mut [f32], &ExpertWeights)],
        rows_a_block: usize,
    ) -> Result<(ExpertProducts, [u32; 3])> {
        let mut placed = ExpertProducts::zeroed();
        placed.count = products.len() as i32;
        placed.tiles = self.op.input(self.routes.tiles.numbers())?;
        let mut blocks = 0;
        for (placed, (out, weights)) in placed.each.iter_mut().zip(products) {
            let (experts, rows) = (weights.on_device().table(), weights.rows());
            *placed =
                ExpertProduct { experts, out: self.op.output(out)?, rows: rows as i32, first_block: blocks as i32 };
            blocks += rows.div_ceil(rows_a_block);
        }
        Ok((placed, [blocks as u32, self.routes.most_tiles() as u32, 1]))
    }

    fn multiply_plain(&mut self, products: &'a mut [(&mut [f32], &ExpertWeights)], columns: usize) -> Result<()> {
        let kernel = match self.kind {
            Kind::F16 => "experts_plain_f16",
            Kind::BF16 => "experts_plain_bf16",
            _ => "experts_plain_f32",
        };
        let x = self.op.input(self.x)?;
        let (products, grid) = self.place(products, 64)?;
        self.op.launch(kernel, grid, 256, 0, arguments![Argument::of(&products), x, columns as i32])
    }

    fn multiply_rounded(&mut self, products: &'a mut [(&mut [f32], &ExpertWeights)], columns: usize) -> Result<()> {
        let (is_half, precision) = (self.kind == Kind::F16, Precision::Bits8);
        let Rounded { high, units, extents, .. } = matmul::round(&mut self.op, self.x, columns, is_half, precision)?;
        let (kernels, rows, threads, shared_bytes) = match self.is_few() {
            true => (["experts_8_bf16", "experts_8_f16"], 16, 256, 0),
            false => (["experts_64_bf16", "experts_64_f16"], 64, 128, matmul::staged_bytes(64, 64, precision)),
        };
        let (products, grid) = self.place(products, rows)?;
        let arguments = arguments![Argument::of(&products), high, units, Argument::of(&extents)];
        self.op.launch(kernels[usize::from(is_half)], grid, threads, shared_bytes, arguments)
    }

    fn multiply_blocks(&mut self, products: &'a mut [(&mut [f32], &ExpertWeights)], columns: usize) -> Result<()> {
        let Kind::Blocks { bits, halves, .. } = self.kind else { unreachable!("asked for by kind") };
        let precision = Precision::Bits8;
        let (x, form) = matmul::quantize(&mut self.op, self.x, columns, self.kind, precision)?;
        let (kernels, rows, shared_bytes) = match self.is_few() {
            true => (["experts_8_q4", "experts_8_q8", "experts_8_q8h"], FEW_ROWS, 0),
            false => {
                let shared_bytes = matmul::staged_blocks_bytes(bits, precision);
                (["experts_64_q4", "experts_64_q8", "experts_64_q8h"], MANY_ROWS, shared_bytes)
            }
        };
        let (products, grid) = self.place(products, rows)?;
        let arguments = arguments![Argument::of(&products), Argument::of(&x), Argument::of(&form)];
        self.op.launch(kernels[matmul::block_form(bits, halves)], grid, 256, shared_bytes, arguments)
    }
}
