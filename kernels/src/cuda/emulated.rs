//! The emulator as a device: the kernels' own sources, compiled for the host, run one thread after another. Memory is the
//! host's.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::runner::{Argument, Launch, Place, Runner, pointers};
use crate::error::{Error, Result};

// `kernels/cuda/emulator/emulator.h` declares them.
unsafe extern "C" {
    fn emulate_launch(
        kernel: *const c_char,
        grid: *const u32,
        block: *const u32,
        shared_bytes: usize,
        arguments: *mut *mut c_void,
        message: *mut c_char,
        message_bytes: usize,
    ) -> c_int;
    fn emulate_thread_order(seed: u64);
}

/// The emulator has one machine.
static MACHINE: Mutex<()> = Mutex::new(());

/// What memory begins on.
const BORDER: usize = 256;
/// What a device of this kind is said to have.
const MEMORY: usize = 8 << 30;

pub(super) struct Emulated {
    order: u64,
    /// Bytes that are allocated.
    taken: AtomicUsize,
}

impl Emulated {
    pub(super) fn new(order: u64) -> Self {
        Self { order, taken: AtomicUsize::new(0) }
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, BORDER).expect("it fits in the address space")
    }
}

impl Runner for Emulated {
    fn name(&self) -> &str {
        "emulated"
    }

    fn allocate(&self, bytes: usize, _place: Place) -> Result<u64> {
        let layout = Self::layout(bytes);
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc(layout) };
        if start.is_null() {
            handle_alloc_error(layout);
        }
        self.taken.fetch_add(bytes, Ordering::Relaxed);
        Ok(start as u64)
    }

    unsafe fn free(&self, address: u64, bytes: usize, _place: Place) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { dealloc(address as *mut u8, Self::layout(bytes)) };
    }

    unsafe fn fill(&self, address: u64, byte: u8, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { (address as *mut u8).write_bytes(byte, bytes) };
        Ok(())
    }

    unsafe fn copy_in(&self, to: u64, from: &[u8]) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { (to as *mut u8).copy_from(from.as_ptr(), from.len()) };
        Ok(())
    }

    unsafe fn copy_out(&self, to: &mut [u8], from: u64) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { to.as_mut_ptr().copy_from(from as *const u8, to.len()) };
        Ok(())
    }

    unsafe fn launch(&self, launch: &Launch, arguments: &[Argument<'_>]) -> Result<()> {
        let name = CString::new(launch.kernel).expect("kernels are named by literals");
        let mut message = [0 as c_char; 512];
        let mut pointers = pointers(arguments);
        let failed = {
            let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: the caller's promise; the emulator writes a terminated message of at most this length.
            unsafe {
                emulate_thread_order(self.order);
                emulate_launch(
                    name.as_ptr(),
                    launch.grid.as_ptr(),
                    launch.block.as_ptr(),
                    launch.shared_bytes,
                    pointers.as_mut_ptr(),
                    message.as_mut_ptr(),
                    message.len(),
                )
            }
        };
        if failed != 0 {
            // SAFETY: terminated within its length.
            let text = unsafe { CStr::from_ptr(message.as_ptr()) }.to_string_lossy();
            return Err(Error::Cuda(text.into_owned()));
        }
        Ok(())
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    fn memory(&self) -> Result<(usize, usize)> {
        Ok((MEMORY.saturating_sub(self.taken.load(Ordering::Relaxed)), MEMORY))
    }
}
