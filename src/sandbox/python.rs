//! Which Python runs in the sandbox, and what of the machine it must be able to read.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use super::{Job, Limits, ProgramFile, SandboxError};

/// An interpreter of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    /// The program itself, past any wrapper script that the search path finds first.
    pub program: PathBuf,
    /// As in `3.11.7`.
    pub version: String,
    /// Its own folders and those of its packages.
    pub readable: Vec<PathBuf>,
}

/// Asked of the interpreter outside the sandbox; it is the user's own program.
const QUESTION: &str = "\
import json, os, platform, sys
folders = [sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.path.realpath(sys.executable))]
print(json.dumps({
    'program': sys.executable,
    'version': platform.python_version(),
    'folders': folders + [entry for entry in sys.path if os.path.isdir(entry)],
}))";

#[derive(Deserialize)]
struct Answer {
    program: PathBuf,
    version: String,
    folders: Vec<PathBuf>,
}

impl Interpreter {
    /// Finds an interpreter by name on the search path, or by path.
    ///
    /// # Errors
    /// When it cannot be run or does not answer as a Python 3 does.
    pub fn find(name: &str) -> Result<Interpreter, SandboxError> {
        let failed = |why: String| {
            SandboxError::Failed(format!(
                "`{name}` is not a usable Python 3: {why}; name another with `python = \"…\"`"
            ))
        };
        let output = Command::new(name)
            .args(["-s", "-c", QUESTION])
            .env_remove("PYTHONPATH")
            .env_remove("PYTHONHOME")
            .output()
            .map_err(|error| failed(error.to_string()))?;
        if !output.status.success() {
            return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_string()));
        }
        let answer: Answer = serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))?;
        Ok(Interpreter { program: answer.program, version: answer.version, readable: outermost(answer.folders) })
    }

    /// A job that runs a script with this interpreter, in an empty folder of its own.
    pub fn job(&self, script: &str, limits: Limits) -> Job {
        Job {
            argv: vec![self.program.display().to_string(), "-s".into(), "-B".into(), "../program/main.py".into()],
            files: vec![ProgramFile { name: "main.py".into(), text: script.into() }],
            readable: self.readable.clone(),
            search_path: self.program.parent().map(Path::to_path_buf).into_iter().collect(),
            limits,
            report: None,
            collect: Vec::new(),
        }
    }
}

/// The folders that no other of them holds. Never the root or a home folder as a whole.
fn outermost(mut folders: Vec<PathBuf>) -> Vec<PathBuf> {
    folders.retain(|folder| folder.is_absolute() && folder.is_dir() && folder.components().count() > 2);
    folders.sort();
    folders.dedup();
    let mut kept: Vec<PathBuf> = Vec::new();
    for folder in folders {
        if !kept.iter().any(|outer| folder.starts_with(outer)) {
            kept.push(folder);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_folders_are_given_once_and_the_root_never() {
        let folders = ["/", "/usr", "/usr/lib", "/usr/bin", "/usr/lib/no-such-folder"].map(PathBuf::from);
        let kept = outermost(folders.to_vec());
        assert!(kept.contains(&PathBuf::from("/usr/bin")) && kept.contains(&PathBuf::from("/usr/lib")), "{kept:?}");
        assert_eq!(kept.len(), 2);
    }

    #[test]
    fn a_program_that_is_no_python_is_named() {
        let error = Interpreter::find("/bin/false").unwrap_err().to_string();
        assert!(error.contains("/bin/false") && error.contains("python ="), "{error}");
    }
}
