//! How a method saves its state: JSON with the method's name, the version of its layout and a digest of its options in
//! front, so that a state never goes on under other rules.

use anyhow::{Context as _, ensure};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

/// What a state belongs to.
pub(super) struct Layout<'a, O> {
    pub method: &'a str,
    /// Goes up when the state's fields or their meaning change.
    pub version: u32,
    pub options: &'a O,
}

#[derive(Serialize, Deserialize)]
struct Saved<S> {
    memory: String,
    version: u32,
    options: String,
    state: S,
}

impl<O: Serialize> Layout<'_, O> {
    /// Equal states give equal bytes: states hold lists and sorted maps only.
    pub fn save<S: Serialize>(&self, state: &S) -> Vec<u8> {
        let (memory, version, options) = (self.method.to_string(), self.version, self.options_digest());
        serde_json::to_vec(&Saved { memory, version, options, state }).expect("plain data always encodes")
    }

    /// # Errors
    /// When the bytes are not a state of this method, version and options.
    pub fn load<S: DeserializeOwned>(&self, bytes: &[u8]) -> anyhow::Result<S> {
        let context = || format!("saved state of memory `{}`", self.method);
        let Saved { memory, version, options, state: IgnoredAny } =
            serde_json::from_slice(bytes).with_context(context)?;
        ensure!(memory == self.method, "{}: found a state of memory `{memory}`", context());
        ensure!(version == self.version, "{}: expected layout {}, found {version}", context(), self.version);
        ensure!(options == self.options_digest(), "{}: it was saved under other options", context());
        let saved: Saved<S> = serde_json::from_slice(bytes).with_context(context)?;
        Ok(saved.state)
    }

    fn options_digest(&self) -> String {
        let options = serde_json::to_vec(self.options).expect("options are plain data");
        blake3::hash(&options).to_hex()[..16].to_string()
    }
}
