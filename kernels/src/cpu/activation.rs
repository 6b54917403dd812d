//! Element-wise functions.

use super::Cpu;
use super::math::{erf, load_part, sigmoid, store_part};
use super::norm::add_in_place;
use super::vector::{LANES, Vector, kernel};
use crate::threads::Parts;

pub(crate) fn swiglu(cpu: &Cpu, out: &mut [f32], gate: &[f32], up: &[f32]) {
    let parts = Parts::new(out);
    cpu.run_rows(gate.len(), 1, |range| {
        // SAFETY: ranges of `run_rows` do not overlap.
        let out = unsafe { parts.take(range.clone()) };
        swiglu_part(cpu.instruction_set, out, &gate[range.clone()], &up[range]);
    });
}

pub(crate) fn swiglu_clamped(cpu: &Cpu, out: &mut [f32], gate: &[f32], up: &[f32], alpha: f32, limit: f32) {
    let parts = Parts::new(out);
    cpu.run_rows(gate.len(), 1, |range| {
        // SAFETY: ranges of `run_rows` do not overlap.
        let out = unsafe { parts.take(range.clone()) };
        swiglu_clamped_part(cpu.instruction_set, out, &gate[range.clone()], &up[range], alpha, limit);
    });
}

pub(crate) fn sigmoid_gate(cpu: &Cpu, x: &mut [f32], gate: &[f32]) {
    let parts = Parts::new(x);
    cpu.run_rows(gate.len(), 1, |range| {
        // SAFETY: ranges of `run_rows` do not overlap.
        sigmoid_gate_part(cpu.instruction_set, unsafe { parts.take(range.clone()) }, &gate[range]);
    });
}

pub(crate) fn geglu(cpu: &Cpu, out: &mut [f32], gate: &[f32], up: &[f32]) {
    let parts = Parts::new(out);
    cpu.run_rows(gate.len(), 1, |range| {
        // SAFETY: ranges of `run_rows` do not overlap.
        let out = unsafe { parts.take(range.clone()) };
        geglu_part(cpu.instruction_set, out, &gate[range.clone()], &up[range]);
    });
}

pub(crate) fn gelu(cpu: &Cpu, x: &mut [f32]) {
    let (count, parts) = (x.len(), Parts::new(x));
    // SAFETY: ranges of `run_rows` do not overlap.
    cpu.run_rows(count, 1, |range| gelu_part(cpu.instruction_set, unsafe { parts.take(range) }));
}

pub(crate) fn gelu_tanh(cpu: &Cpu, x: &mut [f32]) {
    let (count, parts) = (x.len(), Parts::new(x));
    // SAFETY: ranges of `run_rows` do not overlap.
    cpu.run_rows(count, 1, |range| gelu_tanh_part(cpu.instruction_set, unsafe { parts.take(range) }));
}

pub(crate) fn add(cpu: &Cpu, x: &mut [f32], y: &[f32]) {
    let (count, parts) = (x.len(), Parts::new(x));
    cpu.run_rows(count, 1, |range| {
        // SAFETY: ranges of `run_rows` do not overlap.
        add_in_place(cpu.instruction_set, unsafe { parts.take(range.clone()) }, &y[range]);
    });
}

pub(crate) fn scale(cpu: &Cpu, x: &mut [f32], factor: f32) {
    let (count, parts) = (x.len(), Parts::new(x));
    cpu.run_rows(count, 1, |range| {
        // SAFETY: ranges of `run_rows` do not overlap.
        unsafe { parts.take(range) }.iter_mut().for_each(|x| *x *= factor);
    });
}

/// A function of one value, as a type so that it is always compiled into the kernel that uses it.
trait Function {
    fn apply<V: Vector>(v: V, x: V::Floats) -> V::Floats;
}

struct Silu;
struct Gelu;
struct GeluTanh;

impl Function for Silu {
    #[inline(always)]
    fn apply<V: Vector>(v: V, x: V::Floats) -> V::Floats {
        v.multiply(x, sigmoid(v, x))
    }
}

