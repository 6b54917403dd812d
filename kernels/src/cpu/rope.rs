//! Rotation of head vectors.

use super::Cpu;
use super::vector::{LANES, kernel};
use crate::ops::rope::{RopeStyle, RopeTable};
use crate::threads::Parts;

pub(crate) fn rope(
    cpu: &Cpu,
    x: &mut [f32],
    positions: &[u32],
    table: &RopeTable,
    heads: usize,
    head_dim: usize,
    style: RopeStyle,
) {
    let width = heads * head_dim;
    let pairs = table.pairs();
    let x = Parts::new(x);
    cpu.run_rows(positions.len(), width, |rows| {
        for row in rows {
            let (cosines, sines) = table.at(positions[row] as usize);
            // SAFETY: each row is one task's.
            let x = unsafe { x.take(row * width..(row + 1) * width) };
            for head in x.chunks_exact_mut(head_dim) {
                match style {
                    RopeStyle::Halves => {
                        let (first, second) = head[..2 * pairs].split_at_mut(pairs);
                        rotate_halves(cpu.instruction_set, first, second, cosines, sines);
                    }
                    RopeStyle::Interleaved => {
                        rotate_pairs(cpu.instruction_set, &mut head[..2 * pairs], cosines, sines);
                    }
                }
            }
        }
    });
}

kernel! {
    fn rotate_halves<V>(v, first: &mut [f32], second: &mut [f32], cosines: &[f32], sines: &[f32]) {
        let (first, first_rest) = first.as_chunks_mut::<LANES>();
        let (second, second_rest) = second.as_chunks_mut::<LANES>();
        let (cosine, cosine_rest) = cosines.as_chunks::<LANES>();
        let (sine, sine_rest) = sines.as_chunks::<LANES>();
        for (((first, second), cosine), sine) in first.iter_mut().zip(second).zip(cosine).zip(sine) {
            let (a, b) = (v.load(first), v.load(second));
            let (cosine, sine) = (v.load(cosine), v.load(sine));
            v.store(first, v.negate_multiply_add(b, sine, v.multiply(a, cosine)));
            v.store(second, v.multiply_add(a, sine, v.multiply(b, cosine)));
        }
        for (((first, second), cosine), sine) in first_rest.iter_mut().zip(second_rest).zip(cosine_rest).zip(sine_rest) {
            (*first, *second) = rotate(*first, *second, *cosine, *sine);
        }
    }
}

kernel! {
    /// Pairs are neighbours, which the compiler takes apart and joins. Compiled for no instruction set, a fused multiply-add
    /// is a call of a function.
    fn rotate_pairs<V>(_v, head: &mut [f32], cosines: &[f32], sines: &[f32]) {
        for ((pair, cosine), sine) in head.as_chunks_mut::<2>().0.iter_mut().zip(cosines).zip(sines) {
            let [a, b] = *pair;
            *pair = rotate(a, b, *cosine, *sine).into();
        }
    }
}

#[inline(always)]
fn rotate(a: f32, b: f32, cosine: f32, sine: f32) -> (f32, f32) {
    ((-b).mul_add(sine, a * cosine), a.mul_add(sine, b * cosine))
}
