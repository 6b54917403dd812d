//! The headroom filter: tasks that strong models neither always nor never solve (PATH-Bench §3.2).
//!
//! Scores of strong models are their zero-shot attempts in this run, or are given in a file: published solve rates of a
//! benchmark, or the `zero_shot.csv` of another run's report. With a file the pool is known before the first attempt, so
//! only its tasks are attempted; and models may be strong that nobody here can run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use super::matrix::stage_name;
use crate::config::Headroom;
use crate::record::{AttemptRecord, Task};

/// Names that a file may give its two columns or keys.
const TASK_NAMES: [&str; 2] = ["task", "task_id"];
const SCORE_NAMES: [&str; 2] = ["score", "solve_rate"];

/// Mean scores of strong models, by task.
#[derive(Clone, Debug)]
pub struct StrongScores {
    path: PathBuf,
    /// By the task's id in lower case: benchmarks write `BigCodeBench/3` where we write `bigcodebench/3`.
    means: BTreeMap<String, f64>,
    /// Of the file's bytes.
    pub digest: String,
}

impl StrongScores {
    /// Reads a `.csv` with a header, or JSON lines. Each line names a task (`task` or `task_id`) and a score in 0..=1
    /// (`score` or `solve_rate`); other columns and keys are not read, and several lines of one task, as of several models,
    /// are averaged. A line without a score is a task that was not graded.
    ///
    /// # Errors
    /// Names file and line of what is not so.
    pub fn read(path: &Path) -> anyhow::Result<StrongScores> {
        let place = path.display();
        let bytes = std::fs::read(path).with_context(|| {
            format!("scores of strong models {place} could not be read; `matrix.headroom.scores` is relative to the working folder")
        })?;
        let text = std::str::from_utf8(&bytes).with_context(|| format!("{place}: expected text in UTF-8"))?;
        let is_csv = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
        let rows = if is_csv { csv_rows(text) } else { json_rows(text) };
        let rows = rows.with_context(|| format!("scores of strong models {place}"))?;
        let mut sums: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        for (line, task, score) in rows {
            ensure!(
                (0.0..=1.0).contains(&score),
                "{place}:{line}: the score of {task} must be in 0..=1, found {score}; divide percentages by 100"
            );
            let (sum, count) = sums.entry(task.to_lowercase()).or_default();
            (*sum, *count) = (*sum + score, *count + 1.0);
        }
        let means = sums.into_iter().map(|(task, (sum, count))| (task, sum / count)).collect();
        let digest = blake3::hash(&bytes).to_hex().to_string();
        Ok(StrongScores { path: path.to_path_buf(), means, digest })
    }

    /// The mean score of a task.
    pub fn of(&self, task: &Task) -> Option<f64> {
        self.means.get(&task.id().0.to_lowercase()).copied()
    }

    /// The tasks whose score lies in the range, ascending; tasks that the file does not rate are left out.
    pub fn kept(&self, tasks: &[Task], range: &Headroom) -> Vec<u32> {
        let is_kept = |task: &Task| self.of(task).is_some_and(|mean| (range.min..=range.max).contains(&mean));
        (0u32..).zip(tasks).filter(|(_, task)| is_kept(task)).map(|(index, _)| index).collect()
    }

    /// How many of the tasks are rated.
    ///
    /// # Errors
    /// When none is: the file is of other tasks.
    pub fn rated(&self, tasks: &[Task]) -> anyhow::Result<usize> {
        let rated = tasks.iter().filter(|task| self.of(task).is_some()).count();
        ensure!(
            rated > 0,
            "{} rates none of the {} tasks of the run: it names tasks like `{}`, the run has tasks like `{}`",
            self.path.display(),
            tasks.len(),
            self.means.keys().next().map_or("none", String::as_str),
            tasks.first().map_or("none", |task| task.id().0.as_str())
        );
        Ok(rated)
    }
}

/// Line number, task and score of each line that has a score.
type Rows = Vec<(usize, String, f64)>;

fn csv_rows(text: &str) -> anyhow::Result<Rows> {
    let mut lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let (_, header) = lines.next().context("expected a header line, found an empty file")?;
    let header: Vec<&str> = header.split(',').map(str::trim).collect();
    let column = |names: [&str; 2]| {
        let found = header.iter().position(|name| names.contains(name));
        found
            .with_context(|| format!("expected a column `{}` or `{}`, found {}", names[0], names[1], header.join(", ")))
    };
    let (task, score) = (column(TASK_NAMES)?, column(SCORE_NAMES)?);
    let mut rows = Vec::new();
    for (line, text) in lines {
        let cells: Vec<&str> = text.split(',').map(str::trim).collect();
        ensure!(
            cells.len() == header.len(),
            "line {line}: expected {} cells as in the header, found {}",
            header.len(),
            cells.len()
        );
        if cells[score].is_empty() {
            continue;
        }
        let number = cells[score].parse().with_context(|| {
            format!("line {line}: expected a number as {}, found `{}`", header[score], cells[score])
        })?;
        rows.push((line, cells[task].to_string(), number));
    }
    Ok(rows)
}

