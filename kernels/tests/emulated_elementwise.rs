//! Elementwise operations, norms, rotations, look-ups, pooling and routing as GPU kernels, run by the emulator: the bits of
//! the processor, in every order of threads, whether operands lie on the heap or where both sides address them.
//!
//! Needs the feature `emulate`; without it every test prints that it was skipped.

mod reference;

use lifelong_kernels::limits::Limits;
use lifelong_kernels::ops::experts::Shares;
use lifelong_kernels::ops::rope::{RopeStyle, RopeTable};
use lifelong_kernels::ops::{activation, embed, experts, norm, pool, residual, rope};
use lifelong_kernels::{Device, Error, Format, Matrix, Values};
use reference::*;

/// Emulated devices with their threads in order and in two random orders; none in a build without the emulator.
fn emulated() -> Vec<Device> {
    let devices: Vec<Device> = [0, 1, 0x5eed].into_iter().filter_map(|order| Device::emulated(order).ok()).collect();
    if devices.is_empty() {
        println!("skipped: built without the feature `emulate`");
    }
    devices
}

/// Equal bits; any number that is none equals any other.
fn assert_equal(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let same = found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan());
        assert!(same, "{what}: value {index} is {found:e}, expected {expected:e}");
    }
}

/// Runs an operation with these outputs (as they are before) and inputs on the processor and on emulated devices.
fn check(what: &str, outputs: &[&[f32]], inputs: &[&[f32]], run: impl Fn(&Device, &mut [&mut [f32]], &[&[f32]])) {
    let mut expected: Vec<Vec<f32>> = outputs.iter().map(|output| output.to_vec()).collect();
    run(&Device::cpu(1), &mut expected.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>(), inputs);
    for device in emulated() {
        let mut found: Vec<Vec<f32>> = outputs.iter().map(|output| output.to_vec()).collect();
        run(&device, &mut found.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>(), inputs);
        let placed = |values: &&[f32]| Values::copied(&device, values).unwrap();
        let mut resident: Vec<Values> = outputs.iter().map(placed).collect();
        let inputs: Vec<Values> = inputs.iter().map(placed).collect();
        let inputs: Vec<&[f32]> = inputs.iter().map(|values| &values[..]).collect();
        run(&device, &mut resident.iter_mut().map(|values| &mut values[..]).collect::<Vec<_>>(), &inputs);
        device.synchronize().unwrap();
        for (index, expected) in expected.iter().enumerate() {
            assert_equal(&found[index], expected, what);
            assert_equal(&resident[index], expected, &format!("{what}, addressed by both"));
        }
    }
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

#[test]
fn activations() {
    for count in [0, 1, 255, 256, 257, 1111] {
        let [out, gate, up] = [1, 2, 3].map(|seed| odd_numbers(seed, count));
        check("swiglu", &[&out], &[&gate, &up], |device, out, x| {
            activation::swiglu(device, out[0], x[0], x[1]).unwrap();
        });
        check("geglu", &[&out], &[&gate, &up], |device, out, x| {
            activation::geglu_tanh(device, out[0], x[0], x[1]).unwrap();
        });
        check("clamped", &[&out], &[&gate, &up], |device, out, x| {
            activation::swiglu_clamped(device, out[0], x[0], x[1], 1.702, 7.0).unwrap();
        });
        check("gate", &[&out], &[&gate], |device, out, x| activation::sigmoid_gate(device, out[0], x[0]).unwrap());
        check("gelu", &[&gate], &[], |device, out, _| activation::gelu(device, out[0]).unwrap());
        check("gelu tanh", &[&gate], &[], |device, out, _| activation::gelu_tanh(device, out[0]).unwrap());
        check("add", &[&out], &[&up], |device, out, x| residual::add(device, out[0], x[0]).unwrap());
        check("copy", &[&out], &[&up], |device, out, x| residual::copy(device, out[0], x[0]).unwrap());
        check("scale", &[&out], &[], |device, out, _| residual::scale(device, out[0], 25.25).unwrap());
    }
}

/// The whole range of the exponential and of the error function, beyond their ends.
#[test]
fn elementary_functions_everywhere() {
    let x: Vec<f32> = (-26_000..26_000).map(|step| step as f32 * 0.004).collect();
    let ones = vec![1.0; x.len()];
    check("silu", &[&ones], &[&x, &ones], |device, out, x| activation::swiglu(device, out[0], x[0], x[1]).unwrap());
    let x: Vec<f32> = x.iter().map(|x| x * 0.06).collect();
    check("gelu", &[&x], &[], |device, out, _| activation::gelu(device, out[0]).unwrap());
}

/// Widths around the lanes, one and several warps, and rows that shared memory does not hold.
#[test]
fn norms() {
    for (width, rows) in
        [(1, 3), (15, 2), (16, 1), (17, 5), (64, 9), (100, 0), (255, 2), (257, 1), (576, 3), (12_224, 1), (12_300, 2)]
    {
        let (x, y) = (random_with_outliers(4, rows * width), random(5, rows * width));
        let (weight, bias) = (random(6, width), random(7, width));
        let out = vec![f32::NAN; x.len()];
        let what = |name: &str| format!("{name} {rows} × {width}");
        check(&what("rms"), &[&out], &[&x, &weight], |device, out, x| {
            norm::rms_norm(device, out[0], x[0], x[1], 1e-6).unwrap();
        });
        check(&what("rms in place"), &[&x], &[&weight], |device, out, x| {
            norm::rms_norm_in_place(device, out[0], x[0], 1e-6).unwrap();
        });
        check(&what("rms residual"), &[&y, &out], &[&x, &weight], |device, out, x| {
            let [residual, out] = out else { unreachable!() };
            norm::rms_norm_residual(device, residual, out, x[0], x[1], 1e-6).unwrap();
        });
        check(&what("layer norm"), &[&out], &[&x, &weight, &bias], |device, out, x| {
            norm::layer_norm(device, out[0], x[0], x[1], x[2], 1e-12).unwrap();
        });
        check(&what("layer norm residual"), &[&y], &[&x, &weight, &bias], |device, out, x| {
            norm::layer_norm_residual(device, out[0], x[0], x[1], x[2], 1e-12).unwrap();
        });
    }
}

#[test]
fn rotations() {
    for (heads, dim, rotary) in [(1, 2, 2), (3, 64, 64), (5, 80, 40), (2, 128, 128), (9, 24, 24)] {
        let positions = [0u32, 7, 7, 399, 1];
        let x = random(8, positions.len() * heads * dim);
        for style in [RopeStyle::Halves, RopeStyle::Interleaved] {
            check(&format!("{heads} × {dim} {style:?}"), &[&x], &[], |device, x, _| {
                // One table is given whole, the other lies where the device wants it.
                let whole = RopeTable::new(rotary, 400, 1e4);
                let mut grown = RopeTable::new(rotary, 0, 1e4);
                grown.extend(device, 200).unwrap();
                grown.extend(device, 400).unwrap();
                rope::rope(device, x[0], &positions, &whole, heads, style).unwrap();
                rope::rope(device, x[0], &positions, &grown, heads, style).unwrap();
            });
        }
    }
}

#[test]
fn look_ups_of_every_format() {
    let (n, k) = (37, 512);
    for (index, format) in Format::ALL.into_iter().enumerate() {
        let (bytes, _) = quantise(format, n, k, &random(50 + index as u64, n * k));
        let table = Matrix::from_bytes(format, n, k, &bytes).unwrap();
        for tokens in [vec![36u32, 0, 5, 5], vec![], vec![9]] {
            let mut expected = vec![0.0; tokens.len() * k];
            embed::embedding(&Device::cpu(1), &mut expected, &table, &tokens).unwrap();
            for device in emulated() {
                let placed = Matrix::on(&device, format, n, k, &bytes).unwrap();
                assert_eq!((placed.rows(), placed.columns(), placed.format()), (n, k, format));
                let mut found = vec![f32::NAN; expected.len()];
                embed::embedding(&device, &mut found, &placed, &tokens).unwrap();
                assert_equal(&found, &expected, &format!("{format:?}"));
                let mut resident = Values::zeros(&device, expected.len()).unwrap();
                embed::embedding(&device, &mut resident, &placed, &tokens).unwrap();
                device.synchronize().unwrap();
                assert_equal(&resident, &expected, &format!("{format:?}, addressed by both"));
            }
        }
    }
}

/// A step's positions and tokens are remembered by name: a change must be seen, also one that is shorter or longer.
#[test]
fn what_a_step_says_is_brought_over_when_it_changes() {
    let table = random(9, 50 * 32);
    let cpu = Matrix::f32_on(&Device::cpu(1), 50, 32, &table).unwrap();
    for device in emulated() {
        let placed = Matrix::f32_on(&device, 50, 32, &table).unwrap();
        for tokens in [vec![1u32, 2, 3], vec![1, 2, 4], vec![1, 2], vec![7; 300], vec![1, 2, 3]] {
            let (mut expected, mut found) = (vec![0.0; tokens.len() * 32], vec![0.0; tokens.len() * 32]);
            embed::embedding(&Device::cpu(1), &mut expected, &cpu, &tokens).unwrap();
            embed::embedding(&device, &mut found, &placed, &tokens).unwrap();
            assert_equal(&found, &expected, "tokens that changed");
        }
    }
}

#[test]
fn pooling() {
    for (lengths, width) in [(vec![1usize], 5), (vec![3, 1, 7], 384), (vec![2, 9], 257), (vec![], 4)] {
        let rows: usize = lengths.iter().sum();
        let (x, out) = (random(10, rows * width), vec![f32::NAN; lengths.len() * width]);
        check("mean", &[&out], &[&x], |device, out, x| pool::mean(device, out[0], x[0], &lengths).unwrap());
        check("cls", &[&out], &[&x], |device, out, x| pool::cls(device, out[0], x[0], &lengths).unwrap());
        check("last", &[&out], &[&x], |device, out, x| pool::last(device, out[0], x[0], &lengths).unwrap());
        let mut zeros = x.clone();
        zeros.iter_mut().take(width).for_each(|value| *value = 0.0);
        for x in [&x, &zeros] {
            check("length", &[x], &[], |device, x, _| pool::l2_normalize(device, x[0], width).unwrap());
        }
    }
}

#[test]
fn routes() {
    for (tokens, count, chosen) in [(1, 1, 1), (3, 8, 2), (2, 33, 33), (5, 128, 8), (2, 500, 40)] {
        let mut logits: Vec<f32> = random(11, tokens * count).iter().map(|logit| (logit * 6.0).round() / 2.0).collect();
        for special in [false, true] {
            if special {
                let odd = [f32::NAN, f32::NEG_INFINITY, 0.0, -0.0];
                logits.iter_mut().skip(1).step_by(3).zip(odd.iter().cycle()).for_each(|(logit, odd)| *logit = *odd);
            }
            for shares in [Shares::OfAll, Shares::OfChosen] {
                let share = vec![f32::NAN; tokens * chosen];
                let picked = |device: &Device| {
                    let (mut picked, mut share) = (vec![u32::MAX; tokens * chosen], share.clone());
                    experts::route(device, &mut picked, &mut share, &logits, count, shares).unwrap();
                    picked
                };
                let expected = picked(&Device::cpu(1));
                for device in emulated() {
                    assert_eq!(picked(&device), expected, "{count} experts, {chosen} chosen");
                }
                check("shares", &[&share], &[&logits], |device, share, logits| {
                    let mut picked = vec![0; tokens * chosen];
                    experts::route(device, &mut picked, share[0], logits[0], count, shares).unwrap();
                });
            }
        }
    }
}

#[test]
fn tokens_go_to_experts_and_come_back() {
    let (tokens, chosen, hidden) = (5, 3, 300);
    let x = random(12, tokens * hidden);
    let rows: Vec<u32> = (0..tokens * chosen).map(|visit| (visit * 7 % tokens) as u32).collect();
    let gathered = vec![f32::NAN; rows.len() * hidden];
    check("gather", &[&gathered], &[&x], |device, out, x| {
        experts::gather(device, out[0], x[0], &rows, hidden).unwrap();
    });
    let (y, share) = (random(13, rows.len() * hidden), random(14, rows.len()));
    let places: Vec<u32> = (0..rows.len()).map(|place| (place * 4 % rows.len()) as u32).collect();
    let out = vec![f32::NAN; x.len()];
    check("combine", &[&out], &[&y, &share], |device, out, x| {
        experts::combine(device, out[0], x[0], &places, x[1], hidden).unwrap();
    });
    let gate = random(15, tokens);
    check("shared", &[&x], &[&y[..x.len()], &gate], |device, out, x| {
        experts::add_shared(device, out[0], x[0], x[1], hidden).unwrap();
    });
}

#[test]
fn a_part_of_values_is_addressed_as_it_stands() {
    for device in emulated() {
        let mut values = Values::copied(&device, &random(16, 100)).unwrap();
        let expected: Vec<f32> =
            values.iter().enumerate().map(|(i, x)| if (13..57).contains(&i) { x * 2.0 } else { *x }).collect();
        residual::scale(&device, &mut values[13..57], 2.0).unwrap();
        device.synchronize().unwrap();
        assert_equal(&values, &expected, "a part");
    }
}

/// How fast an emulator is means nothing; that it is measured without an error does.
#[test]
fn limits_are_measured() {
    for device in emulated().into_iter().take(1) {
        let limits = Limits::measure(&device, 1 << 20).unwrap();
        assert!([limits.read, limits.integers, limits.floats].iter().all(|rate| *rate > 0.0 && rate.is_finite()));
    }
}

/// Operands larger than what is taken from the device at a time, then small ones again.
#[test]
fn large_operands_are_brought_over_in_one_piece() {
    for count in [400_000, 300, 500_000] {
        let (x, out) = (random(18, count), vec![0.0; count]);
        for device in emulated().into_iter().take(1) {
            let mut found = out.clone();
            residual::copy(&device, &mut found, &x).unwrap();
            assert_equal(&found, &x, "a large copy");
        }
    }
}

#[test]
fn weights_of_another_device_are_refused() {
    for device in emulated() {
        let (bytes, _) = quantise(Format::Q8_0, 4, 32, &random(17, 128));
        let here = Matrix::from_bytes(Format::Q8_0, 4, 32, &bytes).unwrap();
        let there = Matrix::on(&device, Format::Q8_0, 4, 32, &bytes).unwrap();
        for (device, table) in [(&device, &here), (&Device::cpu(1), &there)] {
            let error = embed::embedding(device, &mut [0.0; 32], table, &[0]).unwrap_err();
            assert!(matches!(&error, Error::Shape { problem, .. } if problem.contains("Matrix::on")), "{error}");
        }
    }
}
