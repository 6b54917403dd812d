//! Measurements as lines for people.

use super::measurement::Measurement;

/// The head of the table.
pub fn header() -> String {
    format!(
        "{:<24} {:>9}  {:<23} {:<11} {:>8} {:>7} {:>6}",
        "workload", "median", "(min … max)", "unit", "forward", "sample", "rest"
    )
}

/// The median rate with its range, and where the time went.
pub fn line(measurement: &Measurement) -> String {
    let range = format!("({:.1} … {:.1})", measurement.min(), measurement.max());
    let shares = measurement.shares().map_or_else(String::new, |[forward, sample, rest]| {
        format!("{:>7.1}% {:>6.1}% {:>5.1}%", 100.0 * forward, 100.0 * sample, 100.0 * rest)
    });
    let (name, median, unit) = (measurement.name, measurement.median(), measurement.unit.name());
    format!("{name:<24} {median:>9.1}  {range:<23} {unit:<11} {shares}").trim_end().to_string()
}
