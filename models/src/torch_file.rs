//! Weights as `torch.save` writes them: an uncompressed zip with one file a storage, and a pickle that says which tensor
//! lies in which storage.
//!
//! A pickle is a program. This reader runs the few instructions that a dictionary of tensors is written with and knows
//! four names to call; a file that asks for anything else is refused by what it asks for, and nothing of it is run. Values
//! live in flat lists and refer to each other by number, so a hostile file can neither nest deeply nor multiply itself.
//!
//! Source: `torch/serialization.py` and `torch/_utils.py` of `pytorch/pytorch` for the layout, `Lib/pickletools.py` of
//! `python/cpython` for the instructions.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::ops::Range;
use std::rc::Rc;

use crate::error::{Broken, Fault};
use crate::file::ModelFile;
use crate::safetensors::{ELEMENT_TYPES, ElementType, TensorInfo};

/// Of the pickle, which takes about 100 bytes a tensor: 40 000 of them.
const MAX_PICKLE_BYTES: usize = 4 << 20;
/// Values, marks and notes that the pickle makes, 30 a tensor. One takes up to 100 bytes here and as little as one there, so
/// the length alone does not bound memory.
const MAX_VALUES: usize = 5 << 18;
/// Of a name.
const MAX_TEXT_BYTES: usize = 1 << 12;
/// As for safetensors.
const MAX_TENSORS: usize = 1 << 18;
/// Files in the zip: a storage each, and a few beside them.
const MAX_MEMBERS: usize = MAX_TENSORS + 16;

type Checked<T> = std::result::Result<T, Broken>;

/// The tensors of one file, as in [`crate::safetensors::Header`].
#[derive(Debug, Default)]
pub struct Header {
    pub tensors: BTreeMap<String, TensorInfo>,
}

/// Whether the bytes begin as a zip does.
pub fn is_torch_file(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PK\x03\x04")
}

impl Header {
    /// Finds all tensors of a whole file: a dictionary from names to tensors, as `state_dict()` gives it.
    ///
    /// # Errors
    /// [`crate::Error::Malformed`] with [`Fault::UnsafePickle`] for a pickle that calls or builds anything but tensors,
    /// and the fault and place of anything that does not follow the format.
    pub fn read(file: &ModelFile) -> crate::Result<Self> {
        read(file).map_err(|broken| broken.at(file.path()))
    }
}

fn read(bytes: &[u8]) -> Checked<Header> {
    let members = members(bytes)?;
    let pickles: Vec<&String> = members.keys().filter(|name| name.ends_with("/data.pkl")).collect();
    let [pickle] = pickles.as_slice() else {
        let detail = format!("expected one `data.pkl` in the zip, found {}", pickles.len());
        return Err(Broken::new(Fault::BadHeader, detail));
    };
    let folder = pickle.strip_suffix("data.pkl").unwrap_or_default();
    let order = members.get(&format!("{folder}byteorder")).map(|range| &bytes[range.clone()]);
    if let Some(other) = order.filter(|order| *order != b"little") {
        let detail = format!("byte order `{}`, expected `little`", String::from_utf8_lossy(other).escape_debug());
        return Err(Broken::new(Fault::BadHeader, detail));
    }
    let program = &bytes[members[*pickle].clone()];
    if program.len() > MAX_PICKLE_BYTES {
        let detail = format!("the pickle takes {} bytes, allowed are {MAX_PICKLE_BYTES}", program.len());
        return Err(Broken::new(Fault::Limit, detail));
    }
    let mut tensors: BTreeMap<String, TensorInfo> = BTreeMap::new();
    if folder.len() > MAX_TEXT_BYTES {
        let detail = format!("a folder of {} letters in the zip, allowed are {MAX_TEXT_BYTES}", folder.len());
        return Err(Broken::new(Fault::Limit, detail));
    }
    for (name, tensor) in Machine::new(program).run()? {
        if tensors.contains_key(&*name) {
            return Err(Broken::new(Fault::DuplicateTensor, format!("tensor `{name}` is listed twice")));
        }
        let key = format!("{folder}data/{}", tensor.storage.key);
        let Some(range) = members.get(&key) else {
            let detail = format!("tensor `{name}` lies in `{key}`, which the zip does not hold");
            return Err(Broken::new(Fault::Truncated, detail));
        };
        let info = place(&name, &tensor, range)?;
        tensors.insert(name.to_string(), info);
    }
    Ok(Header { tensors })
}

