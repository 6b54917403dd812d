//! Our statistics against SciPy's, on the inputs of `tests/golden/metric/metric.json` (script beside it).

use lifelong::metric::{
    Distribution, Interval, PERMUTATIONS, RESAMPLES, kendall_tau_b, mean_interval, mean_of, median,
    paired_permutation_p, ranks,
};
use lifelong::seed::Seed;
use serde_json::Value;

fn golden(section: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(include_str!("golden/metric/metric.json")).unwrap();
    all[section].as_array().unwrap().clone()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

fn close(left: f64, right: &Value, tolerance: f64) {
    let right = right.as_f64().unwrap();
    assert!((left - right).abs() <= tolerance, "ours {left}, reference {right}, tolerance {tolerance}");
}

/// 10 000 resamples place a bound within about three standard errors of a quantile: 6 % of the distribution's width.
#[test]
fn bootstrap_intervals_agree_with_scipy_within_resampling_noise() {
    for case in golden("bootstrap") {
        let values = numbers(&case["values"]);
        let deviation = case["standard_error"].as_f64().unwrap();
        let interval = mean_interval(&values, Seed(11)).unwrap();
        close(interval.low, &case["low"], 0.15 * deviation);
        close(interval.high, &case["high"], 0.15 * deviation);
        let resampled = Distribution::resampled(&values, Seed(11), RESAMPLES);
        close(resampled.standard_deviation(), &case["standard_error"], 0.03 * deviation);
    }
}

#[test]
fn exact_intervals_are_those_of_every_possible_draw() {
    for case in golden("exact_bootstrap") {
        let exact = Distribution::exact(&numbers(&case["values"])).unwrap();
        let Interval { low, high } = exact.interval();
        close(low, &case["low"], 1e-12);
        close(high, &case["high"], 1e-12);
        close(exact.standard_deviation(), &case["standard_error"], 1e-12);
    }
}

#[test]
fn tau_b_equals_scipy() {
    for case in golden("kendall") {
        close(kendall_tau_b(&numbers(&case["left"]), &numbers(&case["right"])).unwrap(), &case["tau"], 1e-12);
    }
}

/// The reference p is exact over all sign patterns; ours counts 10 000 random ones.
#[test]
fn permutation_p_agrees_with_the_exact_one() {
    for case in golden("permutation") {
        let exact = case["p"].as_f64().unwrap();
        let noise = 4.0 * (exact * (1.0 - exact) / PERMUTATIONS as f64).sqrt() + 1e-4;
        close(paired_permutation_p(&numbers(&case["values"]), Seed(11), PERMUTATIONS).unwrap(), &case["p"], noise);
    }
}

#[test]
fn ranks_means_and_medians_equal_scipy() {
    for case in golden("ranks") {
        let expected: Vec<usize> = numbers(&case["ranks"]).iter().map(|rank| *rank as usize).collect();
        assert_eq!(ranks(&numbers(&case["values"])), expected);
    }
    for case in golden("mean") {
        let values = numbers(&case["values"]);
        let scores: Vec<Option<f64>> = values.iter().copied().map(Some).collect();
        close(mean_of(&scores).value.unwrap(), &case["mean"], 1e-12);
        close(mean_of(&scores).stderr.unwrap(), &case["stderr"], 1e-12);
        close(median(&values).unwrap(), &case["median"], 1e-12);
    }
}
