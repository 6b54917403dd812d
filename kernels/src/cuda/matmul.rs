//! Products of activation rows with weights on the device.
//!
//! Which kernel multiplies depends on the number of rows, what an element is does not: `cuda/matmul.cu` and
//! `cuda/matmul_blocks.cu` say how.

use bytemuck::{NoUninit, Pod, Zeroable};

use super::Cuda;
use super::matrix::{Addresses, DeviceBlocks, DeviceMatrix};
use super::operation::Operation;
use super::runner::{Argument, arguments};
use crate::cpu::matmul::Product;
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::matmul::Precision;

/// Matrices that one launch multiplies.
pub(super) const MOST_PRODUCTS: usize = 4;
/// What rows of rounded activations are filled up to: one piece of the kernels.
const PIECE: usize = 32;
/// Stages of 32 columns that the kernels for many rows hold in shared memory.
const STAGES: usize = 3;

/// `Product` of `cuda/products.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct DeviceProduct {
    weights: Addresses,
    bias: u64,
    out: u64,
    rows: i32,
    first_block: i32,
}

/// `Products` of `cuda/products.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct DeviceProducts {
    each: [DeviceProduct; MOST_PRODUCTS],
    count: i32,
    fill: i32,
}

/// `Extents` of `cuda/matmul.cu`.
#[repr(C)]
#[derive(Clone, Copy, NoUninit)]
pub(super) struct Extents {
    pub(super) tokens: i32,
    pub(super) columns: i32,
    pub(super) stride: i32,
}

/// `Activations` of `cuda/matmul_blocks.cu`.
#[repr(C)]
#[derive(Clone, Copy, NoUninit)]
pub(super) struct Activations {
    levels: u64,
    lows: u64,
    scales: u64,
    sums: u64,
}

/// `Form` of `cuda/matmul_blocks.cu`.
#[repr(C)]
#[derive(Clone, Copy, NoUninit)]
pub(super) struct Form {
    groups: i32,
    zero: i32,
    factor_bytes: i32,
}

/// How weights are multiplied: those of one kind can share a launch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    F32,
    F16,
    BF16,
    Blocks { bits: usize, halves: usize, zero: i32, half_scales: bool },
}

impl Kind {
    pub(super) fn of(matrix: &Matrix) -> Self {
        match matrix.on_device() {
            DeviceMatrix::F32(_) => Kind::F32,
            DeviceMatrix::F16(_) => Kind::F16,
            DeviceMatrix::BF16(_) => Kind::BF16,
            DeviceMatrix::Blocks(DeviceBlocks { bits, halves, zero, half_scales, .. }) => {
                Kind::Blocks { bits: *bits, halves: *halves, zero: *zero, half_scales: *half_scales }
            }
        }
    }
}

/// Multiplies the same rows by each matrix; all have the columns of `x` and lie on the device.
pub(crate) fn linear(
    cuda: &Cuda,
    op: &'static str,
    products: &mut [Product<'_>],
    x: &[f32],
    precision: Precision,
) -> Result<()> {
    let mut rest = products;
    while let Some(first) = rest.first() {
        let kind = Kind::of(first.w);
        let same = rest.iter().take(MOST_PRODUCTS).take_while(|product| Kind::of(product.w) == kind).count();
        let (group, others) = rest.split_at_mut(same);
        Group { op: Operation::begin(cuda, op)?, kind, x, precision }.multiply(group)?;
        rest = others;
    }
    Ok(())
}

/// One launch: matrices of one kind.
struct Group<'a> {
    op: Operation<'a>,
    kind: Kind,
    x: &'a [f32],
    precision: Precision,
}

