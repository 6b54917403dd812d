//! Elementwise operations, norms, rotations, look-ups and pooling, whether operands lie on the heap or where both
//! sides address them.

use super::inputs::*;
use super::{Checked, same_bits};
use crate::error::{Error, Result};
use crate::ops::rope::{RopeStyle, RopeTable};
use crate::ops::{activation, embed, norm, pool, residual, rope};
use crate::{Device, Format, Matrix, Values};

pub(super) fn text(error: Error) -> String {
    error.to_string()
}

/// Runs an operation with these outputs (as they are before) and inputs on the processor and on the device.
pub(super) fn compare(
    device: &Device,
    what: &str,
    outputs: &[&[f32]],
    inputs: &[&[f32]],
    run: impl Fn(&Device, &mut [&mut [f32]], &[&[f32]]) -> Result<()>,
) -> Checked {
    let failed = |error: Error| format!("{what}: {error}");
    let mut expected: Vec<Vec<f32>> = outputs.iter().map(|output| output.to_vec()).collect();
    run(&Device::cpu(1), &mut expected.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>(), inputs)
        .map_err(failed)?;
    let mut found: Vec<Vec<f32>> = outputs.iter().map(|output| output.to_vec()).collect();
    run(device, &mut found.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>(), inputs).map_err(failed)?;
    let placed = |values: &&[f32]| Values::copied(device, values);
    let mut resident: Vec<Values> = outputs.iter().map(placed).collect::<Result<_>>().map_err(failed)?;
    let inputs: Vec<Values> = inputs.iter().map(placed).collect::<Result<_>>().map_err(failed)?;
    let inputs: Vec<&[f32]> = inputs.iter().map(|values| &values[..]).collect();
    run(device, &mut resident.iter_mut().map(|values| &mut values[..]).collect::<Vec<_>>(), &inputs).map_err(failed)?;
    device.synchronize().map_err(failed)?;
    for (index, expected) in expected.iter().enumerate() {
        same_bits(&found[index], expected, what)?;
        same_bits(&resident[index], expected, &format!("{what}, addressed by both"))?;
    }
    Ok(())
}

/// Numbers of all sizes, and what is none.
fn odd_numbers(seed: u64, count: usize) -> Vec<f32> {
    const SPECIAL: [f32; 16] = [
        0.0,
        -0.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        1e-40,
        -1e-40,
        f32::MAX,
        f32::MIN,
        88.3,
        88.31,
        -87.3,
        -87.31,
        0.92,
        4.0,
        -200.0,
    ];
    let mut values: Vec<f32> = random(seed, count).iter().map(|value| value * 12.0).collect();
    values.iter_mut().step_by(7).zip(SPECIAL.iter().cycle()).for_each(|(value, special)| *value = *special);
    values
}

pub fn activations(device: &Device) -> Checked {
    for count in [0, 1, 255, 256, 257, 1111] {
        let [out, gate, up] = [1, 2, 3].map(|seed| odd_numbers(seed, count));
        compare(device, "swiglu", &[&out], &[&gate, &up], |device, out, x| {
            activation::swiglu(device, out[0], x[0], x[1])
        })?;
        compare(device, "geglu", &[&out], &[&gate, &up], |device, out, x| {
            activation::geglu_tanh(device, out[0], x[0], x[1])
        })?;
        compare(device, "clamped", &[&out], &[&gate, &up], |device, out, x| {
            activation::swiglu_clamped(device, out[0], x[0], x[1], 1.702, 7.0)
        })?;
        compare(device, "gate", &[&out], &[&gate], |device, out, x| activation::sigmoid_gate(device, out[0], x[0]))?;
        compare(device, "gelu", &[&gate], &[], |device, out, _| activation::gelu(device, out[0]))?;
        compare(device, "gelu tanh", &[&gate], &[], |device, out, _| activation::gelu_tanh(device, out[0]))?;
        compare(device, "add", &[&out], &[&up], |device, out, x| residual::add(device, out[0], x[0]))?;
        compare(device, "copy", &[&out], &[&up], |device, out, x| residual::copy(device, out[0], x[0]))?;
        compare(device, "scale", &[&out], &[], |device, out, _| residual::scale(device, out[0], 25.25))?;
    }
    Ok(())
}

