//! The cases of the sandbox family, one test each, named by their ids.
//!
//! "Unit tests" in a case go through the scorer, everything else through the sandbox alone.

mod code_benchmarks;

use std::fs;
use std::process::{Child, Command};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use code_benchmarks::shared;
use lifelong::record::{Reference, ReplyFormat, Score, Task, TaskId, TaskView};
use lifelong::sandbox::python::Interpreter;
use lifelong::sandbox::{
    Clock, Collected, Ending, Job, Launcher, Layer, Limits, Outcome, Sandbox, SandboxError, SandboxOptions,
};
use serde_json::{Value, json};

/// The limits that the family names.
const LIMITS: Limits = Limits {
    cpu_s: 2.0,
    wall_s: 10.0,
    memory_bytes: 256 << 20,
    processes: 16,
    output_bytes: 1 << 20,
    files_bytes: 8 << 20,
};

/// Tests that fill the machine hold it for themselves, so that the others' clocks measure the sandbox.
static MACHINE: RwLock<()> = RwLock::new(());

fn case(id: &str) -> Option<Value> {
    let family: Value = serde_json::from_slice(&fs::read(shared("cases/sandbox.json")?).unwrap()).unwrap();
    let cases = family["cases"].as_array().unwrap();
    Some(cases.iter().find(|case| case["id"] == id).unwrap_or_else(|| panic!("no case {id}")).clone())
}

fn sandbox(options: SandboxOptions) -> Result<Sandbox, SandboxError> {
    let launcher = options.launcher.or_else(|| Some(Launcher::of_binary(env!("CARGO_BIN_EXE_lifelong"))));
    Sandbox::start(SandboxOptions { launcher, ..options })
}

/// A job for the program of a case; the last argument tells its processes from those of other tests.
fn job(id: &str, case: &Value, python: &Interpreter) -> Job {
    let program = case["given"]["program"].as_str().unwrap();
    let mut job = python.job(program, LIMITS);
    if case["given"]["lang"] == "sh" {
        job.argv = vec!["/bin/sh".into(), "../program/main.py".into()];
    }
    job.argv.push(format!("case={id}."));
    if case["expect"]["which"] == "cpu" {
        // On a starved machine two CPU seconds may take longer than the family's ten on the wall.
        job.limits.wall_s = 60.0;
    }
    job
}

/// Runs a case's program and checks what holds for every case: it ended in time and nothing of it is left.
fn run(id: &str, sandbox: &Sandbox, job: &Job) -> Outcome {
    let started = Instant::now();
    let outcome = sandbox.run(job).unwrap();
    let took = started.elapsed();
    assert!(took < Duration::from_secs_f64(job.limits.wall_s + 1.0), "{id} took {took:?}");
    let alive = processes_with(&format!("case={id}."));
    assert!(alive.is_empty(), "{id} left processes {alive:?}");
    outcome
}

/// Processes of this machine whose command line holds a text.
fn processes_with(text: &str) -> Vec<String> {
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            path.file_name()?.to_str()?.parse::<u32>().ok()?;
            let command = fs::read(path.join("cmdline")).ok()?;
            String::from_utf8_lossy(&command).replace('\0', " ").contains(text).then(|| path.display().to_string())
        })
        .collect()
}

fn word(ending: Ending) -> &'static str {
    match ending {
        Ending::Exited(0) => "ok",
        Ending::Exited(_) => "error",
        Ending::Killed(_) => "killed",
        Ending::Timeout(_) => "timeout",
        Ending::Memory => "memory",
        Ending::Output => "output",
        Ending::Files => "files",
        Ending::Processes => "processes",
    }
}

