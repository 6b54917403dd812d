//! A pool whose workers stay awake between the operations of one step.
//!
//! A forward pass runs several hundred operations of some ten microseconds each, so waking threads through the kernel
//! for every one would cost as much as the work. Workers spin for a short while after each operation and only then go
//! to sleep. `rayon` was not taken: its workers sleep between operations and splitting costs several microseconds.
//!
//! A cache line that two cores write takes hundreds of nanoseconds to change hands, so little is shared: every thread
//! starts on a run of tasks of its own, counted in a line of its own, and only one that has done its run takes tasks
//! from the others. The same thread meets the same tasks in every step, which keeps its part of small weights in its
//! own cache. The caller never waits for a worker that has not begun: when another program has that core, the caller
//! does the tasks itself.
//!
//! Which thread runs which task is not fixed, so a task must compute whole outputs that no other task touches. A task
//! may run operations of its own: they stay on its thread.

use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, Thread};

/// About 15 µs on a processor whose `pause` takes 25 ns: longer than the gap between two operations of a step, short
/// enough that a worker has not used up its time slice when other programs want the processor.
const SPINS_BEFORE_SLEEP: u32 = 600;

type Task<'a> = dyn Fn(usize) + Sync + 'a;

thread_local! {
    /// The threads that share the job whose task this thread is in; 0 outside of jobs.
    static COMPANY: Cell<usize> = const { Cell::new(0) };
}

/// Of so many threads one is the calling thread's part, where a task runs an operation: 1 outside of tasks.
pub(crate) fn company() -> usize {
    COMPANY.get().max(1)
}

/// This thread is in a job, as long as it lives.
struct InJob;

impl InJob {
    fn of(threads: usize) -> Self {
        COMPANY.set(threads);
        Self
    }
}

impl Drop for InJob {
    fn drop(&mut self) {
        COMPANY.set(0);
    }
}

/// `threads − 1` workers; the caller of [`Pool::run`] is the last one.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    sleepers: Vec<Thread>,
    /// Held by the caller whose job the workers run.
    owner: Mutex<()>,
}

struct Shared {
    published: Line<Published>,
    /// The latest job whose tasks are all taken: workers that have not begun it stay out.
    closed: Line<AtomicU32>,
    /// One a thread, the caller's last.
    runs: Vec<Line<Run>>,
    /// One a worker.
    states: Vec<Line<State>>,
    panicked: AtomicBool,
    stopping: AtomicBool,
}

/// Alone on the cache lines that a processor fetches together.
#[repr(align(128))]
#[derive(Default)]
struct Line<T>(T);

/// Jobs are numbered from 1, around the end of `u32`: long before a number comes again everyone has left its job.
#[derive(Default)]
struct Published {
    number: AtomicU32,
    job: UnsafeCell<Option<Job>>,
}

#[derive(Clone, Copy)]
struct Job {
    task: *const Task<'static>,
    count: usize,
}

/// The next task of a thread's run: the job's number in the high half, tasks taken of the run in the low half. A run that
/// still holds an older number is untouched in this job.
#[derive(Default)]
struct Run(AtomicU64);

#[derive(Default)]
struct State {
    /// The last job that the worker began, and the last that it left.
    begun: AtomicU32,
    left: AtomicU32,
    asleep: AtomicBool,
}

// SAFETY: `job` is written only by the holder of `owner` while no worker is in a job, and read only by workers that are in
// one (see `Shared::work`); the release on `number` and the acquire in the worker order the two.
unsafe impl Sync for Shared {}
// SAFETY: the pointer in `job` is used only during `run`, which keeps its target alive.
unsafe impl Send for Shared {}

