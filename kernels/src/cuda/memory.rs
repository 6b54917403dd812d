//! Memory of one device: what lies there alone, and what has one address for both sides.

use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError, RwLock};

use super::runner::{Place, Runner};
use crate::error::Result;

/// The device that memory is taken from, and the ranges that the host can address too.
pub(crate) struct Memory {
    pub(crate) runner: Box<dyn Runner>,
    /// Managed ranges: end by start.
    managed: RwLock<BTreeMap<u64, u64>>,
}

impl Memory {
    pub(crate) fn new(runner: Box<dyn Runner>) -> Self {
        Self { runner, managed: RwLock::default() }
    }

    /// Whether the device can take these host addresses as they are.
    pub(crate) fn is_managed(&self, range: &Range<u64>) -> bool {
        let managed = self.managed.read().unwrap_or_else(PoisonError::into_inner);
        let before = managed.range(..=range.start).next_back();
        before.is_some_and(|(_, end)| range.end <= *end)
    }

    fn note(&self, start: u64, end: u64) {
        self.managed.write().unwrap_or_else(PoisonError::into_inner).insert(start, end);
    }

    fn forget(&self, start: u64) {
        self.managed.write().unwrap_or_else(PoisonError::into_inner).remove(&start);
    }
}

/// Memory on the device that the host never touches: weights, the cache, working memory.
pub(crate) struct Buffer {
    memory: Arc<Memory>,
    /// 0 for an empty one.
    address: u64,
    bytes: usize,
}

impl Buffer {
    /// What it holds is undefined.
    pub(crate) fn new(memory: &Arc<Memory>, bytes: usize) -> Result<Self> {
        let address = if bytes == 0 { 0 } else { memory.runner.allocate(bytes, Place::Device)? };
        Ok(Self { memory: memory.clone(), address, bytes })
    }

    pub(crate) fn zeroed(memory: &Arc<Memory>, bytes: usize) -> Result<Self> {
        let buffer = Self::new(memory, bytes)?;
        if bytes > 0 {
            // SAFETY: the whole of an allocation that was just made.
            unsafe { memory.runner.fill(buffer.address, 0, bytes)? };
        }
        Ok(buffer)
    }

    pub(crate) fn from_bytes(memory: &Arc<Memory>, bytes: &[u8]) -> Result<Self> {
        let buffer = Self::new(memory, bytes.len())?;
        if !bytes.is_empty() {
            // SAFETY: as long as the allocation that was just made.
            unsafe { memory.runner.copy_in(buffer.address, bytes)? };
        }
        Ok(buffer)
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: allocated with this size and place; the one owner is gone.
            unsafe { self.memory.runner.free(self.address, self.bytes, Place::Device) };
        }
    }
}

/// Values at one address for host and device.
pub(crate) struct Managed {
    memory: Arc<Memory>,
    start: NonNull<f32>,
    length: usize,
}

impl Managed {
    /// Zeros. `length` is above 0.
    pub(crate) fn zeroed(memory: &Arc<Memory>, length: usize) -> Result<Self> {
        let bytes = length * size_of::<f32>();
        let address = memory.runner.allocate(bytes, Place::Managed)?;
        let start = NonNull::new(address as *mut f32).expect("an allocation has an address");
        memory.note(address, address + bytes as u64);
        let managed = Self { memory: memory.clone(), start, length };
        // SAFETY: the whole of an allocation that was just made.
        unsafe { memory.runner.fill(address, 0, bytes)? };
        Ok(managed)
    }

    /// Waits for the device and makes a larger copy.
    pub(crate) fn grown(&self, length: usize) -> Result<Self> {
        let mut grown = Self::zeroed(&self.memory, length)?;
        self.memory.runner.synchronize()?;
        grown.values_mut()[..self.length].copy_from_slice(self.values());
        Ok(grown)
    }

    /// Waits for the device: then the host may touch the values.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.memory.runner.synchronize()
    }

    pub(crate) fn values(&self) -> &[f32] {
        // SAFETY: allocated for `length` values that were zeroed, host-addressable, and owned by self.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }

    pub(crate) fn values_mut(&mut self) -> &mut [f32] {
        // SAFETY: as in `values`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        let address = self.start.as_ptr() as u64;
        // Kernels that still use it end first; where waiting fails, the driver has lost them with everything else.
        let _ = self.memory.runner.synchronize();
        self.memory.forget(address);
        // SAFETY: allocated with this size and place; the one owner is gone and the device is done.
        unsafe { self.memory.runner.free(address, self.length * size_of::<f32>(), Place::Managed) };
    }
}

// SAFETY: `Managed` owns its values like a Box<[f32]> does; the runner is shared between threads anyway.
unsafe impl Send for Managed {}
// SAFETY: shared access gives only `&[f32]`.
unsafe impl Sync for Managed {}
