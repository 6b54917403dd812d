//! `lifelong env python` makes an environment, finds out which reference solutions pass in it, and a benchmark uses it.

mod code_benchmarks;

use std::path::Path;
use std::process::Command;

use code_benchmarks::score;
use lifelong::benchmark::{self, Selection};
use lifelong::record::Score;
use lifelong::record::python_environment::{ENVIRONMENT_FILE, PythonEnvironment};
use serde_json::{Value, json};

fn record(number: u32, code: &str, body: &str) -> Value {
    json!({
        "task_id": format!("BigCodeBench/{number}"),
        "complete_prompt": format!("{code}    \"\"\"Doc.\"\"\"\n"),
        "instruct_prompt": "Do it.",
        "canonical_solution": body,
        "code_prompt": code,
        "test": "import unittest\nclass TestCases(unittest.TestCase):\n    def test_one(self):\n        \
                 self.assertEqual(task_func(1), 2)\n",
        "entry_point": "task_func",
    })
}

/// Whether this machine's Python can make environments with pip in them.
fn has_venv() -> bool {
    let found = Command::new("python3").args(["-c", "import venv, ensurepip"]).output();
    let is_there = found.is_ok_and(|output| output.status.success());
    if !is_there {
        println!("skipped: python3 has no venv or no ensurepip");
    }
    is_there
}

fn make(data: &Path, folder: &Path, more: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_lifelong"))
        .args(["env", "python", "--benchmark", "bigcodebench", "--data"])
        .arg(data)
        .arg("--out")
        .arg(folder)
        .args(more)
        .output()
        .unwrap()
}

#[test]
fn what_cannot_pass_is_ignored_and_the_rest_runs_in_the_made_python() {
    if !has_venv() {
        return;
    }
    // Not in the temporary folder: the sandbox has one of its own in that place.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let data = folder.path().join("tasks.jsonl");
    let records = [
        record(1, "def task_func(x):\n", "    return x + 1"),
        record(2, "import no_such_module\ndef task_func(x):\n", "    return x + 1"),
        record(3, "import sys\ndef task_func(x):\n", "    return 2 if sys.prefix.endswith('venv') else 0"),
    ];
    std::fs::write(&data, records.map(|record| record.to_string()).join("\n")).unwrap();
    let made = folder.path().join("made");
    let output = make(&data, &made, &["--only", "none"]);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{err}");
    assert!(out.contains("2 of 3 reference solutions pass"), "{out}");
    assert!(out.contains("1 tasks are ignored:\n  bigcodebench/2: error: the program does not load"), "{out}");

    let text = std::fs::read_to_string(made.join(ENVIRONMENT_FILE)).unwrap();
    let environment: PythonEnvironment = serde_json::from_str(&text).unwrap();
    assert_eq!(environment.ignored.keys().collect::<Vec<_>>(), ["bigcodebench/2"]);
    assert!(environment.packages.contains_key("pip") && environment.departures.is_empty());

    let selection = Selection {
        path: Some(data.clone()),
        options: format!("environment = \"{}\"", made.display()).parse().unwrap(),
    };
    let pool = benchmark::find("bigcodebench").unwrap().load(&selection).unwrap();
    assert_eq!(pool.ignored.keys().collect::<Vec<_>>(), ["bigcodebench/2"]);
    for task in &pool.tasks {
        let (score, detail) = score(task, &task.reference.solution);
        assert_eq!(score, Score::Graded(1.0), "{detail}");
        assert!(detail.contains("venv/bin/python"), "{detail}");
    }

    // Gone on with: what is there is kept, and the references are run again.
    let again = make(&data, &made, &["--only", "none"]);
    assert!(again.status.success());
    assert_eq!(std::fs::read_to_string(made.join(ENVIRONMENT_FILE)).unwrap(), text);
}

#[test]
fn what_is_wrong_with_a_command_is_said_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let made = folder.path().join("made");
    let output = make(&folder.path().join("absent.jsonl"), &made, &[]);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && err.contains("absent.jsonl"), "{err}");
    let output = make(&folder.path().join("absent.jsonl"), &made, &["--only", "nunpy"]);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(err.contains("`nunpy`") && err.contains("numpy"), "{err}");
    let output = Command::new(env!("CARGO_BIN_EXE_lifelong"))
        .args(["env", "python", "--benchmark", "kata", "--data", "x"])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("known: bigcodebench"));
    assert!(!made.exists());
}
