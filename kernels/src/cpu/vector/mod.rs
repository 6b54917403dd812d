//! Sixteen lanes, three instruction sets, the same bits.
//!
//! A kernel is one generic body over a [`Vector`]; the macro [`kernel!`] compiles it once for each instruction set and
//! picks one at run time. A `Vector` value is a token: to hold an [`Avx512`](x86_512::Avx512) is the proof that the
//! processor has it, so bodies are safe code. The idea is `pulp`'s; it was not taken as it has no 8-bit dot product.
//!
//! Kernels do not pass vectors through closures: a closure is compiled without the kernel's instruction set unless the
//! compiler happens to inline it. Loops and `#[inline(always)]` functions are.
//!
//! Every method is exact or correctly rounded (IEEE 754), so that an implementation has no freedom to differ.

mod scalar;
#[cfg(target_arch = "x86_64")]
mod x86;
#[cfg(target_arch = "x86_64")]
mod x86_512;

pub(crate) use scalar::Scalar;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_512::Avx512;

/// Lanes of a vector.
pub(crate) const LANES: usize = 16;

/// Arithmetic on 16 lanes.
pub(crate) trait Vector: Copy + Send + Sync {
    /// Sixteen `f32`.
    type Floats: Copy;
    /// Sixteen `i32`.
    type Integers: Copy;
    /// Sixty-four `u8`: four for each lane.
    type Bytes: Copy;