/// The whole range of the exponential and of the error function, beyond their ends.
pub fn elementary_functions(device: &Device) -> Checked {
    let x: Vec<f32> = (-26_000..26_000).map(|step| step as f32 * 0.004).collect();
    let ones = vec![1.0; x.len()];
    compare(device, "silu", &[&ones], &[&x, &ones], |device, out, x| activation::swiglu(device, out[0], x[0], x[1]))?;
    let x: Vec<f32> = x.iter().map(|x| x * 0.06).collect();
    compare(device, "gelu", &[&x], &[], |device, out, _| activation::gelu(device, out[0]))
}

/// Widths around the lanes, one and several warps, and rows that shared memory does not hold.
pub fn norms(device: &Device) -> Checked {
    for (width, rows) in
        [(1, 3), (15, 2), (16, 1), (17, 5), (64, 9), (100, 0), (255, 2), (257, 1), (576, 3), (12_224, 1), (12_300, 2)]
    {
        let (x, y) = (random_with_outliers(4, rows * width), random(5, rows * width));
        let (weight, bias) = (random(6, width), random(7, width));
        let out = vec![f32::NAN; x.len()];
        let what = |name: &str| format!("{name} {rows} × {width}");
        compare(device, &what("rms"), &[&out], &[&x, &weight], |device, out, x| {
            norm::rms_norm(device, out[0], x[0], x[1], 1e-6)
        })?;
        compare(device, &what("rms in place"), &[&x], &[&weight], |device, out, x| {
            norm::rms_norm_in_place(device, out[0], x[0], 1e-6)
        })?;
        compare(device, &what("rms residual"), &[&y, &out], &[&x, &weight], |device, out, x| {
            let [residual, out] = out else { unreachable!("two were given") };
            norm::rms_norm_residual(device, residual, out, x[0], x[1], 1e-6)
        })?;
        compare(device, &what("layer norm"), &[&out], &[&x, &weight, &bias], |device, out, x| {
            norm::layer_norm(device, out[0], x[0], x[1], x[2], 1e-12)
        })?;
        compare(device, &what("layer norm residual"), &[&y], &[&x, &weight, &bias], |device, out, x| {
            norm::layer_norm_residual(device, out[0], x[0], x[1], x[2], 1e-12)
        })?;
    }
    Ok(())
}

pub fn rotations(device: &Device) -> Checked {
    for (heads, dim, rotary) in [(1, 2, 2), (3, 64, 64), (5, 80, 40), (2, 128, 128), (9, 24, 24)] {
        let positions = [0u32, 7, 7, 399, 1];
        let x = random(8, positions.len() * heads * dim);
        for style in [RopeStyle::Halves, RopeStyle::Interleaved] {
            compare(device, &format!("{heads} × {dim} {style:?}"), &[&x], &[], |device, x, _| {
                // One table is given whole, the other lies where the device wants it.
                let whole = RopeTable::new(rotary, 400, 1e4);
                let mut grown = RopeTable::new(rotary, 0, 1e4);
                grown.extend(device, 200)?;
                grown.extend(device, 400)?;
                rope::rope(device, x[0], &positions, &whole, heads, style)?;
                rope::rope(device, x[0], &positions, &grown, heads, style)
            })?;
        }
    }
    Ok(())
}

pub fn look_ups(device: &Device) -> Checked {
    let (n, k) = (37, 512);
    for (index, format) in Format::ALL.into_iter().enumerate() {
        let bytes = weights(format, 50 + index as u64, n, k);
        let table = Matrix::from_bytes(format, n, k, &bytes).map_err(text)?;
        let placed = Matrix::on(device, format, n, k, &bytes).map_err(text)?;
        if (placed.rows(), placed.columns(), placed.format()) != (n, k, format) {
            return Err(format!("{placed:?}, expected {table:?}"));
        }
        for tokens in [vec![36u32, 0, 5, 5], vec![], vec![9]] {
            let mut expected = vec![0.0; tokens.len() * k];
            embed::embedding(&Device::cpu(1), &mut expected, &table, &tokens).map_err(text)?;
            let mut found = vec![f32::NAN; expected.len()];
            embed::embedding(device, &mut found, &placed, &tokens).map_err(text)?;
            same_bits(&found, &expected, &format!("{format:?}"))?;
            let mut resident = Values::zeros(device, expected.len()).map_err(text)?;
            embed::embedding(device, &mut resident, &placed, &tokens).map_err(text)?;
            device.synchronize().map_err(text)?;
            same_bits(&resident, &expected, &format!("{format:?}, addressed by both"))?;
        }
    }
    Ok(())
}

