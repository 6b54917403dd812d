//! The emulator as a device: the kernels' own sources, compiled for the host, run one thread after another.
//!
//! Memory is the host's, so a stray write is seen: every allocation stands between guards that are looked at after every
//! launch, and holds no number before something is written to it.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
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

/// Bytes of a guard, and the border that memory begins on.
const GUARD: usize = 256;
const GUARD_BYTE: u8 = 0xa5;
/// What memory holds at first: all ones are no number in every float format.
const POISON: u8 = 0xff;
/// What a device of this kind is said to have.
const MEMORY: usize = 8 << 30;

pub(super) struct Emulated {
    order: u64,
    /// Sizes of allocations by address.
    allocations: Mutex<BTreeMap<u64, usize>>,
}

impl Emulated {
    pub(super) fn new(order: u64) -> Self {
        Self { order, allocations: Mutex::default() }
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes + 2 * GUARD, GUARD).expect("it fits in the address space")
    }

    /// The kernel's name goes into the error: it ran last.
    fn check_guards(&self, kernel: &str) -> Result<()> {
        let allocations = self.allocations.lock().unwrap_or_else(PoisonError::into_inner);
        for (address, bytes) in allocations.iter() {
            for (side, start) in [("before", *address as usize - GUARD), ("behind", *address as usize + bytes)] {
                // SAFETY: guards are part of the allocation and initialised.
                let guard = unsafe { std::slice::from_raw_parts(start as *const u8, GUARD) };
                if let Some(at) = guard.iter().position(|byte| *byte != GUARD_BYTE) {
                    let problem = format!("{kernel} wrote {side} an allocation of {bytes} bytes (guard byte {at})");
                    return Err(Error::Cuda(problem + ": our bug"));
                }
            }
        }
        Ok(())
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
        // SAFETY: the whole of the allocation, then what stands between its guards.
        let address = unsafe {
            start.write_bytes(GUARD_BYTE, layout.size());
            let inner = start.add(GUARD);
            inner.write_bytes(POISON, bytes);
            inner as u64
        };
        self.allocations.lock().unwrap_or_else(PoisonError::into_inner).insert(address, bytes);
        Ok(address)
    }

    unsafe fn free(&self, address: u64, bytes: usize, _place: Place) {
        self.allocations.lock().unwrap_or_else(PoisonError::into_inner).remove(&address);
        // SAFETY: the caller's promise.
        unsafe { dealloc((address as usize - GUARD) as *mut u8, Self::layout(bytes)) };
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
        self.check_guards(launch.kernel)
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    fn memory(&self) -> Result<(usize, usize)> {
        let allocations = self.allocations.lock().unwrap_or_else(PoisonError::into_inner);
        let taken: usize = allocations.values().sum();
        Ok((MEMORY.saturating_sub(taken), MEMORY))
    }

    fn keeps_guards(&self) -> bool {
        true
    }
}
