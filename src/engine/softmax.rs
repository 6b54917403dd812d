//! The passes over a whole row of logits that sampling cannot avoid, written so that they vectorise.
//!
//! A row is V logits (49 152 for SmolLM2), walked in chunks of 64. Every sum has one order, fixed by the row alone: 16
//! lanes inside a chunk, a tree over the lanes, then the chunks from left to right in 64 bits. No multiply-add is
//! fused and the exponential is our own, so the bits are the same with SSE2, AVX2, AVX-512 and on another machine, which
//! the C library's `expf` does not promise.

/// Logits a chunk.
pub(crate) const CHUNK: usize = 64;
const LANES: usize = 16;

/// The greatest logit of every chunk into `maxima`, and the greatest of all.
///
/// `None` when there is nothing to draw from or nothing to trust: a NaN, a +∞, or no logit above −∞. A −∞ beside
/// others is a legal mask.
pub(crate) fn survey(maxima: &mut Vec<f32>, logits: &[f32]) -> Option<f32> {
    maxima.clear();
    let (chunks, tail) = logits.as_chunks::<CHUNK>();
    let mut has_nan = survey_chunks(maxima, chunks);
    if !tail.is_empty() {
        has_nan |= survey_chunks(maxima, &[padded(tail)]);
    }
    let greatest = maxima.iter().copied().fold(f32::NEG_INFINITY, greater);
    (!has_nan && greatest.is_finite()).then_some(greatest)
}

/// `weights[i] = exp((logits[i] − greatest) / temperature)` and the sum of every chunk into `sums`; gives the sum of
/// all.
///
/// `greatest` is the greatest of the logits, so that no weight exceeds 1 and the greatest one is exactly 1.
pub(crate) fn weigh(
    weights: &mut Vec<f32>,
    sums: &mut Vec<f32>,
    logits: &[f32],
    greatest: f32,
    temperature: f32,
) -> f64 {
    sums.clear();
    weights.resize(logits.len(), 0.0);
    let (chunks, tail) = logits.as_chunks::<CHUNK>();
    let (outputs, output_tail) = weights.as_chunks_mut::<CHUNK>();
    weigh_chunks(outputs, sums, chunks, greatest, temperature);
    if !tail.is_empty() {
        let mut output = [[0.0; CHUNK]];
        weigh_chunks(&mut output, sums, &[padded(tail)], greatest, temperature);
        output_tail.copy_from_slice(&output[0][..tail.len()]);
    }
    sums.iter().map(|&sum| f64::from(sum)).sum()
}

/// Which of at most 64 weights reach `least`, which is above 0: bit i for weight i.
pub(crate) fn reaching(weights: &[f32], least: f32) -> u64 {
    match weights.as_array::<CHUNK>() {
        Some(chunk) => reaching_chunk(chunk, least),
        None => {
            let mut chunk = [0.0; CHUNK];
            chunk[..weights.len()].copy_from_slice(weights);
            reaching_chunk(&chunk, least)
        }
    }
}

/// `exp(x)` for `x ≤ 0` (−∞ included) within two units in the last place; 0 below −87, where results leave the normal
/// range.
///
/// `x = n·ln 2 + r` with `|r| ≤ ln 2 / 2`; the polynomial in `r` and the split of `ln 2` are those of Cephes `expf`
/// (Moshier 1992).
#[inline(always)]
pub(crate) fn exp_nonpositive(x: f32) -> f32 {
    /// 1.5 · 2²³: adding it leaves the nearest integer in the low bits of the sum.
    const ROUNDER: f32 = 12_582_912.0;
    const LEAST: f32 = -87.0;
    let clamped = greater(LEAST, x);
    let rounded = clamped * std::f32::consts::LOG2_E + ROUNDER;
    let n = rounded - ROUNDER;
    let r = clamped - n * 0.693_359_4 - n * -2.121_944_4e-4;
    let mut polynomial = 1.987_569_1e-4;
    polynomial = polynomial * r + 1.398_2e-3;
    polynomial = polynomial * r + 8.333_452e-3;
    polynomial = polynomial * r + 4.166_579_6e-2;
    polynomial = polynomial * r + 1.666_666_5e-1;
    polynomial = polynomial * r + 5e-1;
    let value = polynomial * (r * r) + r + 1.0;
    let power_of_two = f32::from_bits((rounded.to_bits() << 23).wrapping_add(1.0f32.to_bits()));
    if x < LEAST { 0.0 } else { value * power_of_two }
}

