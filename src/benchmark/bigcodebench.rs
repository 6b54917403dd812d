//! BigCodeBench (Zhuo et al. 2024): 1140 tasks that call functions of 139 libraries, each with unit tests.
//!
//! Two ways to ask, as published: *instruct* (prose, and the first lines of the function) and *complete* (imports,
//! signature and docstring to go on from). A task is right when no test of its class fails. The *calibrated* program
//! starts with the task's own imports and signature, so that leaving them out of a reply costs nothing; this is what
//! the public leaderboard reports and the default here.
//!
//! A published test run may take 240 s of wall clock. So it may here, and 60 s of CPU time: a program that computes
//! is bounded by what it computes, whatever else the machine does.

mod domains;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use serde::Deserialize;
use serde_json::json;

use super::data_file::{self, DataFile};
use super::{Benchmark, Pool, Selection};
use crate::record::python_environment::{ENVIRONMENT_FILE, PythonEnvironment};
use crate::record::{Reference, ReplyFormat, Task, TaskId, TaskView};
use crate::registry::Registered;
use crate::reply::python;

const INSTRUCT_PROMPT: &str = include_str!("../../configs/prompts/bigcodebench_instruct.txt");
const COMPLETE_PROMPT: &str = include_str!("../../configs/prompts/bigcodebench_complete.txt");
const WHERE: &str = "benchmark `bigcodebench` reads its published file: set `path` to BigCodeBench v0.1.4 as .jsonl or \
                     .jsonl.gz (github.com/bigcode-project/bigcodebench, or dataset bigcode/bigcodebench of the hub, \
                     saved as JSON lines)";
/// The class of tests in every record.
const TEST_CLASS: &str = "TestCases";

/// Modules that come with CPython 3.10 to 3.12 on Linux.
const STANDARD_LIBRARY: &str = "\
    abc aifc argparse array ast asynchat asyncio asyncore atexit audioop base64 bdb binascii bisect builtins bz2 \
    cProfile calendar cgi cgitb chunk cmath cmd code codecs codeop collections colorsys compileall concurrent \
    configparser contextlib contextvars copy copyreg crypt csv ctypes curses dataclasses datetime dbm decimal difflib \
    dis distutils doctest email encodings ensurepip enum errno faulthandler fcntl filecmp fileinput fnmatch fractions \
    ftplib functools gc genericpath getopt getpass gettext glob graphlib grp gzip hashlib heapq hmac html http idlelib \
    imaplib imghdr imp importlib inspect io ipaddress itertools json keyword lib2to3 linecache locale logging lzma \
    mailbox mailcap marshal math mimetypes mmap modulefinder multiprocessing netrc nis nntplib ntpath nturl2path \
    numbers opcode operator optparse os ossaudiodev pathlib pdb pickle pickletools pipes pkgutil platform plistlib \
    poplib posix posixpath pprint profile pstats pty pwd py_compile pyclbr pydoc pydoc_data pyexpat queue quopri \
    random re readline reprlib resource rlcompleter runpy sched secrets select selectors shelve shlex shutil signal \
    site smtpd smtplib sndhdr socket socketserver spwd sqlite3 sre_compile sre_constants sre_parse ssl stat statistics \
    string stringprep struct subprocess sunau symtable sys sysconfig syslog tabnanny tarfile telnetlib tempfile \
    termios textwrap threading time timeit tkinter token tokenize tomllib trace traceback tracemalloc tty turtle \
    types typing unicodedata unittest urllib uu uuid venv warnings wave weakref webbrowser wsgiref xdrlib xml xmlrpc \
    zipapp zipfile zipimport zlib zoneinfo __future__";

/// See the [module](self).
pub struct BigCodeBench;

/// The benchmark's table in a config.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Options {
    split: Split,
    calibrated: bool,
    /// Whether only what the function needs is kept of a reply.
    sanitize: bool,
    libraries: Libraries,
    /// The interpreter, by name or path; that of `environment` where there is one.
    python: String,
    /// Folder of `lifelong env python`: its interpreter is used, and tasks that cannot pass in it are left out.
    environment: Option<PathBuf>,
    /// Limits of a test run that differ from the benchmark's own.
    limits: toml::Table,
    /// A file with instructions to use instead of ours.
    prompt: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            split: Split::Instruct,
            calibrated: true,
            sanitize: true,
            libraries: Libraries::All,
            python: "python3".into(),
            environment: None,
            limits: toml::Table::new(),
            prompt: None,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Split {
    Instruct,
    Complete,
}

/// Which tasks are taken.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Libraries {
    All,
    /// Those whose code and tests import nothing but the standard library.
    Standard,
}

/// One line of the published file; the fields not named here are documentation.
#[derive(Deserialize)]
struct Record {
    task_id: String,
    complete_prompt: String,
    instruct_prompt: String,
    canonical_solution: String,
    code_prompt: String,
    test: String,
    entry_point: String,
    /// Names of the libraries, as the text of a Python list; not in every edition.
    #[serde(default)]
    libs: String,
}

