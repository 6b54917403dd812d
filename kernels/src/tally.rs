//! What a device has done, by kind of operation: for profiles, and for shares of what the machine can do.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::threads;

/// The sum over all operations of one kind since the device was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Multiplications and additions, an activation and a weight making one of each; with rounded weights two, as products of 16
    /// bits take twice the time.
    pub operations: u64,
    /// Bytes of packed weights read, by each piece of a step that is cut; none for attention.
    pub weight_bytes: u64,
    /// Time of the calls, threads' waits included; of one that stayed on its thread, the share of one of
    /// the device's threads.
    pub nanoseconds: u64,
}

/// The kinds that are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Products with weights of integers: quantised ones, and plain ones that were rounded.
    pub integer_products: Tally,
    /// Products with f32, f16 and bf16 weights.
    pub float_products: Tally,
    /// Scores and weighted sums of values, over the positions that the queries see.
    pub attention: Tally,
}

impl Tally {
    /// What was done after `earlier`, an older reading.
    #[must_use]
    pub fn since(self, earlier: Tally) -> Tally {
        Tally {
            operations: self.operations - earlier.operations,
            weight_bytes: self.weight_bytes - earlier.weight_bytes,
            nanoseconds: self.nanoseconds - earlier.nanoseconds,
        }
    }
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.operations += other.operations;
        self.weight_bytes += other.weight_bytes;
        self.nanoseconds += other.nanoseconds;
    }
}

impl Work {
    /// What was done after `earlier`, an older reading.
    #[must_use]
    pub fn since(self, earlier: Work) -> Work {
        Work {
            integer_products: self.integer_products.since(earlier.integer_products),
            float_products: self.float_products.since(earlier.float_products),
            attention: self.attention.since(earlier.attention),
        }
    }
}

impl std::ops::AddAssign for Work {
    fn add_assign(&mut self, other: Work) {
        self.integer_products += other.integer_products;
        self.float_products += other.float_products;
        self.attention += other.attention;
    }
}

/// The counters behind [`Work`].
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) integer_products: Counter,
    pub(crate) float_products: Counter,
    pub(crate) attention: Counter,
}

impl Counters {
    pub(crate) fn read(&self) -> Work {
        Work {
            integer_products: self.integer_products.read(),
            float_products: self.float_products.read(),
            attention: self.attention.read(),
        }
    }
}

#[derive(Default)]
pub(crate) struct Counter {
    operations: AtomicU64,
    weight_bytes: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Counter {
    /// Counts an operation that began at `begun` and has ended now.
    pub(crate) fn add(&self, operations: usize, weight_bytes: usize, begun: Instant) {
        self.operations.fetch_add(operations as u64, Ordering::Relaxed);
        self.weight_bytes.fetch_add(weight_bytes as u64, Ordering::Relaxed);
        let nanoseconds = begun.elapsed().as_nanos() as u64 / threads::company() as u64;
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    fn read(&self) -> Tally {
        Tally {
            operations: self.operations.load(Ordering::Relaxed),
            weight_bytes: self.weight_bytes.load(Ordering::Relaxed),
            nanoseconds: self.nanoseconds.load(Ordering::Relaxed),
        }
    }
}
