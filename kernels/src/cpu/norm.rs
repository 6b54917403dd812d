//! Normalisation of rows.

use super::Cpu;
use super::math::{load_part, store_part};
use super::vector::{LANES, Vector, kernel};
use crate::threads::Parts;

pub(crate) fn rms_norm(cpu: &Cpu, out: &mut [f32], x: &[f32], weight: &[f32], eps: f32) {
    let width = weight.len();
    let out = Parts::new(out);
    cpu.run_rows(x.len() / width, width, |rows| {
        for row in rows {
            let range = row * width..(row + 1) * width;
            // SAFETY: each row is one task's.
            let out = unsafe { out.take(range.clone()) };
            let x = &x[range];
            let scale = inverse_root(sum_of_squares(cpu.instruction_set, x, 0.0), width, eps);
            scale_row(cpu.instruction_set, out, x, 0.0, scale, weight);
        }
    });
}

pub(crate) fn rms_norm_in_place(cpu: &Cpu, x: &mut [f32], weight: &[f32], eps: f32) {
    let width = weight.len();
    let rows = x.len() / width;
    let x = Parts::new(x);
    cpu.run_rows(rows, width, |rows| {
        for row in rows {
            // SAFETY: each row is one task's.
            let x = unsafe { x.take(row * width..(row + 1) * width) };
            let scale = inverse_root(sum_of_squares(cpu.instruction_set, x, 0.0), width, eps);
            scale_in_place(cpu.instruction_set, x, scale, weight);
        }
    });
}

pub(crate) fn rms_norm_residual(cpu: &Cpu, residual: &mut [f32], out: &mut [f32], x: &[f32], weight: &[f32], eps: f32) {
    let width = weight.len();
    let (residual, out) = (Parts::new(residual), Parts::new(out));
    cpu.run_rows(x.len() / width, width, |rows| {
        for row in rows {
            let range = row * width..(row + 1) * width;
            // SAFETY: each row is one task's.
            let (residual, out) = unsafe { (residual.take(range.clone()), out.take(range.clone())) };
            add_in_place(cpu.instruction_set, residual, &x[range]);
            let scale = inverse_root(sum_of_squares(cpu.instruction_set, residual, 0.0), width, eps);
            scale_row(cpu.instruction_set, out, residual, 0.0, scale, weight);
        }
    });
}

pub(crate) fn layer_norm(cpu: &Cpu, out: &mut [f32], x: &[f32], weight: &[f32], bias: &[f32], eps: f32) {
    let width = weight.len();
    let out = Parts::new(out);
    cpu.run_rows(x.len() / width, width, |rows| {
        for row in rows {
            let range = row * width..(row + 1) * width;
            // SAFETY: each row is one task's.
            let out = unsafe { out.take(range.clone()) };
            centre_row(cpu, out, &x[range], weight, bias, eps);
        }
    });
}

pub(crate) fn layer_norm_residual(cpu: &Cpu, residual: &mut [f32], x: &[f32], weight: &[f32], bias: &[f32], eps: f32) {
    let width = weight.len();
    let residual = Parts::new(residual);
    cpu.run_rows(x.len() / width, width, |rows| {
        for row in rows {
            let range = row * width..(row + 1) * width;
            // SAFETY: each row is one task's.
            let residual = unsafe { residual.take(range.clone()) };
            add_in_place(cpu.instruction_set, residual, &x[range]);
            let (mean, scale) = moments(cpu, residual, eps);
            centre_in_place(cpu.instruction_set, residual, mean, scale, weight, bias);
        }
    });
}

fn centre_row(cpu: &Cpu, out: &mut [f32], x: &[f32], weight: &[f32], bias: &[f32], eps: f32) {
    let (mean, scale) = moments(cpu, x, eps);
    scale_row(cpu.instruction_set, out, x, mean, scale, weight);
    add_in_place(cpu.instruction_set, out, bias);
}

/// Mean, and one over the square root of variance + eps.
fn moments(cpu: &Cpu, x: &[f32], eps: f32) -> (f32, f32) {
    let mean = sum(cpu.instruction_set, x) / x.len() as f32;
    (mean, inverse_root(sum_of_squares(cpu.instruction_set, x, mean), x.len(), eps))
}

