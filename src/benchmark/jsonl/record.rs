//! One line of a user's file: from JSON fields to a task, every field checked.

use anyhow::{Context as _, bail, ensure};
use serde_json::{Map, Value, json};

use crate::record::{Reference, ReplyFormat, Task, TaskId, TaskView};
use crate::registry::nearest;

const SCORINGS: [&str; 6] = ["exact", "contains", "regex", "numeric", "choice", "token_f1"];
const NORMALISATIONS: [&str; 4] = ["exact", "casefold_nopunct", "csb_exact", "squad"];

/// Fields every task may have.
const SHARED: [&str; 8] = ["id", "question", "scoring", "answer", "reply", "solution", "system", "family"];
/// Fields that belong to some scorings only.
const SPECIAL: [(&str, &[&str]); 6] = [
    ("forbidden", &["contains"]),
    ("min_words", &["contains"]),
    ("normalise", &["exact", "token_f1"]),
    ("relative", &["numeric"]),
    ("absolute", &["numeric"]),
    ("options", &["choice"]),
];

/// Reads a task out of one line.
///
/// # Errors
/// Names the field, what was expected and what was found.
pub fn task(line: &str) -> anyhow::Result<Task> {
    let value: Value = serde_json::from_str(line).context("expected one JSON object")?;
    let Value::Object(fields) = value else {
        bail!("expected an object, found {}", describe(&value));
    };
    let fields = Fields(fields);
    let scoring = fields.one_of("scoring", &SCORINGS)?.context("field `scoring` is missing")?;
    fields.check_names(scoring)?;
    let id = fields.text("id")?.context("field `id` is missing")?;
    ensure!(!id.trim().is_empty(), "field `id`: expected a text that is not empty");
    let question = fields.text("question")?.context("field `question` is missing")?;
    let (options, first_answer) = fields.options(scoring)?;
    let solution = match (fields.text("solution")?, first_answer) {
        (Some(solution), _) => solution.to_string(),
        (None, Some(answer)) => answer,
        (None, None) => bail!("field `solution` is missing: a pattern cannot be shown as a demonstration"),
    };
    Ok(Task {
        view: TaskView {
            id: TaskId(format!("jsonl/{id}")),
            family: fields.text("family")?.map(String::from),
            system: fields.text("system")?.map(String::from),
            question: question.to_string(),
            reply_format: fields.reply_format(scoring)?,
        },
        reference: Reference { solution, scorer: scoring.to_string(), options },
    })
}

struct Fields(Map<String, Value>);

impl Fields {
    fn check_names(&self, scoring: &str) -> anyhow::Result<()> {
        for name in self.0.keys() {
            if let Some((_, scorings)) = SPECIAL.iter().find(|(special, _)| special == name) {
                ensure!(
                    scorings.contains(&scoring),
                    "field `{name}` belongs to scoring {}, found with scoring `{scoring}`",
                    quoted(scorings)
                );
            } else if !SHARED.contains(&name.as_str()) {
                let known: Vec<String> =
                    SHARED.iter().copied().chain(SPECIAL.iter().map(|(name, _)| *name)).map(String::from).collect();
                let hint = nearest(name, &known).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
                bail!("no field named `{name}`{hint} (known: {})", known.join(", "));
            }
        }
        Ok(())
    }