impl Pool {
    /// A pool of `threads` (at least one) including the caller. A worker the system refuses to start is left out: the
    /// results do not depend on the number of threads.
    pub(crate) fn new(threads: usize) -> Self {
        let wanted = threads.max(1) - 1;
        let shared = Arc::new(Shared {
            published: Line::default(),
            closed: Line::default(),
            runs: (0..=wanted).map(|_| Line::default()).collect(),
            states: (0..wanted).map(|_| Line::default()).collect(),
            panicked: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
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

    /// Those that the calling thread's next job is for: one where it is in a task already.
    pub(crate) fn threads(&self) -> usize {
        if COMPANY.get() > 0 { 1 } else { self.workers.len() + 1 }
    }

    /// Runs `task(0)` … `task(count − 1)`, each once, and returns when all are done.
    ///
    /// When the workers are taken (another thread runs an operation on this device, or a task calls `run`), the caller
    /// does all tasks itself rather than wait.
    ///
    /// # Panics
    /// When a task panics, after all threads have left the job.
    pub(crate) fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
        if count <= 1 || self.workers.is_empty() || COMPANY.get() > 0 {
            return (0..count).for_each(task);
        }
        let Ok(_owner) = self.owner.try_lock() else {
            return (0..count).for_each(task);
        };
        let number = self.publish(count, task);
        let outcome =
            catch_unwind(AssertUnwindSafe(|| self.shared.take_tasks(number, self.shared.runs.len() - 1, count, task)));
        self.close(number);
        let panicked = self.shared.panicked.swap(false, Ordering::Relaxed);
        drop(_owner);
        if let Err(panic) = outcome {
            resume_unwind(panic);
        }
        assert!(!panicked, "a kernel task panicked on a worker thread");
    }

    fn publish(&self, count: usize, task: &Task<'_>) -> u32 {
        let Shared { published, states, .. } = &*self.shared;
        // SAFETY: only the lifetime changes; `run` does not return before every worker has left the job.
        let task = unsafe { std::mem::transmute::<*const Task<'_>, *const Task<'static>>(task) };
        // SAFETY: we hold `owner` and no worker is in a job, so nothing else touches the cell.
        unsafe { *published.0.job.get() = Some(Job { task, count }) };
        // Sequentially consistent with the sleeper's store: either it sees this number, or we see it asleep.
        let number = published.0.number.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        for (state, thread) in states.iter().zip(&self.sleepers) {
            if state.0.asleep.load(Ordering::SeqCst) && state.0.asleep.swap(false, Ordering::SeqCst) {
                thread.unpark();
            }
        }
        number
    }

    /// Keeps out the workers that have not begun, and waits for those that have.
    fn close(&self, number: u32) {
        let Shared { closed, states, .. } = &*self.shared;
        // Sequentially consistent with the worker's store: either it sees the job closed, or we see that it has begun.
        closed.0.store(number, Ordering::SeqCst);
        for state in &states[..self.workers.len()] {
            if state.0.begun.load(Ordering::SeqCst) != number {
                continue;
            }
            let mut spins = 0u32;
            while state.0.left.load(Ordering::Acquire) != number {
                spins += 1;
                if spins < SPINS_BEFORE_SLEEP {
                    std::hint::spin_loop();
                } else {
                    std::thread::yield_now();
                }
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.published.0.number.fetch_add(1, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker catches the panics of tasks, so joining reports nothing new.
            let _ = worker.join();
        }
    }
}

impl Shared {
    fn work(&self, index: usize) {
        let state = &self.states[index].0;
        let mut seen = 0;
        loop {
            seen = self.next_number(state, seen);
            if self.stopping.load(Ordering::SeqCst) {
                return;
            }
            state.begun.store(seen, Ordering::SeqCst);
            // Numbers go around, so "closed or later" is a difference of less than half the circle.
            let is_closed = self.closed.0.load(Ordering::SeqCst).wrapping_sub(seen) < u32::MAX / 2;
            // SAFETY: the job is open and says that we have begun: its caller waits for us before the cell is written again.
            let job = if is_closed { None } else { unsafe { *self.published.0.job.get() } };
            if let Some(Job { task, count }) = job {
                // SAFETY: the caller keeps the task alive until we have left.
                let task = unsafe { &*task };
                if catch_unwind(AssertUnwindSafe(|| self.take_tasks(seen, index, count, task))).is_err() {
                    self.panicked.store(true, Ordering::Relaxed);
                }
            }
            // Of a closed job too: its caller may have seen that we had begun.
            state.left.store(seen, Ordering::Release);
        }
    }

    /// Does the tasks of this thread's run, then what others have left of theirs.
    fn take_tasks(&self, number: u32, own: usize, count: usize, task: &Task<'_>) {
        let threads = self.runs.len();
        let _in_job = InJob::of(threads);
        for turn in 0..threads {
            let thread = (own + turn) % threads;
            let range = count * thread / threads..count * (thread + 1) / threads;
            while let Some(taken) = self.runs[thread].0.take(number, range.len()) {
                task(range.start + taken);
            }
        }
    }

    /// Waits for the number to move on from `seen`: spinning first, then asleep.
    fn next_number(&self, state: &State, seen: u32) -> u32 {
        let number = &self.published.0.number;
        for _ in 0..SPINS_BEFORE_SLEEP {
            let number = number.load(Ordering::Acquire);
            if number != seen {
                return number;
            }
            std::hint::spin_loop();
        }
        loop {
            state.asleep.store(true, Ordering::SeqCst);
            let number = number.load(Ordering::SeqCst);
            if number != seen {
                state.asleep.store(false, Ordering::SeqCst);
                return number;
            }
            std::thread::park();
        }
    }
}

impl Run {
    /// The next task of `count` in job `number`, counted from the start of the run.
    fn take(&self, number: u32, count: usize) -> Option<usize> {
        let mut current = self.0.load(Ordering::Relaxed);
        loop {
            let taken = if (current >> 32) as u32 == number { current as u32 as usize } else { 0 };
            if taken >= count {
                return None;
            }
            let next = u64::from(number) << 32 | (taken as u64 + 1);
            match self.0.compare_exchange_weak(current, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(taken),
                Err(found) => current = found,
            }
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

    /// Where an element lies, for a hint to the cache; it may lie outside of the slice.
    pub(crate) fn address(&self, index: usize) -> *const T {
        self.start.wrapping_add(index)
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
                            assert_eq!(pool.threads() == 1, company() > 1);
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

    /// A worker that never comes, as when another program has its core, is not waited for.
    #[test]
    fn a_worker_that_has_not_begun_is_not_waited_for() {
        let mut pool = Pool::new(1);
        let shared = Shared {
            published: Line::default(),
            closed: Line::default(),
            runs: vec![Line::default(), Line::default()],
            states: vec![Line::default()],
            panicked: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
        };
        pool.shared = Arc::new(shared);
        pool.workers.push(std::thread::spawn(std::thread::park));
        pool.sleepers.push(pool.workers[0].thread().clone());
        for count in [2, 3, 64] {
            let runs = AtomicU32::new(0);
            pool.run(count, &|_| {
                runs.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(runs.into_inner(), count as u32);
        }
    }

    /// Tiny jobs one after another: workers come when a job is about to close, and just after.
    #[test]
    fn workers_that_come_late_hold_nobody_up() {
        let pool = Pool::new(4);
        let runs = AtomicU32::new(0);
        for _ in 0..200_000 {
            pool.run(2, &|_| {
                runs.fetch_add(1, Ordering::Relaxed);
            });
        }
        assert_eq!(runs.into_inner(), 400_000);
    }

    #[test]
    fn job_numbers_go_around() {
        let pool = Pool::new(3);
        for start in [u32::MAX - 40, u32::MAX / 2 - 40] {
            let published = &pool.shared.published.0.number;
            // No worker is in a job now; those that wake find it closed.
            pool.shared.closed.0.store(start, Ordering::SeqCst);
            published.store(start, Ordering::SeqCst);
            for _ in 0..100 {
                let runs = AtomicU32::new(0);
                pool.run(16, &|_| {
                    runs.fetch_add(1, Ordering::Relaxed);
                });
                assert_eq!(runs.into_inner(), 16);
            }
        }
    }

    #[test]
    fn a_sleeping_worker_wakes_for_the_next_job() {
        let pool = Pool::new(2);
        while !pool.shared.states[0].0.asleep.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        let runs = AtomicU32::new(0);
        pool.run(10, &|_| {
            runs.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(runs.into_inner(), 10);
    }
}
