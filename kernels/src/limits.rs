//! What this machine can do at most, measured: the rates that kernels are compared with.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::cpu::{Cpu, limits};
use crate::cuda::on_gpu;
use crate::device::{Backend, Device};
use crate::error::Result;
use crate::memory::Aligned;

/// The best of this many runs counts: a limit is what the machine does when nothing disturbs it.
const RUNS: usize = 5;
/// A run takes at least this long, so that threads are awake and the clock is steady.
const RUN: Duration = Duration::from_millis(15);
/// Tasks for each thread, so that one that comes late does not hold up the rest.
const TASKS_A_THREAD: usize = 8;
/// Bytes read at most: larger than any cache.
const MOST_READ: usize = 512 << 20;
/// Rounds of a task's arithmetic.
const ROUNDS: usize = 20_000;

/// Rates of a device with all of its threads, in its instruction set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Bytes a second of reading memory in order, of an area of the size asked for.
    pub read: f64,
    /// Operations a second (a multiply and an add count as two) of 8-bit dot products out of registers.
    pub integers: f64,
    /// The same of fused multiply-adds of `f32`; on a GPU of products of bf16 matrices summed in `f32`.
    pub floats: f64,
}

impl Limits {
    /// Measures for a quarter of a second. `bytes` is the size of the area read: that of a model's packed weights, for
    /// what a cache holds is read faster. More than 512 MiB makes no difference and is not taken.
    ///
    /// # Errors
    /// [`crate::Error::Cuda`] on a GPU that fails.
    pub fn measure(device: &Device, bytes: usize) -> Result<Limits> {
        let cpu = match device.backend() {
            Backend::Cpu(cpu) => cpu,
            Backend::Cuda(cuda) => return on_gpu!(cuda, limits::measure(bytes)),
        };
        let tasks = cpu.threads() * TASKS_A_THREAD;
        let operations = (tasks * ROUNDS * limits::CHAINS) as f64;
        let integers = best(|| {
            cpu.run(tasks, |_| {
                black_box(limits::integer_products(cpu.instruction_set, ROUNDS));
            });
        });
        let floats = best(|| {
            cpu.run(tasks, |_| {
                black_box(limits::float_products(cpu.instruction_set, ROUNDS));
            });
        });
        // Two operations for each of 16 lanes; four columns a lane in 8 bits.
        Ok(Limits {
            read: read(cpu, bytes, tasks),
            integers: operations * (16 * 4 * 2) as f64 / integers,
            floats: operations * (16 * 2) as f64 / floats,
        })
    }
}

fn read(cpu: &Cpu, bytes: usize, tasks: usize) -> f64 {
    let values =
        bytes.min(MOST_READ).div_ceil(4).next_multiple_of(tasks * limits::READ_VALUES).max(tasks * limits::READ_VALUES);
    let mut area = Aligned::<f32>::zeroed(values);
    area.fill(1.0);
    let part = values / tasks;
    let seconds = best(|| {
        cpu.run(tasks, |task| {
            black_box(limits::read(cpu.instruction_set, &area[task * part..(task + 1) * part]));
        });
    });
    (values * 4) as f64 / seconds
}

/// Seconds of one call, at best.
fn best(mut run: impl FnMut()) -> f64 {
    run();
    let mut best = f64::INFINITY;
    for _ in 0..RUNS {
        let (begun, mut calls) = (Instant::now(), 0u32);
        while calls == 0 || begun.elapsed() < RUN {
            run();
            calls += 1;
        }
        best = best.min(begun.elapsed().as_secs_f64() / f64::from(calls));
    }
    best
}
