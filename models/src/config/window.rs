//! Which layers see all keys and which a window of them.

use super::{HuggingFace, MAX_CONTEXT, problem, within};
use crate::error::Result;

/// The window of every layer by `layer_types`, one of `full_attention` and `sliding_attention` a layer; `None` when the
/// configuration has no such list.
///
/// # Errors
/// [`crate::Error::Config`] for a list of another length, a name we do not know, or a window that is needed and missing.
pub(crate) fn by_layer_types(
    config: &HuggingFace,
    layers: usize,
    window: Option<usize>,
) -> Result<Option<Vec<Option<usize>>>> {
    const KEY: &str = "layer_types";
    let Some(kinds) = config.get::<Vec<String>>(KEY)? else { return Ok(None) };
    if kinds.len() != layers {
        return Err(problem(
            config.path,
            KEY,
            format!("found {} entries, expected {layers}, one a layer", kinds.len()),
        ));
    }
    let of = |kind: &String| match (kind.as_str(), window) {
        ("full_attention", _) => Ok(None),
        ("sliding_attention", Some(window)) => Ok(Some(window)),
        ("sliding_attention", None) => {
            Err(problem(config.path, "sliding_window", "missing for layers of kind `sliding_attention`"))
        }
        (other, _) => {
            let text = format!("found `{other}`, supported are full_attention and sliding_attention");
            Err(problem(config.path, KEY, text))
        }
    };
    kinds.iter().map(of).collect::<Result<_>>().map(Some)
}

/// `sliding_window`: absent takes the family's default, `null` means none.
pub(crate) fn stated(config: &HuggingFace, default: usize, notes: &mut Vec<String>) -> Result<Option<usize>> {
    const KEY: &str = "sliding_window";
    if config.says_null(KEY) {
        return Ok(None);
    }
    within(config.path, KEY, config.or_default(KEY, default, notes)?, MAX_CONTEXT).map(Some)
}
