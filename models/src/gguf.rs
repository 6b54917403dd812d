//! GGUF headers, versions 1 to 3: metadata and the table of tensors, read over the bytes of the file.
//!
//! ```text
//! magic "GGUF" | version u32 | tensors u64 | pairs u64
//! pairs   × { key string | type u32 | value }
//! tensors × { name string | dimensions u32 | extents u64… (fastest first) | type u32 | offset u64 }
//! padding to `general.alignment` (32) | tensor data, each tensor at its offset from here
//! ```
//! Strings are a length (u64) and bytes; arrays an element type (u32), a count (u64) and the elements; version 1 has
//! u32 for all counts, lengths and extents. Little-endian.
//!
//! Model files come from strangers, so the walk trusts no number: every count and length is held against the bytes that
//! are left before anything is allocated, and the whole walk is linear in the size of the header. candle's reader is
//! not used because one tensor of a type it lacks fails its whole file, with a number for a name.
//!
//! Source: the format description `docs/gguf.md` of ggml-org/ggml; type codes from `ggml.h`.

mod tensor_type;
mod value;
mod walk;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

pub use tensor_type::{TENSOR_TYPES, TensorType};
pub use value::{Array, FromValue, Value, ValueType};

use crate::error::{Error, Result};
use crate::file::ModelFile;

/// The header of one GGUF file. Values are borrowed from the mapped file.
#[derive(Debug)]
pub struct Header {
    file: Arc<ModelFile>,
    version: u32,
    pairs: HashMap<String, Stored>,
    keys: Vec<String>,
    tensors: BTreeMap<String, TensorInfo>,
}

/// Where one tensor is and what it holds.
#[derive(Debug, Clone)]
pub struct TensorInfo {
    /// Row-major, slowest first: a weight of n outputs and k inputs is `[n, k]` (the file lists extents the other way).
    pub shape: Vec<usize>,
    pub kind: &'static TensorType,
    /// Byte range in the file.
    pub range: Range<usize>,
}

#[derive(Debug, Clone)]
enum Stored {
    Fixed(ValueType, Range<usize>),
    String(Range<usize>),
    Array { element: ValueType, len: usize, bytes: Range<usize> },
}

impl Stored {
    fn kind(&self) -> ValueType {
        match self {
            Stored::Fixed(kind, _) => *kind,
            Stored::String(_) => ValueType::String,
            Stored::Array { .. } => ValueType::Array,
        }
    }

    fn describe(&self) -> String {
        match self {
            Stored::Array { element, len, .. } => format!("array of {len} {}", element.name()),
            other => other.kind().name().to_string(),
        }
    }
}

impl Header {
    /// Whether the bytes begin like a GGUF file.
    pub fn is_gguf(bytes: &[u8]) -> bool {
        bytes.starts_with(walk::MAGIC)
    }

    /// Walks the header.
    ///
    /// # Errors
    /// [`Error::Malformed`] with the fault, the byte offset or key or tensor it was met at, and both numbers.
    pub fn read(file: Arc<ModelFile>) -> Result<Self> {
        let parts = walk::walk(&file).map_err(|broken| broken.at(file.path()))?;
        let walk::Walked { version, pairs, keys, tensors } = parts;
        Ok(Header { file, version, pairs, keys, tensors })
    }

    pub fn version(&self) -> u32 {
        self.version
    }

    /// Metadata keys in file order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(String::as_str)
    }

    /// Tensors by name, sorted.
    pub fn tensors(&self) -> &BTreeMap<String, TensorInfo> {
        &self.tensors
    }

    /// The value of a key as it is stored, `None` when the key is absent.
    ///
    /// # Errors
    /// [`Error::Config`] when it is a string that is not UTF-8.
    pub fn value(&self, key: &str) -> Result<Option<Value<'_>>> {
        let Some(stored) = self.pairs.get(key) else { return Ok(None) };
        Ok(Some(match stored {
            Stored::Fixed(kind, range) => Value::fixed(*kind, &self.file[range.clone()]),
            Stored::String(range) => Value::String(
                std::str::from_utf8(&self.file[range.clone()])
                    .map_err(|error| self.problem(key, format!("the text is not UTF-8 ({error})")))?,
            ),
            Stored::Array { element, len, bytes } => Value::Array(Array {
                element: *element,
                len: *len,
                prefix: walk::prefix_bytes(self.version),
                bytes: &self.file[bytes.clone()],
            }),
        }))
    }

    /// The value of an optional key: `get::<u32>("llama.vocab_size")?`. Integers of any width convert when they fit.
    ///
    /// # Errors
    /// [`Error::Config`] naming the key, the expected and the found type, when the value is not a `T`.
    pub fn get<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>> {
        let Some(value) = self.value(key)? else { return Ok(None) };
        value.to().map(Some).ok_or_else(|| {
            let found = match value {
                Value::Unsigned(number) => format!("{} {number}", self.pairs[key].describe()),
                Value::Signed(number) => format!("{} {number}", self.pairs[key].describe()),
                _ => self.pairs[key].describe(),
            };
            self.problem(key, format!("expected {}, found {found}", T::EXPECTED))
        })
    }

    /// The value of a key that must be there.
    ///
    /// # Errors
    /// As [`Header::get`], and [`Error::Config`] when the key is absent.
    pub fn require<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<T> {
        self.get(key)?.ok_or_else(|| self.problem(key, format!("the key is missing, expected {}", T::EXPECTED)))
    }

    pub(crate) fn problem(&self, key: &str, problem: String) -> Error {
        Error::Config { path: self.file.path().to_path_buf(), key: key.to_string(), problem }
    }
}
