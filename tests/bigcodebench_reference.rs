//! The published solutions of BigCodeBench pass through our scorer, and broken ones do not.

mod code_benchmarks;

use std::collections::BTreeMap;

use code_benchmarks::{in_parallel, score, shared, tasks};
use lifelong::record::{Score, Task};

const DATA: &str = "data/bigcodebench/bigcodebench-v0.1.4.jsonl.gz";
const STATUS: &str = "data/bigcodebench/stdlib_reference_status.json";

/// Tasks whose published solution passes under CPython 3.11 with nothing installed, longest first.
fn passing(options: &str) -> Option<Vec<Task>> {
    let (data, status) = (shared(DATA)?, shared(STATUS)?);
    let status: serde_json::Value = serde_json::from_slice(&std::fs::read(status).unwrap()).unwrap();
    let results = status["results"].as_array().unwrap();
    let seconds: BTreeMap<String, f64> = results
        .iter()
        .filter(|result| result["status"] == "pass")
        .map(|result| {
            let id = result["task_id"].as_str().unwrap().rsplit('/').next().unwrap();
            (format!("bigcodebench/{id}"), result["seconds"].as_f64().unwrap())
        })
        .collect();
    assert_eq!(seconds.len(), 290);
    let mut chosen = tasks("bigcodebench", data, options);
    chosen.retain(|task| seconds.contains_key(&task.id().0));
    chosen.sort_by(|one, other| seconds[&other.id().0].total_cmp(&seconds[&one.id().0]));
    assert_eq!(chosen.len(), 290);
    Some(chosen)
}

#[test]
fn published_solutions_of_the_standard_library_tasks_pass() {
    let Some(tasks) = passing("") else { return };
    let scores = in_parallel(&tasks, |task| score(task, &task.reference.solution));
    let failed: Vec<String> = tasks
        .iter()
        .zip(&scores)
        .filter(|(_, (score, _))| *score != Score::Graded(1.0))
        .map(|(task, (score, detail))| format!("{}: {score:?} {detail}", task.id()))
        .collect();
    assert!(failed.is_empty(), "{} of {} fail:\n{}", failed.len(), tasks.len(), failed.join("\n"));
}

/// Ways to spoil a solution, each with the words its verdict must start with.
const SPOILS: &[(&str, &[&str])] = &[
    ("the body is `pass`", &["wrong"]),
    ("it returns the wrong type", &["wrong"]),
    ("it does not parse", &["error"]),
    ("it raises", &["wrong"]),
    ("it has another name", &["wrong"]),
    ("it ends the process with success", &["error"]),
    ("it ends the interpreter", &["wrong"]),
    ("it skips the tests", &["wrong"]),
    ("it loops", &["timeout"]),
    ("it sleeps", &["timeout"]),
    ("it fills memory", &["memory", "wrong"]),
    ("it starts processes without end", &["timeout", "processes", "memory", "wrong", "error"]),
    ("it floods its output", &["timeout"]),
    ("it fills the disk", &["wrong", "files", "timeout"]),
    ("it reaches for the network", &["wrong"]),
    ("it replaces the assertions when called", &["error"]),
    ("it kills itself", &["error"]),
    ("it writes a report of its own", &["error"]),
    ("it prints a report and leaves", &["error"]),
    ("it imports what is not there", &["error"]),
];

