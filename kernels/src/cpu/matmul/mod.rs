//! Products of activation rows with packed weights.
//!
//! A task owns a run of tiles of 16 outputs and computes them for all rows, so every output is computed whole by one
//! thread. Rows are taken in panels of up to 8 that share each weight load; a row's own sequence of operations is the
//! same in every panel size.

mod blocks;
mod plain;
mod quantize;

use std::cell::RefCell;
use std::ops::Range;

use super::Cpu;
use super::vector::{LANES, Vector};
use crate::matrix::{Matrix, Storage, TILE_ROWS};
use crate::threads::Parts;
use quantize::Activations;

/// Multiply-adds a task should do at least.
const PRODUCTS_A_TASK: usize = 1 << 16;
/// Tasks for each thread, so that one thread that comes late does not hold up the rest.
const TASKS_A_THREAD: usize = 8;

thread_local! {
    /// The calling thread's quantised activations, kept between operations.
    static ACTIVATIONS: RefCell<Activations> = RefCell::default();
}

pub(crate) fn linear(cpu: &Cpu, out: &mut [f32], x: &[f32], w: &Matrix, bias: Option<&[f32]>) {
    let rows = x.len() / w.columns();
    let output = Output { values: Parts::new(out), width: w.rows(), bias };
    let each_tiles = |task: &(dyn Fn(Range<usize>) + Sync)| run_tiles(cpu, rows, w, task);
    match w.storage() {
        Storage::F32(panels) => each_tiles(&|tiles| plain::multiply_f32(cpu.instruction_set, &output, x, panels, tiles)),
        Storage::F16(panels) => each_tiles(&|tiles| plain::multiply_f16(cpu.instruction_set, &output, x, panels, tiles)),
        Storage::BF16(panels) => each_tiles(&|tiles| plain::multiply_bf16(cpu.instruction_set, &output, x, panels, tiles)),
        Storage::Blocks(blocks) => ACTIVATIONS.with_borrow_mut(|activations| {
            activations.quantize(cpu, x, blocks);
            let activations = &*activations;
            each_tiles(&|tiles| blocks::multiply(cpu.instruction_set, &output, rows, activations, blocks, tiles));
        }),
    }
}

/// Cuts the tiles of `w` into tasks.
fn run_tiles(cpu: &Cpu, rows: usize, w: &Matrix, task: &(dyn Fn(Range<usize>) + Sync)) {
    let tiles = w.rows().div_ceil(TILE_ROWS);
    let products_a_tile = (rows * w.columns() * TILE_ROWS).max(1);
    let tasks = (tiles * products_a_tile / PRODUCTS_A_TASK).clamp(1, cpu.threads() * TASKS_A_THREAD);
    let tiles_a_task = tiles.div_ceil(tasks).next_multiple_of(plain::TILES);
    cpu.run(tiles.div_ceil(tiles_a_task), |index| {
        task(index * tiles_a_task..tiles.min((index + 1) * tiles_a_task));
    });
}

/// The result `[rows][width]`, of which each task writes the columns of its tiles.
struct Output<'a> {
    values: Parts<'a, f32>,
    width: usize,
    bias: Option<&'a [f32]>,
}

impl Output<'_> {
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
        if let Some(out) = out.first_chunk_mut::<LANES>() {
            let sums = match self.bias {
                Some(bias) => v.add(sums, v.load(&bias[start..].as_chunks().0[0])),
                None => sums,
            };
            v.store(out, sums);
            return;
        }
        let mut lanes = [0.0; LANES];
        v.store(&mut lanes, sums);
        if let Some(bias) = self.bias {
            lanes.iter_mut().zip(&bias[start..]).for_each(|(lane, bias)| *lane += bias);
        }
        out.copy_from_slice(&lanes[..width]);
    }
}
