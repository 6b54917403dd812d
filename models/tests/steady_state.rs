//! Decoding takes no memory from the system once its largest step has been seen.

mod shared;

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use lifelong_kernels::{Device, KvCache, Segment};
use lifelong_models::architecture::{Batch, Scratch};
use lifelong_models::{Checkpoint, load_decoder};

/// Sums the bytes asked for.
struct Counted;

static ASKED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed to the system allocator unchanged.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `alloc` above with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

#[test]
fn decode_steps_reuse_their_memory() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/llama-gguf-q8_0");
    let device = Device::cpu(2);
    let model = load_decoder(&Checkpoint::open(&path).unwrap(), &device).unwrap();
    let mut cache = KvCache::new(&device, model.geometry().kv(8)).unwrap();
    let (mut scratch, mut logits) = (Scratch::default(), Vec::new());
    let mut step = |position: usize| {
        let row =
            |row: usize| Segment { query_start: row, query_len: 1, context_len: position, table: row * 4..row * 4 + 4 };
        let segments = [row(0), row(1)];
        let positions = [position as u32; 2];
        let tables = [0, 1, 2, 3, 4, 5, 6, 7];
        let batch =
            Batch { tokens: &[5, 9], positions: &positions, segments: &segments, tables: &tables, outputs: &[0, 1] };
        model.forward(&device, &batch, &mut cache, &mut scratch, &mut logits).unwrap();
    };
    (0..4).for_each(&mut step);
    let before = ASKED.load(Ordering::Relaxed);
    (4..64).for_each(&mut step);
    let bytes_a_step = (ASKED.load(Ordering::Relaxed) - before) / 60;
    println!("{bytes_a_step} bytes a step");
    assert_eq!(bytes_a_step, 0);
}
