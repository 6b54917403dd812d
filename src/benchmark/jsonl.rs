//! A user's own tasks: one JSON object a line, plain or gzip (recognised by its first bytes).
//!
//! | field | type | meaning |
//! |---|---|---|
//! | `id` | text, required | unique in the file; the task is called `jsonl/<id>` |
//! | `question` | text, required | the user turn, shown as it is |
//! | `scoring` | text, required | `exact`, `contains`, `regex`, `numeric`, `choice` or `token_f1` |
//! | `answer` | see below, required | what is right; agents never see it |
//! | `forbidden` | text or list | `contains` only: words that make a reply wrong |
//! | `min_words` | number | `contains` only: fewest words of a right reply |
//! | `normalise` | text | `exact`, `token_f1`: `exact`, `casefold_nopunct`, `csb_exact` or `squad` |
//! | `relative`, `absolute` | number | `numeric` only: tolerances, 1e-6 each; either suffices |
//! | `options` | list of texts | `choice`, required there: the option letters |
//! | `reply` | text | what is read from a reply: `text` (all of it) or `line` (its first line); default `text` |
//! | `solution` | text | the reply shown when the task is a demonstration; default: the first answer |
//! | `system` | text | instructions in front of everything; equal ones share their computation |
//! | `family` | text | a group of tasks that share a skill |
//!
//! `answer` is a text or a list of texts (any of them is right) for `exact`, `contains` and `token_f1`; a pattern for
//! `regex`, which then needs a `solution`; a number, or text that holds one, for `numeric`; an option letter for
//! `choice`. Blank lines are skipped. An unknown field is an error: a misspelt `forbiden` must not pass silently.
//!
//! ```json
//! {"id": "capital-fr", "question": "What is the capital of France?", "scoring": "contains", "answer": "Paris"}
//! {"id": "sum-1", "question": "What is 7 plus 5?", "scoring": "numeric", "answer": 12}
//! {"id": "sky", "question": "The sky is (A) green (B) blue?", "scoring": "choice", "options": ["A", "B"], "answer": "B"}
//! ```

mod record;

use std::collections::HashMap;
use std::fs;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};

use super::{Benchmark, Pool, Selection};
use crate::record::Task;
use crate::registry::Registered;

pub struct Jsonl;

impl Registered for Jsonl {
    fn name(&self) -> &str {
        "jsonl"
    }
    fn about(&self) -> &str {
        "your own tasks: one JSON object a line"
    }
    fn source(&self) -> &str {
        "a file of yours; schema in the documentation"
    }
}

impl Benchmark for Jsonl {
    fn load(&self, selection: &Selection) -> anyhow::Result<Pool> {
        let path = selection.path.as_deref().context("benchmark `jsonl` reads a file: set `path` in [benchmark]")?;
        if let Some(option) = selection.options.keys().next() {
            bail!("benchmark `jsonl` has no options, found `{option}` in [benchmark.options]");
        }
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let tasks = parse(path, &text(path, &bytes)?)?;
        ensure!(!tasks.is_empty(), "{}: expected at least one task, found none", path.display());
        Ok(Pool { tasks, digest: blake3::hash(&bytes).to_hex().to_string(), ..Pool::default() })
    }
}

/// Unpacks gzip (also several members in a row) and checks the encoding.
fn text(path: &Path, bytes: &[u8]) -> anyhow::Result<String> {
    let mut unpacked = Vec::new();
    let bytes = if bytes.starts_with(&[0x1f, 0x8b]) {
        flate2::read::MultiGzDecoder::new(bytes)
            .read_to_end(&mut unpacked)
            .with_context(|| format!("{}: damaged gzip file", path.display()))?;
        &unpacked
    } else {
        bytes
    };
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
        anyhow::anyhow!("{}:{line}: expected UTF-8 text, found other bytes", path.display())
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text).to_string())
}