impl<'a> Group<'a> {
    fn multiply(mut self, products: &'a mut [Product<'_>]) -> Result<()> {
        let columns = products[0].w.columns();
        let tokens = self.x.len() / columns;
        match self.kind {
            Kind::F16 | Kind::BF16 if columns.is_multiple_of(8) => self.multiply_rounded(products, tokens, columns)?,
            Kind::Blocks { .. } => self.multiply_blocks(products, tokens, columns)?,
            _ => self.multiply_plain(products, tokens, columns)?,
        }
        self.op.finish()
    }

    /// Where weights, biases and outputs are, and how many blocks of `rows_a_block` rows they take.
    fn place(&mut self, products: &'a mut [Product<'_>], rows_a_block: usize) -> Result<(DeviceProducts, u32)> {
        let mut placed = DeviceProducts::zeroed();
        placed.count = products.len() as i32;
        let mut blocks = 0;
        for (placed, product) in placed.each.iter_mut().zip(products) {
            let rows = product.w.rows();
            placed.weights = product.w.on_device().addresses();
            placed.bias = match product.bias {
                Some(bias) => self.op.input(bias)?,
                None => 0,
            };
            placed.out = self.op.output(&mut *product.out)?;
            placed.rows = rows as i32;
            placed.first_block = blocks as i32;
            blocks += rows.div_ceil(rows_a_block);
        }
        Ok((placed, blocks as u32))
    }

    fn multiply_plain(&mut self, products: &'a mut [Product<'_>], tokens: usize, columns: usize) -> Result<()> {
        let (rows_a_block, tokens_a_block) = (64, 16);
        let kernel = match self.kind {
            Kind::F16 => "multiply_plain_f16",
            Kind::BF16 => "multiply_plain_bf16",
            _ => "multiply_plain_f32",
        };
        let x = self.op.input(self.x)?;
        let (products, blocks) = self.place(products, rows_a_block)?;
        let grid = [blocks, tokens.div_ceil(tokens_a_block) as u32, 1];
        self.op.launch(kernel, grid, 256, 0, arguments![Argument::of(&products), x, tokens as i32, columns as i32])
    }

    /// Activations in the weights' type, or in two numbers of it.
    fn multiply_rounded(&mut self, products: &'a mut [Product<'_>], tokens: usize, columns: usize) -> Result<()> {
        let is_fine = self.precision == Precision::Bits16;
        let is_half = self.kind == Kind::F16;
        let Rounded { high, low, units, extents } = round(&mut self.op, self.x, columns, is_half, self.precision)?;
        let tile = RoundedTile::for_tokens(tokens);
        let (products, blocks) = self.place(products, tile.rows)?;
        let kernel = tile.kernels[usize::from(!is_half)][usize::from(is_fine)];
        let shared_bytes = match tile.rows {
            16 => 0,
            _ => staged_bytes(tile.rows, tile.tokens, self.precision),
        };
        let grid = [blocks, tokens.div_ceil(tile.tokens) as u32, 1];
        let arguments = arguments![Argument::of(&products), high, low, units, Argument::of(&extents)];
        self.op.launch(kernel, grid, tile.threads, shared_bytes, arguments)
    }

    /// Activations as integers of 8 or 16 bits.
    fn multiply_blocks(&mut self, products: &'a mut [Product<'_>], tokens: usize, columns: usize) -> Result<()> {
        let Kind::Blocks { bits, halves, .. } = self.kind else { unreachable!("asked for by kind") };
        let is_fine = self.precision == Precision::Bits16;
        let (x, form) = quantize(&mut self.op, self.x, columns, self.kind, self.precision)?;
        let is_few = tokens <= MOST_FEW_BLOCK_TOKENS;
        let (rows, tokens_a_block) = if is_few { (FEW_ROWS, FEW_TOKENS) } else { (MANY_ROWS, MANY_TOKENS) };
        let (products, blocks) = self.place(products, rows)?;
        let kernel = BLOCK_KERNELS[usize::from(!is_few)][usize::from(is_fine)][block_form(bits, halves)];
        let shared_bytes = if is_few { 0 } else { staged_blocks_bytes(bits, self.precision) };
        let grid = [blocks, tokens.div_ceil(tokens_a_block) as u32, 1];
        let arguments = arguments![Argument::of(&products), Argument::of(&x), Argument::of(&form), tokens as i32];
        self.op.launch(kernel, grid, 256, shared_bytes, arguments)
    }
}

/// Activations in a type of 16 bits, and their extents.
pub(super) struct Rounded {
    pub(super) high: u64,
    pub(super) low: u64,
    pub(super) units: u64,
    pub(super) extents: Extents,
}

/// Starts rounding rows to f16 or bf16.
pub(super) fn round(
    op: &mut Operation<'_>,
    x: &[f32],
    columns: usize,
    is_half: bool,
    precision: Precision,
) -> Result<Rounded> {
    let (tokens, stride) = (x.len() / columns, columns.next_multiple_of(PIECE));
    let x = op.input(x)?;
    let high = op.scratch(tokens * stride * 2)?;
    let low = op.scratch(if precision == Precision::Bits16 { tokens * stride * 2 } else { 0 })?;
    let units = op.scratch(if is_half { tokens * size_of::<f32>() } else { 0 })?;
    let kernel = if is_half { "round_rows_f16" } else { "round_rows_bf16" };
    let arguments = arguments![high, low, units, x, columns as i32, stride as i32];
    op.launch(kernel, [tokens as u32, 1, 1], 256, 0, arguments)?;
    let extents = Extents { tokens: tokens as i32, columns: columns as i32, stride: stride as i32 };
    Ok(Rounded { high, low, units, extents })
}

