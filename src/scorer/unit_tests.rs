//! Runs the program of a reply against the task's own tests, in the sandbox.
//!
//! The score is 1 when every test the suite loads succeeds, else 0. A failure counts only when the task's reference
//! solution passes on this machine: a missing package, another Python version or a broken suite makes the attempt
//! ungraded, never wrong. The reference is run at most once a process for each task, and only for tasks that some
//! reply failed.
//!
//! The verdict comes from our own runner (`unit_tests_runner.py`), not from what the program prints or how it exits.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use anyhow::{Context, anyhow, bail};
use serde::{Deserialize, Serialize};

use super::{Grading, Scorer};
use crate::record::{Attempt, Reference, Score, Task};
use crate::registry::Registered;
use crate::reply::{code, fence, python, think};
use crate::sandbox::python::Interpreter;
use crate::sandbox::{Ending, Job, Layer, Layers, Limits, Outcome, Sandbox, SandboxOptions};

const RUNNER: &str = include_str!("unit_tests_runner.py");

/// See the [module](self).
pub struct UnitTests;

/// The scorer's part of a reference.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    pub style: Style,
    /// The name a program must define.
    pub entry_point: String,
    pub tests: String,
    /// How many tests the suite holds; a run that loads fewer is a failure.
    pub expected_tests: u32,
    /// The beginning of the program that the reply continues; empty when the reply is a whole program.
    #[serde(default)]
    pub preamble: String,
    /// Imports and signature put before the program with a body of `pass`, so that a reply which leaves out the
    /// imports of its prompt still runs (BigCodeBench's *calibrated* score).
    #[serde(default)]
    pub calibration: Option<String>,
    /// Whether only what the entry point needs is kept of the program.
    #[serde(default = "yes")]
    pub sanitize: bool,
    /// The interpreter, by name or path.
    #[serde(default = "python3")]
    pub python: String,
    #[serde(default)]
    pub limits: Limits,
}

/// What form the tests have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Style {
    /// A class `TestCases` of unit tests.
    Unittest,
    /// A function `check` that is called with the solution.
    Check,
    /// Statements that raise when something is wrong.
    Asserts,
}

fn yes() -> bool {
    true
}

fn python3() -> String {
    "python3".into()
}

impl Registered for UnitTests {
    fn name(&self) -> &str {
        "unit_tests"
    }

    fn about(&self) -> &str {
        "runs the reply's Python against the task's tests in isolation: 1 when all pass, else 0"
    }

    fn source(&self) -> &str {
        "verdicts of BigCodeBench (Zhuo et al. 2024) and HumanEval (Chen et al. 2021, §2.2); runner and sandbox are own"
    }
}

impl Scorer for UnitTests {
    fn check(&self, reference: &Reference) -> anyhow::Result<()> {
        let options = read(reference)?;
        if options.expected_tests == 0 {
            bail!("unit_tests: `expected_tests` is 0; a suite without tests grades nothing");
        }
        if options.entry_point.is_empty() {
            bail!("unit_tests: `entry_point` is empty; expected the name the program must define");
        }
        Ok(())
    }

    fn score(&self, task: &Task, attempt: &Attempt, grading: &Grading) -> anyhow::Result<(Score, String)> {
        let options = read(&task.reference)?;
        let bench = Bench::get(&options.python, grading)?;
        let Some(program) = assemble(&options, attempt.reply()) else {
            return Ok((Score::Graded(0.0), "error: the reply holds no code".into()));
        };
        let verdict = bench.judge(&options, &program)?;
        if verdict == Verdict::Passed {
            return Ok((Score::Graded(1.0), bench.describe(&options, &verdict)));
        }
        match bench.reference_fault(&options, &task.reference.solution)? {
            None => Ok((Score::Graded(0.0), bench.describe(&options, &verdict))),
            Some(fault) => {
                let why = format!("the reference solution fails here ({fault})");
                Ok((Score::Ungraded { why }, bench.describe(&options, &verdict)))
            }
        }
    }

    fn ready(&self, grading: &Grading) -> anyhow::Result<()> {
        Bench::get(&python3(), grading).map(drop)
    }
}

fn read(reference: &Reference) -> anyhow::Result<Options> {
    serde_json::from_value(reference.options.clone()).context("options of scorer `unit_tests`")
}