fn parse(path: &Path, text: &str) -> anyhow::Result<Vec<Task>> {
    let mut tasks = Vec::new();
    let mut lines: HashMap<String, usize> = HashMap::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let number = index + 1;
        let task = record::task(line).with_context(|| format!("{}:{number}", path.display()))?;
        if let Some(first) = lines.insert(task.id().0.clone(), number) {
            bail!("{}:{number}: field `id`: {} is already the task of line {first}", path.display(), task.id());
        }
        tasks.push(task);
    }
    Ok(tasks)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::record::ReplyFormat;

    const GOOD: &str = concat!(
        r#"{"id": "a", "question": "Capital of France?", "scoring": "contains", "answer": "Paris", "forbidden": "Rome"}"#,
        "\n\n",
        r#"{"id": "b", "question": "2+2?", "scoring": "numeric", "answer": 4, "family": "sum", "system": "Be brief."}"#,
        "\n",
        r#"{"id": "c", "question": "Which?", "scoring": "choice", "options": ["A", "B"], "answer": "B"}"#,
        "\n",
        r#"{"id": "d", "question": "Say hi", "scoring": "regex", "answer": "^hi", "solution": "hi", "reply": "line"}"#,
    );

    fn load(bytes: &[u8]) -> anyhow::Result<Pool> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        Jsonl.load(&Selection { path: Some(file.path().to_path_buf()), ..Selection::default() })
    }

    fn error(line: &str) -> String {
        format!("{:#}", parse(Path::new("mine.jsonl"), line).err().unwrap())
    }

    #[test]
    fn a_good_file_gives_its_tasks_in_order() {
        let pool = load(GOOD.as_bytes()).unwrap();
        let ids: Vec<&str> = pool.tasks.iter().map(|task| task.id().0.as_str()).collect();
        assert_eq!(ids, ["jsonl/a", "jsonl/b", "jsonl/c", "jsonl/d"]);
        let [capital, sum, which, hi] = &pool.tasks[..] else { panic!("{ids:?}") };
        assert_eq!(capital.reference.solution, "Paris");
        assert_eq!(capital.reference.options, serde_json::json!({ "answers": ["Paris"], "forbidden": ["Rome"] }));
        assert_eq!((sum.view.reply_format.clone(), sum.reference.solution.as_str()), (ReplyFormat::Number, "4"));
        assert_eq!((sum.view.family.as_deref(), sum.view.system.as_deref()), (Some("sum"), Some("Be brief.")));
        assert_eq!(which.view.reply_format, ReplyFormat::Choice(vec!["A".into(), "B".into()]));
        assert_eq!((hi.view.reply_format.clone(), hi.reference.solution.as_str()), (ReplyFormat::Line, "hi"));
    }

    #[test]
    fn a_gzip_file_holds_the_same_tasks_under_its_own_digest() {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        packer.write_all(GOOD.as_bytes()).unwrap();
        let (packed, plain) = (load(&packer.finish().unwrap()).unwrap(), load(GOOD.as_bytes()).unwrap());
        assert_eq!(packed.tasks, plain.tasks);
        assert_ne!(packed.digest, plain.digest);
        let error = load(&[0x1f, 0x8b, 0, 0]).err().unwrap();
        assert!(format!("{error:#}").contains("damaged gzip"), "{error:#}");
    }

    #[test]
    fn errors_name_file_line_field_expected_and_found() {
        for (line, parts) in [
            ("\n{", ["mine.jsonl:2", "JSON"].as_slice()),
            ("[1]", &["mine.jsonl:1", "expected an object", "a list"]),
            (r#"{"question": "?", "scoring": "exact", "answer": "x"}"#, &["`id`", "missing"]),
            (r#"{"id": 7, "question": "?", "scoring": "exact", "answer": "x"}"#, &["`id`", "expected a text", "7"]),
            (r#"{"id": "", "question": "?", "scoring": "exact", "answer": "x"}"#, &["`id`", "not empty"]),
            (r#"{"id": "a", "question": "?", "scoring": "exakt", "answer": "x"}"#, &["`scoring`", "exakt", "`exact`"]),
            (r#"{"id": "a", "question": "?", "scoring": "exact", "answer": 5}"#, &["`answer`", "list of texts", "5"]),
            (r#"{"id": "a", "question": "?", "scoring": "exact", "answer": []}"#, &["`answer`", "at least one"]),
            (
                r#"{"id": "a", "question": "?", "scoring": "contains", "answer": "x", "forbiden": "y"}"#,
                &["no field named `forbiden`", "`forbidden`"],
            ),
            (
                r#"{"id": "a", "question": "?", "scoring": "exact", "answer": "x", "forbidden": "y"}"#,
                &["`forbidden`", "`contains`", "`exact`"],
            ),
            (
                r#"{"id": "a", "question": "?", "scoring": "regex", "answer": "(", "solution": "x"}"#,
                &["`answer`", "pattern"],
            ),
            (r#"{"id": "a", "question": "?", "scoring": "regex", "answer": "x"}"#, &["`solution`", "missing"]),
            (
                r#"{"id": "a", "question": "?", "scoring": "numeric", "answer": "many"}"#,
                &["`answer`", "number", "many"],
            ),
            (
                r#"{"id": "a", "question": "?", "scoring": "numeric", "answer": 1, "absolute": -1}"#,
                &["`absolute`", "at least 0", "-1"],
            ),
            (
                r#"{"id": "a", "question": "?", "scoring": "contains", "answer": "x", "min_words": -1}"#,
                &["`min_words`", "at least 0", "-1"],
            ),
            (
                r#"{"id": "a", "question": "?", "scoring": "choice", "options": ["A", "B"], "answer": "C"}"#,
                &["`answer`", "one of A, B", "C"],
            ),
            (
                r#"{"id": "a", "question": "?", "scoring": "exact", "answer": "x", "reply": "word"}"#,
                &["`reply`", "`text` or `line`", "word"],
            ),
        ] {
            let message = error(line);
            for part in parts {
                assert!(message.contains(part), "{message:?} lacks {part:?}");
            }
        }
    }

    #[test]
    fn an_id_given_twice_names_both_lines() {
        let line = GOOD.lines().next().unwrap();
        let message = error(&format!("{line}\n\n{line}"));
        assert!(message.contains("mine.jsonl:3") && message.contains("line 1"), "{message}");
    }

    #[test]
    fn other_encodings_and_missing_files_are_named() {
        let message = format!("{:#}", load(b"\n\xff\xfe").err().unwrap());
        assert!(message.contains(":2: expected UTF-8"), "{message}");
        assert!(format!("{:#}", load(b"\n").err().unwrap()).contains("at least one task"));
        assert!(format!("{:#}", Jsonl.load(&Selection::default()).err().unwrap()).contains("`path`"));
    }
}
