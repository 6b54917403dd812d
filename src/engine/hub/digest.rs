//! A sha256 digest as published beside a file: compared, printed and stored as 64 hexadecimal digits.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::io::{self, Read};
use std::path::Path;
use std::str::FromStr;

/// A sha256 digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of bytes in memory.
    pub fn of(bytes: &[u8]) -> Digest {
        Digest(Sha256::digest(bytes).into())
    }

    /// Size and digest of a file, read once from start to end.
    ///
    /// # Errors
    /// When the file cannot be opened or read.
    pub fn of_file(path: &Path) -> io::Result<(u64, Digest)> {
        let mut file = std::fs::File::open(path)?;
        let mut hasher = Hasher::default();
        let mut buffer = vec![0; 1 << 20];
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(hasher.finish()),
                read => hasher.update(&buffer[..read]),
            }
        }
    }
}

/// Size and digest of bytes that come in pieces.
#[derive(Default)]
pub(super) struct Hasher {
    sha256: Sha256,
    size: u64,
}

impl Hasher {
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.sha256.update(bytes);
        self.size += bytes.len() as u64;
    }

    pub(super) fn finish(self) -> (u64, Digest) {
        (self.size, Digest(self.sha256.finalize().into()))
    }
}

impl FromStr for Digest {
    type Err = String;

    fn from_str(text: &str) -> Result<Digest, String> {
        let wrong = || format!("a sha256 is 64 hexadecimal digits, found `{text}`");
        if text.len() != 64 || !text.is_ascii() {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digit = |letter: u8| char::from(letter).to_digit(16).ok_or_else(wrong);
            *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
        }
        Ok(Digest(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Digest, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FIPS 180-2, appendix B.1: the digest of "abc".
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn digest_of_abc_is_the_published_one_and_prints_back() {
        assert_eq!(Digest::of(b"abc").to_string(), ABC);
        assert_eq!(ABC.parse::<Digest>().unwrap(), Digest::of(b"abc"));
        assert_eq!(ABC.to_uppercase().parse::<Digest>().unwrap(), Digest::of(b"abc"));
    }

    #[test]
    fn pieces_and_files_give_the_same_digest() {
        let mut hasher = Hasher::default();
        hasher.update(b"a");
        hasher.update(b"bc");
        assert_eq!(hasher.finish(), (3, Digest::of(b"abc")));
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("abc"), b"abc").unwrap();
        assert_eq!(Digest::of_file(&folder.path().join("abc")).unwrap(), (3, Digest::of(b"abc")));
    }

    #[test]
    fn malformed_digests_are_refused() {
        for text in ["", "abc", &ABC[1..], &format!("{}g", &ABC[1..]), &"é".repeat(32)] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
    }
}
