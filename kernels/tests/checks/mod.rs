//! What the kernels for GPUs must do, each a check of one device against the processor. They give what they found instead
//! of failing, as the tests of the faults run them on kernels that are wrong on purpose.
#![allow(dead_code)] // each test file uses its own part

pub mod attention;
pub mod delta;
pub mod products;
pub mod sample;
pub mod workshop;

use lifelong_kernels::Device;

/// Nothing, or what is wrong.
pub type Checked = Result<(), String>;

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

pub fn same_bits(found: &[f32], expected: &[f32], what: &str) -> Checked {
    if found.len() != expected.len() {
        return Err(format!("{what}: {} values, expected {}", found.len(), expected.len()));
    }
    match found.iter().zip(expected).position(|(a, b)| a.to_bits() != b.to_bits()) {
        Some(index) => Err(format!("{what}: value {index} is {:?}, expected {:?}", found[index], expected[index])),
        None => Ok(()),
    }
}

/// `values` between borders that must stay as they are; the values themselves are no numbers before something is written.
pub struct Guarded {
    memory: Vec<f32>,
    length: usize,
}

const BORDER: usize = 64;
const UNTOUCHED: f32 = 1234.5;

impl Guarded {
    pub fn new(length: usize) -> Self {
        let mut memory = vec![UNTOUCHED; length + 2 * BORDER];
        memory[BORDER..BORDER + length].fill(f32::NAN);
        Self { memory, length }
    }

    pub fn values(&mut self) -> &mut [f32] {
        &mut self.memory[BORDER..BORDER + self.length]
    }

    /// The values, all written and nothing beside them.
    pub fn taken(self, what: &str) -> Result<Vec<f32>, String> {
        let borders = self.memory[..BORDER].iter().chain(&self.memory[BORDER + self.length..]);
        if borders.into_iter().any(|value| *value != UNTOUCHED) {
            return Err(format!("{what}: something was written beside the result"));
        }
        let values = self.memory[BORDER..BORDER + self.length].to_vec();
        match values.iter().position(|value| value.is_nan()) {
            Some(index) => Err(format!("{what}: value {index} was not written, or is no number")),
            None => Ok(values),
        }
    }
}
