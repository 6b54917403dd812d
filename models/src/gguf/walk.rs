//! The walk over a GGUF header: every count and length is held against the bytes that are left before it is believed.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::{Stored, TensorInfo, TensorType, Value, ValueType};
use crate::error::{Broken, Fault};

pub(super) const MAGIC: &[u8; 4] = b"GGUF";
const DEFAULT_ALIGNMENT: usize = 32;
const MAX_DIMENSIONS: u32 = 4;
/// The largest published files have a few thousand tensors and under a hundred keys; these bound what the tables of a
/// hostile file can take in memory (about 20 MiB).
const MAX_PAIRS: u64 = 1 << 16;
const MAX_TENSORS: u64 = 1 << 17;
const MAX_NAME_BYTES: u64 = (1 << 16) - 1;
const MAX_ARRAY_DEPTH: usize = 4;

/// Keys whose type the format fixes and that our loaders or tokenizers read: a wrong type is found at opening.
const KNOWN_TYPES: &[(&str, ValueType, Option<ValueType>)] = &[
    ("general.architecture", ValueType::String, None),
    ("general.alignment", ValueType::U32, None),
    ("tokenizer.ggml.model", ValueType::String, None),
    ("tokenizer.ggml.pre", ValueType::String, None),
    ("tokenizer.ggml.tokens", ValueType::Array, Some(ValueType::String)),
    ("tokenizer.ggml.merges", ValueType::Array, Some(ValueType::String)),
    ("tokenizer.ggml.scores", ValueType::Array, Some(ValueType::F32)),
    ("tokenizer.ggml.token_type", ValueType::Array, Some(ValueType::I32)),
    ("tokenizer.chat_template", ValueType::String, None),
];

type Checked<T> = std::result::Result<T, Broken>;

pub(super) struct Walked {
    pub version: u32,
    pub pairs: HashMap<String, Stored>,
    pub keys: Vec<String>,
    pub tensors: BTreeMap<String, TensorInfo>,
}

pub(super) fn walk(bytes: &[u8]) -> Checked<Walked> {
    let (version, mut cursor) = open(bytes)?;
    let tensor_count = cursor.count("tensors")?;
    let pair_count = cursor.count("metadata pairs")?;
    // A pair has at least the length of its key; a tensor that of its name, a dimension count, a type and an offset.
    let prefix = cursor.prefix as u64;
    cursor.bound_count("metadata pairs", pair_count, prefix, MAX_PAIRS)?;
    cursor.bound_count("tensors", tensor_count, prefix + 16, MAX_TENSORS)?;

    let mut pairs = HashMap::new();
    let mut keys = Vec::new();
    for _ in 0..pair_count {
        let at = cursor.at;
        let key = cursor.name("key")?.to_string();
        let stored = cursor.value(&key)?;
        check_known_type(&key, &stored, at)?;
        if pairs.insert(key.clone(), stored).is_some() {
            return Err(Broken::new(Fault::DuplicateKey, format!("key `{key}` appears again at byte {at}")));
        }
        keys.push(key);
    }
    check_token_counts(&pairs)?;

    let mut table = Vec::new();
    for _ in 0..tensor_count {
        table.push(cursor.tensor()?);
    }
    let tensors = place_tensors(bytes, table, cursor.at, alignment(bytes, &pairs)?)?;
    Ok(Walked { version, pairs, keys, tensors })
}

fn open(bytes: &[u8]) -> Checked<(u32, Cursor<'_>)> {
    let mut cursor = Cursor { bytes, at: 0, prefix: 8 };
    let magic = cursor.take(4, "the magic")?;
    if magic != MAGIC {
        return Err(Broken::new(Fault::BadMagic, format!("expected \"GGUF\" at byte 0, found {magic:02x?}")));
    }
    let version = cursor.u32("the version")?;
    match version {
        1..=3 => cursor.prefix = prefix_bytes(version),
        other if (1..=3).contains(&other.swap_bytes()) => {
            let detail = format!("version {} in big-endian order; convert it to little-endian", other.swap_bytes());
            return Err(Broken::new(Fault::UnsupportedVersion, detail));
        }
        other => {
            let detail = format!("found version {other} at byte 4, readable are 1, 2 and 3");
            return Err(Broken::new(Fault::UnsupportedVersion, detail));
        }
    }
    Ok((version, cursor))
}

/// Bytes of every count, length and extent.
pub(super) fn prefix_bytes(version: u32) -> usize {
    if version == 1 { 4 } else { 8 }
}

fn check_known_type(key: &str, stored: &Stored, at: usize) -> Checked<()> {
    let Some((_, kind, element)) = KNOWN_TYPES.iter().find(|(known, ..)| *known == key) else { return Ok(()) };
    let fits = match (stored, element) {
        (Stored::Array { element: found, .. }, Some(expected)) => found == expected,
        _ => stored.kind() == *kind,
    };
    if fits {
        return Ok(());
    }
    let expected = element.map_or(kind.name().to_string(), |element| format!("array of {}", element.name()));
    let detail = format!("key `{key}` at byte {at}: expected {expected}, found {}", stored.describe());
    Err(Broken::new(Fault::TypeMismatch, detail))
}