/// The program to run: the reply's code in its place after the preamble, cut down to what is needed.
///
/// `None` when the reply holds no code.
fn assemble(options: &Options, reply: &str) -> Option<String> {
    let entry_point = options.entry_point.as_str();
    let program = match options.preamble.is_empty() {
        true => code::extract(reply, "python", Some(entry_point))?,
        false => continued(&options.preamble, reply, entry_point)?,
    };
    // What the task itself gives stays: its tests may use more of it than the solution does.
    let given = python::definitions(&options.preamble).unwrap_or_default();
    let program = if options.sanitize { python::sanitize(&program, entry_point, &given) } else { program };
    Some(match &options.calibration {
        Some(stub) => format!("{stub}\n    pass\n{program}"),
        None => program,
    })
}

/// A reply to a prompt that is the beginning of a program: either the whole program again, or the rest of it.
fn continued(preamble: &str, reply: &str, entry_point: &str) -> Option<String> {
    let piece = code::extract(reply, "python", Some(entry_point));
    if let Some(whole) = piece.as_ref().filter(|piece| python::defines(piece, entry_point)) {
        return Some(format!("{preamble}\n{whole}\n"));
    }
    let rest = match fence::blocks(reply).is_empty() {
        true => think::strip(reply)?.to_string(),
        false => piece?,
    };
    if rest.trim().is_empty() {
        return None;
    }
    let joined = format!("{preamble}{rest}");
    // A model that goes on after the function has said too much, not something wrong.
    Some(python::longest_parsable_run(&joined, Some(entry_point)).unwrap_or(joined))
}

/// What a run of the tests showed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    /// Tests that did not succeed, with the kind of their error; `ran` of `loaded`.
    Wrong {
        failed: Vec<(String, String)>,
        ran: u32,
        loaded: u32,
    },
    /// The program does not load.
    NotLoaded(String),
    /// The suite does not load, or loads fewer tests than it has.
    SuiteNotLoaded(String),
    /// The program changed the test library or the built-in names.
    Tampered(String),
    /// No report: the program ended, or was ended, before its tests were through.
    Ended {
        ending: Ending,
        stage: Stage,
    },
}

/// What the runner was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Stage {
    Start,
    Program,
    Suite,
    Tests,
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Passed => formatter.write_str("pass"),
            Verdict::Wrong { failed, ran, loaded } => {
                let names: Vec<String> = failed.iter().map(|(name, error)| format!("{name} ({error})")).collect();
                write!(formatter, "wrong: {} of {loaded} tests failed, {ran} run: {}", failed.len(), names.join(", "))
            }
            Verdict::NotLoaded(error) => write!(formatter, "error: the program does not load ({error}), 0 tests run"),
            Verdict::SuiteNotLoaded(error) => write!(formatter, "error: the tests do not load ({error}), 0 tests run"),
            Verdict::Tampered(what) => write!(formatter, "error: the program replaced `{what}`"),
            Verdict::Ended { ending, stage } => {
                let word = match ending {
                    Ending::Exited(_) | Ending::Killed(_) => "error",
                    Ending::Timeout(_) => "timeout",
                    Ending::Memory => "memory",
                    Ending::Output => "output",
                    Ending::Files => "files",
                    Ending::Processes => "processes",
                };
                let doing = match stage {
                    Stage::Start => "starting",
                    Stage::Program => "loading the program",
                    Stage::Suite => "loading the tests",
                    Stage::Tests => "running the tests",
                };
                write!(formatter, "{word}: ended ({ending}) while {doing}")
            }
        }
    }
}

/// What the runner is given.
#[derive(Serialize)]
struct RunnerRequest<'a> {
    nonce: &'a str,
    style: Style,
    entry_point: &'a str,
    program: &'a str,
    tests: &'a str,
}

/// What the runner leaves behind.
#[derive(Deserialize)]
struct RunnerReport {
    nonce: String,
    verdict: RunnerVerdict,
    error: String,
    loaded: u32,
    ran: u32,
    succeeded: u32,
    failed: Vec<(String, String)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum RunnerVerdict {
    Ran,
    Program,
    Suite,
    Tampered,
}

/// A sandbox and an interpreter, ready to run tests. Made once a process for each pair.
struct Bench {
    sandbox: Sandbox,
    interpreter: Interpreter,
    /// Fault of a task's reference solution, by the digest of all that decides it.
    references: Mutex<HashMap<blake3::Hash, Arc<OnceLock<Option<String>>>>>,
}

impl Bench {
    fn get(python: &str, grading: &Grading) -> anyhow::Result<Arc<Bench>> {
        type Benches = Mutex<HashMap<(String, Vec<String>), Arc<Bench>>>;
        static BENCHES: OnceLock<Benches> = OnceLock::new();
        let key = (python.to_string(), grading.allow_missing_isolation.clone());
        let mut benches = BENCHES.get_or_init(Benches::default).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bench) = benches.get(&key) {
            return Ok(bench.clone());
        }
        let bench = Arc::new(Bench::start(python, &grading.allow_missing_isolation)?);
        benches.insert(key, bench.clone());
        Ok(bench)
    }

