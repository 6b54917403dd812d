//! Measurements as lines for people.

use lifelong_kernels::limits::Limits;

use super::growth::Curve;
use super::measurement::{LimitShares, Measurement};

/// What the machine can do at most.
pub fn limits_line(limits: &Limits) -> String {
    let [integers, floats, read] = [limits.integers, limits.floats, limits.read].map(|rate| rate * 1e-9);
    format!("limits measured here: {integers:.0} GOP/s 8-bit, {floats:.0} GOP/s f32, {read:.1} GB/s read")
}

/// The head of the table, in two lines: a group's name above its columns.
pub fn header() -> String {
    let groups = format!("{:<70}{:<46}{}", "", "share of the time", "share of the limit");
    let columns = format!(
        "{:<24} {:>9}  {:<21} {:<11}  {:>7} {:>9} {:>9} {:>7} {:>6}  {:>6} {:>6} {:>6}",
        "workload",
        "median",
        "(min … max)",
        "unit",
        "forward",
        "products",
        "attention",
        "sample",
        "rest",
        "8-bit",
        "f32",
        "read"
    );
    format!("{}\n{columns}", groups.trim_end())
}

/// The median rate with its range, where the time went, and what was made of the machine.
pub fn line(measurement: &Measurement, limits: &Limits) -> String {
    let range = format!("({:.1} … {:.1})", measurement.min(), measurement.max());
    let percent = |share: f64| format!("{:.1}%", 100.0 * share);
    let [forward, sample, rest] =
        measurement.shares().map_or([const { String::new() }; 3], |shares| shares.map(percent));
    let [products, attention] = measurement.kernel_shares().map(percent);
    let LimitShares { integers, floats, read } = measurement.limit_shares(limits);
    let [integers, floats, read] = [integers, floats, read].map(percent);
    let (name, median, unit) = (measurement.name, measurement.median(), measurement.unit.name());
    format!(
        "{name:<24} {median:>9.1}  {range:<21} {unit:<11}  {forward:>7} {products:>9} {attention:>9} {sample:>7} {rest:>6}  \
         {integers:>6} {floats:>6} {read:>6}"
    )
}

/// A curve for people: its name and law, then a line for each point.
pub fn curve_lines(curve: &Curve) -> String {
    let Curve { name, about, x, y, points, law, .. } = curve;
    let mut text = format!(
        "{name}: {about}\nlaw: {}, all points within {:.1}%\n{:>24} {:>34}  {:<23} {:>9} {:>15} {:>15}\n",
        law.formula(),
        100.0 * curve.deviation(),
        x,
        y,
        "(min … max)",
        "law",
        "prompt tokens",
        "of them new"
    );
    for point in points {
        let range = format!("({:.5} … {:.5})", point.min(), point.max());
        text += &format!(
            "{:>24} {:>34.5}  {range:<23} {:>9.5} {:>15} {:>15}\n",
            point.x,
            point.median(),
            law.at(point.x as f64),
            point.prompt_tokens,
            point.new_prompt_tokens
        );
    }
    text
}
