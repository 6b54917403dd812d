//! Dense retrieval over past attempts (PATH-Bench's RAG agent).
//!
//! Every observed task is kept, right or wrong; the `k` most similar by cosine are shown, most similar first. The
//! papers name neither `k` nor the rendering: k = 2 and question first, so that truncation by the embedder keeps the
//! question. Where the run reveals reference solutions, the remembered reply is that solution.

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use super::vector::{cosine, ranked};
use super::{Block, Content, Context, Handles, Memory, MemoryMethod, Placement, Recall, Resolved, options};
use crate::engine::embed::Purpose;
use crate::record::{Experience, Feedback, Role, TaskView};
use crate::registry::Registered;

pub struct Rag;

/// Options of `[[agents]]` with `memory = "rag"`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct Options {
    /// How many past attempts are shown.
    k: usize,
    /// What is embedded on the memory's side: the whole trajectory or the question alone.
    embed: Embedded,
    /// Whether a remembered reply ends with its outcome, as far as the run tells it. PATH-Bench's does not.
    outcome: bool,
    placement: Placement,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Embedded {
    Trajectory,
    Question,
}

impl Default for Options {
    fn default() -> Self {
        Options { k: 2, embed: Embedded::Trajectory, outcome: false, placement: Placement::BeforeQuestion }
    }
}

impl Registered for Rag {
    fn name(&self) -> &str {
        "rag"
    }
    fn about(&self) -> &str {
        "the k most similar past attempts by dense cosine similarity"
    }
    fn source(&self) -> &str {
        "PATH-Bench, BGE-M3 RAG agent (dense mode)"
    }
}

impl MemoryMethod for Rag {
    fn create(&self, table: &toml::Table) -> anyhow::Result<Box<dyn Memory>> {
        Ok(Box::new(Store { options: Options::read(table)?, state: State::default() }))
    }

    fn resolve(&self, table: &toml::Table) -> anyhow::Result<Resolved> {
        Ok(Resolved { needs_embedder: true, ..Resolved::of(&Options::read(table)?)? })
    }
}

impl Options {
    fn read(table: &toml::Table) -> anyhow::Result<Options> {
        let options: Options = options("rag", table)?;
        ensure!(options.k > 0, "memory `rag`: `k` must be at least 1, found 0");
        Ok(options)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct State {
    /// Embedding model of the vectors; set by the first experience.
    embedder: Option<String>,
    entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Entry {
    id: String,
    question: String,
    reply: String,
    vector: Vec<f32>,
}

struct Store {
    options: Options,
    state: State,
}

impl Memory for Store {
    fn recall(&self, task: &TaskView, handles: &Handles<'_>) -> anyhow::Result<Recall> {
        if self.state.entries.is_empty() {
            return Ok(Recall::default());
        }
        let query = self.embed(Purpose::Query, &task.question, handles)?;
        let mut ranked = ranked(self.state.entries.iter().map(|entry| cosine(&query, &entry.vector)));
        ranked.truncate(self.options.k);
        if self.options.placement == Placement::EarlierTurns {
            // As turns, the most similar stands next to the question.
            ranked.reverse();
        }
        let blocks = ranked
            .into_iter()
            .map(|(score, index)| {
                let Entry { id, question, reply, .. } = self.state.entries[index].clone();
                Block { id, content: Content::Pair { question, reply }, score }
            })
            .collect();
        Ok(Recall::of(Context { placement: self.options.placement, preamble: PREAMBLE.into(), blocks }))
    }

    fn learn(&mut self, experience: &Experience, handles: &Handles<'_>) -> anyhow::Result<()> {
        let reply = match &experience.feedback {
            Feedback::Revealed { solution, .. } => solution.clone(),
            _ => experience
                .turns
                .iter()
                .filter(|turn| turn.role == Role::Assistant)
                .map(|turn| turn.content.as_str())
                .collect::<Vec<_>>()
                .join("\n"),
        };
        let outcome = experience.feedback.is_correct().filter(|_| self.options.outcome);
        let reply = outcome.map_or(reply.clone(), |is_correct| {
            format!("{reply}\nOutcome: {}", if is_correct { "success" } else { "failure" })
        });
        let text = match self.options.embed {
            Embedded::Trajectory => format!("{}\n{reply}", experience.task.question),
            Embedded::Question => experience.task.question.clone(),
        };
        let vector = self.embed(Purpose::Document, &text, handles)?;
        self.state.embedder = handles.embedder.map(|embedder| embedder.id());
        self.state.entries.push(Entry {
            id: format!("{}@{}", experience.task.id, experience.position),
            question: experience.task.question.clone(),
            reply,
            vector,
        });
        Ok(())
    }

    fn save(&self) -> Vec<u8> {
        serde_json::to_vec(&self.state).expect("plain data always encodes")
    }

    fn load(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.state = serde_json::from_slice(bytes).context("saved state of memory `rag`")?;
        Ok(())
    }
}

impl Store {
    fn embed(&self, purpose: Purpose, text: &str, handles: &Handles<'_>) -> anyhow::Result<Vec<f32>> {
        let embedder = handles.embedder.context("memory `rag` needs an embedding model: set `embedder` in [models]")?;
        if let Some(expected) = &self.state.embedder {
            let found = embedder.id();
            ensure!(*expected == found, "memory `rag` holds vectors of {expected}, the run's embedder is {found}");
        }
        let mut vectors = match purpose {
            Purpose::Query => embedder.embed_queries(&[text.to_string()])?,
            Purpose::Document => embedder.embed(&[text.to_string()])?,
        };
        vectors.pop().context("the embedder returned no vector")
    }
}

const PREAMBLE: &str = include_str!("../../configs/prompts/rag_preamble.txt");