/// Checks an outcome against what a case expects of the program's end and output.
fn check(id: &str, expect: &Value, outcome: &Outcome) {
    let told = format!("{id}: {:?}, stderr {}", outcome.ending, String::from_utf8_lossy(&outcome.stderr));
    let word = word(outcome.ending);
    match &expect["verdict"] {
        Value::Array(any) => assert!(any.iter().any(|one| one == word), "{told}"),
        one => assert_eq!(one, word, "{told}"),
    }
    if let Some(which) = expect["which"].as_str() {
        let clock = if which == "cpu" { Clock::Cpu } else { Clock::Wall };
        assert_eq!(outcome.ending, Ending::Timeout(clock), "{told}");
    }
    if let Some(stdout) = expect["stdout"].as_str() {
        assert_eq!(String::from_utf8_lossy(&outcome.stdout), stdout, "{told}");
    }
    if let Some(most) = expect["max_job_rss_mib"].as_u64() {
        assert!(outcome.spent.peak_memory_bytes <= most << 20, "{told}: {} bytes", outcome.spent.peak_memory_bytes);
    }
    if let Some(most) = expect["max_captured_bytes"].as_u64() {
        assert!(outcome.stdout.len() as u64 <= most, "{told}");
    }
    if let Some(end) = expect["each_line_ends_with"].as_str() {
        let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
        assert!(text.lines().count() > 0 && text.lines().all(|line| line.ends_with(end)), "{told}\n{text}");
    }
    if let Some(names) = expect["env_only"].as_array() {
        let text = String::from_utf8_lossy(&outcome.stdout).replace('\'', "\"");
        assert_eq!(serde_json::from_str::<Vec<Value>>(&text).unwrap(), *names, "{told}");
    }
    if let Some(seconds) = expect["max_wall_s"].as_f64() {
        assert!(outcome.spent.wall_s <= seconds, "{told}");
    }
}

/// Runs and checks one case; gives back what else there is to look at.
fn plain(id: &str) -> Option<Outcome> {
    let case = case(id)?;
    let _others = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    let python = Interpreter::find("python3").unwrap();
    let outcome = run(id, &sandbox(SandboxOptions::default()).unwrap(), &job(id, &case, &python));
    check(id, &case["expect"], &outcome);
    Some(outcome)
}

macro_rules! plain_cases {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                plain(&stringify!($name).replace('_', "-"));
            }
        )*
    };
}

plain_cases! {
    sb_ok
    sb_loop
    sb_loop_c
    sb_sleep
    sb_import_loop
    sb_daemon
    sb_zombies
    sb_mem
    sb_mem_children
    sb_mem_shm
    sb_mem_reserve
    sb_disk
    sb_read_host
    sb_read_home
    sb_env_secrets
    sb_net
    sb_net_unix
    sb_kill_parent
    sb_stdin
}

#[test]
fn sb_child_lives() {
    if plain("sb-child-lives").is_some() {
        assert_eq!(processes_with("sleep 600"), Vec::<String>::new());
    }
}

#[test]
fn sb_fork_bomb() {
    if plain("sb-fork-bomb").is_some() {
        Command::new("true").status().unwrap();
    }
}

#[test]
fn sb_fork_bomb_sh() {
    if plain("sb-fork-bomb-sh").is_some() {
        Command::new("true").status().unwrap();
    }
}

#[test]
fn sb_output() {
    let resident = || -> u64 {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    let before = resident();
    if plain("sb-output").is_some() {
        assert!(resident().saturating_sub(before) < 16 << 10, "held the output");
    }
}

#[test]
fn sb_write_host() {
    plain("sb-write-host");
    assert!(!fs::exists("/etc/qa_probe").unwrap());
}

#[test]
fn sb_write_dotdot() {
    plain("sb-write-dotdot");
    assert!(!fs::exists("/escape.txt").unwrap() && !fs::exists("/tmp/escape.txt").unwrap());
}

#[test]
fn sb_symlink() {
    let Some(case) = case("sb-symlink") else { return };
    let before = fs::read("/etc/passwd").unwrap();
    let python = Interpreter::find("python3").unwrap();
    let job = Job { collect: vec!["answer.txt".into()], ..job("sb-symlink", &case, &python) };
    let outcome = run("sb-symlink", &sandbox(SandboxOptions::default()).unwrap(), &job);
    check("sb-symlink", &case["expect"], &outcome);
    assert_eq!(outcome.collected, [("answer.txt".to_string(), Collected::Refused("not a regular file".into()))]);
    assert_eq!(fs::read("/etc/passwd").unwrap(), before);
}

#[test]
fn regular_files_are_collected() {
    let python = Interpreter::find("python3").unwrap();
    let script = "open('a.txt', 'w').write('one')\nimport os\nos.mkfifo('b.txt')\nos.mkdir('c.txt')\n";
    let names = ["a.txt", "b.txt", "c.txt", "none.txt", "../program/main.py"].map(String::from);
    let job = Job { collect: names.to_vec(), ..python.job(script, LIMITS) };
    let outcome = sandbox(SandboxOptions::default()).unwrap().run(&job).unwrap();
    let results: Vec<&Collected> = outcome.collected.iter().map(|(_, result)| result).collect();
    assert_eq!(results[0], &Collected::Text("one".into()));
    assert!(results[1..].iter().all(|result| matches!(result, Collected::Refused(_))), "{results:?}");
}

#[test]
fn sb_kill_others() {
    let Some(case) = case("sb-kill-others") else { return };
    let python = Interpreter::find("python3").unwrap();
    let sandbox = sandbox(SandboxOptions::default()).unwrap();
    let other = python.job("import time\ntime.sleep(1)\nprint('unaffected')", LIMITS);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| sandbox.run(&other).unwrap());
        let outcome = run("sb-kill-others", &sandbox, &job("sb-kill-others", &case, &python));
        check("sb-kill-others", &case["expect"], &outcome);
        assert_eq!(other.join().unwrap().stdout, b"unaffected\n");
    });
}

