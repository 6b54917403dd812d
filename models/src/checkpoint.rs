//! A model on disk: tensors by name and the description that came with them, whatever the container.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lifelong_kernels::{Format, QUANTIZABLE};

use crate::drawn::Drawn;
use crate::error::{Broken, Error, Fault, Result};
use crate::file::ModelFile;
use crate::fp8;
use crate::gguf;
use crate::safetensors::{self, UniqueMap};
use crate::torch_file;

const CONFIG: &str = "config.json";
const INDEX: &str = "model.safetensors.index.json";
const SINGLE: &str = "model.safetensors";
/// The weights of checkpoints from before safetensors.
const TORCH: &str = "pytorch_model.bin";

/// An opened model: GGUF file, safetensors file, `torch.save` file, or a folder with one.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    description: Description,
    files: Vec<Arc<ModelFile>>,
    tensors: BTreeMap<String, Entry>,
    quantize: Option<Format>,
    is_rounded: bool,
    /// There where tensors are drawn instead of read.
    drawn: Option<Drawn>,
}

/// What the model says about itself.
#[derive(Debug)]
enum Description {
    Gguf(gguf::Header),
    /// `config.json` beside the weights; `None` when it is absent, which only matters to whoever builds a model.
    HuggingFace {
        path: PathBuf,
        config: Option<serde_json::Value>,
    },
}

/// What a model says about itself, borrowed from its [`Checkpoint`].
#[derive(Debug, Clone, Copy)]
pub enum Metadata<'a> {
    Gguf(&'a gguf::Header),
    HuggingFace { path: &'a Path, config: &'a serde_json::Value },
}

#[derive(Debug)]
struct Entry {
    file: usize,
    range: Range<usize>,
    shape: Vec<usize>,
    type_name: &'static str,
    format: Option<Format>,
}

impl Entry {
    fn of(file: usize, info: safetensors::TensorInfo) -> Self {
        let safetensors::TensorInfo { shape, kind, range } = info;
        Entry { file, range, shape, type_name: kind.name, format: kind.format }
    }
}

/// One tensor, borrowed from the mapped file.
#[derive(Debug, Clone, Copy)]
pub struct TensorView<'a> {
    pub name: &'a str,
    /// Row-major, slowest first: `[n, k]` for a weight of n outputs and k inputs.
    pub shape: &'a [usize],
    pub format: Format,
    pub bytes: &'a [u8],
}

impl Checkpoint {
    /// Opens a GGUF file, a safetensors or `torch.save` file (with `config.json` beside it), or a folder that holds
    /// `model.safetensors`, `model.safetensors.index.json` with its shards, exactly one GGUF file or `pytorch_model.bin`.
    /// Weights are mapped, not read.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Malformed`], [`Error::MissingShards`]; a folder with none or several of these names what
    /// it found.
    pub fn open(path: &Path) -> Result<Self> {
        if path.is_dir() {
            return Self::open_folder(path);
        }
        let file = Arc::new(ModelFile::open(path)?);
        let is_safetensors = path.extension().is_some_and(|extension| extension == "safetensors");
        let folder = path.parent().unwrap_or(Path::new(""));
        if torch_file::is_torch_file(&file) {
            return Self::from_torch(path, folder, file);
        }
        if is_safetensors && !gguf::Header::is_gguf(&file) {
            return Self::from_safetensors(path, folder, vec![file]);
        }
        Self::from_gguf(file)
    }

    /// A GGUF file that is already in memory.
    pub fn from_gguf(file: Arc<ModelFile>) -> Result<Self> {
        let header = gguf::Header::read(file.clone())?;
        let tensors = header
            .tensors()
            .iter()
            .map(|(name, info)| {
                let (range, shape) = (info.range.clone(), info.shape.clone());
                (name.clone(), Entry { file: 0, range, shape, type_name: info.kind.name, format: info.kind.format })
            })
            .collect();
        Ok(Checkpoint {
            path: file.path().to_path_buf(),
            description: Description::Gguf(header),
            files: vec![file],
            tensors,
            quantize: None,
            is_rounded: false,
            drawn: None,
        })
    }

