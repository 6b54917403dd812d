//! Random numbers that are functions of where they are drawn: Philox 4×32-10 (Salmon et al. 2011, "Parallel random numbers:
//! as easy as 1, 2, 3", §3).

/// The four words at a position.
pub(crate) fn words(key: u64, position: u64) -> [u32; 4] {
    let mut counter = [position as u32, (position >> 32) as u32, 0, 0];
    let mut key = [key as u32, (key >> 32) as u32];
    for round in 0..10 {
        if round > 0 {
            key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
        }
        let (first, second) = (0xD251_1F53 * u64::from(counter[0]), 0xCD9E_8D57 * u64::from(counter[2]));
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

    /// Words published with Random123 for the counter and key of zeros.
    #[test]
    fn words_are_philox() {
        assert_eq!(words(0, 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    }
}
