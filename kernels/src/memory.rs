//! Zeroed memory on cache-line borders, for packed weights and the KV cache.
//!
//! Weights and the cache are read from end to end at every step, and how fast depends on the pages: with those of 2 MiB a
//! processor reads half as much again (37 against 60 GB/s on two cores of a Zen 4). So large memory asks for huge pages,
//! and small weights are put together until they fill some.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, Weak};

const ALIGNMENT: usize = 64;
const HUGE_PAGE: usize = 2 << 20;
/// Memory that weights share. With a border in front it is more than glibc's allocator ever takes from its own heap
/// (32 MiB), so that it comes zeroed from the system.
const SHARED: usize = 32 << 20;
/// Larger weights get memory of their own, and so do smaller ones: a huge page for little is slow to clear.
const LARGEST_SHARER: usize = SHARED / 4;
const SMALLEST_SHARER: usize = 64 << 10;

/// A fixed-length slice that starts on a 64-byte border. The pages come zeroed from the system, so a large KV cache
/// costs memory only where it is written.
pub(crate) struct Aligned<T: bytemuck::Zeroable + Copy> {
    /// Keeps the memory; none for an empty slice.
    _chunk: Option<Arc<Chunk>>,
    start: NonNull<T>,
    length: usize,
}

/// One allocation. A part of it is in one slice at most, ever.
struct Chunk {
    allocation: NonNull<u8>,
    layout: Layout,
    /// The first border.
    start: NonNull<u8>,
}

/// The chunk that weights are put into, and the bytes of it that have been given out.
static FILLING: Mutex<(Weak<Chunk>, usize)> = Mutex::new((Weak::new(), 0));

impl<T: bytemuck::Zeroable + Copy> Aligned<T> {
    /// A slice with memory of its own.
    pub(crate) fn zeroed(length: usize) -> Self {
        let bytes = Self::bytes(length);
        if bytes == 0 {
            return Self::default();
        }
        let chunk = Chunk::zeroed(bytes);
        Self { start: chunk.start.cast(), _chunk: Some(Arc::new(chunk)), length }
    }

    /// A slice for weights, which live as long as their model: small ones share memory.
    pub(crate) fn for_weights(length: usize) -> Self {
        let bytes = Self::bytes(length).next_multiple_of(ALIGNMENT);
        if !(SMALLEST_SHARER..=LARGEST_SHARER).contains(&bytes) {
            return Self::zeroed(length);
        }
        let mut filling = FILLING.lock().unwrap_or_else(PoisonError::into_inner);
        let (chunk, used) = match filling.0.upgrade() {
            Some(chunk) if filling.1 + bytes <= SHARED => (chunk, filling.1),
            _ => (Arc::new(Chunk::zeroed(SHARED)), 0),
        };
        *filling = (Arc::downgrade(&chunk), used + bytes);
        // SAFETY: the chunk has SHARED bytes from its start on, and the sum was checked.
        let start = unsafe { chunk.start.add(used) }.cast();
        Self { start, _chunk: Some(chunk), length }
    }

    /// Makes room for `length` values at least; what was in it is lost when it grows.
    pub(crate) fn grow(&mut self, length: usize) {
        if self.length < length {
            *self = Self::zeroed(length);
        }
    }

    fn bytes(length: usize) -> usize {
        assert!(align_of::<T>() <= ALIGNMENT, "a border is good for every number");
        let slice = Layout::array::<T>(length).expect("a slice that fits in the address space has a layout");
        slice.size()
    }
}

impl Chunk {
    /// An aligned allocation would be cleared page by page; one without alignment comes straight from the system. So the
    /// chunk starts at the first border inside an allocation that is one border longer.
    fn zeroed(bytes: usize) -> Self {
        let border = if bytes < HUGE_PAGE { ALIGNMENT } else { HUGE_PAGE };
        let layout = Layout::from_size_align(bytes + border, 1).expect("it fits in the address space");
        // SAFETY: the layout is not empty; all-zero bytes are a valid value of what is put there (`Zeroable`).
        let Some(allocation) = NonNull::new(unsafe { alloc_zeroed(layout) }) else { handle_alloc_error(layout) };
        let offset = allocation.as_ptr().align_offset(border);
        // SAFETY: the layout has `border` bytes more than asked for, and `offset` is below that.
        let start = unsafe { allocation.add(offset) };
        if border == HUGE_PAGE {
            ask_for_huge_pages(start, bytes);
        }
        Self { allocation, layout, start }
    }
}

/// Where the system knows of them and gives them; a refusal costs time only.
fn ask_for_huge_pages(start: NonNull<u8>, bytes: usize) {
    #[cfg(target_os = "linux")]
    {
        use rustix::mm::{Advice, madvise};
        // SAFETY: the range lies inside of an allocation of ours, and the advice changes no contents.
        let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, bytes);
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: `allocation` came from `alloc_zeroed` with this layout, and no slice is left in it.
        unsafe { dealloc(self.allocation.as_ptr(), self.layout) }
    }
}

// SAFETY: a chunk is only kept and freed; its bytes are reached through the slices.
unsafe impl Send for Chunk {}
// SAFETY: as above.
unsafe impl Sync for Chunk {}

impl<T: bytemuck::Zeroable + Copy> Default for Aligned<T> {
    fn default() -> Self {
        Self { _chunk: None, start: NonNull::dangling(), length: 0 }
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
        assert!(Aligned::<u8>::zeroed(0).is_empty() && Aligned::<u8>::for_weights(0).is_empty());
        assert_eq!(Aligned::<u8>::zeroed(3 << 20).as_ptr() as usize % HUGE_PAGE, 0);
    }

    /// Slices of all sizes, more than one chunk holds: each is zero when it is given out and keeps what is written to it.
    #[test]
    fn weights_that_share_memory_do_not_share_bytes() {
        let lengths = [1usize, 63, 64, 65, 100_000, 1 << 20, LARGEST_SHARER / 4 + 1, 5, 1 << 20];
        let mut all: Vec<Aligned<u32>> = Vec::new();
        for (index, length) in lengths.iter().cycle().take(60).enumerate() {
            let mut values = Aligned::<u32>::for_weights(*length);
            assert_eq!((values.len(), values.as_ptr() as usize % ALIGNMENT), (*length, 0));
            assert!(values.iter().all(|value| *value == 0));
            values.fill(index as u32 + 1);
            all.push(values);
        }
        for (index, values) in all.iter().enumerate().rev() {
            assert!(values.iter().all(|value| *value == index as u32 + 1), "slice {index}");
        }
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
