//! Products of activation rows with packed weights.
//!
//! A task owns a run of tiles of 16 outputs and computes them for all rows, so every output is computed whole by one
//! thread. Rows are taken in panels of up to 8 that share each weight load; a row's own sequence of operations is the
//! same in every panel size.

mod blocks;
mod plain;
mod quantize;
#[cfg(target_arch = "x86_64")]
mod tiled;
mod words;

use std::cell::RefCell;
use std::ops::Range;

use super::Cpu;
use super::prefetch::prefetch_to_write;
use super::vector::{LANES, Vector};
use crate::device::InstructionSet;
use crate::matrix::{Matrix, Storage, TILE_ROWS};
use crate::ops::matmul::Precision;
use crate::threads::Parts;
use quantize::Activations;
use words::WordRows;

/// Multiply-adds a task should do at least.
const PRODUCTS_A_TASK: usize = 1 << 16;
/// Outputs of a row from which on rows lie far apart: those of a vocabulary.
const FAR_OUTPUTS: usize = 1 << 14;
/// Quantised activations that are multiplied by all weights before the next ones come, to stay in a cache of 1 MiB.
const NEAR_BYTES: usize = 400 << 10;
/// Tasks for each thread, so that one thread that comes late does not hold up the rest.
const TASKS_A_THREAD: usize = 16;

thread_local! {
    /// The calling thread's rounded rows, kept between operations.
    static ROUNDED: RefCell<Rounded> = RefCell::default();
}

/// Rows as products with integers read them: in the form of their weights.
#[derive(Default)]
struct Rounded {
    levels: Activations,
    words: WordRows,
}

/// One weight matrix and where its products go.
pub(crate) struct Product<'a> {
    pub(crate) out: &'a mut [f32],
    pub(crate) w: &'a Matrix,
    pub(crate) bias: Option<&'a [f32]>,
}