#[test]
fn sb_two_jobs() {
    let Some(case) = case("sb-two-jobs") else { return };
    let _alone = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    let python = Interpreter::find("python3").unwrap();
    let sandbox = sandbox(SandboxOptions::default()).unwrap();
    let count = case["given"]["parallel"].as_u64().unwrap();
    std::thread::scope(|scope| {
        for number in 0..count {
            let (sandbox, case, python) = (&sandbox, &case, &python);
            scope.spawn(move || {
                let id = format!("sb-two-jobs-{number}");
                // 200 starts share the cores: the wall limit is not what this case is about.
                let mut job = job(&id, case, python);
                job.limits.wall_s = 60.0;
                check(&id, &case["expect"], &run(&id, sandbox, &job));
            });
        }
    });
}

/// Busy processes that end with their guard.
struct Load(Vec<Child>);

impl Load {
    fn start(count: usize) -> Load {
        let busy = || Command::new("/bin/sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        Load((0..count).map(|_| busy()).collect())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

#[test]
fn sb_slow_host() {
    let Some(case) = case("sb-slow-host") else { return };
    let _alone = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    let _load = Load::start(4 * std::thread::available_parallelism().unwrap().get());
    let python = Interpreter::find("python3").unwrap();
    let outcome =
        run("sb-slow-host", &sandbox(SandboxOptions::default()).unwrap(), &job("sb-slow-host", &case, &python));
    check("sb-slow-host", &case["expect"], &outcome);
}

#[test]
fn sb_layer_missing() {
    let Some(case) = case("sb-layer-missing") else { return };
    let python = Interpreter::find("python3").unwrap();
    for layer in [Layer::Namespaces, Layer::Filesystem, Layer::Limits, Layer::Landlock, Layer::Seccomp] {
        let options = SandboxOptions { simulate_missing: vec![layer], ..SandboxOptions::default() };
        let error = sandbox(options).unwrap_err();
        assert!(matches!(&error, SandboxError::LayerMissing { layer: named, .. } if *named == layer), "{error}");
        assert!(error.to_string().contains(&format!("[\"{layer}\"]")), "{error}");
    }
    let allowed = SandboxOptions {
        simulate_missing: vec![Layer::Landlock],
        allow_missing: vec![Layer::Landlock],
        ..SandboxOptions::default()
    };
    let allowed = sandbox(allowed).unwrap();
    assert!(allowed.layers().missing.contains_key(&Layer::Landlock));
    let outcome = run("sb-layer-missing", &allowed, &job("sb-layer-missing", &case, &python));
    assert_eq!(outcome.ending, Ending::Exited(0));
    assert!(outcome.layers.missing.contains_key(&Layer::Landlock));
}

/// A layer that is gone must be noticed by what the others do not refuse.
#[test]
fn each_layer_refuses_something_on_its_own() {
    let python = Interpreter::find("python3").unwrap();
    let attempts = [
        (Layer::Landlock, "open('/sealed').close()"),
        (Layer::Seccomp, "import socket\nsocket.socket(socket.AF_UNIX).close()"),
        (Layer::Limits, "import resource\nassert resource.getrlimit(resource.RLIMIT_CPU)[1] == resource.RLIM_INFINITY"),
    ];
    for (layer, attempt) in attempts {
        let job = python.job(attempt, LIMITS);
        let refused = sandbox(SandboxOptions::default()).unwrap().run(&job).unwrap();
        assert_eq!(refused.ending, Ending::Exited(1), "{layer} refuses");
        let without =
            SandboxOptions { simulate_missing: vec![layer], allow_missing: vec![layer], ..SandboxOptions::default() };
        let allowed = sandbox(without).unwrap().run(&job).unwrap();
        assert_eq!(allowed.ending, Ending::Exited(0), "only {layer} refuses: {allowed:?}");
    }
}

/// A task whose tests are written as in the family: `assert …`, `unittest: …`, `checker: …` or a class.
fn graded(id: &str, case: &Value, limits: Limits) -> (Score, String) {
    let given = &case["given"];
    let tests = given["tests"].as_str().unwrap();
    let (style, tests) = if let Some(line) = tests.strip_prefix("unittest: ") {
        let class = "import unittest\nclass TestCases(unittest.TestCase):\n    def test_it(self):\n";
        ("unittest", format!("{class}        {line}\n"))
    } else if let Some(line) = tests.strip_prefix("checker: ") {
        ("check", format!("import time\n{line}\ndef check(candidate): pass\n"))
    } else if tests.starts_with("class") {
        ("unittest", format!("import unittest\n{tests}\n"))
    } else {
        ("asserts", tests.to_string())
    };
    let task = Task {
        view: TaskView {
            id: TaskId(id.into()),
            family: None,
            system: None,
            question: String::new(),
            reply_format: ReplyFormat::Code { language: "python".into(), entry_point: Some("task".into()) },
        },
        reference: Reference {
            solution: "```python\ndef task(): return 1\n```".into(),
            scorer: "unit_tests".into(),
            options: json!({
                "style": style, "entry_point": "task", "tests": tests, "expected_tests": 1, "sanitize": false,
                "limits": limits,
            }),
        },
    };
    let reply = format!("```python\n{}\n```", given["program"].as_str().unwrap());
    code_benchmarks::score(&task, &reply)
}

fn check_graded(id: &str, allowed: &[&str]) {
    let Some(case) = case(id) else { return };
    let limits = Limits { wall_s: 3.0, ..LIMITS };
    let (score, detail) = graded(id, &case, limits);
    let word = match &score {
        Score::Graded(value) if *value == 1.0 => "ok",
        Score::Graded(_) => detail.split(':').next().unwrap(),
        Score::Ungraded { .. } => "grader_error",
    };
    assert!(allowed.contains(&word), "{id}: {score:?}, {detail}");
    assert!(allowed.contains(&case["expect"]["verdict"].as_str().unwrap()));
}

#[test]
fn sb_exit_early() {
    check_graded("sb-exit-early", &["error"]);
}

#[test]
fn sb_exit_sys() {
    check_graded("sb-exit-sys", &["error"]);
}

#[test]
fn sb_fake_report() {
    check_graded("sb-fake-report", &["wrong"]);
}

#[test]
fn sb_patch_tests() {
    check_graded("sb-patch-tests", &["wrong", "error"]);
}

#[test]
fn sb_no_tests() {
    check_graded("sb-no-tests", &["grader_error"]);
}

#[test]
fn sb_grader_hang() {
    check_graded("sb-grader-hang", &["grader_error"]);
}

/// A job that outlives nobody: run by the test below in a process of its own, which is then killed.
#[test]
fn helper_that_is_killed() {
    if std::env::var_os("SANDBOX_HELPER").is_none() {
        return;
    }
    let python = Interpreter::find("python3").unwrap();
    let mut job = python.job("import time\ntime.sleep(600)", LIMITS);
    job.argv.push("case=helper.".into());
    sandbox(SandboxOptions::default()).unwrap().run(&job).unwrap();
}

#[test]
fn a_killed_caller_takes_its_job_along() {
    let _others = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    let mut helper = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "helper_that_is_killed"])
        .env("SANDBOX_HELPER", "1")
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let wait_until = |what: &str, holds: &dyn Fn() -> bool| {
        let started = Instant::now();
        while !holds() {
            assert!(started.elapsed() < Duration::from_secs(8), "waited in vain until {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    wait_until("the job runs", &|| !processes_with("case=helper.").is_empty());
    helper.kill().unwrap();
    helper.wait().unwrap();
    wait_until("the job is gone", &|| processes_with("case=helper.").is_empty());
}

/// As an ordinary user there is no control group and no spare identity; the endings are the same.
#[test]
fn an_unprivileged_user_gets_the_same_endings() {
    if !fs::exists("/usr/bin/setpriv").unwrap() || !fs::exists("/usr/bin/python3").unwrap() {
        println!("skipped: needs /usr/bin/setpriv and /usr/bin/python3");
        return;
    }
    // The build folder may be closed to others.
    let folder = tempfile::tempdir().unwrap();
    let binary = folder.path().join("lifelong");
    fs::copy(env!("CARGO_BIN_EXE_lifelong"), &binary).unwrap();
    std::os::unix::fs::chown(folder.path(), Some(65534), Some(65534)).unwrap_or_default();
    let mut launcher = Launcher::of_binary("/usr/bin/setpriv");
    let change = ["--reuid=65534", "--regid=65534", "--clear-groups"].map(String::from);
    launcher.arguments.splice(0..0, change.into_iter().chain([binary.display().to_string()]));
    let sandbox = match sandbox(SandboxOptions { launcher: Some(launcher), ..SandboxOptions::default() }) {
        Err(SandboxError::Failed(why)) if why.contains("setresuid") => {
            println!("skipped: only root can become another user");
            return;
        }
        other => other.unwrap(),
    };
    assert!(sandbox.layers().held[&Layer::Memory].starts_with("address space"), "{}", sandbox.layers());
    let python = Interpreter::find("/usr/bin/python3").unwrap();
    let ids = [
        "sb-ok",
        "sb-loop",
        "sb-daemon",
        "sb-mem",
        "sb-mem-shm",
        "sb-mem-children",
        "sb-fork-bomb",
        "sb-disk",
        "sb-read-home",
        "sb-env-secrets",
        "sb-net",
        "sb-write-dotdot",
        "sb-kill-parent",
    ];
    std::thread::scope(|scope| {
        for id in ids {
            let (sandbox, python) = (&sandbox, &python);
            scope.spawn(move || {
                let Some(case) = case(id) else { return };
                let mut expect = case["expect"].clone();
                // Sampled, not bounded: shared pages are counted for each process.
                expect.as_object_mut().unwrap().remove("max_job_rss_mib");
                let outcome = run(id, sandbox, &job(&format!("user-{id}"), &case, python));
                check(&format!("user-{id}"), &expect, &outcome);
            });
        }
    });
}

/// Where a container allows no namespaces, the user may take the rest of the layers.
#[test]
fn without_namespaces_the_other_layers_still_hold() {
    let missing = vec![Layer::Namespaces, Layer::Filesystem];
    let options = SandboxOptions { simulate_missing: missing.clone(), allow_missing: missing, ..Default::default() };
    let sandbox = sandbox(options).unwrap();
    let temporary = || {
        fs::read_dir(std::env::temp_dir()).unwrap().filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            name.starts_with("lifelong-job-").then_some(name)
        })
    };
    if !fs::exists("/usr/bin/python3").unwrap() {
        println!("skipped: needs /usr/bin/python3");
        return;
    }
    let python = Interpreter::find("/usr/bin/python3").unwrap();
    for id in ["sb-ok", "sb-daemon", "sb-mem", "sb-fork-bomb", "sb-read-host", "sb-net", "sb-write-host"] {
        let Some(case) = case(id) else { return };
        let outcome = run(id, &sandbox, &job(&format!("bare-{id}"), &case, &python));
        check(&format!("bare-{id}"), &case["expect"], &outcome);
    }
    assert_eq!(temporary().count(), 0, "work folders are removed");
}