fn inverse_root(sum_of_squares: f32, width: usize, eps: f32) -> f32 {
    1.0 / (sum_of_squares / width as f32 + eps).sqrt()
}

/// `(x − mean) · scale · weight`.
#[inline(always)]
fn centre<V: Vector>(v: V, x: V::Floats, mean: f32, scale: f32, weight: V::Floats) -> V::Floats {
    v.multiply(v.multiply(v.subtract(x, v.splat(mean)), v.splat(scale)), weight)
}

kernel! {
    fn sum<V>(v, x: &[f32]) -> f32 {
        let mut sum = v.splat(0.0);
        let (whole, rest) = x.as_chunks::<LANES>();
        for x in whole {
            sum = v.add(sum, v.load(x));
        }
        if !rest.is_empty() {
            sum = v.add(sum, load_part(v, rest));
        }
        v.sum(sum)
    }
}

kernel! {
    /// `Σ (x − mean)²`.
    fn sum_of_squares<V>(v, x: &[f32], mean: f32) -> f32 {
        let mut sum = v.splat(0.0);
        let (whole, rest) = x.as_chunks::<LANES>();
        for x in whole {
            let x = v.subtract(v.load(x), v.splat(mean));
            sum = v.multiply_add(x, x, sum);
        }
        if !rest.is_empty() {
            let mut padded = [mean; LANES];
            padded[..rest.len()].copy_from_slice(rest);
            let x = v.subtract(v.load(&padded), v.splat(mean));
            sum = v.multiply_add(x, x, sum);
        }
        v.sum(sum)
    }
}

kernel! {
    /// `out = (x − mean) · scale · weight`.
    fn scale_row<V>(v, out: &mut [f32], x: &[f32], mean: f32, scale: f32, weight: &[f32]) {
        let (out, out_rest) = out.as_chunks_mut::<LANES>();
        let (x, x_rest) = x.as_chunks::<LANES>();
        let (weight, weight_rest) = weight.as_chunks::<LANES>();
        for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
            v.store(out, centre(v, v.load(x), mean, scale, v.load(weight)));
        }
        if !out_rest.is_empty() {
            store_part(v, out_rest, centre(v, load_part(v, x_rest), mean, scale, load_part(v, weight_rest)));
        }
    }
}

kernel! {
    fn scale_in_place<V>(v, x: &mut [f32], scale: f32, weight: &[f32]) {
        let (x, x_rest) = x.as_chunks_mut::<LANES>();
        let (weight, weight_rest) = weight.as_chunks::<LANES>();
        for (x, weight) in x.iter_mut().zip(weight) {
            v.store(x, centre(v, v.load(x), 0.0, scale, v.load(weight)));
        }
        if !x_rest.is_empty() {
            let value = centre(v, load_part(v, x_rest), 0.0, scale, load_part(v, weight_rest));
            store_part(v, x_rest, value);
        }
    }
}

kernel! {
    fn centre_in_place<V>(v, x: &mut [f32], mean: f32, scale: f32, weight: &[f32], bias: &[f32]) {
        let (x, x_rest) = x.as_chunks_mut::<LANES>();
        let (weight, weight_rest) = weight.as_chunks::<LANES>();
        let (bias, bias_rest) = bias.as_chunks::<LANES>();
        for ((x, weight), bias) in x.iter_mut().zip(weight).zip(bias) {
            v.store(x, v.add(centre(v, v.load(x), mean, scale, v.load(weight)), v.load(bias)));
        }
        if !x_rest.is_empty() {
            let value = centre(v, load_part(v, x_rest), mean, scale, load_part(v, weight_rest));
            let value = v.add(value, load_part(v, bias_rest));
            store_part(v, x_rest, value);
        }
    }
}

kernel! {
    pub(super) fn add_in_place<V>(v, x: &mut [f32], y: &[f32]) {
        let (x, x_rest) = x.as_chunks_mut::<LANES>();
        let (y, y_rest) = y.as_chunks::<LANES>();
        for (x, y) in x.iter_mut().zip(y) {
            v.store(x, v.add(v.load(x), v.load(y)));
        }
        for (x, y) in x_rest.iter_mut().zip(y_rest) {
            *x += y;
        }
    }
}