/// The greater of two numbers, the first when they cannot be compared: one instruction, unlike `f32::max`.
#[inline(always)]
fn greater(a: f32, b: f32) -> f32 {
    if b > a { b } else { a }
}

/// A tail as a whole chunk, filled up with logits that weigh nothing.
fn padded(tail: &[f32]) -> [f32; CHUNK] {
    let mut chunk = [f32::NEG_INFINITY; CHUNK];
    chunk[..tail.len()].copy_from_slice(tail);
    chunk
}

#[inline(always)]
fn survey_chunks_body(maxima: &mut Vec<f32>, chunks: &[[f32; CHUNK]]) -> bool {
    let mut nans = [0u32; LANES];
    for chunk in chunks {
        let mut lanes = [f32::NEG_INFINITY; LANES];
        for group in chunk.as_chunks::<LANES>().0 {
            for lane in 0..LANES {
                lanes[lane] = greater(lanes[lane], group[lane]);
                nans[lane] |= u32::from(group[lane].is_nan());
            }
        }
        let mut width = LANES / 2;
        while width > 0 {
            for lane in 0..width {
                lanes[lane] = greater(lanes[lane], lanes[lane + width]);
            }
            width /= 2;
        }
        maxima.push(lanes[0]);
    }
    nans.into_iter().any(|count| count > 0)
}

#[inline(always)]
fn weigh_chunks_body(
    outputs: &mut [[f32; CHUNK]],
    sums: &mut Vec<f32>,
    chunks: &[[f32; CHUNK]],
    greatest: f32,
    temperature: f32,
) {
    for (output, chunk) in outputs.iter_mut().zip(chunks) {
        let mut lanes = [0.0f32; LANES];
        let groups = chunk.as_chunks::<LANES>().0.iter();
        for (weights, group) in output.as_chunks_mut::<LANES>().0.iter_mut().zip(groups) {
            for lane in 0..LANES {
                weights[lane] = exp_nonpositive((group[lane] - greatest) / temperature);
                lanes[lane] += weights[lane];
            }
        }
        let mut width = LANES / 2;
        while width > 0 {
            for lane in 0..width {
                lanes[lane] += lanes[lane + width];
            }
            width /= 2;
        }
        sums.push(lanes[0]);
    }
}

/// A comparison for all lanes at once, then eight bytes to eight bits at a time: the product moves bit 0 of byte i to bit
/// 56 + i.
#[inline(always)]
fn reaching_chunk_body(chunk: &[f32; CHUNK], least: f32) -> u64 {
    const GATHER: u64 = 0x0102_0408_1020_4080;
    let bytes = chunk.map(|weight| u8::from(weight >= least));
    let groups = bytes.as_chunks::<8>().0.iter().zip(0u32..);
    groups.fold(0, |bits, (group, index)| {
        let byte = u64::from_le_bytes(*group).wrapping_mul(GATHER) >> 56;
        bits | byte << (8 * index)
    })
}

/// A function compiled once for each width of registers, and the choice among them at run time. No multiply-add is fused
/// in any, so the bits are the same.
macro_rules! for_each_width {
    (fn $name:ident = $body:ident($($argument:ident: $type:ty),*) $(-> $output:ty)?) => {
        fn $name($($argument: $type),*) $(-> $output)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,avx512f,avx512bw,avx512dq,avx512vl")]
            fn avx512($($argument: $type),*) $(-> $output)? {
                $body($($argument),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2")]
            fn avx2($($argument: $type),*) $(-> $output)? {
                $body($($argument),*)
            }

            #[cfg(target_arch = "x86_64")]
            {
                use std::arch::is_x86_feature_detected as has;
                if has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl") && has!("avx2") {
                    // SAFETY: the line above found all of these on this processor.
                    return unsafe { avx512($($argument),*) };
                }
                if has!("avx2") {
                    // SAFETY: the line above found AVX2 on this processor.
                    return unsafe { avx2($($argument),*) };
                }
            }
            $body($($argument),*)
        }
    };
}