fn json_rows(text: &str) -> anyhow::Result<Rows> {
    let mut rows = Vec::new();
    for (line, text) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let record: Value = serde_json::from_str(text)
            .with_context(|| format!("line {line}: expected a JSON object a line (a .csv file is named so)"))?;
        let of = |names: [&str; 2]| names.iter().find_map(|name| record.get(name));
        let Some(task) = of(TASK_NAMES).and_then(Value::as_str) else {
            bail!("line {line}: expected a text under `task` or `task_id`");
        };
        match of(SCORE_NAMES) {
            Some(Value::Null) => {}
            Some(Value::Number(score)) => rows.push((line, task.to_string(), score.as_f64().unwrap_or(f64::NAN))),
            other => bail!(
                "line {line}: expected a number under `score` or `solve_rate`, found {}",
                other.map_or_else(|| "neither".to_string(), Value::to_string)
            ),
        }
    }
    Ok(rows)
}

/// The tasks whose mean zero-shot score over strong models and seeds lies in the range, ascending. Tasks of which nothing
/// could be graded are left out.
pub fn of_attempts(records: &[AttemptRecord], models: &[String], tasks: u32, range: Option<&Headroom>) -> Vec<u32> {
    let Some(Headroom { min, max, models: strong, .. }) = range else {
        return (0..tasks).collect();
    };
    let strong = if strong.is_empty() { models } else { strong };
    let stages: BTreeSet<String> = strong.iter().map(|model| stage_name(model)).collect();
    let mut sums = vec![(0.0, 0u32); tasks as usize];
    for record in records {
        let is_baseline = record.coord.sequence == 0 && stages.contains(&record.coord.stage);
        if let (true, Some(grade)) = (is_baseline, record.score.graded()) {
            let (sum, count) = &mut sums[record.coord.step as usize];
            *sum += grade;
            *count += 1;
        }
    }
    (0..tasks)
        .filter(|task| {
            let (sum, count) = sums[*task as usize];
            count > 0 && (*min..=*max).contains(&(sum / f64::from(count)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Reference, ReplyFormat, TaskId, TaskView};

    fn task(id: &str) -> Task {
        Task {
            view: TaskView {
                id: TaskId(id.into()),
                family: None,
                system: None,
                question: String::new(),
                reply_format: ReplyFormat::Line,
            },
            reference: Reference { solution: String::new(), scorer: "exact".into(), options: Value::Null },
        }
    }

    fn read(name: &str, text: &str) -> anyhow::Result<StrongScores> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        StrongScores::read(&path)
    }

    const RANGE: Headroom = Headroom { min: 0.1, max: 0.9, models: Vec::new(), scores: None };

    #[test]
    fn both_forms_give_the_mean_over_the_lines_of_a_task() {
        let lines = "{\"task_id\": \"Set/0\", \"solve_rate\": 0.0}\n{\"task_id\": \"Set/1\", \"solve_rate\": 1.0}\n\n\
                     {\"task_id\": \"Set/1\", \"solve_rate\": 0.5, \"model\": \"b\"}\n{\"task\": \"set/2\", \"score\": null}\n";
        let table = "# of a leaderboard\nmodel,task,score\na,set/0,0\na,set/1,1\nb,Set/1,0.5\na,set/2,\n";
        let tasks = ["set/0", "set/1", "set/2", "set/3"].map(task);
        for scores in [read("scores.jsonl", lines).unwrap(), read("scores.csv", table).unwrap()] {
            assert_eq!([0, 1, 2, 3].map(|at| scores.of(&tasks[at])), [Some(0.0), Some(0.75), None, None]);
            assert_eq!(scores.kept(&tasks, &RANGE), [1]);
            assert_eq!(scores.rated(&tasks).unwrap(), 2);
        }
    }

    /// The table that the report of a run writes.
    #[test]
    fn the_zero_shot_table_of_another_run_is_such_a_file() {
        let text = "model,task,family,kept,score,score_low,score_high,stderr,graded,seeds\n\
                    m,set/0,f,true,0.4,0.2,0.6,0.1,5,5\nm,set/1,,false,,,,,0,5\n";
        let scores = read("zero_shot.csv", text).unwrap();
        assert_eq!(scores.kept(&["set/0", "set/1"].map(task), &RANGE), [0]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let error = |name: &str, text: &str| format!("{:#}", read(name, text).unwrap_err());
        for (name, text, parts) in [
            ("a.csv", "", vec!["a.csv", "empty file"]),
            ("a.csv", "id,score\nx,1\n", vec!["`task` or `task_id`", "id, score"]),
            ("a.csv", "task,rate\nx,1\n", vec!["`score` or `solve_rate`"]),
            ("a.csv", "task,score\nx\n", vec!["line 2", "2 cells", "found 1"]),
            ("a.csv", "task,score\nx,many\n", vec!["line 2", "`many`"]),
            ("a.csv", "task,score\nx,71.5\n", vec!["a.csv:2", "71.5", "percentages"]),
            ("a.jsonl", "task,score\n", vec!["line 1", "JSON object"]),
            ("a.jsonl", "{\"score\": 1}\n", vec!["line 1", "`task`"]),
            ("a.jsonl", "{\"task\": \"x\"}\n", vec!["line 1", "neither"]),
            ("a.jsonl", "{\"task\": \"x\", \"score\": -1}\n", vec!["a.jsonl:1", "-1"]),
        ] {
            let message = error(name, text);
            for part in parts {
                assert!(message.contains(part), "{text}: {part}: {message}");
            }
        }
        let absent = format!("{:#}", StrongScores::read(Path::new("absent.csv")).unwrap_err());
        assert!(absent.contains("absent.csv") && absent.contains("working folder"), "{absent}");
        let strange = read("a.csv", "task,score\nother/1,1\n").unwrap();
        let message = strange.rated(&["set/0"].map(task)).unwrap_err().to_string();
        assert!(message.contains("`other/1`") && message.contains("`set/0`"), "{message}");
    }
}
