//! AVX-512 with VNNI: a vector is one register.

use std::arch::asm;
use std::arch::x86_64::*;

use super::{LANES, Vector};

/// The token that this processor has AVX-512 F, BW, DQ, VL and VNNI.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// # Safety
    /// The processor has `avx512f`, `avx512bw`, `avx512dq`, `avx512vl`, `avx512vnni`, `avx2`, `fma` and `f16c`.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

/// Calls an intrinsic under the token.
macro_rules! with_token {
    ($call:expr) => {
        // SAFETY: holding `Avx512` proves the features; memory operands are references to arrays of the full width.
        unsafe { $call }
    };
}

impl Avx512 {
    /// 8 + 8 lanes combined, then halves of the rest, down to one lane.
    #[inline(always)]
    fn tree(
        self,
        a: __m512,
        wide: impl Fn(__m256, __m256) -> __m256,
        narrow: impl Fn(__m128, __m128) -> __m128,
    ) -> f32 {
        with_token!({
            let eight = wide(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
            let four = narrow(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = narrow(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(narrow(two, _mm_shuffle_ps::<1>(two, two)))
        })
    }
}

impl Avx512 {
    #[inline(always)]
    pub(crate) fn store_bytes(self, out: &mut [u8; 64], bytes: __m512i) {
        with_token!(_mm512_storeu_si512(out.as_mut_ptr().cast(), bytes))
    }
}

/// `vpdpwssd`, written out: the compiler would make two instructions of it and keep every broadcast in a register.
///
/// # Safety
/// As the features say.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn dot_words(mut sum: __m512i, a: __m512i, b: &u32) -> __m512i {
    // SAFETY: the instruction exists by the features; it reads the four bytes of `b`.
    unsafe {
        asm!(
            "vpdpwssd {sum}, {a}, dword ptr [{b}]{{1to16}}",
            sum = inout(zmm_reg) sum,
            a = in(zmm_reg) a,
            b = in(reg) std::ptr::from_ref(b),
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    sum
}

impl Vector for Avx512 {
    type Floats = __m512;
    type Integers = __m512i;
    type Bytes = __m512i;

    #[inline(always)]
    fn splat(self, value: f32) -> __m512 {
        with_token!(_mm512_set1_ps(value))
    }
    #[inline(always)]
    fn load(self, values: &[f32; LANES]) -> __m512 {
        with_token!(_mm512_loadu_ps(values.as_ptr()))
    }
    #[inline(always)]
    fn store(self, out: &mut [f32; LANES], values: __m512) {
        with_token!(_mm512_storeu_ps(out.as_mut_ptr(), values))
    }
    #[inline(always)]
    fn load_f16(self, values: &[u16; LANES]) -> __m512 {
        with_token!(_mm512_cvtph_ps(_mm256_loadu_si256(values.as_ptr().cast())))
    }
    #[inline(always)]
    fn load_bf16(self, values: &[u16; LANES]) -> __m512 {
        with_token!({
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(values.as_ptr().cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        })
    }
    #[inline(always)]
    fn load_powers(self, bytes: &[u8; LANES]) -> __m512 {
        with_token!({
            let less_one = _mm_subs_epu8(_mm_loadu_si128(bytes.as_ptr().cast()), _mm_set1_epi8(1));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(_mm512_cvtepu8_epi32(less_one)))
        })
    }
    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        with_token!(_mm512_add_ps(a, b))
    }
    #[inline(always)]
    fn subtract(self, a: __m512, b: __m512) -> __m512 {
        with_token!(_mm512_sub_ps(a, b))
    }
    #[inline(always)]
    fn multiply(self, a: __m512, b: __m512) -> __m512 {
        with_token!(_mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn divide(self, a: __m512, b: __m512) -> __m512 {
        with_token!(_mm512_div_ps(a, b))
    }
    #[inline(always)]
    fn multiply_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        with_token!(_mm512_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn negate_multiply_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        with_token!(_mm512_fnmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn select_less(self, a: __m512, b: __m512, then: __m512, otherwise: __m512) -> __m512 {
        with_token!(_mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), otherwise, then))
    }
    #[inline(always)]
    fn any_less(self, a: __m512, b: __m512) -> bool {
        with_token!(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b)) != 0
    }
    #[inline(always)]
    fn absolute(self, a: __m512) -> __m512 {
        with_token!(_mm512_andnot_ps(_mm512_set1_ps(-0.0), a))
    }
    #[inline(always)]
    fn copy_sign(self, a: __m512, sign: __m512) -> __m512 {
        with_token!(_mm512_or_ps(self.absolute(a), _mm512_and_ps(_mm512_set1_ps(-0.0), sign)))
    }
    #[inline(always)]
    fn round(self, a: __m512) -> __m512 {
        with_token!(_mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a))
    }
    #[inline(always)]
    fn power_of_two(self, n: __m512) -> __m512 {
        with_token!({
            let exponent = _mm512_add_epi32(_mm512_cvttps_epi32(n), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(exponent))
        })
    }
    #[inline(always)]
    fn sum(self, a: __m512) -> f32 {
        self.tree(a, |a, b| with_token!(_mm256_add_ps(a, b)), |a, b| with_token!(_mm_add_ps(a, b)))
    }
    #[inline(always)]
    fn largest(self, a: __m512) -> f32 {
        self.tree(a, |a, b| with_token!(_mm256_max_ps(a, b)), |a, b| with_token!(_mm_max_ps(a, b)))
    }
    #[inline(always)]
    fn largest_magnitude(self, a: __m512, b: __m512) -> f32 {
        with_token!({
            let bits = |a: __m512| _mm512_castps_si512(_mm512_andnot_ps(_mm512_set1_ps(-0.0), a));
            f32::from_bits(_mm512_reduce_max_epi32(_mm512_max_epi32(bits(a), bits(b))) as u32)
        })
    }
    #[inline(always)]
    fn splat_integers(self, value: i32) -> __m512i {
        with_token!(_mm512_set1_epi32(value))
    }
    #[inline(always)]
    fn to_floats(self, a: __m512i) -> __m512 {
        with_token!(_mm512_cvtepi32_ps(a))
    }
    #[inline(always)]
    fn shift_add(self, a: __m512i, b: __m512i) -> __m512i {
        with_token!(_mm512_add_epi32(_mm512_slli_epi32::<8>(a), b))
    }
    #[inline(always)]
    fn store_levels(self, out: &mut [i8; LANES], values: __m512) -> i32 {
        with_token!({
            let levels = _mm512_cvtps_epi32(values);
            _mm_storeu_si128(out.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(levels));
            _mm512_reduce_add_epi32(levels)
        })
    }
    #[inline(always)]
    fn store_words(self, out: &mut [u16; LANES], values: __m512) {
        with_token!({
            let words = _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(values));
            _mm256_storeu_si256(out.as_mut_ptr().cast(), words);
        })
    }
    #[inline(always)]
    fn add_integers(self, a: __m512i, b: __m512i) -> __m512i {
        with_token!(_mm512_add_epi32(a, b))
    }
    #[inline(always)]
    fn dot_words(self, sum: __m512i, a: __m512i, b: &u32) -> __m512i {
        with_token!(dot_words(sum, a, b))
    }
    #[inline(always)]
    fn load_bytes(self, bytes: &[u8; 64]) -> __m512i {
        with_token!(_mm512_loadu_si512(bytes.as_ptr().cast()))
    }
    #[inline(always)]
    fn load_nibbles(self, bytes: &[u8; 64]) -> (__m512i, __m512i) {
        let packed = self.load_bytes(bytes);
        with_token!({
            let mask = _mm512_set1_epi8(15);
            (_mm512_and_si512(packed, mask), _mm512_and_si512(_mm512_srli_epi16::<4>(packed), mask))
        })
    }
    #[inline(always)]
    fn look_up(self, table: &[u8; 16], bytes: __m512i) -> __m512i {
        with_token!({
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            _mm512_shuffle_epi8(table, bytes)
        })
    }
    #[inline(always)]
    fn dot(self, sum: __m512i, weights: __m512i, activations: [i8; 4]) -> __m512i {
        let activations = i32::from_le_bytes(activations.map(|value| value as u8));
        with_token!(_mm512_dpbusd_epi32(sum, weights, _mm512_set1_epi32(activations)))
    }
}
