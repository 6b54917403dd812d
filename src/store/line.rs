//! One line of a log: a record and the checksum that proves it whole.
//!
//! ```text
//! {"record":{…},"check":"0123456789abcdef"}\n
//! └─ marker ─┘   └── first 16 hex digits of BLAKE3 over the bytes of {…}
//! ```
//!
//! Parsing alone is not enough: a flipped byte inside a text still parses. Inside JSON a quotation mark in a text is
//! always escaped, so the marker and the checksum's key can only stand where a record begins and ends; that is what
//! lets whole records be found again in a damaged line.

use std::ops::Range;

use serde::{Serialize, de::DeserializeOwned};

const MARKER: &[u8] = b"{\"record\":";
const CHECK_KEY: &[u8] = b",\"check\":\"";
const CHECK_DIGITS: usize = 16;

/// First 64 bits of the BLAKE3 digest of a record's JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Check(u64);

impl Check {
    fn of(bytes: &[u8]) -> Self {
        let mut head = [0u8; 8];
        head.copy_from_slice(&blake3::hash(bytes).as_bytes()[..8]);
        Check(u64::from_be_bytes(head))
    }
}

impl std::fmt::Display for Check {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

/// The line of a record, newline included, and its checksum.
///
/// # Errors
/// When the value has no JSON form.
pub(crate) fn encode<T: Serialize>(record: &T) -> serde_json::Result<(Vec<u8>, Check)> {
    let text = serde_json::to_vec(record)?;
    let check = Check::of(&text);
    let mut line = Vec::with_capacity(text.len() + MARKER.len() + CHECK_KEY.len() + CHECK_DIGITS + 3);
    line.extend_from_slice(MARKER);
    line.extend_from_slice(&text);
    line.extend_from_slice(CHECK_KEY);
    line.extend_from_slice(check.to_string().as_bytes());
    line.extend_from_slice(b"\"}\n");
    Ok((line, check))
}

/// What a line holds: whole records, and pieces that are not.
#[derive(Debug)]
pub(crate) struct Reading<T> {
    pub(crate) records: Vec<Whole<T>>,
    pub(crate) faults: Vec<Fault>,
}

#[derive(Debug)]
pub(crate) struct Whole<T> {
    pub(crate) record: T,
    pub(crate) check: Check,
    /// Bytes of the line, from the marker to the closing brace.
    pub(crate) range: Range<usize>,
}

#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) range: Range<usize>,
    pub(crate) why: String,
}

/// Reads a line given without its newline. More than one record is what a missing newline leaves; faults are what a
/// torn write or a foreign hand leaves.
pub(crate) fn read<T: DeserializeOwned>(line: &[u8]) -> Reading<T> {
    if let Some(whole) = read_whole(line) {
        return Reading { records: vec![whole], faults: Vec::new() };
    }
    let mut reading = Reading { records: Vec::new(), faults: Vec::new() };
    let mut starts = find_all(line, MARKER);
    if starts.first() != Some(&0) && !line.is_empty() {
        starts.insert(0, 0);
    }
    for (index, start) in starts.iter().copied().enumerate() {
        let end = starts.get(index + 1).copied().unwrap_or(line.len());
        match read_envelope(&line[start..end]) {
            Ok((record, check, length)) => {
                reading.records.push(Whole { record, check, range: start..start + length });
                if start + length < end {
                    let why = "text after the end of a record".to_string();
                    reading.faults.push(Fault { range: start + length..end, why });
                }
            }
            Err(why) => reading.faults.push(Fault { range: start..end, why }),
        }
    }
    reading
}

/// The usual case without a search: one record from the first byte to the last, proven by its checksum.
fn read_whole<T: DeserializeOwned>(line: &[u8]) -> Option<Whole<T>> {
    let ending = CHECK_KEY.len() + CHECK_DIGITS + 2;
    let text = line.get(MARKER.len()..line.len().checked_sub(ending)?)?;
    let check = Check::of(text);
    let is_whole = line.starts_with(MARKER) && line.ends_with(format!(",\"check\":\"{check}\"}}").as_bytes());
    let record = is_whole.then(|| serde_json::from_slice(text).ok())??;
    Some(Whole { record, check, range: 0..line.len() })
}

/// The record at the start of `piece`, its checksum, and how many bytes it takes.
fn read_envelope<T: DeserializeOwned>(piece: &[u8]) -> Result<(T, Check, usize), String> {
    if !piece.starts_with(MARKER) {
        return Err("not a record".into());
    }
    let key = find_all(piece, CHECK_KEY).first().copied().ok_or("the record is cut short")?;
    let digits = key + CHECK_KEY.len()..key + CHECK_KEY.len() + CHECK_DIGITS;
    let length = digits.end + 2;
    if piece.get(digits.end..length) != Some(b"\"}") {
        return Err("the record is cut short".into());
    }
    let text = &piece[MARKER.len()..key];
    let check = Check::of(text);
    let stored = &piece[digits];
    if stored != check.to_string().as_bytes() {
        let stored = String::from_utf8_lossy(stored);
        return Err(format!("checksum: expected {stored}, found {check}"));
    }
    let record = serde_json::from_slice(text).map_err(|error| format!("not a record of this version: {error}"))?;
    Ok((record, check, length))
}

fn find_all(text: &[u8], pattern: &[u8]) -> Vec<usize> {
    text.windows(pattern.len()).enumerate().filter(|(_, window)| *window == pattern).map(|(at, _)| at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Vec<u8> {
        let (mut line, _) = encode(&text.to_string()).unwrap();
        line.pop();
        line
    }

    fn texts(reading: &Reading<String>) -> Vec<&str> {
        reading.records.iter().map(|whole| whole.record.as_str()).collect()
    }

    #[test]
    fn a_record_survives_its_line() {
        for text in ["", "plain", "x\u{85}y\u{2028}z\u{2029}", "\n\r\u{1c}\0", r#"{"record":"x","check":"y"}"#] {
            let bytes = line(text);
            assert!(!bytes.contains(&b'\n'));
            let reading = read::<String>(&bytes);
            assert_eq!(texts(&reading), [text]);
            assert!(reading.faults.is_empty());
        }
    }

    #[test]
    fn any_flipped_bit_is_found() {
        let whole = line("four");
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                let reading = read::<String>(&bytes);
                assert!(!reading.faults.is_empty(), "bit {bit} of byte {at} in {}", String::from_utf8_lossy(&bytes));
            }
        }
    }

    #[test]
    fn glued_records_are_all_found() {
        let reading = read::<String>(&[line("a"), line("b"), line("c")].concat());
        assert_eq!(texts(&reading), ["a", "b", "c"]);
        assert!(reading.faults.is_empty());
    }

    #[test]
    fn whole_records_are_found_beside_every_kind_of_damage() {
        let torn = &line("b")[..15];
        let reading = read::<String>(&[b"junk".as_slice(), &line("a"), torn, &line("c"), b"tail"].concat());
        assert_eq!(texts(&reading), ["a", "c"]);
        assert_eq!(reading.faults.len(), 3, "{:?}", reading.faults);
    }

    #[test]
    fn a_raw_control_character_makes_a_bad_record_not_a_split() {
        let text = b"\"x\x1cy\"";
        let check = Check::of(text);
        let bytes = [MARKER, text, CHECK_KEY, check.to_string().as_bytes(), b"\"}"].concat();
        let reading = read::<String>(&bytes);
        assert!(reading.records.is_empty());
        assert_eq!(reading.faults.len(), 1);
    }
}
