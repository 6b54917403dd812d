//! What several integration tests need.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod tiny;

use lifelong::engine::hub::{self, ModelFiles, Sources};

/// Weights that are used where they are already, and not fetched for a test; `None` with one line otherwise.
pub fn local_model_files(name: &str) -> Option<ModelFiles> {
    let found = Sources::from_env().and_then(|sources| hub::find_local(&hub::Named::find(name)?, &sources));
    let found = found.unwrap_or_else(|error| panic!("{name}: {error}"));
    if found.is_none() {
        println!("skipped: {name} is not in the model cache (`lifelong models pull {name}`)");
    }
    found
}

/// Real weights, through the program's own model sources: from the folder `LIFELONG_TEST_MODELS` when it is set, else
/// from the user's model cache; pulled when missing. `None`, with one line that says why, when no source has them.
///
/// # Panics
/// Instead of `None` where `LIFELONG_TEST_STRICT` is set.
pub fn model_files(name: &str) -> Option<ModelFiles> {
    let mut sources = Sources::from_env().map_err(|error| println!("skipped: {error}")).ok()?;
    if let Some(home) = std::env::var_os("LIFELONG_TEST_MODELS") {
        sources.home = home.into();
    }
    let found = hub::resolve(name, &sources);
    assert!(found.is_ok() || std::env::var_os("LIFELONG_TEST_STRICT").is_none(), "{name}: {}", found.unwrap_err());
    found.map_err(|error| println!("skipped: {error}")).ok()
}