    /// A model without files, of the shape that a Hugging Face `config.json` says: every tensor is drawn at random from
    /// `seed` and its name, matrices in `format`. `present` are the ends of the names of those optional tensors that are there
    /// (`lm_head.weight`).
    ///
    /// # Errors
    /// [`Error::Config`] for a format of blocks.
    pub fn drawn(
        config: serde_json::Value,
        seed: u64,
        format: Format,
        present: &'static [&'static str],
    ) -> Result<Self> {
        let path = PathBuf::from("drawn");
        if format.block_values() != 1 {
            let problem = format!("{format:?} is a format of blocks, expected F32, F16 or BF16");
            return Err(Error::Config { path, key: "format".to_string(), problem });
        }
        Ok(Checkpoint {
            description: Description::HuggingFace { path: path.clone(), config: Some(config) },
            path,
            files: Vec::new(),
            tensors: BTreeMap::new(),
            quantize: None,
            is_rounded: false,
            drawn: Some(Drawn::new(seed, format, present)),
        })
    }

    /// Where tensors come from that no file holds.
    pub(crate) fn draws(&self) -> Option<&Drawn> {
        self.drawn.as_ref()
    }

    fn open_folder(folder: &Path) -> Result<Self> {
        let index = folder.join(INDEX);
        if index.is_file() {
            return Self::from_index(folder, &index);
        }
        let single = folder.join(SINGLE);
        if single.is_file() {
            return Self::from_safetensors(folder, folder, vec![Arc::new(ModelFile::open(&single)?)]);
        }
        let ggufs = gguf_files(folder)?;
        match ggufs.as_slice() {
            [only] => Self::from_gguf(Arc::new(ModelFile::open(only)?)),
            [] if folder.join(TORCH).is_file() => {
                Self::from_torch(folder, folder, Arc::new(ModelFile::open(&folder.join(TORCH))?))
            }
            found => {
                let detail = format!(
                    "expected {SINGLE}, {INDEX}, one .gguf file or {TORCH} in the folder, found {} .gguf files; name the file to open",
                    found.len()
                );
                Err(Broken::new(Fault::BadMagic, detail).at(folder))
            }
        }
    }

    fn from_index(folder: &Path, index: &Path) -> Result<Self> {
        let weight_map = read_index(index)?;
        let mut shards: Vec<&String> = weight_map.values().collect();
        shards.sort();
        shards.dedup();
        let missing: Vec<String> =
            shards.iter().filter(|name| !folder.join(name).is_file()).map(|name| name.to_string()).collect();
        if !missing.is_empty() {
            return Err(Error::MissingShards { path: index.to_path_buf(), shards: missing });
        }
        let files =
            shards.iter().map(|name| Ok(Arc::new(ModelFile::open(&folder.join(name))?))).collect::<Result<_>>()?;
        let checkpoint = Self::from_safetensors(folder, folder, files)?;
        for (tensor, shard) in &weight_map {
            let held_by = checkpoint.tensors.get(tensor).map(|entry| checkpoint.files[entry.file].path());
            if held_by != Some(&folder.join(shard)) {
                let reason = format!("{INDEX} places it in {shard}, which does not hold it");
                return Err(Error::MissingTensor { path: folder.to_path_buf(), tensor: tensor.clone(), reason });
            }
        }
        Ok(checkpoint)
    }

    fn from_torch(path: &Path, folder: &Path, file: Arc<ModelFile>) -> Result<Self> {
        let header = torch_file::Header::read(&file)?;
        let tensors = header.tensors.into_iter().map(|(name, info)| (name, Entry::of(0, info))).collect();
        let description = Self::describe(folder)?;
        Ok(Checkpoint {
            path: path.to_path_buf(),
            description,
            files: vec![file],
            tensors,
            quantize: None,
            is_rounded: false,
            drawn: None,
        })
    }

    fn from_safetensors(path: &Path, folder: &Path, files: Vec<Arc<ModelFile>>) -> Result<Self> {
        let mut tensors: BTreeMap<String, Entry> = BTreeMap::new();
        for (file, mapped) in files.iter().enumerate() {
            let header = safetensors::Header::read(mapped)?;
            for (name, info) in header.tensors {
                let entry = Entry::of(file, info);
                if let Some(earlier) = tensors.insert(name.clone(), entry) {
                    let detail = format!("tensor `{name}` is also in {}", files[earlier.file].path().display());
                    return Err(Broken::new(Fault::DuplicateTensor, detail).at(mapped.path()));
                }
            }
        }
        let description = Self::describe(folder)?;
        Ok(Checkpoint {
            path: path.to_path_buf(),
            description,
            files,
            tensors,
            quantize: None,
            is_rounded: false,
            drawn: None,
        })
    }

    /// What stands beside weights that describe only themselves.
    fn describe(folder: &Path) -> Result<Description> {
        let path = folder.join(CONFIG);
        let config = if path.is_file() { Some(read_json(&path)?) } else { None };
        Ok(Description::HuggingFace { path, config })
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The files that hold the weights.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|file| file.path())
    }

    /// The GGUF header, for tokenizers and templates that live in it; `None` for safetensors.
    pub fn gguf(&self) -> Option<&gguf::Header> {
        match &self.description {
            Description::Gguf(header) => Some(header),
            Description::HuggingFace { .. } => None,
        }
    }

    /// The model's description of itself.
    ///
    /// # Errors
    /// [`Error::Io`] when safetensors weights have no `config.json` beside them.
    pub fn metadata(&self) -> Result<Metadata<'_>> {
        match &self.description {
            Description::Gguf(header) => Ok(Metadata::Gguf(header)),
            Description::HuggingFace { path, config: Some(config) } => Ok(Metadata::HuggingFace { path, config }),
            Description::HuggingFace { path, config: None } => {
                let source =
                    std::io::Error::new(std::io::ErrorKind::NotFound, "safetensors weights need it beside them");
                Err(Error::Io { path: path.clone(), source })
            }
        }
    }

    /// Tensor names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    pub fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name) || self.drawn.as_ref().is_some_and(|drawn| drawn.contains(name))
    }

    /// The shape of a tensor, row-major; `None` when it is absent.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.tensors.get(name).map(|entry| entry.shape.as_slice())
    }

    /// The bytes of a tensor of bytes (safetensors `U8`) of this shape, with its name.
    ///
    /// # Errors
    /// [`Error::MissingTensor`]; [`Error::ShapeMismatch`]; [`Error::UnusableType`] when it holds another type.
    pub fn bytes(&self, name: &str, shape: &[usize]) -> Result<(&str, &[u8])> {
        let Some((name, entry)) = self.tensors.get_key_value(name) else {
            return Err(self.missing(name));
        };
        let (path, tensor) = (self.path.clone(), name.clone());
        if entry.type_name != "U8" {
            let (found, usable) = (entry.type_name.to_string(), vec!["U8".to_string()]);
            return Err(Error::UnusableType { path, tensor, found, usable });
        }
        if entry.shape != shape {
            return Err(Error::ShapeMismatch { path, tensor, expected: shape.to_vec(), found: entry.shape.clone() });
        }
        Ok((name, &self.files[entry.file][entry.range.clone()]))
    }

    /// What the file calls the storage type of a tensor; `None` when it is absent.
    pub(crate) fn type_name(&self, name: &str) -> Option<&'static str> {
        self.tensors.get(name).map(|entry| entry.type_name)
    }

    /// Shape, storage type and bytes of every tensor that is weights: floats, blocks, and 8-bit floats with scales beside
    /// them. Tables of positions and other integers are not.
    pub fn weights(&self) -> impl Iterator<Item = (&[usize], String, usize)> {
        let weights = self.tensors.values().filter(|entry| entry.format.is_some() || entry.type_name == fp8::TYPE);
        weights.map(|entry| {
            let name = entry.format.map_or_else(|| entry.type_name.to_string(), |format| format!("{format:?}"));
            (entry.shape.as_slice(), name, entry.range.len())
        })
    }

    /// The bytes of a tensor of any storage type; `None` when it is absent.
    pub(crate) fn stored(&self, name: &str) -> Option<(&str, &[usize], &[u8])> {
        let (name, entry) = self.tensors.get_key_value(name)?;
        Some((name, &entry.shape, &self.files[entry.file][entry.range.clone()]))
    }

    /// The format that projections are written in when they are loaded; `None` leaves them as they are stored.
    pub fn quantize(&self) -> Option<Format> {
        self.quantize
    }

    /// Lets every projection of a model built from this checkpoint be quantised at load. Token vectors, the output
    /// projection, routers of experts and whatever is no projection stay as they are stored, and so does a projection whose input is not a
    /// whole number of the format's blocks: one of 256 values then becomes Q8_0, and the model's notes say so.
    ///
    /// # Errors
    /// [`Error::Config`] for a format that cannot be written, and for a GGUF file, whose weights have been quantised or
    /// not by whoever made it.
    pub fn quantized(self, format: Format) -> Result<Self> {
        let refuse =
            |problem: String| Err(Error::Config { path: self.path.clone(), key: "quantize".to_string(), problem });
        if !QUANTIZABLE.contains(&format) {
            return refuse(format!("{format:?} cannot be written, expected one of {QUANTIZABLE:?}"));
        }
        if self.gguf().is_some() {
            return refuse("a GGUF file is used as it is stored: quantise safetensors, or take a smaller file".into());
        }
        Ok(Checkpoint { quantize: Some(format), ..self })
    }

    /// Whether plain projections are held as integers of 16 bits.
    pub(crate) fn is_rounded(&self) -> bool {
        self.is_rounded
    }

    /// Lets a processor hold every plain projection of a model built from this checkpoint as integers of 16 bits
    /// ([`lifelong_kernels::Matrix::rounded_on`]).
    #[must_use]
    pub fn rounded(self) -> Self {
        Checkpoint { is_rounded: true, ..self }
    }

    /// A tensor by name.
    ///
    /// # Errors
    /// [`Error::MissingTensor`]; [`Error::UnusableType`] when no kernel reads its storage type.
    pub fn tensor(&self, name: &str) -> Result<TensorView<'_>> {
        let Some((name, entry)) = self.tensors.get_key_value(name) else {
            return Err(self.missing(name));
        };
        let Some(format) = entry.format else {
            let usable = match self.description {
                Description::Gguf(_) => gguf::TensorType::usable(),
                Description::HuggingFace { .. } => safetensors::ElementType::usable(),
            };
            let (path, found) = (self.path.clone(), entry.type_name.to_string());
            return Err(Error::UnusableType { path, tensor: name.clone(), found, usable });
        };
        Ok(TensorView { name, shape: &entry.shape, format, bytes: &self.files[entry.file][entry.range.clone()] })
    }

    fn missing(&self, name: &str) -> Error {
        let reason = format!("the file holds {} others", self.tensors.len());
        Error::MissingTensor { path: self.path.clone(), tensor: name.to_string(), reason }
    }
}

