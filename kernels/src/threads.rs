//! A pool whose workers stay awake between the operations of one step.
//!
//! A forward pass runs several hundred operations of some ten microseconds each, so waking threads through the kernel
//! for every one would cost as much as the work. Workers spin for a short while after each operation and only then go
//! to sleep. Tasks are numbered and handed out by an atomic counter; nothing is allocated per operation. `rayon` was not
//! taken: its workers sleep between operations and splitting costs several microseconds.
//!
//! Which thread runs which task is not fixed, so a task must compute whole outputs that no other task touches.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, Thread};

/// About 30 µs on a processor whose `pause` takes 50 ns: longer than the gap between two operations of a step, short
/// enough that a worker has not used up its time slice when other programs want the processor.
const SPINS_BEFORE_SLEEP: u32 = 600;

type Task<'a> = dyn Fn(usize) + Sync + 'a;

/// `threads − 1` workers; the caller of [`Pool::run`] is the last one.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    sleepers: Vec<Thread>,
    /// Held by the caller whose job the workers run.
    owner: Mutex<()>,
}

struct Shared {
    /// Counts jobs; a worker that sees a new value has a job to run.
    epoch: AtomicUsize,
    job: UnsafeCell<Option<Job>>,
    next: AtomicUsize,
    /// Workers that have not finished the current job.
    busy: AtomicUsize,
    panicked: AtomicBool,
    stopping: AtomicBool,
    asleep: Vec<AtomicBool>,
}

#[derive(Clone, Copy)]
struct Job {
    task: *const Task<'static>,
    count: usize,
}

// SAFETY: `job` is written only by the holder of `owner` while `busy` is zero, and read only by workers that are
// counted in `busy`; the release on `epoch` and the acquire in the worker order the two.
unsafe impl Sync for Shared {}
// SAFETY: the pointer in `job` is used only during `run`, which keeps its target alive.
unsafe impl Send for Shared {}

impl Pool {
    /// A pool of `threads` (at least one) including the caller. A worker the system refuses to start is left out: the
    /// results do not depend on the number of threads.
    pub(crate) fn new(threads: usize) -> Self {
        let wanted = threads.max(1) - 1;
        let shared = Arc::new(Shared {
            epoch: AtomicUsize::new(0),
            job: UnsafeCell::new(None),
            next: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            panicked: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            asleep: (0..wanted).map(|_| AtomicBool::new(false)).collect(),
        });
        let workers: Vec<_> = (0..wanted)
            .map_while(|index| {
                let shared = Arc::clone(&shared);
                std::thread::Builder::new().name(format!("kernels-{index}")).spawn(move || shared.work(index)).ok()
            })
            .collect();
        let sleepers = workers.iter().map(|worker| worker.thread().clone()).collect();
        Self { shared, workers, sleepers, owner: Mutex::new(()) }
    }

