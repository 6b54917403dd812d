//! A hub repository named directly: which of its files make a checkpoint, and at which commit they were first pulled.

use super::error::{Attempt, Error, Failure};
use super::hf_hub::Hub;
use super::preset::{HubFile, PresetFile, Source, is_inside};
use super::store::ModelFolder;
use super::{ModelFiles, Sources, check_has_tokenizer, hf_cache, is_text_file, pull};
use serde::{Deserialize, Serialize};
use std::fmt;

/// `ORG/NAME[@REVISION][:FILE]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    repo: String,
    revision: String,
    file: Option<String>,
}

impl Address {
    /// An address, or `None` of a text that cannot be one.
    pub(super) fn parse(text: &str) -> Option<Address> {
        let (text, file) = match text.split_once(':') {
            Some((text, file)) => (text, Some(file)),
            None => (text, None),
        };
        let (repo, revision) = text.split_once('@').unwrap_or((text, "main"));
        let (organisation, name) = repo.split_once('/')?;
        let plain = |part: &str| {
            !part.is_empty()
                && !part.starts_with('.')
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        };
        let valid = plain(organisation) && plain(name) && is_inside(revision) && file.is_none_or(is_inside);
        valid.then(|| Address { repo: repo.into(), revision: revision.into(), file: file.map(String::from) })
    }

    /// The name of its folder in the model cache.
    fn folder_name(&self) -> String {
        self.to_string().replace('/', "--")
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.repo)?;
        if self.revision != "main" {
            write!(formatter, "@{}", self.revision)?;
        }
        self.file.iter().try_for_each(|file| write!(formatter, ":{file}"))
    }
}

/// What a repository held when it was first pulled; from then on the model stays at that commit.
#[derive(Debug, Deserialize, Serialize)]
struct Snapshot {
    commit: String,
    files: Vec<String>,
}

/// Makes sure that a repository's checkpoint is on this disk.
///
/// # Errors
/// [`Error::NoListing`] when nothing is known of the repository, [`Error::NotAModel`] when it holds no checkpoint
/// or several, and those of [`pull::pull`].
pub(super) fn pull(address: &Address, sources: &Sources) -> Result<ModelFiles, Error> {
    let snapshot = snapshot(address, sources)?;
    let model = pull::pull(&address.folder_name(), &preset_files(address, &snapshot), sources)?;
    Ok(ModelFiles { name: address.to_string(), ..model })
}

/// The same of tokenizer and templates alone.
///
/// # Errors
/// As [`pull`]; [`Error::NotAModel`] too for a repository whose weights carry the tokenizer.
pub(super) fn pull_text(address: &Address, sources: &Sources) -> Result<ModelFiles, Error> {
    let snapshot = snapshot(address, sources)?;
    let mut files = preset_files(address, &snapshot);
    files.retain(|file| is_text_file(&file.name));
    check_has_tokenizer(&address.to_string(), files.iter().map(|file| file.name.as_str()))?;
    let model = pull::pull(&address.folder_name(), &files, sources)?;
    Ok(ModelFiles { name: address.to_string(), ..model })
}

/// What the repository held when it was first pulled; looked up and recorded where that is now.
fn snapshot(address: &Address, sources: &Sources) -> Result<Snapshot, Error> {
    let folder = ModelFolder::new(sources, &address.folder_name());
    if let Some(snapshot) = folder.read_json(SNAPSHOT) {
        return Ok(snapshot);
    }
    let found = look(address, &folder, sources)?;
    let files = choose(address, &found.files)?;
    let snapshot = Snapshot { commit: found.commit, files };
    let _lock = folder.lock(sources)?;
    folder.write_json(SNAPSHOT, &snapshot)?;
    Ok(snapshot)
}

/// A repository's checkpoint as it was pulled earlier.
pub(super) fn find_local(address: &Address, sources: &Sources) -> Option<ModelFiles> {
    let folder = ModelFolder::new(sources, &address.folder_name());
    let snapshot: Snapshot = folder.read_json(SNAPSHOT)?;
    let model = folder.complete(&preset_files(address, &snapshot))?;
    Some(ModelFiles { name: address.to_string(), ..model })
}

const SNAPSHOT: &str = ".snapshot.json";

/// The repository's files as the hub, or else the Hugging Face cache, has them.
fn look(address: &Address, folder: &ModelFolder, sources: &Sources) -> Result<Snapshot, Error> {
    let place = HubFile { repo: address.repo.clone(), revision: address.revision.clone(), file: None };
    let reason = match Hub::new(sources, folder.path().join(".part/hub")).list(&place) {
        Ok(listing) => return Ok(Snapshot { commit: listing.commit, files: listing.files }),
        Err(Failure::Fatal(error)) => return Err(error),
        Err(Failure::Source(reason)) => reason,
    };
    if let Some(path) = hf_cache::snapshot(&sources.hf_cache, &address.repo, &address.revision) {
        let commit = path.file_name().map_or_else(String::new, |name| name.display().to_string());
        return Ok(Snapshot { commit, files: hf_cache::list(&path) });
    }
    let attempt = |source: &str, reason: String| Attempt { source: source.into(), reason };
    Err(Error::NoListing {
        repository: address.to_string(),
        attempts: vec![
            attempt("hub", reason),
            attempt("Hugging Face cache", format!("not in {}", sources.hf_cache.display())),
            attempt("path", format!("`{address}` is no file or folder here either")),
        ],
    })
}

/// The chosen files as a preset would list them, all at the commit of the first pull, with digests still to learn.
fn preset_files(address: &Address, snapshot: &Snapshot) -> Vec<PresetFile> {
    let place = HubFile { repo: address.repo.clone(), revision: snapshot.commit.clone(), file: None };
    let sources = vec![Source::Hub(place)];
    let file = |name: &String| PresetFile { name: name.clone(), size: None, sha256: None, sources: sources.clone() };
    snapshot.files.iter().map(file).collect()
}

