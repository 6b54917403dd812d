//! Launches in graphs: a decoding step is some three hundred small launches, the same ones step after step.
//!
//! Launches are kept until something else is asked of the device (a copy, an answer). Kernels of the same names in the same
//! order that have been seen before become a graph, which starts with one call; nodes whose arguments or grids moved since
//! (more positions, another number of rows) are set anew first. So nothing has to be known of a step: what is launched decides,
//! and batches that take other kernels have graphs of their own. What comes only once is launched as it is.
//!
//! The alternative, capturing the stream, needs every size of batch warmed up and padded, and fails at the first copy.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::runner::{Argument, Launch, Place, Recorded, Repeated, Runner};
use crate::error::Result;

/// Fewer launches are quicker by themselves.
const LEAST_LAUNCHES: usize = 8;
/// Graphs kept; there is one for each mixture of kernels, which are few.
const MOST_GRAPHS: usize = 64;

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
    counts: Counts,
}

enum Known {
    Once,
    Graph { graph: Box<dyn Repeated>, launches: Vec<Recorded> },
}

/// What has been done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) graphs: usize,
    pub(super) repeats: usize,
    pub(super) nodes_set: usize,
    pub(super) single_launches: usize,
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
        let state = &mut *self.state();
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
            Known::Once => {
                let graph = self.inner.repeated(&pending)?;
                counts.graphs += 1;
                // SAFETY: the promise of those who launched them.
                unsafe { graph.run(self.inner.as_ref())? };
                *known = Known::Graph { graph, launches: pending };
                Ok(())
            }
            Known::Graph { graph, launches } => {
                for (index, (held, new)) in launches.iter_mut().zip(pending).enumerate() {
                    if *held != new {
                        graph.set(index, &new)?;
                        counts.nodes_set += 1;
                        *held = new;
                    }
                }
                counts.repeats += 1;
                // SAFETY: as above.
                unsafe { graph.run(self.inner.as_ref()) }
            }
        }
    }

    fn launch_each(&self, counts: &mut Counts, launches: &[Recorded]) -> Result<()> {
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
        self.state().pending.push(Recorded::of(launch, arguments));
        Ok(())
    }

    fn synchronize(&self) -> Result<()> {
        self.flush()?;
        self.inner.synchronize()
    }

    fn memory(&self) -> Result<(usize, usize)> {
        self.inner.memory()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::runner::arguments;
    use super::*;

    /// A device that writes down what it is asked.
    #[derive(Clone, Default)]
    struct Diary(Arc<Mutex<Vec<String>>>);

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
        let counts = graphs.state().counts;
        assert_eq!(counts, Counts { graphs: 1, repeats: 3, nodes_set: 3, single_launches: 10 + 5 * 2 });
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
        assert_eq!(graphs.state().counts.graphs, 2);
    }
}
