//! Launches in graphs: a decoding step is some three hundred small launches, the same ones step after step.
//!
//! Launches are kept until something else is asked of the device (a copy, an answer). Kernels of the same names in the same
//! order that have been seen before become a graph, which starts with one call; nodes whose arguments or grids moved since
//! (more positions, another number of rows) are set anew first. So nothing has to be known of a step: what is launched decides,
//! and batches that take other kernels have graphs of their own. What comes only once is launched as it is.
//!
//! A step is several graphs of [`MOST_LAUNCHES`], so that the device is at work on one while the next is put together: where
//! kernels take longer than their starts, which single launches would hide, little is lost by waiting for the first graph.
//! Nothing that a graph reads is kept by it: positions, tables and lengths lie in memory that a step writes before its
//! kernels, at addresses that are arguments like others. Kernels whose graph the driver refuses are started one by one.
//!
//! The alternative, capturing the stream, needs every size of batch warmed up and padded, and fails at the first copy.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::runner::{Argument, Launch, Place, Recorded, Repeated, Runner};
use crate::device::Launches;
use crate::error::Result;

/// Fewer launches are quicker by themselves.
const LEAST_LAUNCHES: usize = 8;
/// The device begins with as many while the next are put together.
const MOST_LAUNCHES: usize = 64;
/// Graphs kept; there are some for each mixture of kernels, which are few.
const MOST_GRAPHS: usize = 512;

pub(super) struct Graphs {
    /// Before the runner, which what it holds belongs to.
    state: Mutex<State>,
    inner: Box<dyn Runner>,
}