    fn splat(self, value: f32) -> Self::Floats;
    fn load(self, values: &[f32; LANES]) -> Self::Floats;
    fn store(self, out: &mut [f32; LANES], values: Self::Floats);
    /// IEEE half precision to `f32`, exact.
    fn load_f16(self, values: &[u16; LANES]) -> Self::Floats;
    /// bfloat16 to `f32`, exact.
    fn load_bf16(self, values: &[u16; LANES]) -> Self::Floats;
    /// `2^(byte − 128)`, and 0 for the bytes 0 and 1; exact.
    fn load_powers(self, bytes: &[u8; LANES]) -> Self::Floats;
    fn add(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    fn subtract(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    fn multiply(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    fn divide(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a · b + c`, rounded once.
    fn multiply_add(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// `c − a · b`, rounded once.
    fn negate_multiply_add(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// `then` in lanes where `a < b`, else (also for NaN) `otherwise`.
    fn select_less(self, a: Self::Floats, b: Self::Floats, then: Self::Floats, otherwise: Self::Floats)
    -> Self::Floats;
    /// Whether `a < b` in any lane.
    fn any_less(self, a: Self::Floats, b: Self::Floats) -> bool;
    /// `a` without its sign.
    fn absolute(self, a: Self::Floats) -> Self::Floats;
    /// The magnitude of `a` with the sign of `sign`.
    fn copy_sign(self, a: Self::Floats, sign: Self::Floats) -> Self::Floats;
    /// To the nearest integer, ties to even. For magnitudes below 2³¹.
    fn round(self, a: Self::Floats) -> Self::Floats;
    /// `2ⁿ` for an integral `n` in −126 … 127; any value outside.
    fn power_of_two(self, n: Self::Floats) -> Self::Floats;
    /// Sum over lanes as a tree: 8 + 8, 4 + 4, 2 + 2, 1 + 1.
    fn sum(self, a: Self::Floats) -> f32;
    /// Largest lane of numbers that are not NaN.
    fn largest(self, a: Self::Floats) -> f32;

    /// The largest magnitude in either vector, compared as bits: infinity above all numbers, NaN above infinity.
    fn largest_magnitude(self, a: Self::Floats, b: Self::Floats) -> f32;

    fn splat_integers(self, value: i32) -> Self::Integers;
    fn to_floats(self, a: Self::Integers) -> Self::Floats;
    /// `256 · a + b`
    fn shift_add(self, a: Self::Integers, b: Self::Integers) -> Self::Integers;
    /// Rounds to nearest, ties to even; stores the low byte of each lane and returns the sum of lanes.
    fn store_levels(self, out: &mut [i8; LANES], values: Self::Floats) -> i32;
    /// Rounds to nearest, ties to even; stores the low half of each lane, 0 of NaN. For magnitudes below 2³¹.
    fn store_words(self, out: &mut [u16; LANES], values: Self::Floats);
    fn add_integers(self, a: Self::Integers, b: Self::Integers) -> Self::Integers;
    /// In each lane `sum + Σ_{j<2} a[j] · b[j]`, signed 16-bit numbers in the lane and in `b`, low half first. Exact while the
    /// sum is within 32 bits.
    fn dot_words(self, sum: Self::Integers, a: Self::Bytes, b: &u32) -> Self::Integers;
    fn load_bytes(self, bytes: &[u8; 64]) -> Self::Bytes;
    /// Low and high nibbles of each byte.
    fn load_nibbles(self, bytes: &[u8; 64]) -> (Self::Bytes, Self::Bytes);
    /// For each byte below 16, the entry of the table that it numbers.
    fn look_up(self, table: &[u8; 16], bytes: Self::Bytes) -> Self::Bytes;
    /// In each lane `sum + Σ_{j<4} weights[j] · activations[j]`, unsigned by signed bytes, exact.
    fn dot(self, sum: Self::Integers, weights: Self::Bytes, activations: [i8; 4]) -> Self::Integers;
    /// As [`Vector::dot`] for weights below 128: cheaper where 8-bit products are summed in 16 bits.
    #[inline(always)]
    fn dot_small(self, sum: Self::Integers, weights: Self::Bytes, activations: [i8; 4]) -> Self::Integers {
        self.dot(sum, weights, activations)
    }
}

/// Defines a function that runs a generic body compiled for each instruction set.
///
/// `kernel! { pub(crate) fn name<V>(vector, out: &mut [f32], x: &[f32]) -> T { … } }` becomes
/// `fn name(instruction_set: InstructionSet, out: &mut [f32], x: &[f32]) -> T`; `vector: V` is the token.
macro_rules! kernel {
    ($(#[$meta:meta])* $access:vis fn $name:ident<$vector_type:ident $(, const $constant:ident: usize)*>
        ($vector:ident, $($argument:ident: $type:ty),* $(,)?) $(-> $output:ty)? $body:block) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $access fn $name<$(const $constant: usize),*>(
            instruction_set: $crate::InstructionSet, $($argument: $type),*
        ) $(-> $output)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn generic<$vector_type: $crate::cpu::vector::Vector $(, const $constant: usize)*>(
                $vector: $vector_type, $($argument: $type),*
            ) $(-> $output)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            #[allow(clippy::too_many_arguments)]
            fn avx2<$(const $constant: usize),*>(
                vector: $crate::cpu::vector::Avx2, $($argument: $type),*
            ) $(-> $output)? {
                generic::<_ $(, $constant)*>(vector, $($argument),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
            #[allow(clippy::too_many_arguments)]
            fn avx512<$(const $constant: usize),*>(
                vector: $crate::cpu::vector::Avx512, $($argument: $type),*
            ) $(-> $output)? {
                generic::<_ $(, $constant)*>(vector, $($argument),*)
            }

            match instruction_set {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: a device is constructed only with an instruction set that `is_available`.
                $crate::InstructionSet::Avx512Vnni | $crate::InstructionSet::Avx512Amx => unsafe {
                    avx512::<$($constant),*>($crate::cpu::vector::Avx512::new(), $($argument),*)
                },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: as above.
                $crate::InstructionSet::Avx2 => unsafe {
                    avx2::<$($constant),*>($crate::cpu::vector::Avx2::new(), $($argument),*)
                },
                _ => generic::<_ $(, $constant)*>($crate::cpu::vector::Scalar, $($argument),*),
            }
        }
    };
}
pub(crate) use kernel;