fn gguf_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let io = |source| Error::Io { path: folder.to_path_buf(), source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        if path.extension().is_some_and(|extension| extension == "gguf") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn read_json(path: &Path) -> Result<serde_json::Value> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::Io { path: path.to_path_buf(), source })?;
    serde_json::from_str(&text).map_err(|error| Broken::new(Fault::BadHeader, error.to_string()).at(path))
}

/// The tensor → shard map of an index. Shard names are file names: anything that could leave the folder is refused.
fn read_index(index: &Path) -> Result<BTreeMap<String, String>> {
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: UniqueMap<String>,
    }
    let text = std::fs::read_to_string(index).map_err(|source| Error::Io { path: index.to_path_buf(), source })?;
    let Index { weight_map: UniqueMap(weight_map) } =
        serde_json::from_str(&text).map_err(|error| Broken::new(Fault::BadHeader, error.to_string()).at(index))?;
    for (tensor, shard) in &weight_map {
        if shard.is_empty() || shard == "." || shard == ".." || shard.contains(['/', '\\', ':', '\0']) {
            let detail = format!("tensor `{tensor}` is placed in `{shard}`, expected a file name in the same folder");
            return Err(Broken::new(Fault::UnsafePath, detail).at(index));
        }
    }
    Ok(weight_map)
}
