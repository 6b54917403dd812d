//! Counter-based random numbers: every draw is a function of *where* it happens, never of what was drawn before.
//!
//! The generator is Philox 4×32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", §3), chosen
//! because the same forty lines run in a GPU kernel. A [`Seed`] is the 64-bit key; a [`Stream`] walks the counter.
//! `rand`'s generators were not taken: their sequences may change between versions, and stored results must not.

/// The 64-bit key of a Philox generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seed(pub u64);

impl Seed {
    /// A new key for one purpose at one place: BLAKE3 over the parent key, the purpose and the coordinates.
    ///
    /// Two different (purpose, coordinates) pairs never share a key by construction of the encoding: the purpose is
    /// length-prefixed and each coordinate takes four bytes.
    pub fn derive(self, purpose: &str, coordinates: &[u32]) -> Seed {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0.to_le_bytes());
        hasher.update(&(purpose.len() as u64).to_le_bytes());
        hasher.update(purpose.as_bytes());
        for coordinate in coordinates {
            hasher.update(&coordinate.to_le_bytes());
        }
        let digest = hasher.finalize();
        let mut key = [0u8; 8];
        key.copy_from_slice(&digest.as_bytes()[..8]);
        Seed(u64::from_le_bytes(key))
    }

    /// A stream of draws under this key, from counter 0.
    pub fn stream(self) -> Stream {
        Stream { seed: self, counter: 0, buffer: [0; 4], used: 4 }
    }

    /// The four words at a counter: the random-access face of the generator.
    pub fn block(self, counter: [u32; 4]) -> [u32; 4] {
        philox(counter, [self.0 as u32, (self.0 >> 32) as u32])
    }

    /// A number in [0, 1) with 53 random bits at the given position of this key.
    pub fn uniform_at(self, position: u64) -> f64 {
        let words = self.block([position as u32, (position >> 32) as u32, 0, 0]);
        unit_f64(u64::from(words[0]) | u64::from(words[1]) << 32)
    }
}

/// Draws in order under one key. Cheap to make; never shared between places.
#[derive(Clone, Debug)]
pub struct Stream {
    seed: Seed,
    counter: u64,
    buffer: [u32; 4],
    used: usize,
}

impl Stream {
    pub fn next_u32(&mut self) -> u32 {
        if self.used == 4 {
            self.buffer = self.seed.block([self.counter as u32, (self.counter >> 32) as u32, 0, 0]);
            self.counter += 1;
            self.used = 0;
        }
        self.used += 1;
        self.buffer[self.used - 1]
    }

    pub fn next_u64(&mut self) -> u64 {
        let low = u64::from(self.next_u32());
        low | u64::from(self.next_u32()) << 32
    }

    /// A number in [0, 1) with 53 random bits.
    pub fn next_f64(&mut self) -> f64 {
        unit_f64(self.next_u64())
    }

    /// An unbiased integer in `0..bound` (Lemire 2019, "Fast random integer generation in an interval", §4).
    ///
    /// # Panics
    /// When `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a draw below 0 has no value");
        let mut product = u128::from(self.next_u64()) * u128::from(bound);
        if (product as u64) < bound {
            let threshold = bound.wrapping_neg() % bound;
            while (product as u64) < threshold {
                product = u128::from(self.next_u64()) * u128::from(bound);
            }
        }
        (product >> 64) as u64
    }

    /// Fisher–Yates from the last element down.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u64 + 1) as usize;
            items.swap(last, other);
        }
    }

    /// One element, or `None` of an empty slice.
    pub fn choose<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        if items.is_empty() {
            return None;
        }
        Some(&items[self.below(items.len() as u64) as usize])
    }
}

fn unit_f64(bits: u64) -> f64 {
    (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for round in 0..10 {
        if round > 0 {
            key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        }
        let first = u64::from(MULTIPLIERS[0]) * u64::from(counter[0]);
        let second = u64::from(MULTIPLIERS[1]) * u64::from(counter[2]);
        counter = [
            (second >> 32) as u32 ^ counter[1] ^ key[0],
            second as u32,
            (first >> 32) as u32 ^ counter[3] ^ key[1],
            first as u32,
        ];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers published with Random123 (kat_vectors, philox4x32 10 rounds).
    #[test]
    fn philox_matches_published_known_answers() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn below_is_unbiased_over_a_small_range() {
        let mut stream = Seed(7).stream();
        let mut counts = [0u32; 6];
        for _ in 0..60_000 {
            counts[stream.below(6) as usize] += 1;
        }
        for count in counts {
            assert!((9_600..10_400).contains(&count), "{counts:?}");
        }
    }

    #[test]
    fn derived_keys_depend_on_purpose_and_every_coordinate() {
        let root = Seed(42);
        let keys = [
            root.derive("a", &[1, 2]),
            root.derive("a", &[2, 1]),
            root.derive("b", &[1, 2]),
            root.derive("a", &[1]),
            Seed(43).derive("a", &[1, 2]),
        ];
        for (index, key) in keys.iter().enumerate() {
            assert!(!keys[..index].contains(key));
        }
        assert_eq!(root.derive("a", &[1, 2]), keys[0]);
    }

    #[test]
    fn shuffle_is_a_permutation_and_repeats() {
        let mut first: Vec<u32> = (0..100).collect();
        let mut second = first.clone();
        Seed(9).stream().shuffle(&mut first);
        Seed(9).stream().shuffle(&mut second);
        assert_eq!(first, second);
        let mut sorted = first.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<u32>>());
        assert_ne!(first, sorted);
    }
}
