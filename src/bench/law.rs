//! Growth laws of two terms, fitted to measured points.

/// `y = a·xᵖ + b·x^q` with `a, b ≥ 0`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Law {
    /// p and q.
    pub powers: [i32; 2],
    /// a and b.
    pub coefficients: [f64; 2],
}

impl Law {
    /// The law with the least sum of squared relative errors, `Σ (law(x) / y − 1)²`: small sizes count as much as large ones.
    /// Every `y` is above zero.
    ///
    /// With fewer than two different `x` the first term alone, if there is any point at all.
    pub fn fit(powers: [i32; 2], points: &[(f64, f64)]) -> Law {
        let rows = || points.iter().map(|&(x, y)| powers.map(|power| x.powi(power) / y));
        let sum = |term: &dyn Fn([f64; 2]) -> f64| rows().map(term).sum::<f64>();
        let (first, second) = (sum(&|[u, _]| u), sum(&|[_, v]| v));
        let (uu, uv, vv) = (sum(&|[u, _]| u * u), sum(&|[u, v]| u * v), sum(&|[_, v]| v * v));
        let one = |total: f64, square: f64| if square > 0.0 { total / square } else { 0.0 };
        let determinant = uu * vv - uv * uv;
        let both = [(first * vv - second * uv) / determinant, (second * uu - first * uv) / determinant];
        let coefficients = if determinant <= f64::EPSILON * uu * vv || both[1] < 0.0 {
            [one(first, uu), 0.0]
        } else if both[0] < 0.0 {
            [0.0, one(second, vv)]
        } else {
            both
        };
        Law { powers, coefficients }
    }

    pub fn at(&self, x: f64) -> f64 {
        self.coefficients.iter().zip(self.powers).map(|(coefficient, power)| coefficient * x.powi(power)).sum()
    }

    /// The law as a formula in `x`, in milliseconds for `y` in seconds.
    pub fn formula(&self) -> String {
        let term = |coefficient: f64, power: i32| {
            let milliseconds = significant(coefficient * 1e3);
            match power {
                0 => milliseconds,
                1 => format!("{milliseconds} x"),
                _ => format!("{milliseconds} x²"),
            }
        };
        let [first, second] = [0, 1].map(|index| term(self.coefficients[index], self.powers[index]));
        format!("{first} + {second} ms")
    }
}

/// Three significant digits, without an exponent.
fn significant(value: f64) -> String {
    if value == 0.0 {
        return "0".to_string();
    }
    let decimals = (2 - value.abs().log10().floor() as i32).max(0) as usize;
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_law_is_found_again_in_its_own_points() {
        let law = Law { powers: [1, 2], coefficients: [3e-4, 2e-8] };
        let points: Vec<(f64, f64)> = [128.0, 512.0, 1024.0, 4096.0].map(|x| (x, law.at(x))).to_vec();
        let found = Law::fit([1, 2], &points);
        for (found, expected) in found.coefficients.iter().zip(law.coefficients) {
            assert!((found / expected - 1.0).abs() < 1e-9, "{found} for {expected}");
        }
        assert_eq!(found.formula(), "0.300 x + 0.0000200 x² ms");
    }

    #[test]
    fn no_term_is_below_zero() {
        // Falls where the law can only rise, and rises faster than its first term alone.
        assert_eq!(Law::fit([0, 1], &[(1.0, 2.0), (2.0, 1.0)]).coefficients[1], 0.0);
        assert_eq!(Law::fit([0, 1], &[(1.0, 1.0), (2.0, 4.0)]).coefficients[0], 0.0);
    }

    #[test]
    fn one_point_gives_its_first_term() {
        assert_eq!(Law::fit([1, 2], &[(4.0, 2.0)]).coefficients, [0.5, 0.0]);
        assert_eq!(Law::fit([1, 2], &[]).coefficients, [0.0, 0.0]);
    }
}
