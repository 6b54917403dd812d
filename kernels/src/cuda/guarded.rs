//! A device whose memory is watched: every allocation stands between guards that are looked at after every launch, and holds
//! no number before something is written to it. Slow: every launch is waited for.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::runner::{Argument, Launch, Place, Runner};
use crate::error::{Error, Result};

/// Bytes of a guard: the border that memory begins on.
const GUARD: usize = 256;
const GUARD_BYTE: u8 = 0xa5;
/// What memory holds at first: all ones are no number in every float format.
const POISON: u8 = 0xff;

pub(super) struct Guarded {
    inner: Box<dyn Runner>,
    /// Sizes of allocations by address.
    allocations: Mutex<BTreeMap<u64, usize>>,
}

impl Guarded {
    pub(super) fn new(inner: Box<dyn Runner>) -> Self {
        Self { inner, allocations: Mutex::default() }
    }

    /// The kernel's name goes into the error: it ran last.
    fn check(&self, kernel: &str) -> Result<()> {
        let allocations = self.allocations.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = vec![[0u8; GUARD]; 2 * allocations.len()];
        for ((address, bytes), guards) in allocations.iter().zip(found.chunks_exact_mut(2)) {
            // SAFETY: guards are part of the allocation; they are waited for below.
            unsafe {
                self.inner.copy_out(&mut guards[0], address - GUARD as u64)?;
                self.inner.copy_out(&mut guards[1], address + *bytes as u64)?;
            }
        }
        self.inner.synchronize()?;
        for ((_, bytes), guards) in allocations.iter().zip(found.chunks_exact(2)) {
            for (side, guard) in ["before", "behind"].into_iter().zip(guards) {
                if let Some(at) = guard.iter().position(|byte| *byte != GUARD_BYTE) {
                    let problem = format!("{kernel} wrote {side} an allocation of {bytes} bytes (guard byte {at})");
                    return Err(Error::Cuda(problem + ": our bug"));
                }
            }
        }
        Ok(())
    }
}

impl Runner for Guarded {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn ordinal(&self) -> Option<usize> {
        self.inner.ordinal()
    }

    fn enqueue(&self, work: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
        self.inner.enqueue(work)
    }

    fn allocate(&self, bytes: usize, place: Place) -> Result<u64> {
        let start = self.inner.allocate(bytes + 2 * GUARD, place)?;
        let address = start + GUARD as u64;
        // SAFETY: the whole of the allocation, then what stands between its guards.
        unsafe {
            self.inner.fill(start, GUARD_BYTE, bytes + 2 * GUARD)?;
            self.inner.fill(address, POISON, bytes)?;
        }
        self.allocations.lock().unwrap_or_else(PoisonError::into_inner).insert(address, bytes);
        Ok(address)
    }

    unsafe fn free(&self, address: u64, bytes: usize, place: Place) {
        self.allocations.lock().unwrap_or_else(PoisonError::into_inner).remove(&address);
        // SAFETY: allocated so; the rest is the caller's promise.
        unsafe { self.inner.free(address - GUARD as u64, bytes + 2 * GUARD, place) };
    }

    unsafe fn fill(&self, address: u64, byte: u8, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.fill(address, byte, bytes) }
    }

    unsafe fn copy_in(&self, to: u64, from: &[u8]) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.copy_in(to, from) }
    }

    unsafe fn copy_out(&self, to: &mut [u8], from: u64) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.copy_out(to, from) }
    }

    unsafe fn launch(&self, launch: &Launch, arguments: &[Argument<'_>]) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.launch(launch, arguments)? };
        self.check(launch.kernel)
    }

    fn synchronize(&self) -> Result<()> {
        self.inner.synchronize()
    }

    fn memory(&self) -> Result<(usize, usize)> {
        self.inner.memory()
    }

    fn keeps_guards(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::memory::{Buffer, Memory};
    use super::*;

    /// A device in the host's memory with one kernel, which writes a byte to an address.
    struct Stray;

    impl Runner for Stray {
        fn name(&self) -> &str {
            "stray"
        }

        fn allocate(&self, bytes: usize, _place: Place) -> Result<u64> {
            Ok(vec![0u8; bytes].leak().as_mut_ptr() as u64)
        }

        unsafe fn free(&self, _address: u64, _bytes: usize, _place: Place) {}

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

        unsafe fn launch(&self, _launch: &Launch, arguments: &[Argument<'_>]) -> Result<()> {
            let Argument::Word(address) = arguments[0] else { unreachable!("the test gives an address") };
            // SAFETY: inside of an allocation or of its guards.
            unsafe { *(address as *mut u8) = 1 };
            Ok(())
        }

        fn synchronize(&self) -> Result<()> {
            Ok(())
        }

        fn memory(&self) -> Result<(usize, usize)> {
            Ok((0, 0))
        }
    }

    #[test]
    fn a_write_beside_an_allocation_is_seen_and_names_the_kernel() {
        let memory = Arc::new(Memory::new(Box::new(Guarded::new(Box::new(Stray)))));
        let write = |address: u64| {
            let launch = Launch { kernel: "write", grid: [1; 3], block: [1; 3], shared_bytes: 0 };
            // SAFETY: every address below lies in a buffer or its guards.
            unsafe { memory.runner.launch(&launch, &[Argument::Word(address)]) }
        };
        for (before, text) in [(true, "write wrote before an allocation of 64 bytes"), (false, "write wrote behind")] {
            let (one, other) = (Buffer::new(&memory, 64).unwrap(), Buffer::new(&memory, 9).unwrap());
            let mut held = [0; 9];
            // SAFETY: the whole of the buffer.
            unsafe { memory.runner.copy_out(&mut held, other.address()).unwrap() };
            assert_eq!(held, [POISON; 9]);
            write(one.address()).unwrap();
            write(one.address() + 63).unwrap();
            write(other.address() + 8).unwrap();
            let stray = if before { one.address() - 1 } else { other.address() + 9 };
            let error = write(stray).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }
}
