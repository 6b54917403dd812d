//! Decoding reuses the memory of its activations once its largest step has been seen.

mod shared;

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use lifelong_kernels::{Device, KvCache, Segment, Values};
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
    /// Requests decoded together, a block each.
    const REQUESTS: usize = 64;
    /// Below the smallest activation of a step (keys: 64 rows of 32 values), above the kernels' lists of work.
    const ALLOWED: usize = 6 << 10;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/llama-gguf-q8_0");
    let device = Device::cpu(2);
    let model = load_decoder(&Checkpoint::open(&path).unwrap(), &device).unwrap();
    let mut cache = KvCache::new(&device, model.geometry().kv(REQUESTS)).unwrap();
    let (mut scratch, mut logits) = (Scratch::default(), Values::default());
    let tables: Vec<u32> = (0..REQUESTS as u32).collect();
    let outputs: Vec<usize> = (0..REQUESTS).collect();
    let steps: Vec<(Vec<Segment>, Vec<u32>)> = (0..16)
        .map(|position| {
            let segment = |row| Segment { query_start: row, query_len: 1, context_len: position, table: row..row + 1 };
            (outputs.iter().map(|row| segment(*row)).collect(), vec![position as u32; REQUESTS])
        })
        .collect();
    let mut run = |steps: &[(Vec<Segment>, Vec<u32>)]| {
        let before = ASKED.load(Ordering::Relaxed);
        for (segments, positions) in steps {
            let batch = Batch { tokens: &[7; REQUESTS], positions, segments, tables: &tables, outputs: &outputs };
            model.forward(&device, &batch, &mut cache, &mut scratch, &mut logits).unwrap();
        }
        (ASKED.load(Ordering::Relaxed) - before) / steps.len()
    };
    assert!(run(&steps[..4]) > ALLOWED, "the first steps make the buffers");
    let bytes_a_step = run(&steps[4..]);
    println!("{bytes_a_step} bytes a step");
    assert!(bytes_a_step < ALLOWED, "{bytes_a_step} bytes a step");
}
