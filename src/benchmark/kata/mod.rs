//! The bundled pool: small questions that a 135M model gets right about half the time, made from a seed.
//!
//! Every family is a [`topic`] asked in a [`form`]. Families of one form share a rule about the reply (a sentence, or
//! one word), families of one topic share their surface: `What is the capital of Japan?` and `What is the capital of
//! Italy? (word)` look alike to a retriever and want different replies. A small model half-follows the instruction
//! that tells the forms apart, and follows a demonstration instead when there is one. So a demonstration of the same
//! form helps whatever its topic, one of the other form misleads, most of all where the topic is the same, and the
//! transfer matrix has structure on both sides. Published pools were not taken: at this size a model scores zero on
//! them, and nothing transfers.

mod form;
mod topic;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use self::form::Form;
use self::topic::{TOPICS, Topic};
use super::{Benchmark, Pool, Selection};
use crate::record::{ReplyFormat, Task, TaskId, TaskView};
use crate::registry::Registered;
use crate::seed::Seed;

/// Raised whenever a default pool's text or grading changes: numbers from different versions are not comparable.
pub const KATA_VERSION: u32 = 1;

/// Names the rule that tells the forms apart, weakly enough for a small model to be led off it.
const SYSTEM: &str = "Answer every question with a short sentence, or with one word if the question ends in (word).";

pub struct Kata;

/// `[benchmark.options]` of the run file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Options {
    /// Which items of each topic are drawn.
    seed: u64,
    tasks_per_family: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { seed: 1, tasks_per_family: 4 }
    }
}

impl Registered for Kata {
    fn name(&self) -> &str {
        "kata"
    }
    fn about(&self) -> &str {
        "bundled: short questions in families that help or mislead each other, for very small models"
    }
    fn source(&self) -> &str {
        "own, generated from a seed"
    }
}

impl Benchmark for Kata {
    fn load(&self, selection: &Selection) -> anyhow::Result<Pool> {
        ensure!(selection.path.is_none(), "benchmark `kata` is bundled and reads no file: leave `path` out");
        let options: Options = Options::deserialize(selection.options.clone())
            .context("benchmark `kata`: [benchmark.options] may hold `seed` and `tasks_per_family`")?;
        ensure!(
            (1..=Topic::MOST_PER_FORM).contains(&options.tasks_per_family),
            "benchmark `kata`: `tasks_per_family`: expected 1 to {}, found {}",
            Topic::MOST_PER_FORM,
            options.tasks_per_family
        );
        let tasks = generate(&options);
        Ok(Pool { digest: digest(&tasks)?, tasks, ..Pool::default() })
    }
}

/// All tasks, form by form, topic by topic. A topic's items are dealt out without repeats, so that no demonstration
/// holds the answer to another task's question about the same thing.
fn generate(options: &Options) -> Vec<Task> {
    let mut tasks = Vec::new();
    for (form_index, form) in Form::ALL.into_iter().enumerate() {
        for (topic_index, topic) in TOPICS.iter().enumerate() {
            let mut items = topic.items.to_vec();
            Seed(options.seed).derive("kata/items", &[topic_index as u32]).stream().shuffle(&mut items);
            let dealt = items.iter().skip(form_index * options.tasks_per_family).take(options.tasks_per_family);
            let family = format!("{}-{}", topic.name, form.name());
            for (index, (subject, answer)) in dealt.enumerate() {
                tasks.push(Task {
                    view: TaskView {
                        id: TaskId(format!("kata/{family}/{index}")),
                        family: Some(family.clone()),
                        system: Some(SYSTEM.into()),
                        question: form.question(topic, subject),
                        reply_format: ReplyFormat::Line,
                    },
                    reference: form.reference(topic, subject, answer),
                });
            }
        }
    }
    tasks
}

/// BLAKE3 over the version and every task's text and grading.
fn digest(tasks: &[Task]) -> anyhow::Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(format!("kata {KATA_VERSION}\n").as_bytes());
    for task in tasks {
        serde_json::to_writer(&mut hasher, &(&task.view, &task.reference))?;
        hasher.update(b"\n");
    }
    Ok(hasher.finalize().to_hex().to_string())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn load(options: &str) -> anyhow::Result<Pool> {
        Kata.load(&Selection { path: None, options: options.parse().unwrap() })
    }

    /// Changed text or grading is a new version: raise [`KATA_VERSION`] with this digest.
    #[test]
    fn the_default_pool_is_pinned() {
        let pool = load("").unwrap();
        assert_eq!(
            (KATA_VERSION, pool.digest.as_str()),
            (1, "2b59118999035a360c85810edf963dd35034da32c3e9ec7321d52fea56d9c58f")
        );
        assert_eq!(load("").unwrap().tasks, pool.tasks);
    }

    #[test]
    fn families_ids_and_questions_are_distinct_and_enough() {
        let pool = load("").unwrap();
        let unique = |key: fn(&Task) -> String| pool.tasks.iter().map(key).collect::<BTreeSet<_>>().len();
        assert!(pool.tasks.len() >= 48, "{} tasks", pool.tasks.len());
        assert!(unique(|task| task.view.family.clone().unwrap()) >= 12);
        assert_eq!(unique(|task| task.id().0.clone()), pool.tasks.len());
        assert_eq!(unique(|task| task.view.question.clone()), pool.tasks.len());
    }

    #[test]
    fn no_subject_is_asked_in_both_forms() {
        for topic in TOPICS {
            let subjects: BTreeSet<&str> = topic.items.iter().map(|(subject, _)| *subject).collect();
            assert_eq!(subjects.len(), topic.items.len(), "{}", topic.name);
            assert_eq!(topic.items.len(), Form::ALL.len() * Topic::MOST_PER_FORM, "{}", topic.name);
        }
        let pool = load("tasks_per_family = 6").unwrap();
        let bare: BTreeSet<&str> =
            pool.tasks.iter().map(|task| task.view.question.trim_end_matches(" (word)")).collect();
        assert_eq!(bare.len(), pool.tasks.len());
    }

    #[test]
    fn another_seed_draws_other_items_under_another_digest() {
        let (one, two) = (load("").unwrap(), load("seed = 2").unwrap());
        assert_ne!(one.digest, two.digest);
        assert_ne!(one.tasks, two.tasks);
        assert_eq!(one.tasks.len(), two.tasks.len());
    }

    #[test]
    fn one_task_of_each_family() {
        let pool = load("").unwrap();
        let shown: String = pool
            .tasks
            .iter()
            .filter(|task| task.id().0.ends_with("/0"))
            .map(|task| {
                let reference = &task.reference;
                let (id, question) = (task.id(), &task.view.question);
                format!("{id}: {question} => {} [{} {}]\n", reference.solution, reference.scorer, reference.options)
            })
            .collect();
        insta::assert_snapshot!(shown);
    }

    #[test]
    fn options_that_do_not_fit_are_named() {
        for (options, part) in [
            ("seeds = 2", "unknown field `seeds`"),
            ("tasks_per_family = 7", "expected 1 to 6, found 7"),
            ("tasks_per_family = 0", "found 0"),
        ] {
            let message = format!("{:#}", load(options).err().unwrap());
            assert!(message.contains(part), "{message}");
        }
        let path = Selection { path: Some("tasks.jsonl".into()), ..Selection::default() };
        assert!(format!("{:#}", Kata.load(&path).err().unwrap()).contains("`path`"));
    }
}