    fn start(python: &str, allow_missing: &[String]) -> anyhow::Result<Bench> {
        let allow_missing = allow_missing.iter().map(|name| layer_named(name)).collect::<anyhow::Result<_>>()?;
        let sandbox = Sandbox::start(SandboxOptions { allow_missing, ..SandboxOptions::default() })?;
        let interpreter = Interpreter::find(python)?;
        let bench = Bench { sandbox, interpreter, references: Mutex::default() };
        bench.try_interpreter()?;
        Ok(bench)
    }

    /// Runs the interpreter once inside: it may need folders that the sandbox does not know of.
    fn try_interpreter(&self) -> anyhow::Result<()> {
        let script = "import fcntl, json, unittest\nprint('ready')\n";
        let outcome = self.sandbox.run(&self.interpreter.job(script, Limits::default()))?;
        if outcome.ending == Ending::Exited(0) && outcome.stdout == b"ready\n" {
            return Ok(());
        }
        let program = self.interpreter.program.display();
        let said = String::from_utf8_lossy(&outcome.stderr);
        bail!("{program} does not work inside the sandbox ({}): {}", outcome.ending, said.trim())
    }

    fn judge(&self, options: &Options, program: &str) -> anyhow::Result<Verdict> {
        let nonce = format!("{:032x}", rand::random::<u128>());
        let request = RunnerRequest {
            nonce: &nonce,
            style: options.style,
            entry_point: &options.entry_point,
            program,
            tests: &options.tests,
        };
        let report = serde_json::to_string(&request)?;
        let job = Job { report: Some(report), ..self.interpreter.job(RUNNER, options.limits) };
        let outcome = self.sandbox.run(&job)?;
        tracing::debug!(ending = %outcome.ending, cpu_s = outcome.spent.cpu_s, wall_s = outcome.spent.wall_s,
            peak_memory_bytes = outcome.spent.peak_memory_bytes, "tests run");
        Ok(read_verdict(&outcome, &nonce, options.expected_tests))
    }

    /// Why the reference solution does not pass here, or `None` when it does or there is none.
    fn reference_fault(&self, options: &Options, solution: &str) -> anyhow::Result<Option<String>> {
        if solution.trim().is_empty() {
            return Ok(None);
        }
        let key = blake3::hash(&serde_json::to_vec(&(options, solution))?);
        let known = {
            let mut references = self.references.lock().unwrap_or_else(PoisonError::into_inner);
            references.entry(key).or_default().clone()
        };
        if let Some(fault) = known.get() {
            return Ok(fault.clone());
        }
        let fault = match assemble(options, solution) {
            None => Some("it holds no code".to_string()),
            Some(program) => match self.judge(options, &program)? {
                Verdict::Passed => None,
                verdict => Some(verdict.to_string()),
            },
        };
        Ok(known.get_or_init(|| fault).clone())
    }

    /// The verdict and all that a reader needs to weigh it. The same on every run: no times, no sizes.
    fn describe(&self, options: &Options, verdict: &Verdict) -> String {
        let count = match verdict {
            Verdict::Passed => format!(", {} tests", options.expected_tests),
            _ => String::new(),
        };
        let Interpreter { version, program, .. } = &self.interpreter;
        let isolation = isolation(self.sandbox.layers());
        format!("{verdict}{count}; python {version} ({}); isolation: {isolation}", program.display())
    }
}

/// The names of the layers that held, with the means of the one that has several, and of those that did not.
fn isolation(layers: &Layers) -> String {
    let name = |(layer, means): (&Layer, &String)| match layer {
        Layer::Memory => format!("memory ({means})"),
        _ => layer.to_string(),
    };
    let mut text = layers.held.iter().map(name).collect::<Vec<_>>().join(", ");
    if !layers.missing.is_empty() {
        let missing: Vec<&str> = layers.missing.keys().map(|layer| layer.as_str()).collect();
        text += &format!("; missing by permission: {}", missing.join(", "));
    }
    text
}

fn layer_named(name: &str) -> anyhow::Result<Layer> {
    Layer::ALL.into_iter().find(|layer| layer.as_str() == name).ok_or_else(|| {
        let known: Vec<&str> = Layer::ALL.iter().map(|layer| layer.as_str()).collect();
        anyhow!("no isolation layer named `{name}` (known: {})", known.join(", "))
    })
}