/// Starts rounding rows to integers, for weights of this kind.
pub(super) fn quantize(
    op: &mut Operation<'_>,
    x: &[f32],
    columns: usize,
    kind: Kind,
    precision: Precision,
) -> Result<(Activations, Form)> {
    let Kind::Blocks { zero, half_scales, .. } = kind else { unreachable!("asked for by kind") };
    let all_groups = x.len() / 32;
    let is_fine = precision == Precision::Bits16;
    let values = x.len();
    let x = op.input(x)?;
    let levels = op.scratch(values)?;
    let lows = op.scratch(if is_fine { values } else { 0 })?;
    let scales = op.scratch(all_groups * size_of::<f32>())?;
    let sums = op.scratch(all_groups * 2 * size_of::<i32>())?;
    let arguments = arguments![levels, lows, scales, sums, x, all_groups as i32];
    op.launch("quantize_rows", [all_groups.div_ceil(8) as u32, 1, 1], 256, 0, arguments)?;
    let form = Form { groups: (columns / 32) as i32, zero, factor_bytes: if half_scales { 2 } else { 4 } };
    Ok((Activations { levels, lows, scales, sums }, form))
}

/// The place of a form of levels in lists of kernels: of 4 bits, of 8, of 8 with a scale for 16 columns.
pub(super) fn block_form(bits: usize, halves: usize) -> usize {
    match (bits, halves) {
        (4, _) => 0,
        (_, 1) => 1,
        _ => 2,
    }
}

/// Shared memory of kernels for many rows with weights of 16 bits.
pub(super) fn staged_bytes(rows: usize, tokens: usize, precision: Precision) -> usize {
    STAGES * (rows + tokens * if precision == Precision::Bits16 { 2 } else { 1 }) * PIECE * 2
}

/// The same with quantised weights.
pub(super) fn staged_blocks_bytes(bits: usize, precision: Precision) -> usize {
    let is_fine = precision == Precision::Bits16;
    let stages = if bits == 8 && is_fine { 2 } else { 3 };
    let row_bytes = |bits: usize| 4 * bits * 4 + 16;
    stages * (MANY_ROWS * row_bytes(bits) + MANY_TOKENS * row_bytes(8) * if is_fine { 2 } else { 1 })
}

/// Rows of weights by rows of activations that a block of threads computes with quantised weights.
pub(super) const FEW_ROWS: usize = 16;
const FEW_TOKENS: usize = 8;
pub(super) const MANY_ROWS: usize = 128;
const MANY_TOKENS: usize = 64;
/// Above this the weights are unpacked once for 64 rows instead of once for 8.
const MOST_FEW_BLOCK_TOKENS: usize = 32;

/// `[few, many][8, 16 bits][4-bit levels, 8-bit levels, those with a scale for 16 columns]`.
const BLOCK_KERNELS: [[[&str; 3]; 2]; 2] = [
    [
        ["multiply_8_q4", "multiply_8_q8", "multiply_8_q8h"],
        ["multiply_8_fine_q4", "multiply_8_fine_q8", "multiply_8_fine_q8h"],
    ],
    [
        ["multiply_64_q4", "multiply_64_q8", "multiply_64_q8h"],
        ["multiply_64_fine_q4", "multiply_64_fine_q8", "multiply_64_fine_q8h"],
    ],
];

/// What a block of threads computes of a product with f16 or bf16 weights.
struct RoundedTile {
    rows: usize,
    tokens: usize,
    threads: u32,
    /// `[f16, bf16][8, 16 bits]`
    kernels: [[&'static str; 2]; 2],
}

/// By the most rows of activations that each is for.
static ROUNDED_TILES: [(usize, RoundedTile); 5] = [
    (
        8,
        RoundedTile {
            rows: 16,
            tokens: 8,
            threads: 256,
            kernels: [["multiply_8_f16", "multiply_8_fine_f16"], ["multiply_8_bf16", "multiply_8_fine_bf16"]],
        },
    ),
    (
        16,
        RoundedTile {
            rows: 16,
            tokens: 16,
            threads: 256,
            kernels: [["multiply_16_f16", "multiply_16_fine_f16"], ["multiply_16_bf16", "multiply_16_fine_bf16"]],
        },
    ),
    (
        32,
        RoundedTile {
            rows: 16,
            tokens: 32,
            threads: 256,
            kernels: [["multiply_32_f16", "multiply_32_fine_f16"], ["multiply_32_bf16", "multiply_32_fine_bf16"]],
        },
    ),
    (
        256,
        RoundedTile {
            rows: 64,
            tokens: 64,
            threads: 128,
            kernels: [["multiply_64_f16", "multiply_64_fine_f16"], ["multiply_64_bf16", "multiply_64_fine_bf16"]],
        },
    ),
    (
        usize::MAX,
        RoundedTile {
            rows: 128,
            tokens: 128,
            threads: 256,
            kernels: [["multiply_128_f16", "multiply_128_fine_f16"], ["multiply_128_bf16", "multiply_128_fine_bf16"]],
        },
    ),
];

impl RoundedTile {
    fn for_tokens(tokens: usize) -> &'static Self {
        let found = ROUNDED_TILES.iter().find(|(most, _)| tokens <= *most);
        &found.expect("the last tile is for any number of rows").1
    }
}
