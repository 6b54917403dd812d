//! The chance that at least one of k replies is right.

/// Unbiased pass@k from n replies of which c are right: 1 − C(n−c, k) / C(n, k), as a product so that no binomial
/// overflows (Chen et al. 2021, "Evaluating large language models trained on code", §2.1). `None` when k is 0 or above
/// n, or c above n: not defined.
pub fn pass_at_k(n: u64, c: u64, k: u64) -> Option<f64> {
    if k == 0 || k > n || c > n {
        return None;
    }
    if n - c < k {
        return Some(1.0);
    }
    let all_wrong: f64 = (n - c + 1..=n).map(|i| 1.0 - k as f64 / i as f64).product();
    Some(1.0 - all_wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges() {
        assert_eq!(pass_at_k(10, 0, 5), Some(0.0));
        assert_eq!(pass_at_k(4, 1, 1), Some(0.25));
        assert_eq!(pass_at_k(5, 2, 4), Some(1.0));
        assert_eq!((pass_at_k(3, 4, 1), pass_at_k(3, 1, 0)), (None, None));
        let large = pass_at_k(1_000_000, 10, 1000).unwrap();
        assert!((large - 0.009_955).abs() < 1e-5, "{large}");
    }
}
