//! HumanEval (Chen et al. 2021): 164 functions to complete from signature and docstring.
//!
//! A program is the prompt followed by the reply, and is right when the task's `check` raises nothing. The original
//! harness gives it 3 s of wall clock; here that is CPU time, so that a busy machine changes no verdict.

use std::path::PathBuf;

use anyhow::Context;
use serde::Deserialize;
use serde_json::json;

use super::data_file::{self, DataFile};
use super::{Benchmark, Pool, Selection};
use crate::record::{Reference, ReplyFormat, Task, TaskId, TaskView};
use crate::registry::Registered;

const PROMPT: &str = include_str!("../../configs/prompts/humaneval.txt");
const WHERE: &str = "benchmark `humaneval` reads its published file: set `path` to HumanEval.jsonl or HumanEval.jsonl.gz \
                     (github.com/openai/human-eval, folder `data`)";

/// See the [module](self).
pub struct HumanEval;

/// The benchmark's table in a config.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Options {
    /// Whether only what the function needs is kept of a reply.
    sanitize: bool,
    /// The interpreter, by name or path.
    python: String,
    /// Limits of a test run that differ from the benchmark's own.
    limits: toml::Table,
    /// A file with instructions to use instead of ours.
    prompt: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Options { sanitize: true, python: "python3".into(), limits: toml::Table::new(), prompt: None }
    }
}

/// One line of the published file.
#[derive(Deserialize)]
struct Record {
    task_id: String,
    prompt: String,
    entry_point: String,
    canonical_solution: String,
    test: String,
}

impl Registered for HumanEval {
    fn name(&self) -> &str {
        "humaneval"
    }

    fn about(&self) -> &str {
        "164 Python functions to write from their docstrings"
    }

    fn source(&self) -> &str {
        "Chen et al. 2021; openai/human-eval, MIT"
    }
}

impl Benchmark for HumanEval {
    fn load(&self, selection: &Selection) -> anyhow::Result<Pool> {
        let options: Options = selection.options.clone().try_into().context("options of benchmark `humaneval`")?;
        let file = DataFile::read(selection.path.as_deref().context(WHERE)?)?;
        let system = data_file::prompt(PROMPT, options.prompt.as_deref())?;
        let records: Vec<Record> = file.records()?;
        let tasks = records.into_iter().map(|record| task(record, &system, &options)).collect();
        Ok(Pool { tasks, digest: file.digest(), ..Pool::default() })
    }
}

fn task(record: Record, system: &str, options: &Options) -> Task {
    let local_id = record.task_id.rsplit('/').next().unwrap_or(&record.task_id);
    let mut limits = toml::toml! { cpu_s = 3.0
    wall_s = 15.0 };
    limits.extend(options.limits.clone());
    Task {
        view: TaskView {
            id: TaskId(format!("humaneval/{local_id}")),
            family: None,
            system: Some(system.to_string()),
            question: format!("```python\n{}\n```", record.prompt.trim_end()),
            reply_format: ReplyFormat::Code {
                language: "python".into(),
                entry_point: Some(record.entry_point.clone()),
            },
        },
        reference: Reference {
            solution: format!("```python\n{}{}\n```", record.prompt, record.canonical_solution.trim_end()),
            scorer: "unit_tests".into(),
            options: json!({
                "style": "check",
                "entry_point": record.entry_point,
                "tests": record.test,
                "expected_tests": 1,
                "preamble": record.prompt,
                "sanitize": options.sanitize,
                "python": options.python,
                "limits": limits,
            }),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn load(line: &str, options: &str) -> anyhow::Result<Pool> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "{line}").unwrap();
        let selection = Selection { path: Some(file.path().into()), options: options.parse().unwrap() };
        HumanEval.load(&selection)
    }

    const LINE: &str = r#"{"task_id": "HumanEval/7", "prompt": "def f(x):\n    \"\"\"Doc.\"\"\"\n", "entry_point": "f",
        "canonical_solution": "    return x\n", "test": "def check(c):\n    assert c(1) == 1\n"}"#;

    #[test]
    fn the_prompt_is_pinned() {
        let pool = load(&LINE.replace('\n', " "), "").unwrap();
        let view = &pool.tasks[0].view;
        assert_eq!(view.id.0, "humaneval/7");
        assert_eq!(
            view.system.as_deref().unwrap(),
            "You write Python. For each task, you are given the beginning of a script that ends with the description \
             of a function. Reply with the complete script, its given beginning included, in a single Markdown code \
             block. No example calls and no tests."
        );
        assert_eq!(view.question, "```python\ndef f(x):\n    \"\"\"Doc.\"\"\"\n```");
        let solution = &pool.tasks[0].reference.solution;
        assert_eq!(solution, "```python\ndef f(x):\n    \"\"\"Doc.\"\"\"\n    return x\n```");
    }

    #[test]
    fn limits_of_the_config_replace_single_fields() {
        let pool = load(&LINE.replace('\n', " "), "limits = { cpu_s = 9.0 }").unwrap();
        let limits = &pool.tasks[0].reference.options["limits"];
        assert_eq!((limits["cpu_s"].as_f64(), limits["wall_s"].as_f64()), (Some(9.0), Some(15.0)));
    }

    #[test]
    fn a_missing_path_and_an_unknown_option_say_what_to_do() {
        let error = HumanEval.load(&Selection::default()).err().unwrap().to_string();
        assert!(error.contains("openai/human-eval"), "{error}");
        let error = format!("{:#}", load(&LINE.replace('\n', " "), "sanitise = true").err().unwrap());
        assert!(error.contains("sanitise") && error.contains("sanitize"), "{error}");
    }
}
