//! Reading a benchmark's published data file: JSON lines, plain or gzip.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::de::DeserializeOwned;

/// An unpacked data file.
pub(super) struct DataFile {
    path: PathBuf,
    text: String,
}

impl DataFile {
    /// Reads and, where its first bytes say gzip, unpacks a file.
    pub fn read(path: &Path) -> anyhow::Result<DataFile> {
        let bytes = std::fs::read(path).with_context(|| format!("cannot read data file {}", path.display()))?;
        let bytes = match bytes.starts_with(&[0x1f, 0x8b]) {
            true => {
                let mut unpacked = Vec::new();
                flate2::read::MultiGzDecoder::new(bytes.as_slice())
                    .read_to_end(&mut unpacked)
                    .with_context(|| format!("{}: damaged gzip file", path.display()))?;
                unpacked
            }
            false => bytes,
        };
        let text = String::from_utf8(bytes)
            .with_context(|| format!("{}: expected JSON lines in UTF-8, found other bytes", path.display()))?;
        Ok(DataFile { path: path.to_path_buf(), text })
    }

    /// BLAKE3 of the unpacked bytes: the same for the plain and the packed file.
    pub fn digest(&self) -> String {
        blake3::hash(self.text.as_bytes()).to_hex().to_string()
    }

    /// One record a line, in the order of the file.
    ///
    /// # Errors
    /// Names file and line of a record that is malformed or lacks a field, and a file without records.
    pub fn records<T: DeserializeOwned>(&self) -> anyhow::Result<Vec<T>> {
        let lines = self.text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let records: Vec<T> = lines
            .map(|(index, line)| {
                serde_json::from_str(line).with_context(|| format!("{}:{}", self.path.display(), index + 1))
            })
            .collect::<anyhow::Result<_>>()?;
        if records.is_empty() {
            bail!("{}: expected at least one record, found none", self.path.display());
        }
        Ok(records)
    }
}

/// A prompt of the benchmark, or the user's own from a file.
pub(super) fn prompt(own: &str, replacement: Option<&Path>) -> anyhow::Result<String> {
    let text = match replacement {
        None => own.to_string(),
        Some(path) => {
            std::fs::read_to_string(path).with_context(|| format!("cannot read prompt {}", path.display()))?
        }
    };
    Ok(text.trim_end().to_string())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[derive(serde::Deserialize)]
    struct Record {
        a: u32,
    }

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn packed_and_plain_files_are_the_same_data() {
        let text = b"{\"a\": 1}\n\n{\"a\": 2}\n";
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(text).unwrap();
        let (plain, packed) = (file(text), file(&packer.finish().unwrap()));
        let (plain, packed) = (DataFile::read(plain.path()).unwrap(), DataFile::read(packed.path()).unwrap());
        assert_eq!(plain.digest(), packed.digest());
        let values: Vec<u32> = packed.records::<Record>().unwrap().iter().map(|record| record.a).collect();
        assert_eq!(values, [1, 2]);
    }

    #[test]
    fn a_bad_record_is_named_by_file_and_line() {
        let file = file(b"{\"a\": 1}\n{\"b\": 2}\n");
        let error = DataFile::read(file.path()).unwrap().records::<Record>().err().unwrap();
        let text = format!("{error:#}");
        assert!(text.contains(":2") && text.contains("missing field `a`"), "{text}");
    }
}
