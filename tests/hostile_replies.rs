//! A reply that does its worst is ended within its limit and one second, with a named ending, and leaves nothing.
//!
//! One test, so that what is on the machine before and after can be compared.

mod code_benchmarks;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use lifelong::record::{Reference, ReplyFormat, Score, Task, TaskId, TaskView};
use lifelong::scorer::{self, Grading};
use serde_json::json;

const WALL_S: f64 = 3.0;

/// What the reply does, its body, and the words its verdict may start with.
const ATTACKS: &[(&str, &str, &[&str])] = &[
    (
        "forks",
        "import os\n    while True:\n        try: os.fork()\n        except OSError: pass",
        &["processes", "timeout", "memory"],
    ),
    (
        "leaves a daemon",
        "import os, time\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0: time.sleep(600)\n        os._exit(0)\n    os.wait()",
        &["wrong"],
    ),
    ("fills memory", "x = []\n    while True: x.append(bytearray(1 << 20))", &["memory", "wrong"]),
    ("floods output", "import os\n    while True: os.write(1, b'A' * 65536)", &["timeout"]),
    ("opens a socket", "import socket\n    socket.socket(socket.AF_UNIX)", &["wrong"]),
    ("calls out", "import socket\n    socket.create_connection(('192.0.2.1', 80), 1)", &["wrong"]),
    ("sleeps", "import time\n    time.sleep(600)", &["timeout"]),
    ("loops in C", "sum(range(10 ** 12))", &["timeout"]),
    (
        "ignores signals",
        "import signal, time\n    for n in range(1, 65):\n        try: signal.signal(n, signal.SIG_IGN)\n        except (OSError, ValueError): pass\n    time.sleep(600)",
        &["timeout"],
    ),
    (
        "fills the disk",
        "f = open('/tmp/big', 'wb')\n    while True: f.write(b'0' * 1048576)",
        &["wrong", "files", "timeout"],
    ),
    (
        "makes files without end",
        "n = 0\n    while True:\n        n += 1\n        open(f'/tmp/{n}', 'w').close()",
        &["wrong", "files", "timeout"],
    ),
    ("stops itself", "import os, signal\n    os.kill(os.getpid(), signal.SIGSTOP)", &["timeout"]),
    ("writes over the machine", "open('/etc/hostile', 'w')", &["wrong"]),
];

fn task() -> Task {
    Task {
        view: TaskView {
            id: TaskId("hostile/0".into()),
            family: None,
            system: None,
            question: String::new(),
            reply_format: ReplyFormat::Code { language: "python".into(), entry_point: Some("f".into()) },
        },
        reference: Reference {
            solution: "```python\ndef f():\n    return 1\n```".into(),
            scorer: "unit_tests".into(),
            options: json!({
                "style": "asserts", "entry_point": "f", "tests": "assert f() == 1", "expected_tests": 1,
                "limits": { "cpu_s": 2.0, "wall_s": WALL_S, "memory_bytes": 256 << 20, "processes": 16,
                            "output_bytes": 1 << 20, "files_bytes": 8 << 20 },
            }),
        },
    }
}

#[test]
fn hostile_replies_are_ended_in_time_and_leave_nothing() {
    let task = task();
    // Starts the sandbox and makes sure the reference passes, outside of any measured time.
    let (score, detail) = code_benchmarks::score(&task, "```python\ndef f():\n    return 2\n```");
    assert_eq!(score, Score::Graded(0.0), "{detail}");
    let before = Leftovers::now();
    for (what, body, words) in ATTACKS {
        let reply = format!("```python\ndef f():\n    {body}\n```");
        let started = Instant::now();
        let (score, detail) = code_benchmarks::score(&task, &reply);
        let took = started.elapsed();
        assert_eq!(score, Score::Graded(0.0), "{what}: {detail}");
        assert!(words.iter().any(|word| detail.starts_with(word)), "{what}: {detail}");
        println!("{what}: {took:?} {}", &detail[..detail.find("; python").unwrap()]);
        assert!(took < Duration::from_secs_f64(WALL_S + 1.0), "{what} took {took:?}: {detail}");
        assert_eq!(Leftovers::now(), before, "{what} left something: {detail}");
    }
    assert!(!fs::exists("/etc/hostile").unwrap());
}

#[test]
fn a_layer_that_no_one_knows_stops_the_run() {
    let scorer = scorer::find("unit_tests").unwrap();
    let grading = Grading { allow_missing_isolation: vec!["firewall".into()] };
    let error = scorer.ready(&grading).unwrap_err().to_string();
    assert!(error.contains("firewall") && error.contains("seccomp"), "{error}");
}

/// What a job could leave on this machine.
#[derive(Debug, PartialEq)]
struct Leftovers {
    descendants: BTreeSet<u32>,
    temporary: BTreeSet<String>,
    groups: BTreeSet<String>,
}

impl Leftovers {
    fn now() -> Leftovers {
        let ours = |name: &String| name.starts_with("lifelong-");
        Leftovers {
            descendants: descendants(),
            temporary: ["/tmp", "/dev/shm", "/var/tmp"]
                .iter()
                .flat_map(|folder| names(Path::new(folder)))
                .filter(ours)
                .collect(),
            groups: own_group().map_or_else(BTreeSet::new, |group| names(&group).into_iter().filter(ours).collect()),
        }
    }
}

fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

/// Processes, living or dead, whose chain of parents leads here.
fn descendants() -> BTreeSet<u32> {
    let parent = |process: u32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        stat[stat.rfind(')')? + 2..].split(' ').nth(1)?.parse().ok()
    };
    let ours = std::process::id();
    let processes = names(Path::new("/proc")).into_iter().filter_map(|name| name.parse::<u32>().ok());
    processes.filter(|process| std::iter::successors(parent(*process), |up| parent(*up)).any(|up| up == ours)).collect()
}

/// The folder of our own memory control group, version 1.
fn own_group() -> Option<std::path::PathBuf> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = text.lines().find_map(|line| line.split_once(":memory:"))?.1;
    Some(Path::new("/sys/fs/cgroup/memory").join(path.trim_start_matches('/')))
}