    pub(crate) fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `task(0)` … `task(count − 1)`, each once, and returns when all are done.
    ///
    /// When the workers are taken (another thread runs an operation on this device, or a task calls `run`), the caller
    /// does all tasks itself rather than wait.
    ///
    /// # Panics
    /// When a task panics, after all threads have left the job.
    pub(crate) fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
        if count <= 1 || self.workers.is_empty() {
            return (0..count).for_each(task);
        }
        let Ok(_owner) = self.owner.try_lock() else {
            return (0..count).for_each(task);
        };
        self.publish(count, task);
        let outcome = catch_unwind(AssertUnwindSafe(|| self.shared.drain(task, count)));
        self.wait();
        if let Err(panic) = outcome {
            self.shared.panicked.store(false, Ordering::Relaxed);
            drop(_owner);
            resume_unwind(panic);
        }
        let panicked = self.shared.panicked.swap(false, Ordering::Relaxed);
        drop(_owner);
        assert!(!panicked, "a kernel task panicked on a worker thread");
    }

    fn publish(&self, count: usize, task: &Task<'_>) {
        let shared = &*self.shared;
        shared.next.store(0, Ordering::Relaxed);
        shared.busy.store(self.workers.len(), Ordering::Relaxed);
        // SAFETY: only the lifetime changes; `run` does not return before every worker has left the job.
        let task = unsafe { std::mem::transmute::<*const Task<'_>, *const Task<'static>>(task) };
        // SAFETY: we hold `owner` and no worker is in a job, so nothing else touches the cell.
        unsafe { *shared.job.get() = Some(Job { task, count }) };
        // Sequentially consistent with the sleeper's store: either it sees this epoch, or we see it asleep.
        shared.epoch.fetch_add(1, Ordering::SeqCst);
        for (asleep, thread) in shared.asleep.iter().zip(&self.sleepers) {
            if asleep.swap(false, Ordering::SeqCst) {
                thread.unpark();
            }
        }
    }

    fn wait(&self) {
        let mut spins = 0u32;
        while self.shared.busy.load(Ordering::Acquire) > 0 {
            spins += 1;
            if spins < SPINS_BEFORE_SLEEP {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.epoch.fetch_add(1, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker catches the panics of tasks, so joining reports nothing new.
            let _ = worker.join();
        }
    }
}

impl Shared {
    fn work(&self, index: usize) {
        let mut seen = 0;
        loop {
            seen = self.next_epoch(index, seen);
            if self.stopping.load(Ordering::SeqCst) {
                return;
            }
            // SAFETY: the epoch moved, so the caller wrote the job and waits for our `busy` count.
            let job = unsafe { *self.job.get() };
            if let Some(job) = job {
                // SAFETY: the caller keeps the task alive until `busy` reaches zero.
                let task = unsafe { &*job.task };
                if catch_unwind(AssertUnwindSafe(|| self.drain(task, job.count))).is_err() {
                    self.panicked.store(true, Ordering::Relaxed);
                }
            }
            self.busy.fetch_sub(1, Ordering::Release);
        }
    }

    fn drain(&self, task: &Task<'_>, count: usize) {
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return;
            }
            task(index);
        }
    }

    /// Waits for the epoch to move on from `seen`: spinning first, then asleep.
    fn next_epoch(&self, index: usize, seen: usize) -> usize {
        for _ in 0..SPINS_BEFORE_SLEEP {
            let epoch = self.epoch.load(Ordering::Acquire);
            if epoch != seen {
                return epoch;
            }
            std::hint::spin_loop();
        }
        loop {
            self.asleep[index].store(true, Ordering::SeqCst);
            let epoch = self.epoch.load(Ordering::SeqCst);
            if epoch != seen {
                self.asleep[index].store(false, Ordering::SeqCst);
                return epoch;
            }
            std::thread::park();
        }
    }
}

/// A mutable slice of which each task takes its own part.
pub(crate) struct Parts<'a, T> {
    start: *mut T,
    length: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: parts are handed out as disjoint `&mut [T]` (the caller's promise in `take`), like `split_at_mut` does, or as
// `&[T]` that several tasks may hold.
unsafe impl<T: Send + Sync> Sync for Parts<'_, T> {}

impl<'a, T> Parts<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), length: slice.len(), slice: PhantomData }
    }

    /// A part to read.
    ///
    /// # Safety
    /// No part that [`Parts::take`] gave and that lives at the same time may overlap it.
    pub(crate) unsafe fn read(&self, range: Range<usize>) -> &[T] {
        assert!(range.start <= range.end && range.end <= self.length, "a part must lie inside of its slice");
        // SAFETY: in bounds by the assertion, not written by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.start.add(range.start), range.len()) }
    }

    /// One task's part.
    ///
    /// # Safety
    /// No two parts that live at the same time may overlap.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn take(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.length, "a part must lie inside of its slice");
        // SAFETY: in bounds by the assertion, exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn every_task_runs_once_for_any_number_of_threads() {
        for threads in [0, 1, 2, 5] {
            let pool = Pool::new(threads);
            for count in [0, 1, 2, 7, 300] {
                let runs: Vec<AtomicU32> = (0..count).map(|_| AtomicU32::new(0)).collect();
                pool.run(count, &|index| {
                    runs[index].fetch_add(1, Ordering::Relaxed);
                });
                assert!(runs.iter().all(|run| run.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn callers_at_once_and_nested_calls_all_finish() {
        let pool = Pool::new(3);
        let total = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        pool.run(8, &|_| {
                            pool.run(2, &|_| {
                                total.fetch_add(1, Ordering::Relaxed);
                            });
                        });
                    }
                });
            }
        });
        assert_eq!(total.into_inner(), 4 * 50 * 8 * 2);
    }

    #[test]
    fn a_panicking_task_reaches_the_caller_and_the_pool_lives_on() {
        let pool = Pool::new(2);
        let panic = catch_unwind(AssertUnwindSafe(|| pool.run(64, &|index| assert!(index != 40, "task 40"))));
        assert!(panic.is_err());
        let runs = AtomicU32::new(0);
        pool.run(64, &|_| {
            runs.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(runs.into_inner(), 64);
    }

    #[test]
    fn a_sleeping_worker_wakes_for_the_next_job() {
        let pool = Pool::new(2);
        while !pool.shared.asleep[0].load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        let runs = AtomicU32::new(0);
        pool.run(10, &|_| {
            runs.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(runs.into_inner(), 10);
    }
}