impl Registered for BigCodeBench {
    fn name(&self) -> &str {
        "bigcodebench"
    }

    fn about(&self) -> &str {
        "1140 Python tasks over 139 libraries, scored by their unit tests"
    }

    fn source(&self) -> &str {
        "Zhuo et al. 2024; bigcode-project/bigcodebench v0.1.4, Apache-2.0"
    }
}

impl Benchmark for BigCodeBench {
    fn load(&self, selection: &Selection) -> anyhow::Result<Pool> {
        let mut options: Options =
            selection.options.clone().try_into().context("options of benchmark `bigcodebench`")?;
        let file = DataFile::read(selection.path.as_deref().context(WHERE)?)?;
        let environment = options.environment.as_deref().map(|folder| environment(folder, &file)).transpose()?;
        let mut digest = file.digest();
        let mut ignored = BTreeMap::new();
        if let Some((environment, text)) = environment {
            options.python = environment.python.display().to_string();
            digest = blake3::hash(format!("{digest} {text}").as_bytes()).to_hex().to_string();
            ignored = environment.ignored;
        }
        let own = match options.split {
            Split::Instruct => INSTRUCT_PROMPT,
            Split::Complete => COMPLETE_PROMPT,
        };
        let system = data_file::prompt(own, options.prompt.as_deref())?;
        let mut tasks = Vec::new();
        let mut left_out = BTreeMap::new();
        for record in file.records::<Record>()? {
            if options.libraries == Libraries::All || needs_standard_library_only(&record) {
                let task = task(record, &system, &options)?;
                match ignored.remove(&task.id().0) {
                    Some(why) => drop(left_out.insert(task.id().0.clone(), why)),
                    None => tasks.push(task),
                }
            }
        }
        Ok(Pool { tasks, digest, ignored: left_out })
    }
}

/// The environment in a folder, and the text it was read from.
fn environment(folder: &Path, data: &DataFile) -> anyhow::Result<(PythonEnvironment, String)> {
    let path = folder.join(ENVIRONMENT_FILE);
    let text = std::fs::read_to_string(&path).with_context(|| {
        format!("cannot read {}; `lifelong env python --benchmark bigcodebench` makes it", path.display())
    })?;
    let found: PythonEnvironment = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    ensure!(
        found.benchmark == "bigcodebench" && found.data == data.digest(),
        "{}: made for benchmark `{}` with data {}, and the data of this run is {}; make one with this file",
        path.display(),
        found.benchmark,
        found.data,
        data.digest()
    );
    Ok((found, text))
}

fn task(record: Record, system: &str, options: &Options) -> anyhow::Result<Task> {
    let local_id = record.task_id.rsplit('/').next().unwrap_or(&record.task_id);
    let tests = python::test_methods(&record.test, TEST_CLASS).map_or(0, |tests| tests.len());
    if tests == 0 {
        bail!("{}: expected a class `{TEST_CLASS}` with tests in field `test`, found none", record.task_id);
    }
    let (question, preamble) = match options.split {
        Split::Instruct => (record.instruct_prompt, ""),
        Split::Complete => {
            (format!("```python\n{}\n```", record.complete_prompt.trim_end()), record.complete_prompt.as_str())
        }
    };
    let mut limits = toml::toml! { cpu_s = 60.0
    wall_s = 240.0 };
    limits.extend(options.limits.clone());
    Ok(Task {
        view: TaskView {
            id: TaskId(format!("bigcodebench/{local_id}")),
            family: domains::domain(&record.libs).map(String::from),
            system: Some(system.to_string()),
            question,
            reply_format: ReplyFormat::Code {
                language: "python".into(),
                entry_point: Some(record.entry_point.clone()),
            },
        },
        reference: Reference {
            solution: format!("```python\n{}{}\n```", record.code_prompt, record.canonical_solution.trim_end()),
            scorer: "unit_tests".into(),
            options: json!({
                "style": "unittest",
                "entry_point": record.entry_point,
                "tests": record.test,
                "expected_tests": tests,
                "preamble": preamble,
                "calibration": options.calibrated.then_some(&record.code_prompt),
                "sanitize": options.sanitize,
                "python": options.python,
                "limits": limits,
            }),
        },
    })
}

