//! Zeroed memory on cache-line borders, for packed weights and the KV cache.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

const ALIGNMENT: usize = 64;

/// A fixed-length slice that starts on a 64-byte border. The pages come zeroed from the system, so a large KV cache
/// costs memory only where it is written.
pub(crate) struct Aligned<T: bytemuck::Zeroable + Copy> {
    start: NonNull<T>,
    length: usize,
}

impl<T: bytemuck::Zeroable + Copy> Aligned<T> {
    pub(crate) fn zeroed(length: usize) -> Self {
        let layout = Self::layout(length);
        if layout.size() == 0 {
            return Self { start: NonNull::dangling(), length };
        }
        // SAFETY: the layout is not empty; all-zero bytes are a valid T (`Zeroable`).
        let start = unsafe { alloc_zeroed(layout) }.cast::<T>();
        match NonNull::new(start) {
            Some(start) => Self { start, length },
            None => handle_alloc_error(layout),
        }
    }

    /// Makes room for `length` values at least; what was in it is lost when it grows.
    pub(crate) fn grow(&mut self, length: usize) {
        if self.length < length {
            *self = Self::zeroed(length);
        }
    }

    fn layout(length: usize) -> Layout {
        Layout::array::<T>(length)
            .and_then(|layout| layout.align_to(ALIGNMENT))
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
            // SAFETY: `start` came from `alloc_zeroed` with this very layout; T is Copy and needs no drop.
            unsafe { dealloc(self.start.as_ptr().cast(), layout) }
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
}
