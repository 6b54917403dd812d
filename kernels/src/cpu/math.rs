//! Elementary functions on 16 lanes: the same polynomial, hence the same bits, on every instruction set.
//!
//! Coefficients: our own weighted minimax fits in double precision (`tests/golden/fit_polynomials.py`), rounded to f32.

use super::vector::{LANES, Vector};

/// `eˣ` to 2 units in the last place for x in −87.3 … 88.3; 0 below, +∞ above, NaN of NaN.
#[inline(always)]
pub(super) fn exp<V: Vector>(v: V, x: V::Floats) -> V::Floats {
    // x = n ln 2 + r with |r| ≤ ln 2 / 2; ln 2 in two parts so that n · LN2_HIGH is exact.
    const LOG2_E: f32 = std::f32::consts::LOG2_E;
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    const LOWEST: f32 = -87.3;
    const HIGHEST: f32 = 88.3;
    let n = v.round(v.multiply(x, v.splat(LOG2_E)));
    let r = v.negate_multiply_add(n, v.splat(LN2_HIGH), x);
    let r = v.negate_multiply_add(n, v.splat(LN2_LOW), r);
    let tail = polynomial(v, r, [0.499_999_94, 0.166_665_21, 0.041_668_39, 0.008_368_718, 0.001_381_459_6]);
    let power = v.add(v.multiply_add(v.multiply(r, r), tail, r), v.splat(1.0));
    let value = v.multiply(power, v.power_of_two(n));
    let value = v.select_less(x, v.splat(LOWEST), v.splat(0.0), value);
    v.select_less(v.splat(HIGHEST), x, v.splat(f32::INFINITY), value)
}

/// The error function to 2 units in the last place.
#[inline(always)]
pub(super) fn erf<V: Vector>(v: V, x: V::Floats) -> V::Floats {
    // Below the border x + x P(x²); above it 1 − exp(−Q(|x|)), which reaches 1 in f32 before 4.
    const BORDER: f32 = 0.92;
    let magnitude = v.absolute(x);
    let square = v.multiply(x, x);
    let near = [0.128_379_15, -0.376_125_07, 0.112_819_55, -0.026_771_283, 0.004_999_601_3, -0.000_602_180_6];
    let near = v.multiply_add(x, polynomial(v, square, near), x);
    let clamped = v.select_less(magnitude, v.splat(4.0), magnitude, v.splat(4.0));
    let far = [1.128_516_6, 0.635_711_25, 0.105_270_535, -0.022_895_146, 0.003_216_458_5, -0.000_214_154_76];
    let far = v.multiply(clamped, polynomial(v, clamped, far));
    let far = v.subtract(v.splat(1.0), exp(v, v.subtract(v.splat(0.0), far)));
    // NaN fails the comparison with 4 above; the sum brings it back.
    let far = v.add(v.copy_sign(far, x), v.multiply(x, v.splat(0.0)));
    v.select_less(magnitude, v.splat(BORDER), near, far)
}

/// `1 / (1 + e⁻ˣ)`.
#[inline(always)]
pub(super) fn sigmoid<V: Vector>(v: V, x: V::Floats) -> V::Floats {
    let one = v.splat(1.0);
    v.divide(one, v.add(one, exp(v, v.subtract(v.splat(0.0), x))))
}

/// Horner's rule, lowest coefficient first.
#[inline(always)]
fn polynomial<V: Vector, const N: usize>(v: V, x: V::Floats, coefficients: [f32; N]) -> V::Floats {
    let mut value = v.splat(coefficients[N - 1]);
    for index in (0..N - 1).rev() {
        value = v.multiply_add(value, x, v.splat(coefficients[index]));
    }
    value
}

/// Loads up to 16 values; missing lanes are zero.
#[inline(always)]
pub(super) fn load_part<V: Vector>(v: V, values: &[f32]) -> V::Floats {
    let mut lanes = [0.0; LANES];
    lanes[..values.len()].copy_from_slice(values);
    v.load(&lanes)
}

/// Stores the first lanes.
#[inline(always)]
pub(super) fn store_part<V: Vector>(v: V, out: &mut [f32], values: V::Floats) {
    let mut lanes = [0.0; LANES];
    v.store(&mut lanes, values);
    let count = out.len();
    out.copy_from_slice(&lanes[..count]);
}