/// Scores and token types are columns beside the token list.
fn check_token_counts(pairs: &HashMap<String, Stored>) -> Checked<()> {
    let len = |key: &str| match pairs.get(key) {
        Some(Stored::Array { len, .. }) => Some(*len),
        _ => None,
    };
    let Some(tokens) = len("tokenizer.ggml.tokens") else { return Ok(()) };
    for key in ["tokenizer.ggml.scores", "tokenizer.ggml.token_type"] {
        if let Some(found) = len(key).filter(|found| *found != tokens) {
            let detail = format!("key `{key}`: expected {tokens} elements, one a token, found {found}");
            return Err(Broken::new(Fault::SizeMismatch, detail));
        }
    }
    Ok(())
}

fn alignment(bytes: &[u8], pairs: &HashMap<String, Stored>) -> Checked<usize> {
    let Some(Stored::Fixed(kind, range)) = pairs.get("general.alignment") else { return Ok(DEFAULT_ALIGNMENT) };
    match Value::fixed(*kind, &bytes[range.clone()]).to::<usize>() {
        Some(alignment) if alignment.is_power_of_two() => Ok(alignment),
        found => {
            let detail = format!("`general.alignment` is {found:?}, expected a power of two");
            Err(Broken::new(Fault::BadAlignment, detail))
        }
    }
}

/// A row of the tensor table before the data section is known.
struct Row {
    name: String,
    shape: Vec<usize>,
    kind: &'static TensorType,
    offset: u64,
    bytes: u64,
}

fn place_tensors(
    bytes: &[u8],
    table: Vec<Row>,
    header_end: usize,
    alignment: usize,
) -> Checked<BTreeMap<String, TensorInfo>> {
    let data_start = header_end.div_ceil(alignment).saturating_mul(alignment) as u64;
    let mut tensors = BTreeMap::new();
    for Row { name, shape, kind, offset, bytes: size } in table {
        if offset % alignment as u64 != 0 {
            let detail = format!("tensor `{name}` has offset {offset}, expected a multiple of {alignment}");
            return Err(Broken::new(Fault::MisalignedTensor, detail));
        }
        let end = data_start.checked_add(offset).and_then(|start| start.checked_add(size));
        let Some(end) = end.filter(|end| *end <= bytes.len() as u64) else {
            let detail = format!(
                "tensor `{name}` ({} {shape:?}) needs {size} bytes at offset {offset} of the data section, which starts at byte \
                 {data_start}; the file has {} bytes: the download is incomplete or the header is wrong",
                kind.name,
                bytes.len()
            );
            return Err(Broken::new(Fault::TensorOutOfFile, detail));
        };
        let info = TensorInfo { shape, kind, range: (end - size) as usize..end as usize };
        if tensors.insert(name.clone(), info).is_some() {
            return Err(Broken::new(Fault::DuplicateTensor, format!("tensor `{name}` is listed twice")));
        }
    }
    check_overlaps(&tensors)?;
    Ok(tensors)
}

fn check_overlaps(tensors: &BTreeMap<String, TensorInfo>) -> Checked<()> {
    let mut ranges: Vec<(&Range<usize>, &str)> =
        tensors.iter().map(|(name, info)| (&info.range, name.as_str())).collect();
    ranges.sort_by_key(|(range, _)| range.start);
    for pair in ranges.windows(2) {
        let ((first, a), (second, b)) = (pair[0], pair[1]);
        if second.start < first.end {
            let detail = format!("tensor `{a}` covers bytes {first:?} and tensor `{b}` bytes {second:?}");
            return Err(Broken::new(Fault::OverlappingTensors, detail));
        }
    }
    Ok(())
}

/// A position in the header; every read checks what is left.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    prefix: usize,
}

impl<'a> Cursor<'a> {
    fn left(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    fn take(&mut self, len: u64, what: &str) -> Checked<&'a [u8]> {
        if len > self.left() {
            let detail = format!("{what} needs {len} bytes at byte {}, the file has {} left", self.at, self.left());
            return Err(Broken::new(Fault::Truncated, detail));
        }
        let taken = &self.bytes[self.at..self.at + len as usize];
        self.at += len as usize;
        Ok(taken)
    }