#[derive(Default)]
struct State {
    pending: Vec<Recorded>,
    /// By the kernels' names in order, and the shared memory that each is allowed.
    known: HashMap<Vec<(&'static str, usize)>, Known>,
    counts: Launches,
}

enum Known {
    Once,
    Graph {
        graph: Box<dyn Repeated>,
        launches: Vec<Recorded>,
    },
    /// The driver would not have it.
    Refused,
}

impl Graphs {
    pub(super) fn new(inner: Box<dyn Runner>) -> Self {
        Self { state: Mutex::default(), inner }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts what has been kept.
    fn flush(&self) -> Result<()> {
        self.start(&mut self.state())
    }

    fn start(&self, state: &mut State) -> Result<()> {
        let pending = std::mem::take(&mut state.pending);
        if pending.len() < LEAST_LAUNCHES {
            return self.launch_each(&mut state.counts, &pending);
        }
        if state.known.len() >= MOST_GRAPHS {
            // One of them may be at work.
            self.inner.synchronize()?;
            state.known.clear();
        }
        let counts = &mut state.counts;
        let kernels: Vec<(&'static str, usize)> =
            pending.iter().map(|recorded| (recorded.launch.kernel, recorded.launch.shared_bytes)).collect();
        let Some(known) = state.known.get_mut(&kernels) else {
            state.known.insert(kernels, Known::Once);
            return self.launch_each(counts, &pending);
        };
        match known {
            Known::Refused => self.launch_each(counts, &pending),
            Known::Once => match self.inner.repeated(&pending) {
                Ok(graph) => {
                    counts.graphs += 1;
                    // SAFETY: the promise of those who launched them.
                    unsafe { graph.run(self.inner.as_ref())? };
                    *known = Known::Graph { graph, launches: pending };
                    Ok(())
                }
                Err(_) => self.go_without(known, counts, &pending),
            },
            Known::Graph { graph, launches } => {
                for (index, (held, new)) in launches.iter_mut().zip(&pending).enumerate() {
                    if held == new {
                        continue;
                    }
                    if graph.set(index, new).is_err() {
                        // It may be at work.
                        self.inner.synchronize()?;
                        return self.go_without(known, counts, &pending);
                    }
                    counts.nodes_set += 1;
                    held.clone_from(new);
                }
                counts.repeats += 1;
                // SAFETY: as above.
                unsafe { graph.run(self.inner.as_ref()) }
            }
        }
    }

    /// Starts by themselves kernels whose graph was refused, now and whenever they come again.
    fn go_without(&self, known: &mut Known, counts: &mut Launches, launches: &[Recorded]) -> Result<()> {
        *known = Known::Refused;
        counts.refused += 1;
        self.launch_each(counts, launches)
    }

    fn launch_each(&self, counts: &mut Launches, launches: &[Recorded]) -> Result<()> {
        counts.single_launches += launches.len();
        // SAFETY: the promise of those who launched them.
        launches.iter().try_for_each(|recorded| unsafe { recorded.launch_on(self.inner.as_ref()) })
    }
}

impl Drop for Graphs {
    fn drop(&mut self) {
        // What fails here is gone already.
        let _ = self.synchronize();
    }
}

impl Runner for Graphs {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn ordinal(&self) -> Option<usize> {
        self.inner.ordinal()
    }

    fn enqueue(&self, work: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
        self.flush()?;
        self.inner.enqueue(work)
    }

    fn allocate(&self, bytes: usize, place: Place) -> Result<u64> {
        self.inner.allocate(bytes, place)
    }

    unsafe fn free(&self, address: u64, bytes: usize, place: Place) {
        // What is kept may use it. An error has been reported, or will be by what comes next.
        let _ = self.flush();
        // SAFETY: the caller's promise.
        unsafe { self.inner.free(address, bytes, place) };
    }

    unsafe fn fill(&self, address: u64, byte: u8, bytes: usize) -> Result<()> {
        self.flush()?;
        // SAFETY: the caller's promise.
        unsafe { self.inner.fill(address, byte, bytes) }
    }

    unsafe fn copy_in(&self, to: u64, from: &[u8]) -> Result<()> {
        self.flush()?;
        // SAFETY: the caller's promise.
        unsafe { self.inner.copy_in(to, from) }
    }

    unsafe fn copy_out(&self, to: &mut [u8], from: u64) -> Result<()> {
        self.flush()?;
        // SAFETY: the caller's promise.
        unsafe { self.inner.copy_out(to, from) }
    }

    unsafe fn launch(&self, launch: &Launch, arguments: &[Argument<'_>]) -> Result<()> {
        let state = &mut *self.state();
        state.pending.push(Recorded::of(launch, arguments));
        if state.pending.len() < MOST_LAUNCHES { Ok(()) } else { self.start(state) }
    }

    fn synchronize(&self) -> Result<()> {
        self.flush()?;
        self.inner.synchronize()
    }

    fn memory(&self) -> Result<(usize, usize)> {
        self.inner.memory()
    }

    fn launches(&self) -> Launches {
        self.state().counts
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::runner::arguments;
    use super::*;
    use crate::error::Error;

    /// What a driver may not have.
    #[derive(Clone, Copy, Default, PartialEq)]
    enum Refuses {
        #[default]
        Nothing,
        Graphs,
        Changes,
    }

    /// A device that writes down what it is asked.
    #[derive(Clone, Default)]
    struct Diary(Arc<Mutex<Vec<String>>>, Refuses);

    /// A graph of it.
    struct Chain(Vec<Recorded>, Refuses);

    impl Repeated for Chain {
        fn set(&mut self, index: usize, launch: &Recorded) -> Result<()> {
            if self.1 == Refuses::Changes {
                return Err(Error::Cuda("it stays as it is".into()));
            }
            self.0[index] = launch.clone();
            Ok(())
        }

        unsafe fn run(&self, runner: &dyn Runner) -> Result<()> {
            // SAFETY: the caller's promise.
            self.0.iter().try_for_each(|recorded| unsafe { recorded.launch_on(runner) })
        }
    }

    impl Diary {
        fn note(&self, text: String) -> Result<()> {
            self.0.lock().unwrap().push(text);
            Ok(())
        }

        fn take(&self) -> Vec<String> {
            std::mem::take(&mut self.0.lock().unwrap())
        }
    }

    impl Runner for Diary {
        fn name(&self) -> &str {
            "diary"
        }

        fn allocate(&self, _bytes: usize, _place: Place) -> Result<u64> {
            Ok(256)
        }

        unsafe fn free(&self, _address: u64, _bytes: usize, _place: Place) {
            let _ = self.note("free".into());
        }

        unsafe fn fill(&self, _address: u64, _byte: u8, _bytes: usize) -> Result<()> {
            self.note("fill".into())
        }

        unsafe fn copy_in(&self, _to: u64, _from: &[u8]) -> Result<()> {
            self.note("copy in".into())
        }

        unsafe fn copy_out(&self, _to: &mut [u8], _from: u64) -> Result<()> {
            self.note("copy out".into())
        }

        unsafe fn launch(&self, launch: &Launch, arguments: &[Argument<'_>]) -> Result<()> {
            self.note(format!("{} {:?} {arguments:?}", launch.kernel, launch.grid))
        }

        fn repeated(&self, launches: &[Recorded]) -> Result<Box<dyn Repeated>> {
            match self.1 {
                Refuses::Graphs => Err(Error::Cuda("no graphs here".into())),
                refuses => Ok(Box::new(Chain(launches.to_vec(), refuses))),
            }
        }

        fn synchronize(&self) -> Result<()> {
            self.note("wait".into())
        }

        fn memory(&self) -> Result<(usize, usize)> {
            Ok((0, 0))
        }
    }

    /// A step: ten launches, of which the last two know how far it is; a copy; two more.
    fn step(runner: &dyn Runner, blocks: u32, position: u64) {
        let launch = |kernel, blocks, argument: u64| {
            let launch = Launch { kernel, grid: [blocks, 1, 1], block: [32, 1, 1], shared_bytes: 0 };
            // SAFETY: the diary follows no pointer.
            unsafe { runner.launch(&launch, arguments![argument, 7u32]).unwrap() };
        };
        for index in 0..8 {
            launch("norm", 3, index);
        }
        launch("attention", blocks, 1);
        launch("draw", 1, position);
        // SAFETY: as above.
        unsafe { runner.copy_in(1, &[0]).unwrap() };
        launch("norm", 3, 50);
        launch("norm", 3, 51);
        runner.synchronize().unwrap();
    }

    #[test]
    fn what_repeats_is_a_graph_and_the_device_is_asked_the_same_in_the_same_order() {
        let (plain, diary) = (Diary::default(), Diary::default());
        let graphs = Graphs::new(Box::new(diary.clone()));
        for (blocks, position) in [(2, 10), (2, 11), (2, 12), (3, 13), (3, 13)] {
            step(&plain, blocks, position);
            step(&graphs, blocks, position);
            assert_eq!(diary.take(), plain.take(), "position {position}");
        }
        // Once as it comes, once made, three times repeated: the position moved twice, the grid once.
        let expected = Launches { graphs: 1, repeats: 3, nodes_set: 3, single_launches: 10 + 5 * 2, refused: 0 };
        assert_eq!(graphs.launches(), expected);
    }

    #[test]
    fn other_kernels_are_another_graph_and_freed_memory_is_not_used() {
        let diary = Diary::default();
        let graphs = Graphs::new(Box::new(diary.clone()));
        let launch = |kernel| Launch { kernel, grid: [1; 3], block: [1; 3], shared_bytes: 0 };
        for kernel in ["few", "many", "few", "many"] {
            // SAFETY: the diary follows no pointer.
            (0..9).for_each(|_| unsafe { graphs.launch(&launch(kernel), &[]).unwrap() });
            // SAFETY: as above.
            unsafe { graphs.free(1, 1, Place::Device) };
            let told = diary.take();
            assert_eq!((told.len(), told[9].as_str()), (10, "free"));
        }
        assert_eq!(graphs.launches().graphs, 2);
    }

    #[test]
    fn a_long_step_starts_before_it_is_whole() {
        let diary = Diary::default();
        let graphs = Graphs::new(Box::new(diary.clone()));
        let launch = Launch { kernel: "norm", grid: [1; 3], block: [1; 3], shared_bytes: 0 };
        for step in 0..3 {
            for index in 0..MOST_LAUNCHES + LEAST_LAUNCHES {
                // SAFETY: the diary follows no pointer.
                unsafe { graphs.launch(&launch, &[]).unwrap() };
                let started = diary.0.lock().unwrap().len();
                assert_eq!(started, if index + 1 < MOST_LAUNCHES { 0 } else { MOST_LAUNCHES }, "step {step}");
            }
            graphs.synchronize().unwrap();
            assert_eq!(diary.take().len(), MOST_LAUNCHES + LEAST_LAUNCHES + 1);
        }
        // Both parts once as they come, once made, once repeated.
        let Launches { graphs: made, repeats, single_launches, .. } = graphs.launches();
        assert_eq!((made, repeats, single_launches), (2, 2, MOST_LAUNCHES + LEAST_LAUNCHES));
    }

    #[test]
    fn what_a_driver_refuses_is_started_one_by_one() {
        for refuses in [Refuses::Graphs, Refuses::Changes] {
            let (plain, diary) = (Diary::default(), Diary(Arc::default(), refuses));
            let graphs = Graphs::new(Box::new(diary.clone()));
            for position in 10..15 {
                step(&plain, 2, position);
                step(&graphs, 2, position);
                // Waits aside: a graph that may be at work is waited for before it is given up.
                let launched =
                    |diary: &Diary| diary.take().into_iter().filter(|line| line != "wait").collect::<Vec<_>>();
                assert_eq!(launched(&diary), launched(&plain), "position {position}");
            }
            assert_eq!((graphs.launches().refused, graphs.launches().repeats), (1, 0));
        }
    }
}