impl Function for Gelu {
    #[inline(always)]
    fn apply<V: Vector>(v: V, x: V::Floats) -> V::Floats {
        let half = v.multiply(x, v.splat(0.5));
        v.multiply_add(half, erf(v, v.multiply(x, v.splat(std::f32::consts::FRAC_1_SQRT_2))), half)
    }
}

impl Function for GeluTanh {
    /// `x/2 · (1 + tanh u) = x · sigmoid(2u)`, with `u = √(2/π) (x + 0.044715 x³)`.
    #[inline(always)]
    fn apply<V: Vector>(v: V, x: V::Floats) -> V::Floats {
        const TWICE_ROOT: f32 = 1.595_769;
        let cubic = v.multiply_add(v.multiply(x, x), v.splat(0.044_715), v.splat(1.0));
        v.multiply(x, sigmoid(v, v.multiply(v.multiply(x, v.splat(TWICE_ROOT)), cubic)))
    }
}

/// Applies a function in place, 16 lanes at a time.
#[inline(always)]
fn map<V: Vector, F: Function>(v: V, x: &mut [f32]) {
    let (whole, rest) = x.as_chunks_mut::<LANES>();
    for x in whole {
        v.store(x, F::apply(v, v.load(x)));
    }
    if !rest.is_empty() {
        let value = F::apply(v, load_part(v, rest));
        store_part(v, rest, value);
    }
}

/// `out = function(gate) · up`.
#[inline(always)]
fn gated<V: Vector, F: Function>(v: V, out: &mut [f32], gate: &[f32], up: &[f32]) {
    let (out, out_rest) = out.as_chunks_mut::<LANES>();
    let (gate, gate_rest) = gate.as_chunks::<LANES>();
    let (up, up_rest) = up.as_chunks::<LANES>();
    for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
        v.store(out, v.multiply(F::apply(v, v.load(gate)), v.load(up)));
    }
    if !out_rest.is_empty() {
        let value = v.multiply(F::apply(v, load_part(v, gate_rest)), load_part(v, up_rest));
        store_part(v, out_rest, value);
    }
}

kernel! {
    fn swiglu_part<V>(v, out: &mut [f32], gate: &[f32], up: &[f32]) {
        gated::<V, Silu>(v, out, gate, up);
    }
}

kernel! {
    fn swiglu_clamped_part<V>(v, out: &mut [f32], gate: &[f32], up: &[f32], alpha: f32, limit: f32) {
        for ((out, gate), up) in out.chunks_mut(LANES).zip(gate.chunks(LANES)).zip(up.chunks(LANES)) {
            let (gate, up) = (load_part(v, gate), load_part(v, up));
            let gate = v.select_less(v.splat(limit), gate, v.splat(limit), gate);
            let up = v.select_less(v.splat(limit), up, v.splat(limit), up);
            let up = v.select_less(up, v.splat(-limit), v.splat(-limit), up);
            let gated = v.multiply(gate, sigmoid(v, v.multiply(gate, v.splat(alpha))));
            store_part(v, out, v.multiply(v.add(up, v.splat(1.0)), gated));
        }
    }
}

kernel! {
    fn sigmoid_gate_part<V>(v, x: &mut [f32], gate: &[f32]) {
        for (x, gate) in x.chunks_mut(LANES).zip(gate.chunks(LANES)) {
            let value = v.multiply(load_part(v, x), sigmoid(v, load_part(v, gate)));
            store_part(v, x, value);
        }
    }
}

kernel! {
    fn geglu_part<V>(v, out: &mut [f32], gate: &[f32], up: &[f32]) {
        gated::<V, GeluTanh>(v, out, gate, up);
    }
}

kernel! {
    fn gelu_part<V>(v, x: &mut [f32]) {
        map::<V, Gelu>(v, x);
    }
}

kernel! {
    fn gelu_tanh_part<V>(v, x: &mut [f32]) {
        map::<V, GeluTanh>(v, x);
    }
}