    fn u32(&mut self, what: &str) -> Checked<u32> {
        let bytes = self.take(4, what)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// A count, length or extent: u32 in version 1, u64 since.
    fn count(&mut self, what: &str) -> Checked<u64> {
        let mut wide = [0u8; 8];
        let bytes = self.take(self.prefix as u64, what)?;
        wide[..bytes.len()].copy_from_slice(bytes);
        Ok(u64::from_le_bytes(wide))
    }

    fn bound_count(&self, what: &str, count: u64, least: u64, limit: u64) -> Checked<()> {
        if count > self.left() / least {
            let detail = format!("{count} {what} of at least {least} bytes cannot fit the {} bytes left", self.left());
            return Err(Broken::new(Fault::CountOverflow, detail));
        }
        if count > limit {
            return Err(Broken::new(Fault::Limit, format!("{count} {what}; this reader takes at most {limit}")));
        }
        Ok(())
    }

    fn string(&mut self, what: &str) -> Checked<Range<usize>> {
        let len = self.count(what)?;
        if len > self.left() {
            let detail = format!("{what} at byte {} claims {len} bytes, the file has {} left", self.at, self.left());
            return Err(Broken::new(Fault::LengthOverflow, detail));
        }
        let start = self.at;
        self.at += len as usize;
        Ok(start..self.at)
    }

    /// A key or a tensor name.
    fn name(&mut self, what: &str) -> Checked<&'a str> {
        let range = self.string(what)?;
        let start = range.start;
        if range.len() as u64 > MAX_NAME_BYTES {
            let detail = format!("{what} at byte {start} has {} bytes, allowed are {MAX_NAME_BYTES}", range.len());
            return Err(Broken::new(Fault::Limit, detail));
        }
        std::str::from_utf8(&self.bytes[range])
            .map_err(|error| Broken::new(Fault::BadUtf8, format!("{what} at byte {start}: {error}")))
    }

    fn value_type(&mut self, key: &str) -> Checked<ValueType> {
        let at = self.at;
        let code = self.u32("a value type")?;
        ValueType::from_code(code).ok_or_else(|| {
            Broken::new(Fault::BadType, format!("key `{key}` at byte {at}: value type {code}, known are 0 to 12"))
        })
    }

    fn value(&mut self, key: &str) -> Checked<Stored> {
        match self.value_type(key)? {
            ValueType::String => Ok(Stored::String(self.string(&format!("the value of `{key}`"))?)),
            ValueType::Array => self.array(key, 1),
            kind => {
                let size = kind.fixed_size().expect("strings and arrays are handled above");
                let start = self.at;
                self.take(size as u64, &format!("the value of `{key}`"))?;
                Ok(Stored::Fixed(kind, start..self.at))
            }
        }
    }

    fn array(&mut self, key: &str, depth: usize) -> Checked<Stored> {
        if depth > MAX_ARRAY_DEPTH {
            let detail = format!("key `{key}`: arrays nested deeper than {MAX_ARRAY_DEPTH} at byte {}", self.at);
            return Err(Broken::new(Fault::Limit, detail));
        }
        let element = self.value_type(key)?;
        let len = self.count("an array length")?;
        let least = match element {
            ValueType::String => self.prefix,
            ValueType::Array => 4 + self.prefix,
            other => other.fixed_size().expect("strings and arrays are handled above"),
        };
        if len > self.left() / least as u64 {
            let detail = format!(
                "key `{key}`: {len} elements of type {} at byte {} cannot fit the {} bytes left",
                element.name(),
                self.at,
                self.left()
            );
            return Err(Broken::new(Fault::LengthOverflow, detail));
        }
        let start = self.at;
        match element {
            ValueType::String => (0..len).try_for_each(|_| self.string("an array element").map(drop))?,
            ValueType::Array => (0..len).try_for_each(|_| self.array(key, depth + 1).map(drop))?,
            _ => drop(self.take(len * least as u64, "an array")?),
        }
        Ok(Stored::Array { element, len: len as usize, bytes: start..self.at })
    }

    fn tensor(&mut self) -> Checked<Row> {
        let name = self.name("tensor name")?.to_string();
        let dimensions = self.u32("a dimension count")?;
        if dimensions > MAX_DIMENSIONS {
            let detail = format!("tensor `{name}` has {dimensions} dimensions, the format allows {MAX_DIMENSIONS}");
            return Err(Broken::new(Fault::BadDims, detail));
        }
        let mut extents = Vec::new();
        for _ in 0..dimensions {
            extents.push(self.count("a tensor extent")?);
        }
        let at = self.at;
        let id = self.u32("a tensor type")?;
        let kind = TensorType::find(id).ok_or_else(|| {
            Broken::new(Fault::BadType, format!("tensor `{name}` at byte {at}: no ggml type has number {id}"))
        })?;
        let mut wide = [0u8; 8];
        wide.copy_from_slice(self.take(8, "a tensor offset")?);
        let bytes = tensor_bytes(&extents, kind).ok_or_else(|| {
            let detail = format!(
                "tensor `{name}` of type {} has extents {extents:?}: expected extents above 0, the first a multiple of {}, \
                 and a size below 2^63 bytes",
                kind.name, kind.block
            );
            Broken::new(Fault::BadDims, detail)
        })?;
        let shape = extents.iter().rev().map(|extent| *extent as usize).collect();
        Ok(Row { name, shape, kind, offset: u64::from_le_bytes(wide), bytes })
    }
}

fn tensor_bytes(extents: &[u64], kind: &TensorType) -> Option<u64> {
    let elements = extents.iter().try_fold(1u64, |product, extent| product.checked_mul(*extent))?;
    let row = extents.first().copied().unwrap_or(1);
    if elements == 0 || row % kind.block as u64 != 0 {
        return None;
    }
    (elements / kind.block as u64).checked_mul(kind.bytes as u64).filter(|bytes| *bytes < 1 << 63)
}
