//! A chain of launches as a graph of the driver's.

use std::ptr;

use cudarc::driver::sys;
use cudarc::driver::{DriverError, result};

use super::driver::failed;
use super::runner::{Recorded, Repeated, Runner, pointers};
use crate::error::Result;

/// An executable graph; it belongs to the driver that it was made by, which outlives it.
pub(super) struct DriverGraph {
    context: sys::CUcontext,
    stream: sys::CUstream,
    graph: sys::CUgraph,
    executable: sys::CUgraphExec,
    nodes: Vec<sys::CUgraphNode>,
    functions: Vec<sys::CUfunction>,
}

// SAFETY: as of the driver: any thread may use handles once it has entered the context.
unsafe impl Send for DriverGraph {}

impl DriverGraph {
    /// `functions` are those of the launches, allowed the shared memory that these take. The context has been entered.
    pub(super) fn new(
        context: sys::CUcontext,
        stream: sys::CUstream,
        launches: &[Recorded],
        functions: Vec<sys::CUfunction>,
    ) -> std::result::Result<Self, DriverError> {
        let mut graph = ptr::null_mut();
        // SAFETY: writes one handle.
        unsafe { sys::cuGraphCreate(&mut graph, 0) }.result()?;
        // From here on dropped as a whole.
        let mut made = Self {
            context,
            stream,
            graph,
            executable: ptr::null_mut(),
            nodes: Vec::with_capacity(launches.len()),
            functions,
        };
        for (index, launch) in launches.iter().enumerate() {
            let arguments = launch.arguments();
            let mut pointers = pointers(&arguments);
            let node = made.node(index, launch, &mut pointers);
            let (before, count) = made.nodes.last().map_or((ptr::null(), 0), |last| (ptr::from_ref(last), 1));
            let mut handle = ptr::null_mut();
            // SAFETY: the driver copies arguments before it returns; the node before belongs to this graph.
            unsafe { sys::cuGraphAddKernelNode_v2(&mut handle, graph, before, count, &node) }.result()?;
            made.nodes.push(handle);
        }
        // SAFETY: writes one handle.
        unsafe { sys::cuGraphInstantiateWithFlags(&mut made.executable, graph, 0) }.result()?;
        Ok(made)
    }

    fn node(
        &self,
        index: usize,
        recorded: &Recorded,
        pointers: &mut [*mut std::ffi::c_void],
    ) -> sys::CUDA_KERNEL_NODE_PARAMS {
        let ([x, y, z], [width, height, depth]) = (recorded.launch.grid, recorded.launch.block);
        sys::CUDA_KERNEL_NODE_PARAMS {
            func: self.functions[index],
            gridDimX: x,
            gridDimY: y,
            gridDimZ: z,
            blockDimX: width,
            blockDimY: height,
            blockDimZ: depth,
            sharedMemBytes: recorded.launch.shared_bytes as u32,
            kernelParams: pointers.as_mut_ptr(),
            extra: ptr::null_mut(),
            kern: ptr::null_mut(),
            ctx: ptr::null_mut(),
        }
    }

    fn enter(&self) -> Result<()> {
        // SAFETY: retained by the driver, which outlives this.
        unsafe { result::ctx::set_current(self.context) }.map_err(|error| failed("entering the context", error))
    }
}

impl Repeated for DriverGraph {
    fn set(&mut self, index: usize, launch: &Recorded) -> Result<()> {
        self.enter()?;
        let arguments = launch.arguments();
        let mut pointers = pointers(&arguments);
        let node = self.node(index, launch, &mut pointers);
        // SAFETY: a node that this was made of; the driver copies arguments before it returns.
        let set = unsafe { sys::cuGraphExecKernelNodeSetParams_v2(self.executable, self.nodes[index], &node) };
        set.result().map_err(|error| failed(launch.launch.kernel, error))
    }

    unsafe fn run(&self, _runner: &dyn Runner) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's promise of each launch.
        unsafe { sys::cuGraphLaunch(self.executable, self.stream) }
            .result()
            .map_err(|error| failed("starting a graph", error))
    }
}

impl Drop for DriverGraph {
    fn drop(&mut self) {
        // A context that cannot be entered takes everything with it.
        if self.enter().is_err() {
            return;
        }
        // SAFETY: made by `new`, and nobody else holds them.
        unsafe {
            if !self.executable.is_null() {
                let _ = sys::cuGraphExecDestroy(self.executable);
            }
            let _ = sys::cuGraphDestroy(self.graph);
        }
    }
}