/// Where the members of a zip lie in it. All must be stored as they are.
fn members(bytes: &[u8]) -> Checked<BTreeMap<String, Range<usize>>> {
    let zip = |error: &dyn std::fmt::Display| Broken::new(Fault::BadHeader, format!("as a zip: {error}"));
    let mut archive = ::zip::ZipArchive::new(Cursor::new(bytes)).map_err(|error| zip(&error))?;
    if archive.len() > MAX_MEMBERS {
        return Err(Broken::new(
            Fault::Limit,
            format!("{} files in the zip, allowed are {MAX_MEMBERS}", archive.len()),
        ));
    }
    let mut members = BTreeMap::new();
    for index in 0..archive.len() {
        let member = archive.by_index_raw(index).map_err(|error| zip(&error))?;
        let name = member.name().map_err(|error| zip(&error))?.into_owned();
        if member.compression() != ::zip::CompressionMethod::Stored {
            let detail = format!("`{}` is compressed, torch stores its files as they are", name.escape_debug());
            return Err(Broken::new(Fault::BadHeader, detail));
        }
        let range = member.data_start().and_then(|start| Some(start..start.checked_add(member.size())?));
        let Some(range) = range.filter(|range| range.end <= bytes.len() as u64) else {
            let detail = format!("`{}` ends beyond the {} bytes of the file", name.escape_debug(), bytes.len());
            return Err(Broken::new(Fault::Truncated, detail));
        };
        members.insert(name, range.start as usize..range.end as usize);
    }
    Ok(members)
}

/// The bytes of a tensor in its storage.
fn place(name: &str, tensor: &Tensor, range: &Range<usize>) -> Checked<TensorInfo> {
    let bad = |text: String| Broken::new(Fault::BadDims, format!("tensor `{name}` {text}"));
    let Tensor { storage, offset, shape, stride } = tensor;
    let Storage { kind, elements, .. } = storage.as_ref();
    let size = kind.bits as u64 / 8;
    if elements.checked_mul(size) != Some(range.len() as u64) {
        let detail = format!("tensor `{name}`: {elements} × {} in a storage of {} bytes", kind.name, range.len());
        return Err(Broken::new(Fault::SizeMismatch, detail));
    }
    let mut row = 1u64;
    for (extent, stride) in shape.iter().zip(stride).rev() {
        if *extent != 1 && *stride != row {
            return Err(bad(format!("of shape {shape:?} has strides {stride:?}, expected its rows one after another")));
        }
        row = row.checked_mul(*extent).ok_or_else(|| bad(format!("of shape {shape:?} is too large")))?;
    }
    let end = offset.checked_add(row).filter(|end| end <= elements);
    let Some(end) = end.filter(|_| shape.len() == stride.len()) else {
        return Err(bad(format!("of shape {shape:?} at element {offset} leaves its storage of {elements}")));
    };
    let at = |element: u64| range.start + (element * size) as usize;
    let shape = shape.iter().map(|extent| *extent as usize).collect();
    Ok(TensorInfo { shape, kind, range: at(*offset)..at(end) })
}

/// A tensor as the pickle describes it.
#[derive(Clone, Debug)]
struct Tensor {
    storage: Rc<Storage>,
    /// Elements.
    offset: u64,
    shape: Vec<u64>,
    stride: Vec<u64>,
}

#[derive(Clone, Debug)]
struct Storage {
    kind: &'static ElementType,
    key: String,
    elements: u64,
}

