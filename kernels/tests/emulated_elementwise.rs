//! Elementwise operations, norms, rotations, look-ups, pooling and drawn weights on a GPU, emulated, against the
//! processor. Needs the feature `emulate`.
#![cfg(feature = "emulate")]

mod checks;

use checks::{draw, elementwise, holds_in_every_order};
use lifelong_kernels::Device;
use lifelong_kernels::checks::CHECKS;
use lifelong_kernels::limits::Limits;

#[test]
fn activations() {
    holds_in_every_order(elementwise::activations);
}

#[test]
fn elementary_functions_everywhere() {
    holds_in_every_order(elementwise::elementary_functions);
}

#[test]
fn norms() {
    holds_in_every_order(elementwise::norms);
}

#[test]
fn rotations() {
    holds_in_every_order(elementwise::rotations);
}

#[test]
fn look_ups_of_every_format() {
    holds_in_every_order(elementwise::look_ups);
}

#[test]
fn what_a_step_says_is_brought_over_when_it_changes() {
    holds_in_every_order(elementwise::steps_that_change);
}

#[test]
fn pooling() {
    holds_in_every_order(elementwise::pooling);
}

#[test]
fn a_part_of_values_is_addressed_as_it_stands() {
    holds_in_every_order(elementwise::parts_of_values);
}

#[test]
fn large_operands_are_brought_over_in_one_piece() {
    holds_in_every_order(elementwise::large_operands);
}

#[test]
fn weights_of_another_device_are_refused() {
    holds_in_every_order(elementwise::weights_elsewhere);
}

#[test]
fn drawn_weights_are_the_processors() {
    holds_in_every_order(draw::drawn_weights_are_the_processors);
}

/// How fast an emulator is means nothing; that it is measured without an error does.
#[test]
fn limits_are_measured() {
    let limits = Limits::measure(&Device::emulated(0).unwrap(), 1 << 20).unwrap();
    assert!([limits.read, limits.integers, limits.floats].iter().all(|rate| *rate > 0.0 && rate.is_finite()));
}

/// `gpu-check` runs the list: a check that is not in it would be run by tests alone.
#[test]
fn every_check_is_listed() {
    let mut listed = 0;
    for file in ["attention", "delta", "draw", "elementwise", "experts", "products", "sample"] {
        let path = format!("{}/src/checks/{file}.rs", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        listed += text.lines().filter(|line| line.starts_with("pub fn ")).count();
    }
    let mut names: Vec<&str> = CHECKS.iter().map(|check| check.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!((names.len(), CHECKS.len()), (listed, listed));
}
