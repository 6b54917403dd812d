//! The safetensors format: a JSON header that places every tensor, then the tensors, with nothing between or behind.
//!
//! The header is parsed here rather than by the `safetensors` crate so that a duplicate name is an error (its map keeps
//! the last), an unknown dtype names its tensor, and a short file says how many bytes it lacks.
//!
//! Source: format notes in the README of huggingface/safetensors.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use lifelong_kernels::Format;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};

use crate::error::{Broken, Fault};
use crate::file::ModelFile;

/// As in the reference implementation.
const MAX_HEADER_BYTES: u64 = 100_000_000;
/// Twice what the largest published mixture-of-experts checkpoint lists; bounds the table of a hostile header.
const MAX_TENSORS: usize = 1 << 18;

/// The parsed header of one file.
#[derive(Debug, Default)]
pub struct Header {
    /// The free-form `__metadata__` texts.
    pub metadata: BTreeMap<String, String>,
    pub tensors: BTreeMap<String, TensorInfo>,
}

/// Where one tensor is and what it holds.
#[derive(Debug, Clone)]
pub struct TensorInfo {
    /// Row-major, slowest first.
    pub shape: Vec<usize>,
    pub kind: &'static ElementType,
    /// Byte range in the file.
    pub range: Range<usize>,
}

/// One element type of the format.
#[derive(Debug, PartialEq, Eq)]
pub struct ElementType {
    pub name: &'static str,
    pub bits: usize,
    /// What our kernels call it; `None` when they have no such format.
    pub format: Option<Format>,
}

const fn element(name: &'static str, bits: usize, format: Option<Format>) -> ElementType {
    ElementType { name, bits, format }
}

/// All element types of safetensors 0.8.
pub static ELEMENT_TYPES: &[ElementType] = &[
    element("F32", 32, Some(Format::F32)),
    element("F16", 16, Some(Format::F16)),
    element("BF16", 16, Some(Format::BF16)),
    element("BOOL", 8, None),
    element("F4", 4, None),
    element("F6_E2M3", 6, None),
    element("F6_E3M2", 6, None),
    element("U8", 8, None),
    element("I8", 8, None),
    element("F8_E5M2", 8, None),
    element("F8_E4M3", 8, None),
    element("F8_E8M0", 8, None),
    element("F8_E4M3FNUZ", 8, None),
    element("F8_E5M2FNUZ", 8, None),
    element("I16", 16, None),
    element("U16", 16, None),
    element("I32", 32, None),
    element("U32", 32, None),
    element("C64", 64, None),
    element("F64", 64, None),
    element("I64", 64, None),
    element("U64", 64, None),
];

impl ElementType {
    /// Names of the types our kernels read.
    pub fn usable() -> Vec<String> {
        ELEMENT_TYPES.iter().filter(|entry| entry.format.is_some()).map(|entry| entry.name.to_string()).collect()
    }
}

impl Header {
    /// Parses and checks the header of a whole file.
    ///
    /// # Errors
    /// [`crate::Error::Malformed`] with the fault, the tensor or byte offset it was met at, and both numbers.
    pub fn read(file: &ModelFile) -> crate::Result<Self> {
        read(file).map_err(|broken| broken.at(file.path()))
    }
}

fn read(bytes: &[u8]) -> Result<Header, Broken> {
    let json = header_text(bytes)?;
    let data_start = 8 + json.len();
    let RawHeader { metadata, tensors } = serde_json::from_str(json).map_err(|error| {
        Broken::new(Fault::BadHeader, format!("the JSON header at byte 8 does not follow the format: {error}"))
    })?;
    let mut table = BTreeMap::new();
    for (name, raw) in tensors {
        let info = tensor_info(&name, raw, data_start, bytes.len())?;
        if table.insert(name.clone(), info).is_some() {
            return Err(Broken::new(Fault::DuplicateTensor, format!("tensor `{name}` is listed twice")));
        }
    }
    check_coverage(&table, data_start, bytes.len())?;
    Ok(Header { metadata, tensors: table })
}

fn header_text(bytes: &[u8]) -> Result<&str, Broken> {
    let Some((length, rest)) = bytes.split_first_chunk::<8>() else {
        let detail = format!("the header length takes 8 bytes, the file has {}", bytes.len());
        return Err(Broken::new(Fault::Truncated, detail));
    };
    let length = u64::from_le_bytes(*length);
    if length > rest.len() as u64 {
        let detail = format!("the header claims {length} bytes at byte 8, the file has {} left", rest.len());
        return Err(Broken::new(Fault::LengthOverflow, detail));
    }
    if length > MAX_HEADER_BYTES {
        let detail = format!("the header claims {length} bytes, allowed are {MAX_HEADER_BYTES}");
        return Err(Broken::new(Fault::HeaderTooLarge, detail));
    }
    let text = std::str::from_utf8(&rest[..length as usize])
        .map_err(|error| Broken::new(Fault::BadHeader, format!("the header at byte 8 is not UTF-8: {error}")))?;
    if !text.starts_with('{') {
        return Err(Broken::new(Fault::BadHeader, "the header at byte 8 does not begin with `{`"));
    }
    Ok(text)
}

