//! The program's own checks of a GPU, run on the emulator.
#![allow(dead_code, unused_imports)] // each test file uses its own part

pub mod workshop;

use lifelong_kernels::Device;
pub use lifelong_kernels::checks::{Checked, attention, delta, draw, elementwise, experts, products, sample};

/// A check of the device.
pub type Check = fn(&Device) -> Checked;

/// The emulator with threads in order, and in some random ones.
pub const ORDERS: [u64; 3] = [0, 1, 77];

/// Runs a check on the emulator with several orders of threads.
#[track_caller]
pub fn holds_in_every_order(check: Check) {
    for order in ORDERS {
        if let Err(problem) = check(&Device::emulated(order).unwrap()) {
            panic!("threads in order {order}: {problem}");
        }
    }
}
