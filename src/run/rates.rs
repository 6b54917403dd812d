//! How fast a backbone is on a machine, as `lifelong bench --json` measured it: what hours in a plan are made of. Nothing
//! here is assumed: a backbone that was not measured has no hours.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde::Deserialize;

/// Of one backbone on one machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates {
    pub model: String,
    pub device: String,
    /// The longest prompt that was measured.
    pub prefill: Rate,
    /// The largest batch that was measured with prefixes of its own.
    pub decode: Rate,
    pub file: PathBuf,
}

/// A measured workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Rate {
    pub workload: String,
    /// Median over the timed runs.
    pub tokens_per_second: f64,
}

/// What `lifelong bench --json` prints, as far as it is read here.
#[derive(Deserialize)]
struct Bench {
    model: String,
    device: String,
    workloads: Vec<Workload>,
}

#[derive(Deserialize)]
struct Workload {
    name: String,
    median: f64,
}

/// Reads a file of `lifelong bench --json`.
///
/// # Errors
/// When the file is not there, is no such output, or measured no prefill or no decoding.
pub fn read(path: &Path) -> anyhow::Result<Rates> {
    let text = std::fs::read_to_string(path).with_context(|| {
        format!("measurement {} could not be read; write one with `lifelong bench --json > FILE`", path.display())
    })?;
    let bench: Bench = serde_json::from_str(&text)
        .with_context(|| format!("measurement {}: expected the output of `lifelong bench --json`", path.display()))?;
    let largest = |kind: &str, tail: &str| -> anyhow::Result<Rate> {
        let size = |workload: &&Workload| -> Option<u32> {
            workload.name.strip_prefix(kind)?.strip_suffix(tail)?.parse().ok()
        };
        let found = bench.workloads.iter().filter(|workload| size(workload).is_some()).max_by_key(size);
        let found = found.with_context(|| {
            format!("measurement {} holds no workload `{kind}N{tail}`; measure without `--only`", path.display())
        })?;
        ensure!(
            found.median.is_finite() && found.median > 0.0,
            "measurement {}: workload `{}` needs a rate above 0, found {}",
            path.display(),
            found.name,
            found.median
        );
        Ok(Rate { workload: found.name.clone(), tokens_per_second: found.median })
    };
    Ok(Rates {
        prefill: largest("prefill-", "")?,
        decode: largest("decode-", "-own")?,
        model: bench.model,
        device: bench.device,
        file: path.to_path_buf(),
    })
}

impl fmt::Display for Rates {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rates { model, device, prefill, decode, file } = self;
        write!(
            formatter,
            "measured {model} on {device}: {:.0} prompt tokens/s ({}), {:.0} generated tokens/s ({}); {}",
            prefill.tokens_per_second,
            prefill.workload,
            decode.tokens_per_second,
            decode.workload,
            file.display()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> anyhow::Result<Rates> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        read(file.path())
    }

    #[test]
    fn the_largest_workloads_are_taken() {
        let text = r#"{"model":"m","device":"cuda:0 (some GPU)","threads":2,"limits":{},"workloads":[
            {"name":"prefill-512","median":100.0,"min":1},{"name":"prefill-2048","median":90.5},
            {"name":"decode-8-own","median":10.0},{"name":"decode-32-own","median":30.0},
            {"name":"decode-32-shared","median":99.0},{"name":"embed-128","median":5.0}]}"#;
        let rates = written(text).unwrap();
        assert_eq!((rates.prefill.workload.as_str(), rates.prefill.tokens_per_second), ("prefill-2048", 90.5));
        assert_eq!((rates.decode.workload.as_str(), rates.decode.tokens_per_second), ("decode-32-own", 30.0));
        assert!(rates.to_string().contains("m on cuda:0 (some GPU)"), "{rates}");
    }

    #[test]
    fn what_is_missing_is_named() {
        let without = r#"{"model":"m","device":"d","workloads":[{"name":"prefill-512","median":1.0}]}"#;
        assert!(format!("{:#}", written(without).unwrap_err()).contains("`decode-N-own`"));
        let zero = r#"{"model":"m","device":"d","workloads":[{"name":"prefill-512","median":0.0}]}"#;
        assert!(format!("{:#}", written(zero).unwrap_err()).contains("above 0, found 0"));
        assert!(format!("{:#}", written("[]").unwrap_err()).contains("bench --json"));
        assert!(format!("{:#}", read(Path::new("absent.json")).unwrap_err()).contains("absent.json"));
    }
}
