//! Products of activation rows with packed weights.

use std::cell::RefCell;

use super::Cpu;
use super::quantize::Activations;
use super::vector::{LANES, Vector, kernel};
use crate::matrix::{BlockScales, Blocks, Matrix, Storage, TILE_ROWS};
use crate::threads::Parts;

thread_local! {
    /// The calling thread's quantised activations, kept between operations.
    static ACTIVATIONS: RefCell<Activations> = RefCell::default();
}

pub(crate) fn linear(cpu: &Cpu, out: &mut [f32], x: &[f32], w: &Matrix, bias: Option<&[f32]>) {
    let (n, k) = (w.rows(), w.columns());
    let rows = x.len() / k;
    ACTIVATIONS.with_borrow_mut(|activations| {
        if let Storage::Blocks(_) = w.storage() {
            activations.quantize(x);
        }
        let activations = &*activations;
        let out = Parts::new(out);
        cpu.run(n.div_ceil(TILE_ROWS), |tile| {
            let start = tile * TILE_ROWS;
            let width = TILE_ROWS.min(n - start);
            let mut lanes = [0.0; LANES];
            for row in 0..rows {
                match w.storage() {
                    Storage::F32(panels) => {
                        let tile = &panels.values[tile * k * LANES..][..k * LANES];
                        plain(cpu.instruction_set, &mut lanes, &x[row * k..][..k], tile);
                    }
                    Storage::F16(panels) => {
                        let tile = &panels.values[tile * k * LANES..][..k * LANES];
                        half_precision(cpu.instruction_set, &mut lanes, &x[row * k..][..k], tile);
                    }
                    Storage::BF16(panels) => {
                        let tile = &panels.values[tile * k * LANES..][..k * LANES];
                        brain_float(cpu.instruction_set, &mut lanes, &x[row * k..][..k], tile);
                    }
                    Storage::Blocks(blocks) => quantised(cpu.instruction_set, &mut lanes, activations, row, blocks, tile),
                }
                if let Some(bias) = bias {
                    lanes.iter_mut().zip(&bias[start..]).for_each(|(lane, bias)| *lane += bias);
                }
                // SAFETY: the tile's columns of every row are this task's.
                unsafe { out.take(row * n + start..row * n + start + width) }.copy_from_slice(&lanes[..width]);
            }
        });
    });
}

kernel! {
    fn plain<V>(v, out: &mut [f32; LANES], x: &[f32], tile: &[f32]) {
        let mut sum = v.splat(0.0);
        for (x, w) in x.iter().zip(tile.as_chunks::<LANES>().0) {
            sum = v.multiply_add(v.splat(*x), v.load(w), sum);
        }
        v.store(out, sum);
    }
}

kernel! {
    fn half_precision<V>(v, out: &mut [f32; LANES], x: &[f32], tile: &[u16]) {
        let mut sum = v.splat(0.0);
        for (x, w) in x.iter().zip(tile.as_chunks::<LANES>().0) {
            sum = v.multiply_add(v.splat(*x), v.load_f16(w), sum);
        }
        v.store(out, sum);
    }
}

kernel! {
    fn brain_float<V>(v, out: &mut [f32; LANES], x: &[f32], tile: &[u16]) {
        let mut sum = v.splat(0.0);
        for (x, w) in x.iter().zip(tile.as_chunks::<LANES>().0) {
            sum = v.multiply_add(v.splat(*x), v.load_bf16(w), sum);
        }
        v.store(out, sum);
    }
}

kernel! {
    fn quantised<V>(v, out: &mut [f32; LANES], x: &Activations, row: usize, w: &Blocks, tile: usize) {
        let bytes_a_group = TILE_ROWS * 4 * w.bits;
        let quads_a_half = 8 / w.halves;
        let mut sum = v.splat(0.0);
        for group in 0..w.groups {
            let at = tile * w.groups + group;
            let levels = w.levels[at * bytes_a_group..][..bytes_a_group].as_chunks::<64>().0;
            let x_group = row * w.groups + group;
            let x_levels = x.levels[x_group * 32..][..32].as_chunks::<4>().0;
            let x_scale = x.scales[x_group];
            for half in 0..w.halves {
                let x_sum = match w.halves {
                    1 => x.sums[x_group * 2] + x.sums[x_group * 2 + 1],
                    _ => x.sums[x_group * 2 + half],
                };
                let mut dot = v.splat_integers(-w.zero * x_sum);
                for quad in half * quads_a_half..(half + 1) * quads_a_half {
                    let weights = if w.bits == 8 {
                        v.load_bytes(&levels[quad])
                    } else {
                        let (low, high) = v.load_nibbles(&levels[quad % 4]);
                        if quad < 4 { low } else { high }
                    };
                    dot = v.dot(dot, weights, x_levels[quad]);
                }
                let factors = (at * w.halves + half) * LANES;
                let scale = v.multiply(load_factors(v, &w.scales, factors), v.splat(x_scale));
                sum = v.multiply_add(scale, v.to_floats(dot), sum);
                if let Some(minima) = &w.minima {
                    sum = v.multiply_add(load_factors(v, minima, factors), v.splat(x_scale * x_sum as f32), sum);
                }
            }
        }
        v.store(out, sum);
    }
}

#[inline(always)]
fn load_factors<V: Vector>(v: V, factors: &BlockScales, at: usize) -> V::Floats {
    match factors {
        BlockScales::F16(values) => v.load_f16(&values[at..].as_chunks().0[0]),
        BlockScales::F32(values) => v.load(&values[at..].as_chunks().0[0]),
    }
}