/// A step's positions and tokens are remembered by name: a change must be seen, also one that is shorter or longer.
pub fn steps_that_change(device: &Device) -> Checked {
    let table = random(9, 50 * 32);
    let cpu = Matrix::from_f32(50, 32, &table).map_err(text)?;
    let placed = Matrix::f32_on(device, 50, 32, &table).map_err(text)?;
    for tokens in [vec![1u32, 2, 3], vec![1, 2, 4], vec![1, 2], vec![7; 300], vec![1, 2, 3]] {
        let (mut expected, mut found) = (vec![0.0; tokens.len() * 32], vec![0.0; tokens.len() * 32]);
        embed::embedding(&Device::cpu(1), &mut expected, &cpu, &tokens).map_err(text)?;
        embed::embedding(device, &mut found, &placed, &tokens).map_err(text)?;
        same_bits(&found, &expected, "tokens that changed")?;
    }
    Ok(())
}

pub fn pooling(device: &Device) -> Checked {
    for (lengths, width) in [(vec![1usize], 5), (vec![3, 1, 7], 384), (vec![2, 9], 257), (vec![], 4)] {
        let rows: usize = lengths.iter().sum();
        let (x, out) = (random(10, rows * width), vec![f32::NAN; lengths.len() * width]);
        compare(device, "mean", &[&out], &[&x], |device, out, x| pool::mean(device, out[0], x[0], &lengths))?;
        compare(device, "cls", &[&out], &[&x], |device, out, x| pool::cls(device, out[0], x[0], &lengths))?;
        compare(device, "last", &[&out], &[&x], |device, out, x| pool::last(device, out[0], x[0], &lengths))?;
        let mut zeros = x.clone();
        zeros.iter_mut().take(width).for_each(|value| *value = 0.0);
        for x in [&x, &zeros] {
            compare(device, "length", &[x], &[], |device, x, _| pool::l2_normalize(device, x[0], width))?;
        }
    }
    Ok(())
}

pub fn parts_of_values(device: &Device) -> Checked {
    let mut values = Values::copied(device, &random(16, 100)).map_err(text)?;
    let part = 13..57;
    let expected: Vec<f32> =
        values.iter().enumerate().map(|(index, x)| if part.contains(&index) { x * 2.0 } else { *x }).collect();
    residual::scale(device, &mut values[part], 2.0).map_err(text)?;
    device.synchronize().map_err(text)?;
    same_bits(&values, &expected, "a part")
}

/// Operands larger than what is taken from the device at a time, then small ones again.
pub fn large_operands(device: &Device) -> Checked {
    for count in [400_000, 300, 500_000] {
        let (x, mut found) = (random(18, count), vec![0.0; count]);
        residual::copy(device, &mut found, &x).map_err(text)?;
        same_bits(&found, &x, "a large copy")?;
    }
    Ok(())
}

pub fn weights_elsewhere(device: &Device) -> Checked {
    let bytes = weights(Format::Q8_0, 17, 4, 32);
    let here = Matrix::from_bytes(Format::Q8_0, 4, 32, &bytes).map_err(text)?;
    let there = Matrix::on(device, Format::Q8_0, 4, 32, &bytes).map_err(text)?;
    for (device, table) in [(device, &here), (&Device::cpu(1), &there)] {
        let refused = embed::embedding(device, &mut [0.0; 32], table, &[0]);
        if !matches!(&refused, Err(Error::Shape { problem, .. }) if problem.contains("Matrix::on")) {
            return Err(format!("weights of another device: {refused:?}, expected a refusal"));
        }
    }
    Ok(())
}