/// What may be named.
#[derive(Clone, Copy, Debug)]
enum Name {
    Dictionary,
    Tensor,
    Parameter,
    Storage(&'static ElementType),
}

impl Name {
    fn find(module: &str, name: &str) -> Checked<Name> {
        const STORAGES: [(&str, &str); 10] = [
            ("FloatStorage", "F32"),
            ("HalfStorage", "F16"),
            ("BFloat16Storage", "BF16"),
            ("DoubleStorage", "F64"),
            ("LongStorage", "I64"),
            ("IntStorage", "I32"),
            ("ShortStorage", "I16"),
            ("CharStorage", "I8"),
            ("ByteStorage", "U8"),
            ("BoolStorage", "BOOL"),
        ];
        match (module, name) {
            ("collections", "OrderedDict") => return Ok(Name::Dictionary),
            ("torch._utils", "_rebuild_tensor_v2") => return Ok(Name::Tensor),
            ("torch._utils", "_rebuild_parameter") => return Ok(Name::Parameter),
            _ => {}
        }
        let storage = STORAGES.iter().find(|(class, _)| module == "torch" && *class == name);
        let kind = storage.and_then(|(_, kind)| ELEMENT_TYPES.iter().find(|entry| entry.name == *kind));
        kind.map(Name::Storage).ok_or_else(|| {
            let asked: String = format!("{module}.{name}").escape_debug().take(120).collect();
            unsafe_pickle(format!("the pickle asks for `{asked}`, which is no part of a dictionary of tensors"))
        })
    }
}

fn unsafe_pickle(detail: String) -> Broken {
    Broken::new(Fault::UnsafePickle, detail + "; nothing was run, use a safetensors file of the same weights")
}

/// A value on the stack. Lists and dictionaries are numbers of entries of the machine.
#[derive(Clone, Debug)]
enum Value {
    Nothing,
    Number(i64),
    Text(Rc<str>),
    Tuple(usize),
    Dictionary(usize),
    Name(Name),
    Storage(Rc<Storage>),
    Tensor(Rc<Tensor>),
}

/// Runs the instructions of one pickle.
struct Machine<'a> {
    program: &'a [u8],
    at: usize,
    stack: Vec<Value>,
    marks: Vec<usize>,
    /// Values made so far.
    made: usize,
    memo: BTreeMap<u32, Value>,
    tuples: Vec<Vec<Value>>,
    dictionaries: Vec<Vec<(Value, Value)>>,
}

impl<'a> Machine<'a> {
    fn new(program: &'a [u8]) -> Self {
        Machine {
            program,
            at: 0,
            stack: Vec::new(),
            marks: Vec::new(),
            made: 0,
            memo: BTreeMap::new(),
            tuples: Vec::new(),
            dictionaries: Vec::new(),
        }
    }

    fn run(mut self) -> Checked<Vec<(Rc<str>, Rc<Tensor>)>> {
        loop {
            let at = self.at;
            let code = self.take(1)?[0];
            if code == b'.' {
                return self.finish();
            }
            self.step(code, at)?;
        }
    }

