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

#[cfg(test)]
mod tests {
    use super::super::vector::kernel;
    use super::*;
    use crate::InstructionSet;

    kernel! {
        fn exp_of<V>(v, x: &[f32; LANES]) -> [f32; LANES] {
            let mut out = [0.0; LANES];
            v.store(&mut out, exp(v, v.load(x)));
            out
        }
    }

    kernel! {
        fn erf_of<V>(v, x: &[f32; LANES]) -> [f32; LANES] {
            let mut out = [0.0; LANES];
            v.store(&mut out, erf(v, v.load(x)));
            out
        }
    }

    fn sets() -> impl Iterator<Item = InstructionSet> {
        InstructionSet::ALL.into_iter().filter(|set| set.is_available())
    }

    /// About `count` numbers spread evenly over a range.
    fn spread(low: f32, high: f32, count: usize) -> Vec<[f32; LANES]> {
        let step = (f64::from(high) - f64::from(low)) / count as f64;
        let value = |index: usize| (f64::from(low) + step * index as f64) as f32;
        (0..count / LANES).map(|chunk| std::array::from_fn(|lane| value(chunk * LANES + lane))).collect()
    }

    fn units_in_the_last_place(found: f32, exact: f64) -> f64 {
        let nearest = exact as f32;
        let unit = f64::from(f32::from_bits(nearest.to_bits() + 1)) - f64::from(nearest);
        (f64::from(found) - exact).abs() / unit
    }

    #[test]
    fn exp_is_within_two_units_and_the_same_everywhere() {
        for x in spread(-87.3, 88.3, 400_000) {
            let found = exp_of(InstructionSet::best(), &x);
            for (x, found) in x.iter().zip(found) {
                let error = units_in_the_last_place(found, f64::from(*x).exp());
                assert!(error <= 2.0, "exp({x}) is {found}, {error} units off");
            }
        }
        for x in spread(-100.0, 100.0, 20_000) {
            let expected = exp_of(InstructionSet::Scalar, &x).map(f32::to_bits);
            assert!(sets().all(|set| exp_of(set, &x).map(f32::to_bits) == expected));
        }
    }

    #[test]
    fn exp_at_the_ends() {
        let x = [f32::NEG_INFINITY, -1e30, -200.0, 0.0, 200.0, f32::INFINITY, f32::NAN, -0.0];
        let x = std::array::from_fn(|lane| x[lane % 8]);
        for set in sets() {
            let found = exp_of(set, &x);
            assert_eq!(found[..6], [0.0, 0.0, 0.0, 1.0, f32::INFINITY, f32::INFINITY]);
            assert!(found[6].is_nan());
            assert_eq!(found[7], 1.0);
        }
    }

    /// Values of Python's `math.erf`.
    #[test]
    fn erf_meets_known_values() {
        let known = [
            (0.1, 0.112_462_916_018_284_89),
            (0.5, 0.520_499_877_813_046_5),
            (0.9, 0.796_908_212_422_832_2),
            (1.0, 0.842_700_792_949_714_9),
            (1.5, 0.966_105_146_475_310_8),
            (2.5, 0.999_593_047_982_555_1),
            (3.5, 0.999_999_256_901_627_7),
            (5.0, 0.999_999_999_998_462_5),
        ];
        let x = std::array::from_fn(|lane| if lane < 8 { known[lane].0 } else { -known[lane - 8].0 });
        for set in sets() {
            for (lane, found) in erf_of(set, &x).into_iter().enumerate() {
                let exact = if lane < 8 { known[lane].1 } else { known[lane - 8].1 };
                // x itself is rounded to f32, which moves erf by up to another unit.
                assert!(units_in_the_last_place(found.abs(), exact) <= 3.0, "erf({}) is {found}", x[lane]);
                assert_eq!(found.is_sign_negative(), lane >= 8);
            }
            assert!(erf_of(set, &[f32::NAN; LANES])[0].is_nan());
        }
        for x in spread(-6.0, 6.0, 20_000) {
            let expected = erf_of(InstructionSet::Scalar, &x).map(f32::to_bits);
            assert!(sets().all(|set| erf_of(set, &x).map(f32::to_bits) == expected));
        }
    }
}