fn tensor_info(name: &str, raw: RawTensor, data_start: usize, file_len: usize) -> Result<TensorInfo, Broken> {
    let RawTensor { dtype, shape, data_offsets: (begin, end) } = raw;
    let Some(kind) = ELEMENT_TYPES.iter().find(|entry| entry.name == dtype) else {
        return Err(Broken::new(Fault::BadType, format!("tensor `{name}` has the unknown dtype `{dtype}`")));
    };
    let bits = shape.iter().try_fold(kind.bits as u64, |product, extent| product.checked_mul(*extent));
    let Some(expected) = bits.filter(|bits| bits % 8 == 0).map(|bits| bits / 8) else {
        let detail = format!("tensor `{name}` ({dtype} {shape:?}) has no size in whole bytes below 2^64 bits");
        return Err(Broken::new(Fault::BadDims, detail));
    };
    if end.checked_sub(begin) != Some(expected) {
        let detail =
            format!("tensor `{name}` ({dtype} {shape:?}) takes {expected} bytes, its offsets are {begin}..{end}");
        return Err(Broken::new(Fault::SizeMismatch, detail));
    }
    let available = (file_len - data_start) as u64;
    if end > available {
        let detail = format!(
            "tensor `{name}` ends at byte {end} of the data section, the file holds {available}: the download is incomplete"
        );
        return Err(Broken::new(Fault::Truncated, detail));
    }
    let shape = shape.iter().map(|extent| *extent as usize).collect();
    Ok(TensorInfo { shape, kind, range: data_start + begin as usize..data_start + end as usize })
}

/// The format wants every byte of the data section to belong to exactly one tensor.
fn check_coverage(tensors: &BTreeMap<String, TensorInfo>, data_start: usize, file_len: usize) -> Result<(), Broken> {
    let mut order: Vec<(&String, &Range<usize>)> = tensors.iter().map(|(name, info)| (name, &info.range)).collect();
    order.sort_by_key(|(_, range)| (range.start, range.end));
    let mut covered = data_start;
    for (name, range) in order {
        if range.start != covered {
            let fault = if range.start < covered { Fault::OverlappingTensors } else { Fault::HoleInData };
            let detail = format!("tensor `{name}` begins at byte {}, expected {covered}", range.start);
            return Err(Broken::new(fault, detail));
        }
        covered = range.end;
    }
    if covered != file_len {
        let detail = format!("the tensors end at byte {covered}, the file has {file_len}");
        return Err(Broken::new(Fault::TrailingBytes, detail));
    }
    Ok(())
}

struct RawHeader {
    metadata: BTreeMap<String, String>,
    tensors: Vec<(String, RawTensor)>,
}

#[derive(serde::Deserialize)]
struct RawTensor {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Header;
        impl<'de> Visitor<'de> for Header {
            type Value = RawHeader;

            fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
                formatter.write_str("a map from tensor names to dtype, shape and data_offsets")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<RawHeader, M::Error> {
                let mut header = RawHeader { metadata: BTreeMap::new(), tensors: Vec::new() };
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        header.metadata = map.next_value::<UniqueMap<String>>()?.0;
                    } else if header.tensors.len() == MAX_TENSORS {
                        return Err(M::Error::custom(format!("more than {MAX_TENSORS} tensors")));
                    } else {
                        header.tensors.push((name, map.next_value()?));
                    }
                }
                Ok(header)
            }
        }
        deserializer.deserialize_map(Header)
    }
}

/// A JSON object whose keys must differ.
pub(crate) struct UniqueMap<V>(pub BTreeMap<String, V>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for UniqueMap<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Unique<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for Unique<V> {
            type Value = UniqueMap<V>;

            fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
                formatter.write_str("a map")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<UniqueMap<V>, M::Error> {
                let mut entries = BTreeMap::new();
                while let Some((key, value)) = map.next_entry::<String, V>()? {
                    if entries.contains_key(&key) {
                        return Err(M::Error::custom(format!("duplicate key `{key}`")));
                    }
                    entries.insert(key, value);
                }
                Ok(UniqueMap(entries))
            }
        }
        deserializer.deserialize_map(Unique(PhantomData))
    }
}
