//! Models in parts over a group of emulated GPUs, which exchange by the kernels that real ones use.
//!
//! Needs the feature `emulate`; without it every test prints that it was skipped.

mod shared;

use lifelong_kernels::{Device, Format};
use shared::split::{FAMILIES, WIDE, group, parts_are_the_whole, rows_do_not_move};

/// A sum of parts, each rounded on its own, through two layers.
const SUMS: f32 = 1e-5;
/// With weights of 16 bits, activations are rounded to as many: after another sum, now and then the other way.
const BRAIN: f32 = 4e-2;

fn emulated() -> Option<Device> {
    Device::emulated(0).map_err(|reason| println!("skipped: {reason}")).ok()
}

/// Threads of each run in another order.
fn gpus(count: usize) -> Device {
    group(count, |order| Device::emulated(order as u64).unwrap())
}

#[test]
fn parts_have_the_logits_and_the_likeliest_tokens_of_the_whole() {
    let Some(alone) = emulated() else { return };
    for family in FAMILIES {
        parts_are_the_whole(
            &family.checkpoint(Format::F32),
            &gpus(2),
            &alone,
            SUMS,
            &format!("{} in 2 parts", family.name),
        );
    }
    parts_are_the_whole(&FAMILIES[0].checkpoint(Format::F32), &gpus(4), &alone, SUMS, "llama in 4 parts");
    parts_are_the_whole(&FAMILIES[0].checkpoint(Format::BF16), &gpus(2), &alone, BRAIN, "llama bf16 in 2 parts");
    let quantised = WIDE.checkpoint(Format::F32).quantized(Format::Q4K).unwrap();
    parts_are_the_whole(&quantised, &gpus(2), &alone, BRAIN, "wide llama Q4K in 2 parts");
}

#[test]
fn a_row_does_not_depend_on_its_step() {
    if emulated().is_none() {
        return;
    }
    for family in [&FAMILIES[0], &FAMILIES[4]] {
        rows_do_not_move(&family.checkpoint(Format::BF16), &gpus(2), &format!("{} in 2 parts", family.name));
    }
}

/// In f32 a group of GPUs has the bits of a group of processors.
#[test]
fn parts_have_the_bits_of_parts_on_processors() {
    if emulated().is_none() {
        return;
    }
    let checkpoint = FAMILIES[0].checkpoint(Format::F32);
    let (gpus, cpus) = (gpus(2), group(2, |_| Device::cpu(1)));
    parts_are_the_whole(&checkpoint, &gpus, &cpus, 0.0, "2 emulated GPUs against 2 processors");
}