/// The files to fetch: the named one; or everything that belongs to the safetensors; or the only GGUF file.
fn choose(address: &Address, files: &[String]) -> Result<Vec<String>, Error> {
    let not_a_model = |problem: String| Err(Error::NotAModel { place: format!("hub repository {address}"), problem });
    let gguf: Vec<&String> = files.iter().filter(|name| name.ends_with(".gguf")).collect();
    if let Some(wanted) = &address.file {
        if files.contains(wanted) {
            return Ok(vec![wanted.clone()]);
        }
        return not_a_model(format!("it has no file `{wanted}` (it has {})", files.join(", ")));
    }
    // A head or an adapter in safetensors does not stand for weights that are still in the older file.
    let is_whole = |name: &&String| name.starts_with("model") && name.ends_with(".safetensors");
    let has_torch = files.iter().any(|name| name == TORCH);
    if files.iter().any(|name| name.ends_with(".safetensors") && (!has_torch || is_whole(&name))) {
        let belongs = |name: &&String| is_part_of_a_checkpoint(name) && !name.ends_with(".gguf") && *name != TORCH;
        return Ok(files.iter().filter(belongs).cloned().collect());
    }
    if has_torch {
        let belongs = |name: &&String| is_part_of_a_checkpoint(name) && !name.ends_with(".gguf");
        return Ok(files.iter().filter(belongs).cloned().collect());
    }
    match gguf.as_slice() {
        [only] => Ok(vec![(*only).clone()]),
        [] => not_a_model(format!("expected .safetensors or .gguf files or {TORCH}, found none of them")),
        several => {
            let names: Vec<&str> = several.iter().map(|name| name.as_str()).collect();
            not_a_model(format!("several GGUF files; name one as {}:FILE ({})", address.repo, names.join(", ")))
        }
    }
}

/// Weights of checkpoints from before safetensors.
pub(super) const TORCH: &str = "pytorch_model.bin";

/// Whether a file belongs to a checkpoint: weights, configuration and tokenizer beside them, the numbered module folders
/// of sentence-transformers (`1_Pooling/config.json`), and BGE-M3's heads. Everything else (other formats, README, pictures) does
/// not.
pub(super) fn is_part_of_a_checkpoint(name: &str) -> bool {
    let (folder, file) = name.rsplit_once('/').unwrap_or(("", name));
    let module = |folder: &str| folder.split_once('_').is_some_and(|(number, _)| number.parse::<u32>().is_ok());
    let wanted = [".safetensors", ".gguf", ".json", ".jinja"].iter().any(|extension| file.ends_with(extension))
        || ["tokenizer.model", "merges.txt", "vocab.txt", TORCH, "sparse_linear.pt", "colbert_linear.pt"]
            .contains(&file);
    wanted && !file.starts_with('.') && (folder.is_empty() || module(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        Address::parse(text).unwrap()
    }

    #[test]
    fn addresses_print_back_and_texts_that_are_none_are_refused() {
        for text in ["org/name", "org/name@v1.0", "org/name:q4.gguf", "org/na.me-1_2@abc:sub/q4.gguf"] {
            assert_eq!(address(text).to_string(), text);
        }
        assert_eq!(address("org/name@main").to_string(), "org/name");
        for text in ["name", "a/b/c", "/a", "a/", "../b", "./b", "a/b@", "a/b:", "a/b@../x", "a/b:../x", "a b/c"] {
            assert_eq!(Address::parse(text), None, "{text}");
        }
    }

    #[test]
    fn safetensors_come_with_their_companions_only() {
        let files = [
            ".gitattributes",
            "1_Pooling/config.json",
            "README.md",
            "config.json",
            "model.safetensors",
            "onnx/config.json",
            "openvino/openvino_model.xml",
            "pytorch_model.bin",
            "q4.gguf",
            "tokenizer.json",
            "vocab.txt",
        ]
        .map(String::from);
        let expected = ["1_Pooling/config.json", "config.json", "model.safetensors", "tokenizer.json", "vocab.txt"];
        assert_eq!(choose(&address("o/n"), &files).unwrap(), expected);
        assert_eq!(choose(&address("o/n:q4.gguf"), &files).unwrap(), ["q4.gguf"]);
    }

    #[test]
    fn one_gguf_is_taken_and_of_several_one_must_be_named() {
        let two = ["a.gguf", "b.gguf"].map(String::from);
        assert_eq!(choose(&address("o/n"), &two[..1]).unwrap(), ["a.gguf"]);
        let message = choose(&address("o/n"), &two).unwrap_err().to_string();
        assert!(message.contains("o/n:FILE (a.gguf, b.gguf)"), "{message}");
        assert!(choose(&address("o/n"), &["model.bin".into()]).unwrap_err().to_string().contains("found none"));
        let old = ["config.json", "onnx/model.onnx", "pytorch_model.bin", "sparse_linear.pt"].map(String::from);
        let expected = ["config.json", "pytorch_model.bin", "sparse_linear.pt"];
        assert_eq!(choose(&address("o/n"), &old).unwrap(), expected);
        let head = ["2_Dense/model.safetensors", "config.json", "pytorch_model.bin"].map(String::from);
        assert_eq!(choose(&address("o/n"), &head).unwrap(), head, "the body is in the older file alone");
        let named = ["config.json", "weights.safetensors"].map(String::from);
        assert_eq!(choose(&address("o/n"), &named).unwrap(), named);
        assert!(choose(&address("o/n:c.gguf"), &two).unwrap_err().to_string().contains("no file `c.gguf`"));
    }
}