fn needs_standard_library_only(record: &Record) -> bool {
    let standard: BTreeSet<&str> = STANDARD_LIBRARY.split_whitespace().collect();
    let program = format!("{}{}\n{}", record.code_prompt, record.canonical_solution, record.test);
    python::imports(&program).is_some_and(|found| found.iter().all(|package| standard.contains(package.as_str())))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn load(record: serde_json::Value, options: &str) -> anyhow::Result<Pool> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "{record}").unwrap();
        let selection = Selection { path: Some(file.path().into()), options: options.parse().unwrap() };
        BigCodeBench.load(&selection)
    }

    fn record() -> serde_json::Value {
        json!({
            "task_id": "BigCodeBench/3",
            "complete_prompt": "import os\n\ndef task_func(x):\n    \"\"\"Doc.\"\"\"\n",
            "instruct_prompt": "Do it.\nYou should write self-contained code starting with:\n```\nimport os\ndef task_func(x):\n```",
            "canonical_solution": "    return x",
            "code_prompt": "import os\ndef task_func(x):\n",
            "test": "import unittest\nclass TestCases(unittest.TestCase):\n    def test_a(self): pass\n    def test_b(self): pass\n",
            "entry_point": "task_func",
            "doc_struct": "{}",
            "libs": "['os']",
        })
    }

    #[test]
    fn the_instruct_prompt_is_pinned() {
        let pool = load(record(), "").unwrap();
        let view = &pool.tasks[0].view;
        assert_eq!((view.id.0.as_str(), view.family.as_deref()), ("bigcodebench/3", Some("System")));
        assert_eq!(
            view.system.as_deref().unwrap(),
            "You write Python. For each task, reply with one complete script in a single Markdown code block: all \
             imports, then the function exactly as its given first lines name it, ready to be imported and tested. No \
             example calls, no input, nothing printed unless the task asks for it."
        );
        assert_eq!(view.question, record()["instruct_prompt"]);
        let reference = &pool.tasks[0].reference;
        assert_eq!(reference.solution, "```python\nimport os\ndef task_func(x):\n    return x\n```");
        assert_eq!(reference.options["expected_tests"], 2);
        assert_eq!(reference.options["limits"], json!({ "cpu_s": 60.0, "wall_s": 240.0 }));
        assert_eq!(reference.options["calibration"], record()["code_prompt"]);
    }

    #[test]
    fn the_complete_prompt_is_pinned() {
        let pool = load(record(), "split = \"complete\"\ncalibrated = false").unwrap();
        let task = &pool.tasks[0];
        assert_eq!(
            task.view.system.as_deref().unwrap(),
            "You write Python. For each task, you are given the beginning of a script: imports, the first line of a \
             function and its description. Reply with the complete script, its given beginning included, in a single \
             Markdown code block. No example calls, no input, nothing printed unless the task asks for it."
        );
        assert_eq!(task.view.question, "```python\nimport os\n\ndef task_func(x):\n    \"\"\"Doc.\"\"\"\n```");
        assert_eq!(task.reference.options["preamble"], record()["complete_prompt"]);
        assert!(task.reference.options["calibration"].is_null());
    }

    #[test]
    fn tasks_can_be_chosen_by_what_they_import() {
        assert_eq!(load(record(), "libraries = \"standard\"").unwrap().tasks.len(), 1);
        let mut other = record();
        other["canonical_solution"] = "    import numpy.random as r\n    return r".into();
        assert_eq!(load(other, "libraries = \"standard\"").unwrap().tasks.len(), 0);
    }

    #[test]
    fn an_environment_gives_the_interpreter_and_leaves_out_what_cannot_pass() {
        let mut other = record();
        other["task_id"] = "BigCodeBench/4".into();
        let text = format!("{}\n{other}\n", record());
        let mut file = tempfile::NamedTempFile::new().unwrap();
        write!(file, "{text}").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let options = format!("environment = \"{}\"", folder.path().display());
        let load =
            || BigCodeBench.load(&Selection { path: Some(file.path().into()), options: options.parse().unwrap() });
        assert!(load().err().unwrap().to_string().contains("lifelong env python"));
        let environment = |data: String| PythonEnvironment {
            benchmark: "bigcodebench".into(),
            data,
            python: "/made/bin/python".into(),
            version: "3.10.1".into(),
            packages: BTreeMap::new(),
            departures: BTreeMap::new(),
            checked: 2,
            ignored: BTreeMap::from([
                ("bigcodebench/4".into(), "it fails".into()),
                ("bigcodebench/9".into(), "x".into()),
            ]),
        };
        let write = |environment: &PythonEnvironment| {
            std::fs::write(folder.path().join(ENVIRONMENT_FILE), serde_json::to_string(environment).unwrap()).unwrap();
        };
        write(&environment("other".into()));
        assert!(load().err().unwrap().to_string().contains("made for benchmark `bigcodebench` with data other"));
        write(&environment(blake3::hash(text.as_bytes()).to_hex().to_string()));
        let pool = load().unwrap();
        assert_eq!(pool.tasks.len(), 1);
        assert_eq!(pool.tasks[0].reference.options["python"], "/made/bin/python");
        assert_eq!(pool.ignored, BTreeMap::from([("bigcodebench/4".into(), "it fails".into())]));
    }

    #[test]
    fn a_record_without_tests_is_refused() {
        let mut broken = record();
        broken["test"] = "class TestCases: pass".into();
        let error = load(broken, "").err().unwrap().to_string();
        assert!(error.contains("BigCodeBench/3") && error.contains("TestCases"), "{error}");
    }

    #[test]
    fn a_missing_path_says_where_the_file_is() {
        let error = BigCodeBench.load(&Selection::default()).err().unwrap().to_string();
        assert!(error.contains("v0.1.4") && error.contains("path"), "{error}");
    }
}