for_each_width!(fn reaching_chunk = reaching_chunk_body(chunk: &[f32; CHUNK], least: f32) -> u64);
for_each_width!(fn survey_chunks = survey_chunks_body(maxima: &mut Vec<f32>, chunks: &[[f32; CHUNK]]) -> bool);
for_each_width!(
    fn weigh_chunks = weigh_chunks_body(
        outputs: &mut [[f32; CHUNK]],
        sums: &mut Vec<f32>,
        chunks: &[[f32; CHUNK]],
        greatest: f32,
        temperature: f32
    )
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;

    fn random_logits(count: usize) -> Vec<f32> {
        let mut stream = Seed(3).stream();
        (0..count).map(|_| (stream.next_f64() * 30.0 - 15.0) as f32).collect()
    }

    #[test]
    fn exponential_is_within_two_units_in_the_last_place() {
        for step in 0..87_000 {
            let x = -(step as f32) / 1000.0;
            let exact = f64::from(x).exp();
            let relative = (f64::from(exp_nonpositive(x)) - exact).abs() / exact;
            assert!(relative < 2.4e-7, "exp({x}) is off by {relative:e}");
        }
        assert_eq!(exp_nonpositive(0.0), 1.0);
        assert_eq!(exp_nonpositive(f32::NEG_INFINITY), 0.0);
    }

    #[test]
    fn survey_finds_the_greatest_and_refuses_what_is_not_finite() {
        let mut maxima = Vec::new();
        for count in [1, 63, 64, 65, 1000] {
            let logits = random_logits(count);
            let greatest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            assert_eq!(survey(&mut maxima, &logits), Some(greatest));
            assert_eq!(maxima.len(), count.div_ceil(CHUNK));
            for (bad, place) in [(f32::NAN, count - 1), (f32::INFINITY, count / 2), (f32::NAN, 0)] {
                let mut logits = logits.clone();
                logits[place] = bad;
                assert_eq!(survey(&mut maxima, &logits), None);
            }
        }
        assert_eq!(survey(&mut maxima, &[f32::NEG_INFINITY, 1.0]), Some(1.0));
        assert_eq!(survey(&mut maxima, &[f32::NEG_INFINITY; 3]), None);
        assert_eq!(survey(&mut maxima, &[]), None);
    }

    #[test]
    fn weights_and_sums_agree_with_64_bit_arithmetic() {
        let logits = random_logits(1000);
        let greatest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let (mut weights, mut sums) = (Vec::new(), Vec::new());
        let total = weigh(&mut weights, &mut sums, &logits, greatest, 0.8);
        let exact: f64 = logits.iter().map(|&logit| (f64::from(logit - greatest) / f64::from(0.8f32)).exp()).sum();
        assert!((total - exact).abs() < 1e-6 * exact);
        assert_eq!(sums.len(), 16);
        assert_eq!(weights.iter().copied().fold(0.0, f32::max), 1.0);
    }

    #[test]
    fn reaching_weights_are_told_by_their_bits() {
        let weights: Vec<f32> = random_logits(64).into_iter().map(f32::abs).collect();
        for count in [1, 7, 63, 64] {
            let expected = (0..count).filter(|&i| weights[i] >= 5.0).fold(0, |bits, i| bits | 1u64 << i);
            assert_eq!(reaching(&weights[..count], 5.0), expected);
        }
        assert_eq!(reaching(&[5.0, 4.999], 5.0), 1);
    }

    #[test]
    fn instruction_set_does_not_change_a_bit() {
        let logits = random_logits(640);
        let chunks = logits.as_chunks::<CHUNK>().0;
        let mut plain = (vec![[0.0; CHUNK]; 10], Vec::new());
        let mut chosen = plain.clone();
        weigh_chunks_body(&mut plain.0, &mut plain.1, chunks, 15.0, 0.7);
        weigh_chunks(&mut chosen.0, &mut chosen.1, chunks, 15.0, 0.7);
        assert_eq!(plain, chosen);
    }
}