    /// The scorer's options and the first right answer as text, where the answer is one.
    fn options(&self, scoring: &str) -> anyhow::Result<(Value, Option<String>)> {
        let answer = self.0.get("answer").context("field `answer` is missing")?;
        match scoring {
            "regex" => {
                let pattern = self.text("answer")?.context("field `answer` is missing")?;
                regex::Regex::new(pattern).context("field `answer`: expected a pattern")?;
                Ok((json!({ "pattern": pattern }), None))
            }
            "numeric" => {
                let written = match answer {
                    Value::Number(number) => number.to_string(),
                    Value::String(text) if text.chars().any(|character| character.is_ascii_digit()) => text.clone(),
                    other => bail!("field `answer`: expected a number, found {}", describe(other)),
                };
                let mut options = json!({ "answer": answer });
                for name in ["relative", "absolute"] {
                    if let Some(value) = self.0.get(name) {
                        ensure!(
                            value.as_f64().is_some_and(|tolerance| tolerance >= 0.0),
                            "field `{name}`: expected a number of at least 0, found {}",
                            describe(value)
                        );
                        options[name] = value.clone();
                    }
                }
                Ok((options, Some(written)))
            }
            "choice" => {
                let letter = self.text("answer")?.context("field `answer` is missing")?;
                let letters = self.letters()?;
                ensure!(
                    letters.iter().any(|option| option == letter),
                    "field `answer`: expected one of {}, found {letter:?}",
                    letters.join(", ")
                );
                Ok((json!({ "answer": letter }), Some(letter.to_string())))
            }
            _ => {
                let answers = self.texts("answer")?.context("field `answer` is missing")?;
                ensure!(!answers.is_empty(), "field `answer`: expected at least one text, found none");
                let first = answers[0].clone();
                let mut options = json!({ "answers": answers });
                if let Some(forbidden) = self.texts("forbidden")? {
                    options["forbidden"] = json!(forbidden);
                }
                if let Some(words) = self.0.get("min_words") {
                    ensure!(
                        words.as_u64().is_some(),
                        "field `min_words`: expected a whole number of at least 0, found {}",
                        describe(words)
                    );
                    options["min_words"] = words.clone();
                }
                if let Some(normalise) = self.one_of("normalise", &NORMALISATIONS)? {
                    options["normalise"] = json!(normalise);
                }
                if scoring == "contains" {
                    for phrase in
                        ["answers", "forbidden"].iter().filter_map(|name| options.get(name)?.as_array()).flatten()
                    {
                        ensure!(
                            phrase.as_str().is_some_and(|phrase| phrase.chars().any(char::is_alphanumeric)),
                            "fields `answer` and `forbidden`: expected letters or digits, found {phrase}"
                        );
                    }
                }
                Ok((options, Some(first)))
            }
        }
    }

    fn reply_format(&self, scoring: &str) -> anyhow::Result<ReplyFormat> {
        let reply = self.one_of("reply", &["text", "line"])?;
        Ok(match (scoring, reply) {
            ("numeric", None) => ReplyFormat::Number,
            ("choice", None) => ReplyFormat::Choice(self.letters()?),
            ("numeric" | "choice", Some(_)) => {
                bail!("field `reply`: scoring `{scoring}` reads its own form of answer, leave the field out")
            }
            (_, Some("line")) => ReplyFormat::Line,
            _ => ReplyFormat::FreeText,
        })
    }

    fn letters(&self) -> anyhow::Result<Vec<String>> {
        let letters =
            self.texts("options")?.context("field `options` is missing: scoring `choice` needs its letters")?;
        ensure!(letters.len() > 1, "field `options`: expected at least two letters, found {}", letters.len());
        Ok(letters)
    }

    fn text(&self, name: &str) -> anyhow::Result<Option<&str>> {
        match self.0.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => bail!("field `{name}`: expected a text, found {}", describe(other)),
        }
    }

    fn texts(&self, name: &str) -> anyhow::Result<Option<Vec<String>>> {
        let wrong =
            |found: &Value| format!("field `{name}`: expected a text or a list of texts, found {}", describe(found));
        match self.0.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(vec![text.clone()])),
            Some(Value::Array(items)) => items
                .iter()
                .map(|item| item.as_str().map(String::from).with_context(|| wrong(item)))
                .collect::<anyhow::Result<Vec<String>>>()
                .map(Some),
            Some(other) => bail!("{}", wrong(other)),
        }
    }

    fn one_of(&self, name: &str, known: &[&'static str]) -> anyhow::Result<Option<&'static str>> {
        let Some(found) = self.text(name)? else { return Ok(None) };
        let position = known.iter().position(|known| *known == found);
        let position = position.with_context(|| {
            let names: Vec<String> = known.iter().map(|name| name.to_string()).collect();
            let hint = nearest(found, &names).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
            format!("field `{name}`: expected {}, found {found:?}{hint}", quoted(known))
        })?;
        Ok(Some(known[position]))
    }
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ")
}

/// A JSON value as an error shows it.
fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
        scalar => scalar.to_string(),
    }
}
