//! Sizes as people write them: `512MiB`, `2GiB`, or a plain number of bytes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

const UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let trimmed = text.trim();
        let (number, unit) = UNITS
            .iter()
            .find_map(|(suffix, unit)| trimmed.strip_suffix(suffix).map(|number| (number.trim(), *unit)))
            .unwrap_or((trimmed, 1));
        let value: f64 =
            number.parse().map_err(|_| format!("expected a size such as `512MiB` or `2GiB`, found `{text}`"))?;
        let bytes = value * unit as f64;
        if !(bytes >= 1.0 && bytes < u64::MAX as f64) {
            return Err(format!("expected a size of at least 1 byte, found `{text}`"));
        }
        Ok(ByteSize(bytes as u64))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (suffix, unit) =
            UNITS.iter().find(|(_, unit)| self.0 >= *unit && self.0.is_multiple_of(*unit)).unwrap_or(&("B", 1));
        write!(formatter, "{}{suffix}", self.0 / unit)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Said {
            Number(u64),
            Text(String),
        }
        match Said::deserialize(deserializer)? {
            Said::Number(bytes) => Ok(ByteSize(bytes)),
            Said::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_written_and_print_in_the_largest_exact_unit() {
        for (text, bytes) in [("2GiB", 2 << 30), ("1.5 MiB", 3 << 19), ("4096", 4096), ("7B", 7)] {
            assert_eq!(text.parse::<ByteSize>(), Ok(ByteSize(bytes)));
        }
        assert_eq!(ByteSize(3 << 19).to_string(), "1536KiB");
        assert_eq!(ByteSize(2 << 30).to_string(), "2GiB");
        for bad in ["", "two GiB", "-1MiB", "0", "nan"] {
            assert!(bad.parse::<ByteSize>().is_err(), "{bad}");
        }
    }
}
