//! What was found, as a table for people and as JSON.

use std::time::Instant;

use serde_json::{Value, json};

use super::throughput::Rate;

/// One thing that was checked.
#[derive(Clone, Debug)]
pub struct Finding {
    pub group: &'static str,
    pub name: String,
    /// What it was found to be, or what is wrong.
    pub outcome: Result<String, String>,
    pub seconds: f64,
}

impl Finding {
    /// Runs a check; one that panics has failed.
    pub(super) fn of(
        group: &'static str,
        name: impl Into<String>,
        check: impl FnOnce() -> anyhow::Result<String>,
    ) -> Self {
        let begun = Instant::now();
        let outcome = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)) {
            Ok(outcome) => outcome.map_err(|error| format!("{error:#}")),
            Err(_) => Err("the check panicked; the message stands above".to_string()),
        };
        Self { group, name: name.into(), outcome, seconds: begun.elapsed().as_secs_f64() }
    }

    /// One line of the table.
    pub fn line(&self) -> String {
        let (word, text) = match &self.outcome {
            Ok(text) => ("ok", text),
            Err(problem) => ("FAILED", problem),
        };
        format!("{word:<6}  {:<11}  {:<66}  {:>7.2} s  {text}", self.group, self.name, self.seconds)
            .trim_end()
            .to_string()
    }
}

/// Everything that one run found.
#[derive(Clone, Debug)]
pub struct Report {
    /// The GPU, in words.
    pub device: String,
    pub findings: Vec<Finding>,
    /// Bytes a second read, and operations a second of bf16 matrices, measured.
    pub limits: Option<[f64; 2]>,
    pub rates: Vec<Rate>,
    /// Who else was measured, or why nobody was.
    pub peer: String,
    pub seconds: f64,
}

impl Report {
    /// Checks that failed.
    pub fn failures(&self) -> usize {
        self.findings.iter().filter(|finding| finding.outcome.is_err()).count()
    }

    /// The last line of the table.
    pub fn verdict(&self) -> String {
        let checks = self.findings.len();
        match self.failures() {
            0 => format!("all {checks} checks hold on {} ({:.0} s)", self.device, self.seconds),
            failed => format!("{failed} of {checks} checks FAILED on {} ({:.0} s)", self.device, self.seconds),
        }
    }

    pub fn json(&self) -> Value {
        let findings: Vec<Value> = self
            .findings
            .iter()
            .map(|finding| {
                let (holds, text) = match &finding.outcome {
                    Ok(text) => (true, text),
                    Err(problem) => (false, problem),
                };
                json!({
                    "group": finding.group, "name": finding.name, "holds": holds, "found": text,
                    "seconds": finding.seconds,
                })
            })
            .collect();
        let limits = self.limits.map(|[read, floats]| json!({ "read_bytes_s": read, "bf16_operations_s": floats }));
        json!({
            "device": self.device, "failures": self.failures(), "seconds": self.seconds, "checks": findings,
            "limits": limits, "rates": self.rates.iter().map(Rate::json).collect::<Vec<_>>(), "peer": self.peer,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_panics_has_failed_and_is_counted() {
        let findings = vec![
            Finding::of("operations", "fine", || Ok(String::new())),
            Finding::of("operations", "wrong", || anyhow::bail!("value 3 is 4")),
            Finding::of("operations", "panics", || panic!("on purpose")),
        ];
        let report = Report {
            device: "some GPU".into(),
            findings,
            limits: None,
            rates: Vec::new(),
            peer: String::new(),
            seconds: 1.0,
        };
        assert_eq!(report.failures(), 2);
        assert!(report.verdict().starts_with("2 of 3 checks FAILED on some GPU"));
        assert!(report.findings[1].line().starts_with("FAILED  operations   wrong"));
        assert!(report.findings[1].line().ends_with("value 3 is 4"));
        assert_eq!(report.json()["checks"][0]["holds"], true);
    }
}