    fn step(&mut self, code: u8, at: usize) -> Checked<()> {
        match code {
            // Protocol and frame lengths say nothing that is needed.
            0x80 => drop(self.take(1)?),
            0x95 => drop(self.take(8)?),
            b'N' => self.push(Value::Nothing)?,
            0x88 => self.push(Value::Number(1))?,
            0x89 => self.push(Value::Number(0))?,
            b'J' => {
                let bytes = self.array::<4>()?;
                self.push(Value::Number(i32::from_le_bytes(bytes).into()))?;
            }
            b'K' => {
                let [byte] = self.array::<1>()?;
                self.push(Value::Number(byte.into()))?;
            }
            b'M' => {
                let bytes = self.array::<2>()?;
                self.push(Value::Number(u16::from_le_bytes(bytes).into()))?;
            }
            0x8a => self.long()?,
            b'X' => {
                let length = u32::from_le_bytes(self.array()?) as usize;
                self.text(length)?;
            }
            0x8c => {
                let [length] = self.array::<1>()?;
                self.text(length.into())?;
            }
            b'(' => {
                self.count(1)?;
                self.marks.push(self.stack.len());
            }
            b')' => self.tuple(0)?,
            0x85..=0x87 => self.tuple((code - 0x84).into())?,
            b't' => {
                let count = self.since_mark()?;
                self.tuple(count)?;
            }
            b'}' => self.dictionary()?,
            b'q' => {
                let [slot] = self.array::<1>()?;
                self.remember(slot.into())?;
            }
            b'r' => {
                let slot = u32::from_le_bytes(self.array()?);
                self.remember(slot)?;
            }
            0x94 => self.remember(self.memo.len() as u32)?,
            b'h' => {
                let [slot] = self.array::<1>()?;
                self.recall(slot.into())?;
            }
            b'j' => {
                let slot = u32::from_le_bytes(self.array()?);
                self.recall(slot)?;
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.push(Value::Name(Name::find(module, name)?))?;
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let (Value::Text(name), Value::Text(module)) = (name, module) else { return Err(self.odd(at)) };
                self.push(Value::Name(Name::find(&module, &name)?))?;
            }
            b'Q' => self.storage(at)?,
            b'R' => self.call(at)?,
            b's' => self.set_items(2, at)?,
            b'u' => {
                let count = self.since_mark()?;
                self.set_items(count, at)?;
            }
            // The state of a dictionary is notes on versions.
            b'b' => {
                let (_, Some(Value::Dictionary(_))) = (self.pop()?, self.stack.last()) else {
                    return Err(self.odd(at));
                };
            }
            other => {
                let text = format!("byte {at} of the pickle is the instruction {other:#04x}, which no tensor needs");
                return Err(unsafe_pickle(text));
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Checked<Vec<(Rc<str>, Rc<Tensor>)>> {
        let Value::Dictionary(top) = self.pop()? else {
            let detail = "the pickle holds something else than a dictionary of tensors";
            return Err(Broken::new(Fault::BadHeader, detail));
        };
        let entries = std::mem::take(&mut self.dictionaries[top]);
        if entries.len() > MAX_TENSORS {
            return Err(Broken::new(Fault::Limit, format!("{} tensors, allowed are {MAX_TENSORS}", entries.len())));
        }
        let named = |(key, value): (Value, Value)| match (key, value) {
            (Value::Text(name), Value::Tensor(tensor)) => Ok((name, tensor)),
            (key, _) => {
                let name: String = format!("{key:?}").chars().take(80).collect();
                Err(Broken::new(Fault::BadHeader, format!("entry {name} of the dictionary is no tensor")))
            }
        };
        entries.into_iter().map(named).collect()
    }

    fn take(&mut self, count: usize) -> Checked<&'a [u8]> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.program.len());
        let Some(end) = end else {
            let detail = format!("the pickle of {} bytes ends within an instruction", self.program.len());
            return Err(Broken::new(Fault::Truncated, detail));
        };
        let bytes = &self.program[self.at..end];
        self.at = end;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Checked<[u8; N]> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        Ok(bytes)
    }

    /// An integer of up to eight bytes, the length before it.
    fn long(&mut self) -> Checked<()> {
        let at = self.at;
        let [length] = self.array::<1>()?;
        let bytes = self.take(length.into())?;
        if bytes.len() > 8 {
            return Err(self.odd(at));
        }
        let mut wide = if bytes.last().is_some_and(|byte| byte & 128 != 0) { [255; 8] } else { [0; 8] };
        wide[..bytes.len()].copy_from_slice(bytes);
        self.push(Value::Number(i64::from_le_bytes(wide)))
    }

    fn text(&mut self, length: usize) -> Checked<()> {
        if length > MAX_TEXT_BYTES {
            let detail = format!("a text of {length} bytes in the pickle, allowed are {MAX_TEXT_BYTES}");
            return Err(Broken::new(Fault::Limit, detail));
        }
        let bytes = self.take(length)?;
        let text = std::str::from_utf8(bytes)
            .map_err(|_| Broken::new(Fault::BadUtf8, format!("a text before byte {} of the pickle", self.at)))?;
        self.push(Value::Text(text.into()))
    }

    fn line(&mut self) -> Checked<&'a str> {
        let rest = &self.program[self.at..];
        let Some(length) = rest.iter().position(|byte| *byte == b'\n') else {
            return Err(Broken::new(Fault::Truncated, "the pickle ends within a name"));
        };
        let line = std::str::from_utf8(self.take(length)?);
        self.take(1)?;
        line.map_err(|_| Broken::new(Fault::BadUtf8, format!("a name before byte {} of the pickle", self.at)))
    }

    /// What does not fit the format at an instruction.
    fn odd(&self, at: usize) -> Broken {
        Broken::new(
            Fault::BadHeader,
            format!("byte {at} of the pickle: the instruction does not fit what is before it"),
        )
    }

    fn push(&mut self, value: Value) -> Checked<()> {
        // A tensor is larger than the rest.
        self.count(if matches!(value, Value::Tensor(_)) { 3 } else { 1 })?;
        self.stack.push(value);
        Ok(())
    }

    fn count(&mut self, values: usize) -> Checked<()> {
        self.made += values;
        if self.made <= MAX_VALUES {
            return Ok(());
        }
        let detail = format!("byte {} of the pickle: it makes more than {MAX_VALUES} values", self.at);
        Err(Broken::new(Fault::Limit, detail))
    }

    fn pop(&mut self) -> Checked<Value> {
        // Nothing is taken from below the last mark.
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() <= floor {
            return Err(self.odd(self.at));
        }
        self.stack.pop().ok_or_else(|| self.odd(self.at))
    }

    fn since_mark(&mut self) -> Checked<usize> {
        let mark = self.marks.pop().ok_or_else(|| self.odd(self.at))?;
        Ok(self.stack.len() - mark)
    }

    fn split_off(&mut self, count: usize) -> Checked<Vec<Value>> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let start = self.stack.len().checked_sub(count).filter(|start| *start >= floor);
        let start = start.ok_or_else(|| self.odd(self.at))?;
        Ok(self.stack.split_off(start))
    }

