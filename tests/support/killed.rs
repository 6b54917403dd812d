//! A run in a process of its own, killed at any moment, and what its report must not depend on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub fn start(config: &Path, folder: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_lifelong"))
        .args(["run".as_ref(), config.as_os_str(), "--out".as_ref(), folder.as_os_str()])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

pub fn finish(child: Child) {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

pub fn stored_bytes(folder: &Path) -> u64 {
    fs::metadata(folder.join("attempts.jsonl")).map_or(0, |file| file.len())
}

/// Lines of the log, checks included, in the order of their bytes: that of the file depends on which attempt ended first.
pub fn records(folder: &Path) -> BTreeSet<String> {
    fs::read_to_string(folder.join("attempts.jsonl")).unwrap().lines().map(String::from).collect()
}

/// Kills the process with SIGKILL once the log has grown by about `growth` bytes; false when it ended by itself.
pub fn kill_after(child: &mut Child, folder: &Path, growth: u64) -> bool {
    let target = stored_bytes(folder) + growth;
    let (mut stored, mut changed) = (stored_bytes(folder), Instant::now());
    while stored < target {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        let now = stored_bytes(folder);
        if now != stored {
            (stored, changed) = (now, Instant::now());
        }
        assert!(changed.elapsed() < Duration::from_secs(120), "the run stores nothing");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    true
}

/// Every file of the report without what depends on the clock.
pub fn report(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    fs::read_dir(folder.join("report"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().is_some_and(|name| name != "timing.csv"))
        .map(|path| {
            let mut bytes = fs::read(&path).unwrap();
            if path.extension().is_some_and(|extension| extension == "html") {
                let page = String::from_utf8(bytes).unwrap();
                let (before, rest) = page.split_once("<!-- times:begin").unwrap();
                let (_, after) = rest.split_once("<!-- times:end -->").unwrap();
                bytes = format!("{before}{after}").into_bytes();
            }
            (path.file_name().unwrap().to_string_lossy().into_owned(), bytes)
        })
        .collect()
}
