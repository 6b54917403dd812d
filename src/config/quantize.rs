//! Formats that a backbone's projections are written in when it is loaded, as said in a file or on the command line.

use clap::ValueEnum;
use lifelong_kernels::Format;
use serde::{Deserialize, Serialize};

/// Smaller weights from a checkpoint of plain floats. Moves results, so it is part of what a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[allow(non_camel_case_types)] // as the formats are called
pub enum Quantize {
    /// 8.5 bits a weight
    #[serde(rename = "q8_0")]
    #[value(name = "q8_0")]
    Q8_0,
    /// 6.6 bits a weight
    #[serde(rename = "q6_k")]
    #[value(name = "q6_k")]
    Q6K,
    /// 5.5 bits a weight
    #[serde(rename = "q5_k")]
    #[value(name = "q5_k")]
    Q5K,
    /// 4.5 bits a weight
    #[serde(rename = "q4_k")]
    #[value(name = "q4_k")]
    Q4K,
    /// 4.5 bits a weight, blocks of 32
    #[serde(rename = "q4_0")]
    #[value(name = "q4_0")]
    Q4_0,
}

impl From<Quantize> for Format {
    fn from(quantize: Quantize) -> Self {
        match quantize {
            Quantize::Q8_0 => Format::Q8_0,
            Quantize::Q6K => Format::Q6K,
            Quantize::Q5K => Format::Q5K,
            Quantize::Q4K => Format::Q4K,
            Quantize::Q4_0 => Format::Q4_0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name in a file, on the command line and of the format are one, and a run's stored config holds it.
    #[test]
    fn names_are_those_of_the_formats() {
        for variant in Quantize::value_variants() {
            let name = variant.to_possible_value().unwrap().get_name().to_string();
            assert_eq!(serde_json::to_value(variant).unwrap(), name);
            let plain: String = name.chars().filter(|letter| *letter != '_').collect();
            let format: String =
                format!("{:?}", Format::from(*variant)).chars().filter(|letter| *letter != '_').collect();
            assert_eq!(format.to_lowercase(), plain);
            assert!(lifelong_kernels::QUANTIZABLE.contains(&Format::from(*variant)));
        }
        let text = "backbones = [\"x\"]\nquantize = \"q4_k\"";
        let models: super::super::ModelsConfig = toml::from_str(text).unwrap();
        assert_eq!(models.quantize, Some(Quantize::Q4K));
        assert_eq!(serde_json::to_value(&models).unwrap()["quantize"], "q4_k");
    }
}
