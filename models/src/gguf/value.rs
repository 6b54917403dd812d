//! Metadata values of a GGUF header and typed access to them.
//!
//! Arrays stay in the file until they are asked for: a vocabulary of 262 144 tokens costs nothing to a reader that only
//! wants the layer count, and a hostile count allocates nothing.

/// The type codes of metadata values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

impl ValueType {
    pub(super) fn from_code(code: u32) -> Option<Self> {
        use ValueType::*;
        const BY_CODE: [ValueType; 13] = [U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64];
        BY_CODE.get(code as usize).copied()
    }

    /// Bytes of one value; `None` for strings and arrays, which carry their own length.
    pub(super) fn fixed_size(self) -> Option<usize> {
        match self {
            ValueType::U8 | ValueType::I8 | ValueType::Bool => Some(1),
            ValueType::U16 | ValueType::I16 => Some(2),
            ValueType::U32 | ValueType::I32 | ValueType::F32 => Some(4),
            ValueType::U64 | ValueType::I64 | ValueType::F64 => Some(8),
            ValueType::String | ValueType::Array => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            ValueType::U8 => "u8",
            ValueType::I8 => "i8",
            ValueType::U16 => "u16",
            ValueType::I16 => "i16",
            ValueType::U32 => "u32",
            ValueType::I32 => "i32",
            ValueType::F32 => "f32",
            ValueType::Bool => "bool",
            ValueType::String => "string",
            ValueType::Array => "array",
            ValueType::U64 => "u64",
            ValueType::I64 => "i64",
            ValueType::F64 => "f64",
        }
    }
}

/// One metadata value, borrowed from the file.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Value<'a> {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    String(&'a str),
    Array(Array<'a>),
}

impl<'a> Value<'a> {
    /// Decodes one fixed-size value. `bytes` has exactly `kind.fixed_size()` bytes; the header walk has seen to that.
    pub(super) fn fixed(kind: ValueType, bytes: &[u8]) -> Value<'static> {
        let mut wide = [0u8; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        let unsigned = u64::from_le_bytes(wide);
        match kind {
            ValueType::I8 => Value::Signed(i64::from(unsigned as u8 as i8)),
            ValueType::I16 => Value::Signed(i64::from(unsigned as u16 as i16)),
            ValueType::I32 => Value::Signed(i64::from(unsigned as u32 as i32)),
            ValueType::I64 => Value::Signed(unsigned as i64),
            ValueType::F32 => Value::Float(f64::from(f32::from_bits(unsigned as u32))),
            ValueType::F64 => Value::Float(f64::from_bits(unsigned)),
            ValueType::Bool => Value::Bool(unsigned != 0),
            _ => Value::Unsigned(unsigned),
        }
    }

    /// The value as `T`, or `None` when it is of another type or out of T's range.
    pub fn to<T: FromValue<'a>>(self) -> Option<T> {
        T::from_value(self)
    }
}

/// An array in the file: elements of one type, read on demand.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Array<'a> {
    pub(super) element: ValueType,
    pub(super) len: usize,
    /// Bytes of the length prefix of strings: 4 in GGUF 1, 8 since.
    pub(super) prefix: usize,
    pub(super) bytes: &'a [u8],
}

impl<'a> Array<'a> {
    pub fn element(&self) -> ValueType {
        self.element
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements as raw strings; `None` when they are not strings.
    pub fn strings(&self) -> Option<impl Iterator<Item = &'a [u8]> + use<'a>> {
        let Array { len, prefix, bytes, .. } = *self;
        let mut at = 0;
        (self.element == ValueType::String).then(|| {
            (0..len).map(move |_| {
                let mut wide = [0u8; 8];
                wide[..prefix].copy_from_slice(&bytes[at..at + prefix]);
                let start = at + prefix;
                at = start + u64::from_le_bytes(wide) as usize;
                &bytes[start..at]
            })
        })
    }

    /// The elements as values; `None` when they are strings or arrays.
    pub fn values(&self) -> Option<impl Iterator<Item = Value<'static>> + use<'a>> {
        let Array { element, bytes, .. } = *self;
        let size = element.fixed_size()?;
        Some(bytes.chunks_exact(size).map(move |chunk| Value::fixed(element, chunk)))
    }
}

/// Types that metadata can be asked for as.
pub trait FromValue<'a>: Sized {
    /// What the message calls the expected type.
    const EXPECTED: &'static str;
    fn from_value(value: Value<'a>) -> Option<Self>;
}

macro_rules! integers {
    ($($type:ty => $name:literal),*) => {$(
        impl FromValue<'_> for $type {
            const EXPECTED: &'static str = $name;
            fn from_value(value: Value<'_>) -> Option<Self> {
                match value {
                    Value::Unsigned(value) => value.try_into().ok(),
                    Value::Signed(value) => value.try_into().ok(),
                    _ => None,
                }
            }
        }
    )*};
}

integers!(u32 => "u32", u64 => "u64", i32 => "i32", i64 => "i64", usize => "unsigned integer");

impl FromValue<'_> for f32 {
    const EXPECTED: &'static str = "f32";
    fn from_value(value: Value<'_>) -> Option<Self> {
        match value {
            Value::Float(value) => Some(value as f32),
            _ => None,
        }
    }
}

impl FromValue<'_> for bool {
    const EXPECTED: &'static str = "bool";
    fn from_value(value: Value<'_>) -> Option<Self> {
        match value {
            Value::Bool(value) => Some(value),
            _ => None,
        }
    }
}

impl<'a> FromValue<'a> for &'a str {
    const EXPECTED: &'static str = "string";
    fn from_value(value: Value<'a>) -> Option<Self> {
        match value {
            Value::String(value) => Some(value),
            _ => None,
        }
    }
}

impl<'a> FromValue<'a> for Array<'a> {
    const EXPECTED: &'static str = "array";
    fn from_value(value: Value<'a>) -> Option<Self> {
        match value {
            Value::Array(value) => Some(value),
            _ => None,
        }
    }
}

impl<'a> FromValue<'a> for Vec<&'a str> {
    const EXPECTED: &'static str = "array of UTF-8 strings";
    fn from_value(value: Value<'a>) -> Option<Self> {
        value.to::<Array<'a>>()?.strings()?.map(|bytes| std::str::from_utf8(bytes).ok()).collect()
    }
}

macro_rules! arrays {
    ($($type:ty => $name:literal),*) => {$(
        impl<'a> FromValue<'a> for Vec<$type> {
            const EXPECTED: &'static str = $name;
            fn from_value(value: Value<'a>) -> Option<Self> {
                value.to::<Array<'a>>()?.values()?.map(<$type>::from_value).collect()
            }
        }
    )*};
}

arrays!(f32 => "array of f32", i32 => "array of i32", u32 => "array of u32", bool => "array of bool");
