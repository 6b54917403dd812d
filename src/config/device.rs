//! Where models run, as it is said in a run's file or on the command line.

use std::str::FromStr;

use anyhow::{Context as _, ensure};

/// A choice of devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The first GPU where there is one, else the CPU.
    Auto,
    Cpu,
    /// GPUs by number, each with a copy of the model.
    Cuda(Vec<usize>),
    /// Every GPU of the machine.
    AllCuda,
}

impl FromStr for DeviceChoice {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let expected = "expected `auto`, `cpu`, `cuda:N`, `cuda:N,M` or `cuda:all`";
        Ok(match text {
            "auto" => DeviceChoice::Auto,
            "cpu" => DeviceChoice::Cpu,
            "cuda" => DeviceChoice::Cuda(vec![0]),
            "cuda:all" => DeviceChoice::AllCuda,
            named => {
                let list = named.strip_prefix("cuda:").with_context(|| format!("{expected}, found `{named}`"))?;
                let numbers: Result<Vec<usize>, _> = list.split(',').map(str::parse).collect();
                let numbers = numbers.with_context(|| format!("{expected}, found `{named}`"))?;
                let mut apart = numbers.clone();
                apart.sort_unstable();
                apart.dedup();
                ensure!(apart.len() == numbers.len(), "{expected}, each GPU once, found `{named}`");
                DeviceChoice::Cuda(numbers)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_and_others_refused_by_what_is_expected() {
        for (text, choice) in [
            ("auto", DeviceChoice::Auto),
            ("cpu", DeviceChoice::Cpu),
            ("cuda", DeviceChoice::Cuda(vec![0])),
            ("cuda:3", DeviceChoice::Cuda(vec![3])),
            ("cuda:1,0", DeviceChoice::Cuda(vec![1, 0])),
            ("cuda:all", DeviceChoice::AllCuda),
        ] {
            assert_eq!(text.parse::<DeviceChoice>().unwrap(), choice);
        }
        for text in ["gpu", "cuda:", "cuda:x", "cuda:0,", "cuda:-1", "cuda:0,1,0", ""] {
            let error = text.parse::<DeviceChoice>().unwrap_err().to_string();
            assert!(error.contains("cuda:N,M") && error.contains(&format!("found `{text}`")), "{error}");
        }
    }
}
