//! Checks a SentencePiece table of character replacements (`precompiled_charsmap`) before the library walks it.
//!
//! The library indexes with what the table says and allocates what its length field says, so a broken table panics in
//! the middle of a text. Layout (google/sentencepiece, `normalizer.cc`): the bytes of a double-array trie as a
//! little-endian `u32`, the trie's units as `u32`, then the replacements, each ended by a zero byte.

use serde_json::Value;

/// The first fault of the tables anywhere in a normaliser of `tokenizer.json`.
pub(super) fn fault_in(normalizer: &Value) -> Option<String> {
    match normalizer {
        Value::Object(fields) => fields.iter().find_map(|(key, value)| match (key.as_str(), value) {
            ("precompiled_charsmap", Value::String(text)) => {
                let table = decode_base64(text).ok_or("it is no base64");
                table.and_then(|table| check(&table)).err().map(|reason| format!("precompiled_charsmap: {reason}"))
            }
            _ => fault_in(value),
        }),
        Value::Array(items) => items.iter().find_map(fault_in),
        _ => None,
    }
}

fn check(table: &[u8]) -> Result<(), &'static str> {
    let (size, rest) = table.split_first_chunk::<4>().ok_or("it is shorter than its length field")?;
    let size = u32::from_le_bytes(*size) as usize / 4 * 4;
    let (units, replacements) = rest.split_at_checked(size).ok_or("its trie is longer than the table")?;
    let replacements = std::str::from_utf8(replacements).map_err(|_| "its replacements are not UTF-8")?;
    let units: Vec<u32> = units.as_chunks::<4>().0.iter().map(|unit| u32::from_le_bytes(*unit)).collect();
    let root = *units.first().ok_or("its trie is empty")?;

    let mut seen = vec![false; units.len()];
    let mut open = vec![offset(root)];
    while let Some(state) = open.pop() {
        const OUTSIDE: &str = "its trie points outside of itself";
        if std::mem::replace(seen.get_mut(state).ok_or(OUTSIDE)?, true) {
            continue;
        }
        for byte in 1..=0xf4 {
            let at = state ^ byte;
            let unit = *units.get(at).ok_or(OUTSIDE)?;
            if unit & ((1 << 31) | 0xff) != byte as u32 {
                continue;
            }
            let next = at ^ offset(unit);
            if (unit >> 8) & 1 == 1 {
                let value = units.get(next).ok_or(OUTSIDE)? & (u32::MAX >> 1);
                if !replacements.is_char_boundary(value as usize) {
                    return Err("its trie points outside of the replacements");
                }
            }
            open.push(next);
        }
    }
    Ok(())
}

/// Where a unit's children stand, to be combined with its own place.
fn offset(unit: u32) -> usize {
    ((unit >> 10) as usize) << ((unit & (1 << 9)) >> 6)
}

/// Standard base64 with or without its padding.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0u32, 0);
    for character in text.trim_end_matches('=').bytes() {
        let digit = match character {
            b'A'..=b'Z' => character - b'A',
            b'a'..=b'z' => character - b'a' + 26,
            b'0'..=b'9' => character - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(digit);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One block of 256 units whose root has one child, `a`, with the replacement at `value`.
    fn table(value: u32) -> Vec<u8> {
        let mut units = [0u32; 256];
        // The root's children stand at its offset, 1; the child for `a` at 1 ^ 'a', and its leaf at that ^ 2.
        units[0] = 1 << 10;
        let child = 1 ^ usize::from(b'a');
        units[child] = (2 << 10) | (1 << 8) | u32::from(b'a');
        units[child ^ 2] = (1 << 31) | value;
        let mut bytes = 1024u32.to_le_bytes().to_vec();
        units.iter().for_each(|unit| bytes.extend(unit.to_le_bytes()));
        bytes.extend("é\0".as_bytes());
        bytes
    }

    #[test]
    fn a_sound_table_passes_and_its_faults_are_told() {
        assert_eq!(check(&table(0)), Ok(()));
        assert_eq!(check(&table(2)), Ok(()));
        assert_eq!(check(&table(1)), Err("its trie points outside of the replacements"), "inside a character");
        assert_eq!(check(&table(9)), Err("its trie points outside of the replacements"));
        assert_eq!(check(&table(0)[..500]), Err("its trie is longer than the table"));
        assert_eq!(check(&[255, 255, 255, 255]), Err("its trie is longer than the table"));
        assert_eq!(check(&[0, 0, 0, 0]), Err("its trie is empty"));
        assert_eq!(check(&[8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), Err("its trie points outside of itself"));
        let nested = serde_json::json!({"normalizers": [{"type": "Precompiled", "precompiled_charsmap": "AAAA"}]});
        assert!(fault_in(&nested).unwrap().contains("shorter"));
    }

    #[test]
    fn base64_is_the_standard_one() {
        assert_eq!(decode_base64("bGlmZWxvbmc=").as_deref(), Some(&b"lifelong"[..]));
        assert_eq!(decode_base64("/+8").as_deref(), Some(&[0xff, 0xef][..]));
        assert_eq!(decode_base64("a b"), None);
    }
}