/// Multiplies the same rows by each matrix. All matrices have the columns of `x`.
pub(crate) fn linear(cpu: &Cpu, products: &mut [Product<'_>], x: &[f32], precision: Precision) {
    let mut rest = products;
    while let Some(first) = rest.first() {
        let same = rest.iter().take_while(|product| alike(product.w, first.w)).count();
        let (group, others) = rest.split_at_mut(same);
        linear_group(cpu, group, x, precision);
        rest = others;
    }
}

/// Whether two matrices read the same form of activations.
fn alike(a: &Matrix, b: &Matrix) -> bool {
    match (a.storage(), b.storage()) {
        (Storage::Blocks(a), Storage::Blocks(b)) => (a.zero, a.halves) == (b.zero, b.halves),
        (Storage::Words(_), Storage::Words(_)) => true,
        (Storage::Blocks(_) | Storage::Words(_), _) | (_, Storage::Blocks(_) | Storage::Words(_)) => false,
        _ => true,
    }
}

/// One run of tasks over the tiles of all matrices, so that threads meet once.
fn linear_group(cpu: &Cpu, products: &mut [Product<'_>], x: &[f32], precision: Precision) {
    let outputs: Vec<Output<'_>> = products.iter_mut().map(Output::new).collect();
    let (rows, k) = (x.len() / outputs[0].w.columns(), outputs[0].w.columns());
    if rows == 0 {
        return;
    }
    ROUNDED.with_borrow_mut(|rounded| {
        match outputs[0].w.storage() {
            Storage::Blocks(blocks) => rounded.levels.quantize(cpu, x, blocks, precision),
            Storage::Words(words) => rounded.words.round(cpu, x, words.groups),
            _ => {}
        }
        let rounded = &*rounded;
        let tiles: usize = outputs.iter().map(Output::tiles).sum();
        let rows_a_run = rows_a_run(outputs[0].w, rows);
        let runs = rows.div_ceil(rows_a_run);
        let tasks = (tiles * rows * k * TILE_ROWS / PRODUCTS_A_TASK).clamp(1, cpu.threads() * TASKS_A_THREAD);
        let tiles_a_task = (tiles * runs).div_ceil(tasks).next_multiple_of(plain::TILES);
        let tasks_a_run = tiles.div_ceil(tiles_a_task);
        cpu.run(runs * tasks_a_run, |task| {
            let (run, task) = (task / tasks_a_run, task % tasks_a_run);
            let rows = run * rows_a_run..rows.min((run + 1) * rows_a_run);
            let mut range = task * tiles_a_task..tiles.min((task + 1) * tiles_a_task);
            for output in outputs.iter() {
                let count = output.tiles();
                let part = range.start.min(count)..range.end.min(count);
                if !part.is_empty() {
                    multiply_tiles(cpu.instruction_set, output, rows.clone(), x, rounded, part);
                }
                range = range.start.saturating_sub(count)..range.end.saturating_sub(count);
            }
        });
    });
}

/// Rows that every thread multiplies before the next ones: of quantised ones as many as stay near a core.
fn rows_a_run(w: &Matrix, rows: usize) -> usize {
    let bytes = match w.storage() {
        Storage::Blocks(_) => w.columns(),
        Storage::Words(_) => 2 * w.columns(),
        _ => return rows,
    };
    (NEAR_BYTES / bytes).max(1).next_multiple_of(quantize::PANEL_ROWS).min(rows)
}

fn multiply_tiles(
    instruction_set: InstructionSet,
    out: &Output<'_>,
    rows: Range<usize>,
    x: &[f32],
    rounded: &Rounded,
    tiles: Range<usize>,
) {
    match out.w.storage() {
        Storage::F32(panels) => plain::multiply_f32(instruction_set, out, x, panels, tiles),
        Storage::F16(panels) => plain::multiply_f16(instruction_set, out, x, panels, tiles),
        Storage::BF16(panels) => plain::multiply_bf16(instruction_set, out, x, panels, tiles),
        Storage::Words(words) => words::multiply(instruction_set, out, rows, &rounded.words, words, tiles),
        Storage::Blocks(blocks) => blocks::multiply(instruction_set, out, rows, &rounded.levels, blocks, tiles),
        Storage::Device(_) => unreachable!("operations check where a matrix lies: our bug"),
    }
}

/// The result `[rows][width]`, of which each task writes the columns of its tiles.
struct Output<'a> {
    values: Parts<'a, f32>,
    w: &'a Matrix,
    width: usize,
    bias: Option<&'a [f32]>,
}

impl<'a> Output<'a> {
    fn new(product: &'a mut Product<'_>) -> Self {
        Self { values: Parts::new(product.out), w: product.w, width: product.w.rows(), bias: product.bias }
    }

    fn tiles(&self) -> usize {
        self.width.div_ceil(TILE_ROWS)
    }

    /// Brings near where one tile of one row will be written, if rows are many pages apart: then a store would wait.
    #[inline(always)]
    fn prefetch(&self, row: usize, tile: usize) {
        if self.width >= FAR_OUTPUTS {
            prefetch_to_write(self.values.address(row * self.width + tile * LANES));
        }
    }

    /// Writes one tile of one row, bias added.
    ///
    /// # Safety
    /// No other thread writes this tile.
    #[inline(always)]
    unsafe fn write<V: Vector>(&self, v: V, row: usize, tile: usize, sums: V::Floats) {
        let start = tile * LANES;
        let width = LANES.min(self.width - start);
        // SAFETY: the caller is the tile's only writer.
        let out = unsafe { self.values.take(row * self.width + start..row * self.width + start + width) };
        match out.first_chunk_mut::<LANES>() {
            Some(out) => {
                let sums = match self.bias {
                    Some(bias) => v.add(sums, v.load(&bias[start..].as_chunks().0[0])),
                    None => sums,
                };
                v.store(out, sums);
            }
            None => {
                let mut lanes = [0.0; LANES];
                v.store(&mut lanes, sums);
                self.write_part(out, start, &lanes);
            }
        }
    }

    /// The last tile, when it is not full.
    #[cold]
    #[inline(never)]
    fn write_part(&self, out: &mut [f32], start: usize, lanes: &[f32; LANES]) {
        out.copy_from_slice(&lanes[..out.len()]);
        if let Some(bias) = self.bias {
            out.iter_mut().zip(&bias[start..]).for_each(|(out, bias)| *out += bias);
        }
    }
}
