//! AVX2 with FMA: a vector is two halves of 256 bits.

use std::arch::x86_64::*;

use super::{LANES, Vector};

/// The token that this processor has AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// # Safety
    /// The processor has `avx2`, `fma` and `f16c`.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

/// Calls an intrinsic under the token.
macro_rules! with_token {
    ($call:expr) => {
        // SAFETY: holding `Avx2` proves the features; memory operands are references to arrays of the full width.
        unsafe { $call }
    };
}

impl Avx2 {
    /// 8 + 8 lanes combined, then halves of the rest, down to one lane.
    #[inline(always)]
    fn tree(
        self,
        a: [__m256; 2],
        wide: impl Fn(__m256, __m256) -> __m256,
        narrow: impl Fn(__m128, __m128) -> __m128,
    ) -> f32 {
        with_token!({
            let eight = wide(a[0], a[1]);
            let four = narrow(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = narrow(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(narrow(two, _mm_shuffle_ps::<1>(two, two)))
        })
    }

    #[inline(always)]
    fn pairs(self, sum: __m256i, weights: __m256i, activations: __m256i) -> __m256i {
        with_token!({
            let products = _mm256_maddubs_epi16(weights, activations);
            _mm256_add_epi32(sum, _mm256_madd_epi16(products, _mm256_set1_epi16(1)))
        })
    }
}

impl Vector for Avx2 {
    type Floats = [__m256; 2];
    type Integers = [__m256i; 2];
    type Bytes = [__m256i; 2];

    #[inline(always)]
    fn splat(self, value: f32) -> Self::Floats {
        with_token!([_mm256_set1_ps(value); 2])
    }
    #[inline(always)]
    fn load(self, values: &[f32; LANES]) -> Self::Floats {
        with_token!([_mm256_loadu_ps(values.as_ptr()), _mm256_loadu_ps(values.as_ptr().add(8))])
    }
    #[inline(always)]
    fn store(self, out: &mut [f32; LANES], values: Self::Floats) {
        with_token!({
            _mm256_storeu_ps(out.as_mut_ptr(), values[0]);
            _mm256_storeu_ps(out.as_mut_ptr().add(8), values[1]);
        })
    }
    #[inline(always)]
    fn load_f16(self, values: &[u16; LANES]) -> Self::Floats {
        with_token!([
            _mm256_cvtph_ps(_mm_loadu_si128(values.as_ptr().cast())),
            _mm256_cvtph_ps(_mm_loadu_si128(values.as_ptr().add(8).cast())),
        ])
    }
    #[inline(always)]
    fn load_bf16(self, values: &[u16; LANES]) -> Self::Floats {
        with_token!({
            let low = _mm256_cvtepu16_epi32(_mm_loadu_si128(values.as_ptr().cast()));
            let high = _mm256_cvtepu16_epi32(_mm_loadu_si128(values.as_ptr().add(8).cast()));
            [_mm256_castsi256_ps(_mm256_slli_epi32::<16>(low)), _mm256_castsi256_ps(_mm256_slli_epi32::<16>(high))]
        })
    }
    #[inline(always)]
    fn load_powers(self, bytes: &[u8; LANES]) -> Self::Floats {
        with_token!({
            let less_one = _mm_subs_epu8(_mm_loadu_si128(bytes.as_ptr().cast()), _mm_set1_epi8(1));
            let (low, high) =
                (_mm256_cvtepu8_epi32(less_one), _mm256_cvtepu8_epi32(_mm_unpackhi_epi64(less_one, less_one)));
            [_mm256_castsi256_ps(_mm256_slli_epi32::<23>(low)), _mm256_castsi256_ps(_mm256_slli_epi32::<23>(high))]
        })
    }
    #[inline(always)]
    fn add(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        with_token!([_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])])
    }
    #[inline(always)]
    fn subtract(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        with_token!([_mm256_sub_ps(a[0], b[0]), _mm256_sub_ps(a[1], b[1])])
    }
    #[inline(always)]
    fn multiply(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        with_token!([_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])])
    }
    #[inline(always)]
    fn divide(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        with_token!([_mm256_div_ps(a[0], b[0]), _mm256_div_ps(a[1], b[1])])
    }
    #[inline(always)]
    fn multiply_add(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats {
        with_token!([_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])])
    }
    #[inline(always)]
    fn negate_multiply_add(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats {
        with_token!([_mm256_fnmadd_ps(a[0], b[0], c[0]), _mm256_fnmadd_ps(a[1], b[1], c[1])])
    }
    #[inline(always)]
    fn select_less(
        self,
        a: Self::Floats,
        b: Self::Floats,
        then: Self::Floats,
        otherwise: Self::Floats,
    ) -> Self::Floats {
        let less = with_token!([_mm256_cmp_ps::<_CMP_LT_OQ>(a[0], b[0]), _mm256_cmp_ps::<_CMP_LT_OQ>(a[1], b[1])]);
        with_token!([
            _mm256_blendv_ps(otherwise[0], then[0], less[0]),
            _mm256_blendv_ps(otherwise[1], then[1], less[1]),
        ])
    }
    #[inline(always)]
    fn any_less(self, a: Self::Floats, b: Self::Floats) -> bool {
        with_token!({
            let low = _mm256_cmp_ps::<_CMP_LT_OQ>(a[0], b[0]);
            let high = _mm256_cmp_ps::<_CMP_LT_OQ>(a[1], b[1]);
            _mm256_movemask_ps(_mm256_or_ps(low, high)) != 0
        })
    }
    #[inline(always)]
    fn absolute(self, a: Self::Floats) -> Self::Floats {
        with_token!({
            let sign = _mm256_set1_ps(-0.0);
            [_mm256_andnot_ps(sign, a[0]), _mm256_andnot_ps(sign, a[1])]
        })
    }
    #[inline(always)]
    fn copy_sign(self, a: Self::Floats, sign: Self::Floats) -> Self::Floats {
        let a = self.absolute(a);
        with_token!({
            let mask = _mm256_set1_ps(-0.0);
            [_mm256_or_ps(a[0], _mm256_and_ps(mask, sign[0])), _mm256_or_ps(a[1], _mm256_and_ps(mask, sign[1]))]
        })
    }
    #[inline(always)]
    fn round(self, a: Self::Floats) -> Self::Floats {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        with_token!([_mm256_round_ps::<NEAREST>(a[0]), _mm256_round_ps::<NEAREST>(a[1])])
    }
    #[inline(always)]
    fn power_of_two(self, n: Self::Floats) -> Self::Floats {
        with_token!({
            let bias = _mm256_set1_epi32(127);
            let low = _mm256_add_epi32(_mm256_cvttps_epi32(n[0]), bias);
            let high = _mm256_add_epi32(_mm256_cvttps_epi32(n[1]), bias);
            [_mm256_castsi256_ps(_mm256_slli_epi32::<23>(low)), _mm256_castsi256_ps(_mm256_slli_epi32::<23>(high))]
        })
    }
    #[inline(always)]
    fn sum(self, a: Self::Floats) -> f32 {
        self.tree(a, |a, b| with_token!(_mm256_add_ps(a, b)), |a, b| with_token!(_mm_add_ps(a, b)))
    }
    #[inline(always)]
    fn largest(self, a: Self::Floats) -> f32 {
        self.tree(a, |a, b| with_token!(_mm256_max_ps(a, b)), |a, b| with_token!(_mm_max_ps(a, b)))
    }
    #[inline(always)]
    fn largest_magnitude(self, a: Self::Floats, b: Self::Floats) -> f32 {
        with_token!({
            let bits = |a: __m256| _mm256_castps_si256(_mm256_andnot_ps(_mm256_set1_ps(-0.0), a));
            let sixteen = _mm256_max_epi32(bits(a[0]), bits(a[1]));
            let eight = _mm256_max_epi32(sixteen, _mm256_max_epi32(bits(b[0]), bits(b[1])));
            let four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256::<1>(eight));
            let two = _mm_max_epi32(four, _mm_unpackhi_epi64(four, four));
            let one = _mm_max_epi32(two, _mm_shuffle_epi32::<1>(two));
            f32::from_bits(_mm_cvtsi128_si32(one) as u32)
        })
    }
    #[inline(always)]
    fn splat_integers(self, value: i32) -> Self::Integers {
        with_token!([_mm256_set1_epi32(value); 2])
    }
    #[inline(always)]
    fn to_floats(self, a: Self::Integers) -> Self::Floats {
        with_token!([_mm256_cvtepi32_ps(a[0]), _mm256_cvtepi32_ps(a[1])])
    }
    #[inline(always)]
    fn shift_add(self, a: Self::Integers, b: Self::Integers) -> Self::Integers {
        with_token!([0, 1].map(|half| _mm256_add_epi32(_mm256_slli_epi32::<8>(a[half]), b[half])))
    }
    #[inline(always)]
    fn store_levels(self, out: &mut [i8; LANES], values: Self::Floats) -> i32 {
        with_token!({
            let levels = [_mm256_cvtps_epi32(values[0]), _mm256_cvtps_epi32(values[1])];
            let eight = _mm256_add_epi32(levels[0], levels[1]);
            let four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256::<1>(eight));
            let two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
            let one = _mm_add_epi32(two, _mm_shuffle_epi32::<1>(two));
            // Packing works inside 128-bit lanes: the quarters are put in order afterwards.
            let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(levels[0], levels[1]));
            let bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
            _mm_storeu_si128(out.as_mut_ptr().cast(), bytes);
            _mm_cvtsi128_si32(one)
        })
    }
    #[inline(always)]
    fn store_words(self, out: &mut [u16; LANES], values: Self::Floats) {
        with_token!({
            let low = _mm256_set1_epi32(0xffff);
            let words = [0, 1].map(|half| _mm256_and_si256(_mm256_cvtps_epi32(values[half]), low));
            // Packing works inside 128-bit lanes: the quarters are put in order afterwards.
            let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi32(words[0], words[1]));
            _mm256_storeu_si256(out.as_mut_ptr().cast(), words);
        })
    }
    #[inline(always)]
    fn add_integers(self, a: Self::Integers, b: Self::Integers) -> Self::Integers {
        with_token!([_mm256_add_epi32(a[0], b[0]), _mm256_add_epi32(a[1], b[1])])
    }
    #[inline(always)]
    fn dot_words(self, sum: Self::Integers, a: Self::Bytes, b: &u32) -> Self::Integers {
        with_token!({
            let b = _mm256_set1_epi32(*b as i32);
            [0, 1].map(|half| _mm256_add_epi32(sum[half], _mm256_madd_epi16(a[half], b)))
        })
    }
    #[inline(always)]
    fn load_bytes(self, bytes: &[u8; 64]) -> Self::Bytes {
        with_token!([_mm256_loadu_si256(bytes.as_ptr().cast()), _mm256_loadu_si256(bytes.as_ptr().add(32).cast()),])
    }
    #[inline(always)]
    fn load_nibbles(self, bytes: &[u8; 64]) -> (Self::Bytes, Self::Bytes) {
        let packed = self.load_bytes(bytes);
        with_token!({
            let mask = _mm256_set1_epi8(15);
            let shifted = [_mm256_srli_epi16::<4>(packed[0]), _mm256_srli_epi16::<4>(packed[1])];
            (
                [_mm256_and_si256(packed[0], mask), _mm256_and_si256(packed[1], mask)],
                [_mm256_and_si256(shifted[0], mask), _mm256_and_si256(shifted[1], mask)],
            )
        })
    }
    #[inline(always)]
    fn look_up(self, table: &[u8; 16], bytes: Self::Bytes) -> Self::Bytes {
        with_token!({
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            [_mm256_shuffle_epi8(table, bytes[0]), _mm256_shuffle_epi8(table, bytes[1])]
        })
    }
    /// `maddubs` sums two products in 16 bits and saturates: weights are split into the low seven bits and the top one,
    /// so that 2 · 127 · 127 and 2 · 128 · 127 both fit.
    #[inline(always)]
    fn dot(self, sum: Self::Integers, weights: Self::Bytes, activations: [i8; 4]) -> Self::Integers {
        let (low, top) = with_token!({
            let mask = _mm256_set1_epi8(127);
            (
                [_mm256_and_si256(weights[0], mask), _mm256_and_si256(weights[1], mask)],
                [_mm256_andnot_si256(mask, weights[0]), _mm256_andnot_si256(mask, weights[1])],
            )
        });
        self.dot_small(self.dot_small(sum, low, activations), top, activations)
    }
    #[inline(always)]
    fn dot_small(self, sum: Self::Integers, weights: Self::Bytes, activations: [i8; 4]) -> Self::Integers {
        let activations = with_token!(_mm256_set1_epi32(i32::from_le_bytes(activations.map(|value| value as u8))));
        [self.pairs(sum[0], weights[0], activations), self.pairs(sum[1], weights[1], activations)]
    }
}
