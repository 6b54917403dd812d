//! Where models run, as it is said in a run's file or on the command line.

use std::str::FromStr;

use anyhow::{Context as _, ensure};

/// A choice of devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The first GPU where there is one, else the CPU.
    Auto,
    Cpu,
    /// Copies of the model, each on the GPUs of these numbers: whole on one, in parts on several. All in as many parts, so
    /// that all compute the same.
    Cuda(Vec<Vec<usize>>),
    /// A copy of the model on every GPU of the machine.
    AllCuda,
}

impl DeviceChoice {
    /// Parts that each copy of the model is in.
    pub fn parts(&self) -> usize {
        match self {
            DeviceChoice::Cuda(copies) => copies.first().map_or(1, Vec::len),
            DeviceChoice::Auto | DeviceChoice::Cpu | DeviceChoice::AllCuda => 1,
        }
    }
}

impl FromStr for DeviceChoice {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let expected = "expected `auto`, `cpu`, `cuda:N`, `cuda:N,M` or `cuda:all` for copies, `cuda:N+M` for parts";
        Ok(match text {
            "auto" => DeviceChoice::Auto,
            "cpu" => DeviceChoice::Cpu,
            "cuda" => DeviceChoice::Cuda(vec![vec![0]]),
            "cuda:all" => DeviceChoice::AllCuda,
            named => {
                let list = named.strip_prefix("cuda:").with_context(|| format!("{expected}, found `{named}`"))?;
                let numbers = |copy: &str| copy.split('+').map(str::parse).collect::<Result<Vec<usize>, _>>();
                let copies: Result<Vec<Vec<usize>>, _> = list.split(',').map(numbers).collect();
                let copies = copies.with_context(|| format!("{expected}, found `{named}`"))?;
                let mut apart = copies.concat();
                let count = apart.len();
                apart.sort_unstable();
                apart.dedup();
                ensure!(apart.len() == count, "{expected}, each GPU once, found `{named}`");
                let parts = copies.first().map_or(1, Vec::len);
                ensure!(
                    copies.iter().all(|copy| copy.len() == parts),
                    "{expected}, each copy in as many parts, found `{named}`"
                );
                DeviceChoice::Cuda(copies)
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
            ("cuda", DeviceChoice::Cuda(vec![vec![0]])),
            ("cuda:3", DeviceChoice::Cuda(vec![vec![3]])),
            ("cuda:1,0", DeviceChoice::Cuda(vec![vec![1], vec![0]])),
            ("cuda:1+0", DeviceChoice::Cuda(vec![vec![1, 0]])),
            ("cuda:0+1,2+3", DeviceChoice::Cuda(vec![vec![0, 1], vec![2, 3]])),
            ("cuda:all", DeviceChoice::AllCuda),
        ] {
            assert_eq!(text.parse::<DeviceChoice>().unwrap(), choice);
        }
        assert_eq!(
            ["cpu", "cuda:0,1", "cuda:0+1,2+3"].map(|text| text.parse::<DeviceChoice>().unwrap().parts()),
            [1, 1, 2]
        );
        for text in [
            "gpu",
            "cuda:",
            "cuda:x",
            "cuda:0,",
            "cuda:-1",
            "cuda:0,1,0",
            "cuda:0+",
            "cuda:0+0",
            "cuda:0+1,2",
            "cuda:+",
            "",
        ] {
            let error = text.parse::<DeviceChoice>().unwrap_err().to_string();
            assert!(error.contains("cuda:N,M") && error.contains(&format!("found `{text}`")), "{error}");
        }
    }
}