/// A solution for `task_func`, spoilt in one way. Runs as a whole: nothing is cut from it.
fn spoilt(way: &str) -> String {
    let body = match way {
        "the body is `pass`" => "pass",
        "it returns the wrong type" => "return object()",
        "it does not parse" => "return (",
        "it raises" => "raise ArithmeticError('no')",
        "it has another name" => return "```python\ndef task(*a, **k):\n    return 0\n```".into(),
        "it ends the process with success" => "import os; os._exit(0)",
        "it ends the interpreter" => "import sys; sys.exit(0)",
        "it skips the tests" => "import unittest; raise unittest.SkipTest('pass')",
        "it loops" => "while True: pass",
        "it sleeps" => "import time; time.sleep(1000)",
        "it fills memory" => "x = [bytearray(1 << 20) for _ in range(4096)]; return len(x)",
        "it starts processes without end" => {
            "import os\n    while True:\n        try: os.fork()\n        except OSError: pass"
        }
        "it floods its output" => "import os\n    while True: os.write(1, b'A' * 65536); print('A' * 65536)",
        "it fills the disk" => "f = open('big', 'wb')\n    while True: f.write(b'0' * 1048576)",
        "it reaches for the network" => {
            "import socket; socket.create_connection(('192.0.2.1', 80), 1); raise SystemError('connected')"
        }
        "it replaces the assertions when called" => {
            "import unittest\n    for name in dir(unittest.TestCase):\n        if name.startswith('assert'): \
             setattr(unittest.TestCase, name, lambda *a, **k: None)"
        }
        "it kills itself" => "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "it writes a report of its own" => {
            "import os\n    report = b'{\"nonce\":\"\",\"verdict\":\"ran\",\"error\":\"\",\"loaded\":99,\"ran\":99,\"succeeded\":99,\"failed\":[]}'\n    \
             for fd in range(3, 300):\n        try: os.pwrite(fd, report, 0)\n        except OSError: pass\n    os._exit(0)"
        }
        "it prints a report and leaves" => "import os; os.write(1, b'OK (5 tests)'); os._exit(0)",
        "it imports what is not there" => {
            return "```python\nimport no_such_module\ndef task_func(*a, **k):\n    return 0\n```".into();
        }
        other => unreachable!("no way to spoil called {other}"),
    };
    format!("```python\ndef task_func(*a, **k):\n    {body}\n```")
}

/// Twenty tasks of different kinds, each with its solution spoilt in another way, fail for the right reason.
#[test]
fn spoilt_solutions_fail() {
    let options = "sanitize = false\ncalibrated = false\n\
                   limits = { cpu_s = 2.0, wall_s = 4.0, memory_bytes = 268435456, files_bytes = 8388608, processes = 16 }";
    let Some(tasks) = passing(options) else { return };
    assert_eq!(SPOILS.len(), 20);
    // Tasks that take a moment, from the quick end: their references pass under the small limits.
    let pairs: Vec<(&Task, &(&str, &[&str]))> = tasks.iter().rev().step_by(7).zip(SPOILS).collect();
    assert_eq!(pairs.len(), 20);
    let scores = in_parallel(&pairs, |(task, (way, _))| score(task, &spoilt(way)));
    for ((task, (way, words)), (score, detail)) in pairs.iter().zip(&scores) {
        let told = format!("{way}, {}: {score:?} {detail}", task.id());
        assert_eq!(*score, Score::Graded(0.0), "{told}");
        assert!(words.iter().any(|word| detail.starts_with(word)), "{told}");
    }
}

/// Runs also where the data is absent: a task of the published form, asked both ways.
#[test]
fn a_task_of_the_published_form_is_graded() {
    let record = serde_json::json!({
        "task_id": "BigCodeBench/0",
        "complete_prompt": "import math\n\ndef task_func(x):\n    \"\"\"\n    The ceiling of x.\n    \"\"\"\n",
        "instruct_prompt": "Return the ceiling of x.\nstarting with:\n```\nimport math\ndef task_func(x):\n```",
        "canonical_solution": "    return math.ceil(x)",
        "code_prompt": "import math\ndef task_func(x):\n",
        "test": "import unittest\nclass TestCases(unittest.TestCase):\n    def test_up(self):\n        \
                 self.assertEqual(task_func(1.5), 2)\n    def test_whole(self):\n        \
                 self.assertEqual(task_func(2), 2)\n",
        "entry_point": "task_func",
    });
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), record.to_string()).unwrap();
    let replies = [
        ("```python\nimport math\ndef task_func(x):\n    return math.ceil(x)\n```", 1.0),
        // The imports of the prompt are left out: the calibrated program has them.
        ("Sure.\n```python\ndef task_func(x):\n    return math.ceil(x)\nprint(task_func(1))\n```\nDone.", 1.0),
        ("```python\ndef task_func(x):\n    return int(x)\n```", 0.0),
        ("I do not know.", 0.0),
    ];
    for split in ["instruct", "complete"] {
        let options = format!("split = \"{split}\"");
        let task = &tasks("bigcodebench", file.path().into(), &options)[0];
        for (reply, expected) in replies {
            let (score, detail) = score(task, reply);
            assert_eq!(score, Score::Graded(expected), "{split}: {detail}");
        }
    }
    let complete = &tasks("bigcodebench", file.path().into(), "split = \"complete\"")[0];
    assert_eq!(score(complete, "    return math.ceil(x)\n\nThis rounds up.").0, Score::Graded(1.0));
}
