//! A checkpoint the user names by path: a file or a folder, used where it is.

use super::{Error, ModelFile, ModelFiles, hf_cache};
use std::path::Path;

/// Describes a `.gguf` or `.safetensors` file, or a folder that holds one checkpoint.
///
/// # Errors
/// [`Error::NotAModel`] when there are no weights, or several GGUF files in a folder.
pub(super) fn open(path: &Path) -> Result<ModelFiles, Error> {
    let absolute = path.canonicalize().map_err(|error| Error::storage("open", path, error))?;
    let own_name =
        absolute.file_name().map_or_else(|| absolute.display().to_string(), |name| name.display().to_string());
    let (folder, names) = if absolute.is_dir() {
        (absolute.as_path(), checkpoint_files(&absolute))
    } else {
        (absolute.parent().unwrap_or(&absolute), vec![own_name.clone()])
    };
    let files = names.into_iter().map(|name| describe(folder, name)).collect::<Result<_, Error>>()?;
    let model = ModelFiles { name: own_name, kind: None, folder: folder.to_path_buf(), files };
    model.checkpoint()?;
    Ok(model)
}

/// The files of a folder that a checkpoint can consist of; others (README, training logs) are not part of its digest.
fn checkpoint_files(folder: &Path) -> Vec<String> {
    let mut names = hf_cache::list(folder);
    names.retain(|name| super::repository::is_part_of_a_checkpoint(name));
    if names.iter().any(|name| name.ends_with(".safetensors") && name.starts_with("model")) {
        names.retain(|name| name != super::repository::TORCH);
    }
    names
}

fn describe(folder: &Path, name: String) -> Result<ModelFile, Error> {
    let path = folder.join(&name);
    let size = std::fs::metadata(&path).map_err(|error| Error::storage("open", &path, error))?.len();
    Ok(ModelFile { name, path, size, sha256: None, origin: "path".into() })
}
