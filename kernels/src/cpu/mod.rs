//! The operations on the processor: plain-slice functions whose arguments [`ops`](crate::ops) has checked.

pub(crate) mod activation;
pub(crate) mod attention;
pub(crate) mod delta;
pub(crate) mod embed;
pub(crate) mod exchange;
pub(crate) mod experts;
pub(crate) mod kv;
pub(crate) mod limits;
mod math;
pub(crate) mod matmul;
pub(crate) mod norm;
pub(crate) mod philox;
pub(crate) mod pool;
mod prefetch;
pub(crate) mod rope;
mod rounding;
pub(crate) mod sample;
#[cfg(target_arch = "x86_64")]
pub(crate) mod tiles;
mod vector;

use std::ops::Range;

use crate::device::InstructionSet;
use crate::threads::Pool;

/// Values a task should touch at least: below this, handing it to another thread costs more than doing it.
const VALUES_A_TASK: usize = 8_192;

/// A processor: how to compute and who computes.
pub(crate) struct Cpu {
    pub(crate) instruction_set: InstructionSet,
    pool: Pool,
}

impl Cpu {
    /// The caller has checked that this processor has `instruction_set`.
    pub(crate) fn new(threads: usize, instruction_set: InstructionSet) -> Self {
        debug_assert!(instruction_set.is_available());
        Self { instruction_set, pool: Pool::new(threads) }
    }

    pub(crate) fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Runs tasks `0..count`, in any order and on any thread.
    pub(crate) fn run(&self, count: usize, task: impl Fn(usize) + Sync) {
        self.pool.run(count, &task);
    }

    /// Cuts `rows` into ranges worth a task each, by the values a row touches.
    pub(crate) fn run_rows(&self, rows: usize, values_a_row: usize, task: impl Fn(Range<usize>) + Sync) {
        let rows_a_task = VALUES_A_TASK.div_ceil(values_a_row.max(1)).max(1);
        self.run(rows.div_ceil(rows_a_task), |index| {
            task(index * rows_a_task..rows.min((index + 1) * rows_a_task));
        });
    }
}
