//! Zeroed memory on cache-line borders, for packed weights and the KV cache.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

const ALIGNMENT: usize = 64;

/// A fixed-length slice that starts on a 64-byte border. The pages come zeroed from the system, so a large KV cache
/// costs memory only where it is written.
///
/// An aligned allocation would be cleared page by page; one without alignment comes straight from the system. So the
/// slice starts at the first border inside an allocation that is one border longer.
pub(crate) struct Aligned<T: bytemuck::Zeroable + Copy> {
    allocation: NonNull<u8>,
    start: NonNull<T>,
    length: usize,
}

impl<T: bytemuck::Zeroable + Copy> Aligned<T> {
    pub(crate) fn zeroed(length: usize) -> Self {
        let layout = Self::layout(length);
        if layout.size() == 0 {
            return Self { allocation: NonNull::dangling(), start: NonNull::dangling(), length };
        }
        // SAFETY: the layout is not empty; all-zero bytes are a valid T (`Zeroable`).
        let Some(allocation) = NonNull::new(unsafe { alloc_zeroed(layout) }) else { handle_alloc_error(layout) };
        let border = allocation.as_ptr().align_offset(ALIGNMENT);
        // SAFETY: the layout has ALIGNMENT bytes more than the slice needs, and `border` is below that.
        let start = unsafe { allocation.add(border) }.cast::<T>();
        Self { allocation, start, length }
    }

    /// Makes room for `length` values at least; what was in it is lost when it grows.
    pub(crate) fn grow(&mut self, length: usize) {
        if self.length < length {
            *self = Self::zeroed(length);
        }
    }

    fn layout(length: usize) -> Layout {
        assert!(align_of::<T>() <= ALIGNMENT, "a border is good for every number");
        let slice = Layout::array::<T>(length).map(|layout| layout.size());
        let size = slice.map(|size| if size == 0 { 0 } else { size + ALIGNMENT });
        size.and_then(|size| Layout::from_size_align(size, 1))
            .expect("a slice that fits in the address space has a layout")
    }
}

impl<T: bytemuck::Zeroable + Copy> Default for Aligned<T> {
    fn default() -> Self {
        Self::zeroed(0)
    }
}

impl<T: bytemuck::Zeroable + Copy> Drop for Aligned<T> {
    fn drop(&mut self) {
        let layout = Self::layout(self.length);
        if layout.size() > 0 {
            // SAFETY: `allocation` came from `alloc_zeroed` with this very layout; T is Copy and needs no drop.
            unsafe { dealloc(self.allocation.as_ptr(), layout) }
        }
    }
}

impl<T: bytemuck::Zeroable + Copy> Deref for Aligned<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: `start` is valid for `length` initialised values for as long as self lives.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl<T: bytemuck::Zeroable + Copy> DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

// SAFETY: `Aligned` owns its values like a Box<[T]> does.
unsafe impl<T: bytemuck::Zeroable + Copy + Send> Send for Aligned<T> {}
// SAFETY: shared access gives only `&[T]`.
unsafe impl<T: bytemuck::Zeroable + Copy + Sync> Sync for Aligned<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_aligned_and_writable() {
        let mut values = Aligned::<f32>::zeroed(1000);
        assert_eq!(values.as_ptr() as usize % ALIGNMENT, 0);
        assert!(values.iter().all(|value| *value == 0.0));
        values[999] = 1.0;
        assert_eq!(values.len(), 1000);
        assert_eq!(values[999], 1.0);
        assert!(Aligned::<u8>::zeroed(0).is_empty());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn memory_that_is_not_written_is_not_resident() {
        let resident_kib = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
            line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap()
        };
        let before = resident_kib();
        let mut values = Aligned::<f32>::zeroed(1 << 28);
        values[1 << 27] = 1.0;
        let grown = resident_kib().saturating_sub(before);
        assert!(grown < 256 << 10, "{grown} KiB of {} are resident", values.len() * 4 / 1024);
    }
}
