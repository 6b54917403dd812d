//! The reference: plain Rust, one lane after another.

use half::{bf16, f16};

use super::{LANES, Vector};

#[derive(Clone, Copy)]
pub(crate) struct Scalar;

type Floats = [f32; LANES];

impl Scalar {
    #[inline(always)]
    fn tree(self, mut values: Floats, combine: impl Fn(f32, f32) -> f32) -> f32 {
        for half in [8, 4, 2, 1] {
            for lane in 0..half {
                values[lane] = combine(values[lane], values[lane + half]);
            }
        }
        values[0]
    }
}

#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

#[inline(always)]
fn lanes<T>(value: impl Fn(usize) -> T) -> [T; LANES] {
    std::array::from_fn(value)
}

impl Vector for Scalar {
    type Floats = Floats;
    type Integers = [i32; LANES];
    type Bytes = [u8; 64];

    #[inline(always)]
    fn splat(self, value: f32) -> Floats {
        [value; LANES]
    }
    #[inline(always)]
    fn load(self, values: &[f32; LANES]) -> Floats {
        *values
    }
    #[inline(always)]
    fn store(self, out: &mut [f32; LANES], values: Floats) {
        *out = values;
    }
    #[inline(always)]
    fn load_f16(self, values: &[u16; LANES]) -> Floats {
        values.map(|bits| f16::from_bits(bits).to_f32_const())
    }
    #[inline(always)]
    fn load_bf16(self, values: &[u16; LANES]) -> Floats {
        values.map(|bits| bf16::from_bits(bits).to_f32_const())
    }
    #[inline(always)]
    fn load_powers(self, bytes: &[u8; LANES]) -> Floats {
        bytes.map(|byte| f32::from_bits(u32::from(byte.saturating_sub(1)) << 23))
    }
    #[inline(always)]
    fn add(self, a: Floats, b: Floats) -> Floats {
        lanes(|lane| a[lane] + b[lane])
    }
    #[inline(always)]
    fn subtract(self, a: Floats, b: Floats) -> Floats {
        lanes(|lane| a[lane] - b[lane])
    }
    #[inline(always)]
    fn multiply(self, a: Floats, b: Floats) -> Floats {
        lanes(|lane| a[lane] * b[lane])
    }
    #[inline(always)]
    fn divide(self, a: Floats, b: Floats) -> Floats {
        lanes(|lane| a[lane] / b[lane])
    }
    #[inline(always)]
    fn multiply_add(self, a: Floats, b: Floats, c: Floats) -> Floats {
        lanes(|lane| a[lane].mul_add(b[lane], c[lane]))
    }
    #[inline(always)]
    fn negate_multiply_add(self, a: Floats, b: Floats, c: Floats) -> Floats {
        lanes(|lane| (-a[lane]).mul_add(b[lane], c[lane]))
    }
    #[inline(always)]
    fn select_less(self, a: Floats, b: Floats, then: Floats, otherwise: Floats) -> Floats {
        lanes(|lane| if a[lane] < b[lane] { then[lane] } else { otherwise[lane] })
    }
    #[inline(always)]
    fn any_less(self, a: Floats, b: Floats) -> bool {
        a.iter().zip(&b).any(|(a, b)| a < b)
    }
    #[inline(always)]
    fn absolute(self, a: Floats) -> Floats {
        a.map(f32::abs)
    }
    #[inline(always)]
    fn copy_sign(self, a: Floats, sign: Floats) -> Floats {
        lanes(|lane| a[lane].copysign(sign[lane]))
    }
    #[inline(always)]
    fn round(self, a: Floats) -> Floats {
        a.map(f32::round_ties_even)
    }
    #[inline(always)]
    fn power_of_two(self, n: Floats) -> Floats {
        n.map(|n| f32::from_bits(((n as i32).wrapping_add(127) << 23) as u32))
    }
    #[inline(always)]
    fn sum(self, a: Floats) -> f32 {
        self.tree(a, |a, b| a + b)
    }
    #[inline(always)]
    fn largest(self, a: Floats) -> f32 {
        self.tree(a, larger)
    }
    #[inline(always)]
    fn largest_magnitude(self, a: Floats, b: Floats) -> f32 {
        let magnitude = |value: f32| value.to_bits() & 0x7fff_ffff;
        f32::from_bits(a.into_iter().chain(b).map(magnitude).fold(0, u32::max))
    }
    #[inline(always)]
    fn splat_integers(self, value: i32) -> [i32; LANES] {
        [value; LANES]
    }
    #[inline(always)]
    fn to_floats(self, a: [i32; LANES]) -> Floats {
        a.map(|value| value as f32)
    }
    #[inline(always)]
    fn shift_add(self, a: [i32; LANES], b: [i32; LANES]) -> [i32; LANES] {
        std::array::from_fn(|lane| (a[lane] << 8) + b[lane])
    }
    #[inline(always)]
    fn store_levels(self, out: &mut [i8; LANES], values: Floats) -> i32 {
        let levels = values.map(|value| value.round_ties_even() as i32);
        *out = levels.map(|level| level as i8);
        levels.iter().sum()
    }
    #[inline(always)]
    fn store_words(self, out: &mut [u16; LANES], values: Floats) {
        *out = values.map(|value| value.round_ties_even() as i32 as u16);
    }
    #[inline(always)]
    fn add_integers(self, a: [i32; LANES], b: [i32; LANES]) -> [i32; LANES] {
        std::array::from_fn(|lane| a[lane].wrapping_add(b[lane]))
    }
    #[inline(always)]
    fn dot_words(self, sum: [i32; LANES], a: [u8; 64], b: &u32) -> [i32; LANES] {
        let word = |low: u8, high: u8| i32::from(i16::from_le_bytes([low, high]));
        let [b0, b1, b2, b3] = b.to_le_bytes();
        lanes(|lane| {
            let a = &a[lane * 4..][..4];
            let products = word(a[0], a[1]) * word(b0, b1) + word(a[2], a[3]) * word(b2, b3);
            sum[lane].wrapping_add(products)
        })
    }
    #[inline(always)]
    fn load_bytes(self, bytes: &[u8; 64]) -> [u8; 64] {
        *bytes
    }
    #[inline(always)]
    fn load_nibbles(self, bytes: &[u8; 64]) -> ([u8; 64], [u8; 64]) {
        (bytes.map(|byte| byte & 15), bytes.map(|byte| byte >> 4))
    }
    #[inline(always)]
    fn look_up(self, table: &[u8; 16], bytes: [u8; 64]) -> [u8; 64] {
        bytes.map(|byte| table[usize::from(byte & 15)])
    }
    #[inline(always)]
    fn dot(self, sum: [i32; LANES], weights: [u8; 64], activations: [i8; 4]) -> [i32; LANES] {
        lanes(|lane| {
            let products = (0..4).map(|j| i32::from(weights[lane * 4 + j]) * i32::from(activations[j]));
            sum[lane] + products.sum::<i32>()
        })
    }
}