/// A report counts only with the nonce; without one, how the process ended tells the rest.
fn read_verdict(outcome: &Outcome, nonce: &str, expected_tests: u32) -> Verdict {
    let text = outcome.report.as_deref().unwrap_or_default();
    let report = serde_json::from_str::<RunnerReport>(text).ok().filter(|report| report.nonce == nonce);
    let Some(report) = report else {
        return Verdict::Ended { ending: outcome.ending, stage: read_stage(text) };
    };
    let RunnerReport { verdict, error, loaded, ran, succeeded, failed, .. } = report;
    match verdict {
        RunnerVerdict::Program => Verdict::NotLoaded(error),
        RunnerVerdict::Suite => Verdict::SuiteNotLoaded(error),
        RunnerVerdict::Tampered => Verdict::Tampered(error),
        RunnerVerdict::Ran if loaded < expected_tests || loaded == 0 => {
            Verdict::SuiteNotLoaded(format!("{loaded} tests found, {expected_tests} expected"))
        }
        RunnerVerdict::Ran if failed.is_empty() && succeeded == loaded && ran == loaded => Verdict::Passed,
        RunnerVerdict::Ran => Verdict::Wrong { failed, ran, loaded },
    }
}

fn read_stage(text: &str) -> Stage {
    #[derive(Deserialize)]
    struct Progress {
        stage: Stage,
    }
    serde_json::from_str::<Progress>(text).map_or(Stage::Start, |progress| progress.stage)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(preamble: &str, calibration: Option<&str>) -> Options {
        Options {
            style: Style::Check,
            entry_point: "f".into(),
            tests: String::new(),
            expected_tests: 1,
            preamble: preamble.into(),
            calibration: calibration.map(str::to_string),
            sanitize: true,
            python: python3(),
            limits: Limits::default(),
        }
    }

    #[test]
    fn a_reply_may_continue_the_prompt_or_repeat_it() {
        let options = options("import os\ndef f(x):\n    \"\"\"Doc.\"\"\"\n", None);
        let body = assemble(&options, "    return x\n\nThis returns x.").unwrap();
        assert_eq!(body, "import os\ndef f(x):\n    \"\"\"Doc.\"\"\"\n    return x\n");
        let fenced = assemble(&options, "Here:\n```python\n    return x\n```").unwrap();
        assert_eq!(fenced, body);
        let whole = assemble(&options, "```python\ndef f(x):\n    return x + 1\nprint(f(1))\n```").unwrap();
        assert!(whole.ends_with("def f(x):\n    return x + 1\n"), "{whole}");
    }

    #[test]
    fn what_the_prompt_defines_is_kept_for_the_tests() {
        let options = options("def helper(x):\n    return x\n\ndef f(x):\n    \"\"\"Doc.\"\"\"\n", None);
        let program = assemble(&options, "    return x\n\ndef extra():\n    pass\n").unwrap();
        assert!(program.contains("def helper") && !program.contains("extra"), "{program}");
    }

    #[test]
    fn the_calibrated_program_starts_with_the_stub() {
        let options = options("", Some("import os\ndef f(x):\n"));
        let program = assemble(&options, "```python\ndef f(x):\n    return os.sep\n```").unwrap();
        assert_eq!(program, "import os\ndef f(x):\n\n    pass\ndef f(x):\n    return os.sep\n");
    }

    #[test]
    fn a_report_without_the_nonce_is_none() {
        let outcome = |report: &str| Outcome {
            ending: Ending::Exited(0),
            stdout: Vec::new(),
            stderr: Vec::new(),
            report: Some(report.into()),
            collected: Vec::new(),
            layers: Layers::default(),
            spent: Default::default(),
        };
        let report = r#"{"nonce":"a","verdict":"ran","error":"","loaded":2,"ran":2,"succeeded":2,"failed":[]}"#;
        assert_eq!(read_verdict(&outcome(report), "a", 2), Verdict::Passed);
        let early = Verdict::Ended { ending: Ending::Exited(0), stage: Stage::Start };
        assert_eq!(read_verdict(&outcome(report), "b", 2), early);
        assert!(matches!(read_verdict(&outcome(report), "a", 3), Verdict::SuiteNotLoaded(_)));
        let stage = read_verdict(&outcome("{\"stage\":\"tests\"}    "), "a", 2);
        assert_eq!(stage.to_string(), "error: ended (exit 0) while running the tests");
    }

    #[test]
    fn unknown_layers_are_refused_with_the_known_ones() {
        let error = layer_named("landlok").unwrap_err().to_string();
        assert!(error.contains("landlok") && error.contains("landlock"), "{error}");
    }
}