    fn tuple(&mut self, count: usize) -> Checked<()> {
        let items = self.split_off(count)?;
        self.tuples.push(items);
        self.push(Value::Tuple(self.tuples.len() - 1))
    }

    fn dictionary(&mut self) -> Checked<()> {
        self.dictionaries.push(Vec::new());
        self.push(Value::Dictionary(self.dictionaries.len() - 1))
    }

    fn remember(&mut self, slot: u32) -> Checked<()> {
        let value = self.stack.last().cloned().ok_or_else(|| self.odd(self.at))?;
        self.count(1)?;
        self.memo.insert(slot, value);
        Ok(())
    }

    fn recall(&mut self, slot: u32) -> Checked<()> {
        let value = self.memo.get(&slot).cloned().ok_or_else(|| self.odd(self.at))?;
        self.push(value)
    }

    fn set_items(&mut self, count: usize, at: usize) -> Checked<()> {
        let items = self.split_off(count)?;
        let Some(Value::Dictionary(dictionary)) = self.stack.last() else { return Err(self.odd(at)) };
        let (pairs, rest) = items.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(self.odd(at));
        }
        self.dictionaries[*dictionary].extend(pairs.iter().map(|[key, value]| (key.clone(), value.clone())));
        Ok(())
    }

    /// `("storage", class, key, device, elements)`.
    fn storage(&mut self, at: usize) -> Checked<()> {
        let items = match self.pop()? {
            Value::Tuple(tuple) => &self.tuples[tuple],
            _ => return Err(self.odd(at)),
        };
        let [Value::Text(word), Value::Name(Name::Storage(kind)), Value::Text(key), _, Value::Number(elements)] =
            items.as_slice()
        else {
            return Err(self.odd(at));
        };
        let elements = u64::try_from(*elements).map_err(|_| self.odd(at))?;
        if &**word != "storage" {
            return Err(self.odd(at));
        }
        let storage = Storage { kind, key: key.to_string(), elements };
        self.push(Value::Storage(storage.into()))
    }

    fn call(&mut self, at: usize) -> Checked<()> {
        let (arguments, name) = (self.pop()?, self.pop()?);
        let (Value::Tuple(arguments), Value::Name(name)) = (arguments, name) else { return Err(self.odd(at)) };
        match (name, self.tuples[arguments].as_slice()) {
            (Name::Dictionary, []) => self.dictionary()?,
            (Name::Parameter, [Value::Tensor(tensor), ..]) => {
                let tensor = tensor.clone();
                self.push(Value::Tensor(tensor))?;
            }
            (
                Name::Tensor,
                [Value::Storage(storage), Value::Number(offset), Value::Tuple(shape), Value::Tuple(stride), ..],
            ) => {
                let (shape, stride) = (self.extents(*shape, at)?, self.extents(*stride, at)?);
                let offset = u64::try_from(*offset).map_err(|_| self.odd(at))?;
                let tensor = Tensor { storage: storage.clone(), offset, shape, stride };
                self.push(Value::Tensor(tensor.into()))?;
            }
            _ => return Err(self.odd(at)),
        }
        Ok(())
    }

    fn extents(&self, tuple: usize, at: usize) -> Checked<Vec<u64>> {
        const MAX_DIMENSIONS: usize = 8;
        let items = &self.tuples[tuple];
        let number = |item: &Value| match item {
            Value::Number(number) => u64::try_from(*number).ok(),
            _ => None,
        };
        let extents: Option<Vec<u64>> = items.iter().take(MAX_DIMENSIONS + 1).map(number).collect();
        extents.filter(|extents| extents.len() <= MAX_DIMENSIONS).ok_or_else(|| self.odd(at))
    }
}
